"""The service and its store under load, against the bare limit of each.

The service is a real process, asked over loopback by a generator that opens no more connections than it says.
Where there are two cores or more, the server has the first half of them and the generator the others; what a
server is compared with runs on the server's cores alone, with as many threads. The exact search is the
service's own, of a gallery in memory, with its answer of 5 classes and the look at whether something was
enrolled since, against a product with vectors that are at hand.
"""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from sqlalchemy import insert
from timing import Line, Turns, in_turn

from sfumato import wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import parse
from sfumato.serve import models
from sfumato.serve.gallery import Galleries
from sfumato.serve.store import Example, Key, Store
from sfumato.serve.store.schema import classes
from sfumato.wire import labelled

SPEC = "pixelize:cell=4"
CORES = sorted(os.sched_getaffinity(0))
SERVER = CORES[: max(1, len(CORES) // 2)]
GENERATOR = CORES[len(CORES) // 2 :]
PINNED = os.environ | {"OMP_NUM_THREADS": str(len(SERVER))}
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
class Model:
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


# A quarter of a second an image on a slow core, and a millisecond.
LARGE = Model("large", 84, FewShotConfig(cell=1, precision="float32"))
TINY = Model("tiny", 16, FewShotConfig(denoiser_depth=None, precision="float32"))


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    await reader.readexactly(length)
    return int(head[9:12])


async def _answered(port: int, sent: bytes, seconds: float, connections: int) -> float:
    # All are open before the clock starts: where other work has the cores, this alone takes a short turn.
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]
    start, statuses = time.perf_counter(), Counter[int]()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while time.perf_counter() - start < seconds:
            statuses[await _asked(reader, writer, sent)] += 1
        writer.close()

    await asyncio.gather(*(ask(*streams) for streams in opened))
    if set(statuses) != {200}:
        raise SystemExit(f"answers other than 200, or none, in {seconds:g} s: {dict(statuses)}")
    return statuses[200] / (time.perf_counter() - start)


def answered(port: int, sent: bytes, *, seconds: float, connections: int) -> float:
    """Answers a second to the same request, each connection at once with the next."""
    return asyncio.run(_answered(port, sent, seconds, connections))


def request(path: str, key: str, body: bytes, kind: str = wire.MEDIA_TYPE) -> bytes:
    """All bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\nx-api-key: {key}\r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def process(code: str, *arguments: str | Path) -> Iterator[int]:
    """A process on the server's cores that serves, and its port."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=PINNED,
        preexec_fn=lambda: os.sched_setaffinity(0, SERVER),
    )
    try:
        assert started.stdout is not None
        line = next((line for line in started.stdout if line.startswith("serving: ")), None)
        if line is None:
            raise SystemExit(f"a server ended with {started.wait()}: try it by hand")
        yield int(line.rpartition(":")[2].strip("/\n"))
    finally:
        started.terminate()
        started.wait()


def service(url: str, path: Path) -> AbstractContextManager[int]:
    return process(COMMAND, path, "--store", url, "--port", "0", "--no-log")


def encoder_alone(path: Path, seconds: float) -> float:
    """Images a second of the encoder on the server's cores, in batches as large as the server's."""
    code = "import sys, serve; print(serve.forward(sys.argv[1], float(sys.argv[2])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(seconds)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        env=PINNED,
        preexec_fn=lambda: os.sched_setaffinity(0, SERVER),
    )
    return float(done.stdout.split()[-1])


def forward(path: str, seconds: float) -> float:
    served = models.load(path)
    side = served.shape[1]
    decoded = wire.decode(Model("", side, TINY.config).body(*range(32)), most_images=32, most_pixels=10**9)
    inputs = served.prepare(decoded)
    served.run(inputs)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        served.run(inputs)
        count += len(inputs)
    return count / (time.perf_counter() - start)


def begin(url: str, model: Model, path: Path, *numbers: int) -> bytes:
    """A store with a key, and a classifier of a few classes: a question of so many images to it."""
    with Store(url) as store:
        if "bench" not in store.tenants():
            store.create_tenant("bench")
        key, secret = store.create_key("bench", role="admin", name="load")
        name = f"classifier {time.time_ns()}"
        classifier = store.create_classifier("bench", name=name, model=path.stem, by=key).id
    with service(url, path) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for label in range(5):
            client.post(
                f"/v1/classifiers/{classifier}/examples",
                content=labelled.join([(str(label), "1")], model.body(label)),
                headers={"x-api-key": secret, "content-type": labelled.MEDIA_TYPE},
            ).raise_for_status()
    return request(f"/v1/classifiers/{classifier}/classify", secret, model.body(*numbers))


