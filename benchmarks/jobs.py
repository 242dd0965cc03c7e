"""Whole jobs in short: protecting a folder, serving, and a study, on one worker and on two.

`python benchmarks/bench.py --only folder serve study` runs these. At length they are measured by folder.py
and serve.py. What starts processes is timed with their start, but for the first time.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import folder as folders
import torch
from timing import Line, Turns, in_turn

import serve
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.protect import parse
from sfumato.study import grid
from sfumato.study.grid import StudyConfig
from sfumato.study.parts import kinds
from sfumato.study.run import run

SPEC, FORMAT = "dp-pix:cell=8,epsilon=3", "PNG"
PHOTOGRAPHS, SIDE = 80, 1024
LEAST_OF_BARE = 0.85
LEAST_OF_HANDLER = 0.50
STUDY = {
    "data": {"source": "glyphs", "classes": 60},
    "task": {"target": "class", "way": 5, "shot": 5, "queries": 5, "episodes": 200},
    "protections": ["pixelize:cell=2,4", "gaussian:sigma=80", "dp-pix:cell=2,4,epsilon=3"],
    "learners": ["protected"],
    "attacks": [],
    "measures": ["ssim"],
    "training": {
        **{"way": 20, "shot": 5, "queries": 5, "epochs": 1, "episodes_per_epoch": 12},
        **{"validation_episodes": 20, "cell": 1, "denoiser_depth": None},
    },
    "pictures": 0,
}


@contextmanager
def _folder() -> Iterator[Path]:
    """A new one that is removed, in which a job has its own places."""
    name = tempfile.mkdtemp()
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name)


def folder(short: bool) -> Iterator[Line]:
    """Photographs of 1024x1024 by two workers, against decoding and encoding alone, and by one."""
    with _folder() as place:
        source = place / "source"
        folders.write_photographs(source, PHOTOGRAPHS, SIDE)

        def protected(workers: int) -> Callable[[], None]:
            def job() -> None:
                with _folder() as own:
                    protect_folder(
                        source,
                        own / "out",
                        parse(SPEC),
                        own / "ledger" / "ledger.db",
                        FolderConfig(format_name=FORMAT),
                        engine=EngineConfig(workers=workers),
                    )

            return job

        def bare() -> None:
            with _folder() as own:
                folders.bare(source, own / "out", FORMAT, 2)

        turns = in_turn(protected(2), bare, protected(1), seconds=12 if short else 120, waits=True)
    each = {"count": PHOTOGRAPHS, "unit": "images a second"}
    yield turns.rates(
        f"folder, {SPEC}, {FORMAT}", against="decoding and encoding", bound=LEAST_OF_BARE, **each
    )
    yield turns.rates("folder, 2 workers", against="1 worker", other=2, **each)


def study(short: bool) -> Iterator[Line]:
    """Cells an hour: small ones, of a second or two, so that what is done between them counts."""
    config, first = (
        grid.parse(STUDY | {"protections": STUDY["protections"][:count]}, "benchmark") for count in (None, 1)
    )

    def job(workers: int, config: StudyConfig = config) -> Callable[[], None]:
        def study() -> None:
            with _folder() as own:
                run(config, own, engine=EngineConfig(workers=workers))

        return study

    for workers in (2, 1):  # what is loaded once does not count
        job(workers, first)()
    # In short each counts once: it takes some ten seconds.
    turns = in_turn(job(2), job(1), seconds=2 if short else 300, waits=True)
    yield turns.rates(
        "study, 2 workers",
        against="1 worker",
        count=3600 * len(kinds.cells(config)),
        unit="cells an hour",
    )


@contextmanager
def _on(cores: list[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def serving(short: bool) -> Iterator[Line]:
    """The service saturated: a large model against its encoder alone, a tiny one against a bare handler.

    See serve.py: where there are two cores, the server has one and the generator the other.
    """
    torch.set_num_threads(1)
    seconds, rounds = (2.0, 3) if short else (10.0, 5)
    with _on(serve.GENERATOR), _folder() as place:
        path = serve.LARGE.save(place)
        begun = serve.begin(f"sqlite:///{place}/large.db", serve.LARGE, path)
        sent = serve.always(begun.classify(serve.LARGE.body(*range(8))))
        times = []
        with serve.service(begun.url, path) as (_, port):
            serve.load([port], sent, seconds=1, connections=8)
            for _ in range(rounds):
                alone = serve.encoder_alone(path, seconds)
                found = serve.load([port], sent, seconds=seconds, connections=8)
                times.append([1 / (8 * found.rate), 1 / alone])
        yield Turns(times).rates(
            "service of a large model",
            against="its encoder alone",
            count=1,
            unit="images a second",
            bound=LEAST_OF_BARE,
        )
        path = serve.TINY.save(place)
        begun = serve.begin(f"sqlite:///{place}/tiny.db", serve.TINY, path)
        body = serve.TINY.body(0)
        asked = serve.always(begun.classify(body)), serve.always(serve.request("/bare", "-", body))
        times = []
        with (
            serve.service(begun.url, path) as (_, ours),
            serve.process(serve.BARE, threads=len(serve.SERVER)) as (_, other),
        ):
            serve.load([ours], asked[0], seconds=1, connections=32)
            for _ in range(rounds):
                pairs = zip((ours, other), asked, strict=True)
                found = [serve.load([port], sent, seconds=seconds, connections=32) for port, sent in pairs]
                times.append([1 / outcome.rate for outcome in found])
        yield Turns(times).rates(
            "service of a tiny model",
            against="a bare handler",
            count=1,
            unit="requests a second",
            bound=LEAST_OF_HANDLER,
        )
