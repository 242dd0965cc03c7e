"""How time and memory of the main jobs grow: at 1, 4 and 16 times the work, with the exponent.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [--only NAME ...]

Time grows as work to the power of the exponent, the slope of a line through the three points, by least
squares on logarithms. What a job costs before it does anything makes it smaller: the slope from 4 to 16 is
beside it, and either is marked above 1.1. Each point has a process of its own, and is counted after the
least of jobs, of the processor where there is one thread and nothing to wait for.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import clock_for, exponent, short

STEEP = 1.1
FACTORS = (1, 4, 16)

Work = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """What grows.

    Attributes:
        make: amount of work and an empty folder -> the work, with what it needs ready.
        base: the amount at 1.
        of: what is counted.
        waits: see timing.clock_for.
    """

    make: Callable[[int, Path], Work]
    base: int
    of: str
    waits: bool = False


def protect_folder(files: int, folder: Path) -> Work:
    from devices import write_photographs

    from sfumato.base.engines import EngineConfig
    from sfumato.device.jobs.folder import protect_folder
    from sfumato.protect import parse

    write_photographs(folder / "source", files, 84)
    numbers = iter(range(100))

    def work() -> None:
        place = folder / str(next(numbers))
        protect_folder(
            folder / "source",
            place / "out",
            parse("dp-pix:cell=4,epsilon=3"),
            place / "ledger" / "ledger.db",
            engine=EngineConfig(workers=1),
        )

    return work


def train_few_shot(steps: int, folder: Path) -> Work:
    from sfumato import data
    from sfumato.learn import few_shot
    from sfumato.protect import parse

    glyphs = data.load("glyphs", classes=60)
    config = replace(
        few_shot.FS_PIC_CELEBA,
        **{"way": 10, "epochs": 1, "episodes_per_epoch": steps, "validation_episodes": 5},
        denoiser_depth=None,
    )
    return lambda: few_shot.train(glyphs, parse("pixelize:cell=2"), config)


def query(prototypes: int, folder: Path) -> Work:
    from serve import fill, opened
    from sfumato.serve.gallery import Galleries

    store, key = opened(folder)
    vectors = np.random.default_rng(0).normal(size=(prototypes, 64)).astype(np.float32)
    classifier, galleries = fill(store, key, vectors), Galleries(store)
    asked = vectors[:20]
    return lambda: galleries.answer("bench", classifier, asked, top=5, refusal=None)


def _charges(first: int, count: int) -> list[Any]:
    from sfumato.device.ledger import Charge
    from sfumato.protect import parse

    protection, shape = parse("dp-pix:cell=4,epsilon=0.01"), (3, 84, 84)
    return [
        Charge(
            image=number.to_bytes(32, "big"),
            spec=protection.spec,
            shape=shape,
            guarantee=lambda pixels: protection.guarantee(shape, pixels),
            release=b"x" * 64,
        )
        for number in range(first, first + count)
    ]


def ledger(releases: int, folder: Path) -> Work:
    """512 charges, and as many questions for what was released, of a ledger that has so many releases."""
    from sfumato.device.ledger import Ledger

    opened, numbers = Ledger(folder / "ledger.db"), iter(range(releases, 1 << 60, 512))
    opened.set_budget(None)
    for first in range(0, releases, 512):
        opened.charge(_charges(first, min(512, releases - first)))

    def work() -> None:
        charges = _charges(next(numbers), 512)
        opened.charge(charges)
        opened.find_releases(
            [(7919 * number % releases).to_bytes(32, "big") for number in range(512)], charges[0].spec
        )

    return work


JOBS = {
    "protect": Job(protect_folder, 100, "files of 84x84", waits=True),
    "few-shot": Job(train_few_shot, 8, "training episodes"),
    "query": Job(query, 2000, "prototypes, 20 queries a call"),
    "ledger": Job(ledger, 4_096, "releases, 512 charges and questions", waits=True),
}


def peak() -> float:
    """The most memory this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def point(name: str, factor: int) -> dict[str, float]:
    """Seconds and MiB of one amount of work, in a process that does nothing else."""
    job = JOBS[name]
    clock = clock_for(job.waits)
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as folder:
        job.make(max(2, job.base // 16), Path(before))()
        empty = peak()
        work = job.make(job.base * factor, Path(folder))
        taken: list[float] = []
        while len(taken) < 5 and sum(taken) < 1:
            start = clock()
            work()
            taken.append(clock() - start)
    return {"seconds": min(taken), "memory": peak() - empty}


def grown(name: str) -> str:
    """The points of a job, and how they grow, as a line."""
    points = []
    for factor in FACTORS:
        command = [sys.executable, __file__, "--point", name, str(factor)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        points.append(json.loads(done.stdout.splitlines()[-1]))
    job, seconds = JOBS[name], [each["seconds"] for each in points]
    held = " ".join(f"{each['memory']:6,.0f}" for each in points)
    slopes = exponent(FACTORS, seconds), exponent(FACTORS[1:], seconds[1:])
    return (
        f"{name:10s} {' '.join(f'{job.base * factor:7,}' for factor in FACTORS)} {job.of:38s}"
        f"{' '.join(f'{short(each):>7s}' for each in seconds)} s  {slopes[0]:5.2f} {slopes[1]:5.2f}  "
        f"{held} MiB{'  STEEP' * (max(slopes) > STEEP)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(options.point[0], int(options.point[1]))))
        return
    print(f"{torch.get_num_threads()} threads; work, seconds, exponents of all and from 4 to 16, memory")
    for name in options.only:
        print(grown(name), flush=True)


if __name__ == "__main__":
    main()