def service_lines() -> Iterator[Line]:
    """Saturated: a large model against its encoder, a tiny one against a bare handler."""
    torch.set_num_threads(1)
    seconds, rounds, before = 2.0, 3, os.sched_getaffinity(0)
    os.sched_setaffinity(0, GENERATOR)
    try:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            path = LARGE.save(folder)
            url = f"sqlite:///{folder}/large.db"
            sent = begin(url, LARGE, path, *range(8))
            with service(url, path) as port:
                answered(port, sent, seconds=1, connections=8)
                times = []
                for _ in range(rounds):
                    alone = encoder_alone(path, seconds)
                    rate = answered(port, sent, seconds=seconds, connections=8)
                    times.append([1 / (8 * rate), 1 / alone])
            yield Turns(times).rates(
                "service of a large model",
                against="its encoder alone",
                count=1,
                unit="images a second",
                bound=0.85,
            )
            path = TINY.save(folder)
            url = f"sqlite:///{folder}/tiny.db"
            asked = begin(url, TINY, path, 0), request("/bare", "-", TINY.body(0))
            with (
                service(url, path) as ours,
                process(BARE) as other,
            ):
                answered(ours, asked[0], seconds=1, connections=32)
                times = []
                for _ in range(rounds):
                    pairs = zip((ours, other), asked, strict=True)
                    times.append([1 / answered(*pair, seconds=seconds, connections=32) for pair in pairs])
                yield Turns(times).rates(
                    "service of a tiny model",
                    against="a bare handler",
                    count=1,
                    unit="requests a second",
                    bound=0.5,
                )
    finally:
        os.sched_setaffinity(0, before)


# The store

DIMENSION, ENROLMENTS, QUERIES = 64, 20, 50


def fill(store: Store, key: Key, vectors: np.ndarray) -> str:
    """A classifier with a class a prototype, without their examples."""
    classifier = store.create_classifier("bench", name="large", model="none", by=key).id
    store.enrol("bench", classifier, "first", [Example("0", vectors[0])], by=key)
    for start in range(1, len(vectors), 5000):
        rows = [
            {
                **{"tenant": "bench", "classifier": classifier, "label": str(number), "created": 0.0},
                **{"examples": 1, "sum": vectors[number].astype("<f8").tobytes(), "weight": 1.0},
                **{"vector": vectors[number]},
            }
            for number in range(start, min(start + 5000, len(vectors)))
        ]
        with store._writing() as connection:
            connection.execute(insert(classes), rows)
    return classifier


def opened(folder: Path) -> tuple[Store, Key]:
    """An empty store in SQLite, and a key of it."""
    store = Store(f"sqlite:///{folder}/store.db")
    store.create_tenant("bench")
    return store, store.create_key("bench", role="admin", name="benchmark")[0]


def store_lines(prototypes: int = 10_000) -> Iterator[Line]:
    """Enrolments against one INSERT a commit, and the exact search among many prototypes."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(prototypes, DIMENSION)).astype(np.float32)
    queries = vectors[draw.integers(prototypes, size=QUERIES)] + draw.normal(size=(QUERIES, DIMENSION)) / 2
    queries, squares, numbers = queries.astype(np.float32), np.square(vectors).sum(1), itertools.count()
    with tempfile.TemporaryDirectory() as place:
        store, key = opened(Path(place))
        bare = sqlite3.connect(Path(place) / "bare.db", isolation_level=None)
        bare.execute("pragma journal_mode = wal")
        bare.execute("create table vectors (vector blob)")
        small = store.create_classifier("bench", name="small", model="none", by=key).id

        def enrol() -> None:
            for vector in vectors[:ENROLMENTS]:
                number = next(numbers)
                store.enrol("bench", small, f"class {number % 20}", [Example(str(number), vector)], by=key)

        def insert_each() -> None:
            for vector in vectors[:ENROLMENTS]:
                bare.execute("insert into vectors values (?)", (vector.tobytes(),))

        turns = in_turn(enrol, insert_each, seconds=2, waits=True)
        yield turns.rates("enrolments", against="a bare INSERT each", count=ENROLMENTS, unit="a second")
        large, galleries = fill(store, key, vectors), Galleries(store)

        def search(part: np.ndarray) -> object:
            return galleries.answer("bench", large, part, top=5, refusal=None)

        def product() -> None:
            for query in queries:
                np.argmin(squares - 2 * (vectors @ query))

        for name, ours in (
            (f"{QUERIES} in a call", lambda: search(queries)),
            ("one a call", lambda: [search(query[None]) for query in queries]),
        ):
            yield in_turn(ours, product, seconds=2).rates(
                f"exact search in {prototypes:,}, {name}",
                against="a product for each",
                count=QUERIES,
                unit="queries a second",
                bound=0.5,
            )
        bare.close()
        store.close()
