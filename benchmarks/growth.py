"""How time and memory of the main jobs grow: at 1, 4 and 16 times the work, with the exponent.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [--only NAME ...] [--out FILE]
    OMP_NUM_THREADS=1 python benchmarks/growth.py --large index|ledger|witness AMOUNT

Time grows as work to the power of the exponent: 1 is linear, 2 four times the time for twice the work. It is
the slope of a line through the three points, by least squares on logarithms; what a job costs before it does
anything makes it smaller, so that the slope from 4 to 16 is told beside it. Above 1.1 either is marked. Each
point has a process of its own: after the least of jobs, which loads what is loaded once, seconds are those of
the processor where there is one thread and nothing to wait for, the best of a few where they are short.
Memory is the most that the process held, less what it held after the least of jobs; the input of a job is
part of it.

What takes long is asked for by `--large`, one amount at a time: `index` holds HNSW against the exact search
among so many prototypes of 64 numbers in PostgreSQL; `ledger` fills a ledger with so many releases, opens it
and reads all of it; `witness` charges so many batches of each size in turn with what makes an older copy of a
ledger noticed, the chain and its witness, and without both. A folder of a million files is the last point of
`listing`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from timing import clock_for, exponent, record, short, write

STEEP = 1.1
FACTORS = (1, 4, 16)
LEAST_MEMORY = 16  # MiB at 16 times the work; below this no exponent is told
RUNS = Path("runs/growth.json")

Work = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """What grows.

    Attributes:
        make: amount of work and an empty folder -> the work, with what it needs ready.
        base: the amount at 1.
        of: what is counted.
        waits: see timing.clock_for.
        least: the least amount that works.
    """

    make: Callable[[int, Path], Work]
    base: int
    of: str
    waits: bool = False
    least: int = 2


def _glyphs(classes: int = 60) -> Any:
    from sfumato import data

    return data.load("glyphs", classes=classes)


def protect_folder(files: int, folder: Path) -> Work:
    from folder import write_photographs

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
    from sfumato.learn import few_shot
    from sfumato.protect import parse

    glyphs = _glyphs()
    config = replace(
        few_shot.FS_PIC_CELEBA,
        **{"way": 10, "epochs": 1, "episodes_per_epoch": steps, "validation_episodes": 5},
        denoiser_depth=None,
    )
    return lambda: few_shot.train(glyphs, parse("pixelize:cell=2"), config)


def evaluate(episodes: int, folder: Path) -> Work:
    from sfumato.learn import few_shot
    from sfumato.protect import parse

    glyphs, protection = _glyphs(200), parse("pixelize:cell=2")
    model = few_shot.make_untrained(1, replace(few_shot.FS_PIC_CELEBA, denoiser_depth=None), protection)
    return lambda: few_shot.evaluate(model, glyphs, way=5, shot=5, episodes=episodes)


def train_meta(steps: int, folder: Path) -> Work:
    from sfumato.learn import meta
    from sfumato.protect import parse

    glyphs = _glyphs()
    config = meta.MetaConfig(network="strided", width=16, steps=steps)
    return lambda: meta.train(glyphs, parse("pixelize:cell=2"), config)


def train_mask(steps: int, folder: Path) -> Work:
    from sfumato.data.labelled import Label, LabelledImages
    from sfumato.learn import adversarial_mask

    config = adversarial_mask.MaskConfig(epochs=1, masker_width=8, batch=16)
    images = torch.randint(0, 256, (steps * config.batch, 3, 32, 32), dtype=torch.uint8)
    labels = Label(torch.arange(len(images)) % 5, tuple("abcde"))
    return lambda: adversarial_mask.train(
        LabelledImages("noise", images, {"class": labels}), config, target="class"
    )


def _inversion(steps: int, batch: int) -> Work:
    from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert
    from sfumato.attack.victim import ThreatModel, share
    from sfumato.networks import LeNet

    shape, labels = (3, 32, 32), torch.arange(batch) % 10
    model = LeNet(shape, 10)
    shared = share(model, torch.rand(batch, *shape), labels)
    config = replace(INVERTING_GRADIENTS, labels="known", steps=steps)
    return lambda: invert(model, shared, ThreatModel(shape=shape, batch=batch, labels=labels), config)


def log_rank(tests: int, identities: int) -> Work:
    from sfumato.assess.log_rank import judge_features

    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(identities, 10, generator=generator)
    codes = torch.arange(identities).repeat_interleave(20)
    train = centres[codes] + torch.randn(len(codes), 10, generator=generator)
    truth = torch.randint(0, identities, (tests,), generator=generator)
    test = centres[truth] + torch.randn(tests, 10, generator=generator)
    return lambda: judge_features(train, codes, test, truth)


def frechet(images: int, features: int) -> Work:
    from sfumato.assess.frechet import frechet_distance

    first, second = torch.randn(images, features), torch.randn(images, features)
    return lambda: frechet_distance(first, second)


def reidentify(people: int, photographs: int) -> Work:
    from sfumato.attack.reidentify import reidentify

    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(people, 64, generator=generator)
    codes = torch.arange(people).repeat_interleave(photographs)
    asked = torch.arange(200) % people

    def seen(whose: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(len(whose), 64, generator=generator)
        return torch.nn.functional.normalize(centres[whose] + noise, dim=1)

    gallery, probes = seen(codes), seen(asked)
    return lambda: reidentify(gallery, codes, probes)


def _store(folder: Path) -> tuple[Any, Any]:
    from sfumato.serve.store import Store

    opened = Store(f"sqlite:///{folder}/store.db")
    opened.create_tenant("bench")
    return opened, opened.create_key("bench", role="admin", name="benchmark")[0]


def enrol(examples: int, folder: Path) -> Work:
    from sfumato.serve.store import Example

    opened, key = _store(folder)
    vectors = np.random.default_rng(0).normal(size=(examples, 64)).astype(np.float32)

    def work() -> None:
        classifier = opened.create_classifier("bench", name=str(time.time_ns()), model="none", by=key).id
        for number, vector in enumerate(vectors):
            opened.enrol("bench", classifier, str(number % 20), [Example(str(number), vector)], by=key)

    return work


def query(prototypes: int, folder: Path) -> Work:
    from store import fill

    from sfumato.serve.gallery import Galleries

    opened, key = _store(folder)
    vectors = np.random.default_rng(0).normal(size=(prototypes, 64)).astype(np.float32)
    classifier, galleries = fill(opened, key, vectors), Galleries(opened)
    asked = vectors[:20]
    return lambda: galleries.answer("bench", classifier, asked, top=5, refusal=None)


class _Known:
    """A store whose one classifier does not change: what a question costs beside its look at the version."""

    def __init__(self, vectors: Any) -> None:
        from sfumato.serve.store import Prototypes

        count = len(vectors)
        labels = tuple(f"class {number}" for number in range(count))
        self._all = Prototypes(1, labels, vectors, (1,) * count, np.ones(count))

    def count(self, tenant: str, classifier: str) -> tuple[int, int]:
        return self._all.vectors.shape

    def version(self, tenant: str, classifier: str) -> int:
        return 1

    def prototypes(self, tenant: str, classifier: str) -> Any:
        return self._all


def gallery(prototypes: int, folder: Path) -> Work:
    """One question a call, as a service of few clients gets them."""
    from sfumato.serve.gallery import Galleries

    vectors = np.random.default_rng(0).standard_normal((prototypes, 64), np.float32)
    galleries, asked = Galleries(_Known(vectors)), vectors[:1]  # type: ignore[arg-type]
    galleries.answer("bench", "c", asked, top=5, refusal=None)
    return lambda: galleries.answer("bench", "c", asked, top=5, refusal=None)


def questions(queries: int, folder: Path) -> Work:
    """Questions of one call, among 2,000 prototypes."""
    from sfumato.serve.gallery import Galleries

    draw = np.random.default_rng(0)
    vectors, asked = (draw.standard_normal((count, 64), np.float32) for count in (2000, queries))
    galleries = Galleries(_Known(vectors))  # type: ignore[arg-type]
    return lambda: galleries.answer("bench", "c", asked, top=5, refusal=None)


def table(codes: int, folder: Path) -> Work:
    """Codes of 16 bits, looked up in a table of answers."""
    from sfumato.wire.tables import AnswerTable, Header

    draw, zero = np.random.default_rng(0), "0" * 64
    names = {"classifier": "c", "name": "c", "model": "m", "labels": ("a", "b"), "signer": zero}
    header = Header(**names, version=1, made_of=zero, bits=16, refuses=False)  # type: ignore[arg-type]
    answers = AnswerTable(header, draw.integers(0, 2, 1 << 16).astype(np.uint16), b"")
    bits = draw.integers(0, 2, (codes, 16)).astype(bool)
    return lambda: answers.look_up(bits)


def vectors(rows: int, folder: Path) -> Work:
    """An audit of vectors of 64 numbers, 20 of each person, with an attribute; by default 10,000 are read."""
    from sfumato.audits.vectors import audit_vectors, read

    draw, people = np.random.default_rng(0), np.arange(rows) // 20
    centres = draw.standard_normal((people[-1] + 1, 64), np.float32)
    shown, file = centres[people] + draw.standard_normal((rows, 64), np.float32), folder / "vectors.npz"
    np.savez(file, vectors=shown, people=people, mood=(shown[:, 0] > 0).astype(int))

    def work() -> None:
        audit_vectors(read(file, vectors="vectors", people="people", labels=["mood"]), subject="vectors")

    return work


def row(people: int, folder: Path) -> Work:
    """A row of the board and its control, with 10 pictures of a person and 20 further ones of test people.

    The board itself has 160 people, and 20 and 130 pictures.
    """
    from sfumato.study import board, grid, run

    numbers = {"identities": people, "headwear": people // 2, "images_per_identity": 10, "further": 20}
    config = grid.load("board", [f"data.{name}={number}" for name, number in numbers.items()])
    return lambda: run.run(board.compare(config, ["dp-pix:cell=8,epsilon=3"]), folder / "run")


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


class _Simulated:
    """A folder of so many files that are not there, listed as sfumato.device.storage lists one."""

    def __init__(self, files: int) -> None:
        self._files = files

    def entries(self, folder: str) -> Any:
        bases = sorted(
            (f"{7919 * n % self._files:08d}", f"{7919 * n % self._files:08d}.jpg") for n in range(self._files)
        )
        return ((base, self._look) for _, base in bases)

    def _look(self) -> Any:
        from sfumato.device.storage import Entry

        return Entry("file", 3000, "1")


def listing(files: int, folder: Path) -> Work:
    """The files of a folder, in tasks for workers."""
    from sfumato.device.jobs.folder import Outcome, chunks, walk
    from sfumato.device.jobs.worker import Item

    def work() -> None:
        found = walk(_Simulated(files), Outcome())  # type: ignore[arg-type]
        items = (Item(name, stamp, size, name) for name, stamp, size in found)
        assert sum(len(chunk) for chunk in chunks(items)) == files

    return work


def study(seeds: int, folder: Path) -> Work:
    """Planning and resuming a study whose records are all there: five cells a seed."""
    from jobs import STUDY

    from sfumato.study import grid, run
    from sfumato.study.lab.lab import Lab
    from sfumato.study.lab.progress import Progress
    from sfumato.study.parts import kinds

    config = grid.parse(STUDY | {"seeds": list(range(seeds))}, "benchmark")
    loaded = run.prepare(config).data[0]
    lab = Lab(config, loaded, folder, Progress())
    (folder / "records").mkdir()
    for cell in kinds.cells(config):
        (folder / "records" / f"{kinds.digest(lab, cell)}.json").touch()
    return lambda: run.run(config, folder)


def report(seeds: int, folder: Path) -> Work:
    """Made-up records, as the tests of the report have them."""
    from sfumato.study import report

    sys.path.append(str(Path(__file__).parents[1] / "tests" / "study"))
    import synthetic

    study = synthetic.study(seeds=list(range(seeds)), protections=synthetic.PROTECTIONS[:4])
    made = synthetic.records(study)
    synthetic.write_run(folder / "run", study, made)
    return lambda: report.write(folder / "run")


JOBS = {
    "protect": Job(protect_folder, 100, "files of 84x84", waits=True),
    "few-shot": Job(train_few_shot, 8, "training episodes"),
    "evaluate": Job(evaluate, 250, "test episodes"),
    "meta": Job(train_meta, 6, "meta-steps of 16 tasks"),
    "mask": Job(train_mask, 4, "steps of 16 images"),
    "inversion": Job(lambda n, _: _inversion(n, 1), 50, "steps for one image"),
    "inversion-batch": Job(lambda n, _: _inversion(20, n), 4, "images of one gradient"),
    "log-rank": Job(lambda n, _: log_rank(n, 250), 1000, "test features"),
    "log-rank-identities": Job(lambda n, _: log_rank(1000, n), 200, "identities, 20 features each"),
    "frechet": Job(lambda n, _: frechet(n, 128), 2048, "images, more than features"),
    "frechet-few": Job(lambda n, _: frechet(n, 1024), 64, "images, fewer than features"),
    "reidentify": Job(lambda n, _: reidentify(20, n), 20, "photographs of each of 20 people"),
    "reidentify-people": Job(lambda n, _: reidentify(n, 10), 20, "people, 10 photographs each"),
    "enrol": Job(enrol, 50, "examples, a call each", waits=True),
    "query": Job(query, 2000, "prototypes, 20 queries a call"),
    "gallery": Job(gallery, 62_500, "prototypes, one query a call"),
    "questions": Job(questions, 32, "questions of one call, 2,000 prototypes"),
    "table": Job(table, 65_536, "codes of 16 bits, looked up"),
    "vectors": Job(vectors, 625, "vectors, audited", least=160),
    "row": Job(row, 40, "people of the board, a row", least=20),
    "ledger": Job(ledger, 4_096, "releases, 512 charges and questions", waits=True),
    "listing": Job(listing, 62_500, "files of one folder"),
    "study": Job(study, 15, "seeds of 5 cells, planned and resumed"),
    "report": Job(report, 2, "seeds of 38 records"),
}


# What takes long, on the wall


def large_index(prototypes: int) -> Iterator[str]:
    """Recall at 10 and time of HNSW, as the service has it, against its exact search in memory."""
    from store import databases, drawn, fill

    from sfumato.serve.gallery import Galleries
    from sfumato.serve.store import store as of_store

    vectors, queries = drawn(prototypes, centres=1000)
    of_store.MANY = min(of_store.MANY, prototypes)
    with databases(postgresql=True) as (_, database):
        store = database.store
        store.create_tenant("bench")
        key, _ = store.create_key("bench", role="admin", name="benchmark")
        start = time.perf_counter()
        classifier = fill(store, key, vectors)
        yield f"{prototypes:,} prototypes written in {time.perf_counter() - start:.0f} s"
        start = time.perf_counter()
        store.index("bench", classifier)
        yield f"HNSW built in {time.perf_counter() - start:.0f} s"
        store.nearest("bench", classifier, queries, count=10)
        start = time.perf_counter()
        found = store.nearest("bench", classifier, queries, count=10)
        by_index = (time.perf_counter() - start) / len(queries)
        galleries = Galleries(store)
        start = time.perf_counter()
        galleries.answer("bench", classifier, queries[:1], top=10, refusal=None)
        read = time.perf_counter() - start
        start = time.perf_counter()
        for query in queries:
            exact = galleries.answer("bench", classifier, query[None], top=10, refusal=None)
        in_memory = (time.perf_counter() - start) / len(queries)
        exact = galleries.answer("bench", classifier, queries, top=10, refusal=None)
        pairs = zip(found, exact, strict=True)
        recalls = [len({*near.labels} & {g.label for g in one.guesses}) / 10 for near, one in pairs]
        yield (
            f"one query a call: HNSW {1e3 * by_index:.1f} ms, exact in memory {1e3 * in_memory:.1f} ms after "
            f"{read:.0f} s of reading; recall at 10 {np.mean(recalls):.3f}; {peak():,.0f} MiB held at most"
        )


def large_ledger(releases: int) -> Iterator[str]:
    """Charges of 512 releases, each on the disk before the next, and questions for what was released."""
    from sfumato.device.ledger import Ledger

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        opened = Ledger(folder / "ledger.db")
        opened.set_budget(None)
        for tenth in range(10):
            first, last = releases * tenth // 10, releases * (tenth + 1) // 10
            start = time.perf_counter()
            for number in range(first, last, 512):
                charges = _charges(number, min(512, last - number))
                opened.charge(charges)
            rate = (last - first) / (time.perf_counter() - start)
            images = [(7919 * number % last).to_bytes(32, "big") for number in range(512)]
            start = time.perf_counter()
            opened.find_releases(images, charges[0].spec)
            asked = (time.perf_counter() - start) / len(images)
            size = sum(file.stat().st_size for file in folder.glob("ledger.db*"))
            yield (
                f"{last:,} releases: {rate:,.0f} a second of the last tenth, {1e6 * asked:.0f} us a "
                f"question, {size / 1e6:,.0f} MB on the disk ({size / last:.0f} bytes a release), "
                f"{peak():,.0f} MiB held at most"
            )
        opened.close()
        start = time.perf_counter()
        opened = Ledger(folder / "ledger.db")
        ready = time.perf_counter() - start
        start, own = time.perf_counter(), time.process_time()
        opened.check()
        yield (
            f"opened in {1e3 * ready:.1f} ms; all of it read in {time.perf_counter() - start:.0f} s, "
            f"{time.process_time() - own:.0f} s of the processor"
        )


def large_witness(turns: int) -> Iterator[str]:
    """Releases a second by charges of several sizes, each on the disk, with the chain and its witness."""
    from sfumato.device.ledger import Ledger, witness

    def nothing(*_: object) -> bytes:
        return b""

    for size in (1, 32, 512):
        with tempfile.TemporaryDirectory() as place:
            ledgers = [Ledger(Path(place) / name / "ledger.db") for name in ("with", "without")]
            for opened in ledgers:
                opened.set_budget(None)
            seconds = [0.0, 0.0]
            for turn in range(turns):
                charges = _charges(turn * size, size)
                for which in (0, 1) if turn % 2 else (1, 0):
                    with ExitStack() as patched:
                        if which:
                            patched.enter_context(mock.patch.object(witness, "link", nothing))
                            patched.enter_context(mock.patch.object(Ledger, "_testify", nothing))
                        start = time.perf_counter()
                        ledgers[which].charge(charges)
                        seconds[which] += time.perf_counter() - start
            rates = [turns * size / each for each in seconds]
            yield (
                f"charges of {size}: {rates[1]:,.0f} releases a second without, {rates[0]:,.0f} with it: "
                f"{rates[0] / rates[1]:.2f} ({turns} charges each)"
            )


LARGE = {"index": large_index, "ledger": large_ledger, "witness": large_witness}


def peak() -> float:
    """The most memory this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def point(name: str, factor: int) -> dict[str, float]:
    """Seconds and MiB of one amount of work, in a process that does nothing else."""
    job = JOBS[name]
    clock = clock_for(job.waits)
    with tempfile.TemporaryDirectory() as before, tempfile.TemporaryDirectory() as folder:
        job.make(max(job.least, job.base // 16), Path(before))()
        empty = peak()
        work = job.make(job.base * factor, Path(folder))
        taken: list[float] = []
        while len(taken) < 5 and sum(taken) < 1:
            start = clock()
            work()
            taken.append(clock() - start)
    return {"seconds": min(taken), "memory": peak() - empty}


def grown(name: str) -> dict[str, Any]:
    """The points of a job, and how they grow."""
    points = []
    for factor in FACTORS:
        command = [sys.executable, __file__, "--point", name, str(factor)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        points.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, memory = ([each[kind] for each in points] for kind in ("seconds", "memory"))
    slopes = {"time": exponent(FACTORS, seconds), "time from 4 to 16": exponent(FACTORS[1:], seconds[1:])}
    if memory[-1] >= LEAST_MEMORY:
        # A point that fits into what the process held anyway is no less than a MiB.
        slopes["memory from 4 to 16"] = exponent(FACTORS[1:], [max(1.0, each) for each in memory[1:]])
    job = JOBS[name]
    return {
        **{"name": name, "of": job.of, "work": [job.base * factor for factor in FACTORS]},
        **{"seconds": seconds, "memory": memory, "exponents": slopes},
        "steep": [kind for kind, slope in slopes.items() if slope > STEEP],
    }


def told(one: dict[str, Any]) -> str:
    slopes = one["exponents"]
    memory = slopes.get("memory from 4 to 16")
    return (
        f"{one['name']:20s} {' '.join(f'{each:7,}' for each in one['work'])} {one['of']:34s}"
        f"{' '.join(f'{short(each):>7s}' for each in one['seconds'])} s  {slopes['time']:5.2f} "
        f"{slopes['time from 4 to 16']:5.2f}  {' '.join(f'{each:6,.0f}' for each in one['memory'])} MiB "
        f"{'    -' if memory is None else f'{memory:5.2f}'}  {'STEEP: ' * bool(one['steep'])}"
        f"{', '.join(one['steep'])}"
    ).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=RUNS, help="JSON")
    parser.add_argument("--large", nargs=2, metavar=("NAME", "AMOUNT"), help=f"{' or '.join(LARGE)}")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        name, amount = options.large
        print(f"load average {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads", flush=True)
        for line in LARGE[name](int(amount)):
            print(line, flush=True)
        return
    if options.point:
        print(json.dumps(point(options.point[0], int(options.point[1]))))
        return
    began = time.perf_counter()
    print(f"{torch.get_num_threads()} threads")
    print("work, seconds, exponents of all and from 4 to 16, memory, exponent from 4 to 16")
    found = []
    for name in options.only:
        found.append(grown(name))
        print(told(found[-1]), flush=True)
    seconds = time.perf_counter() - began
    write(options.out, record({"jobs": found}, seconds=seconds))
    steep = [one["name"] for one in found if one["steep"]]
    print(
        f"{seconds / 60:.1f} minutes, kept as {options.out}; above {STEEP}: {', '.join(steep) or 'nothing'}"
    )


if __name__ == "__main__":
    main()
