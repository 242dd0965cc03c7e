"""`sfumato protect` against decoding and encoding alone, and its memory on a folder of very many files.

    python benchmarks/folder.py                # 1,000 JPEGs of 1024x1024, then 100,000 files of 84x84
    python benchmarks/folder.py --large 200 --small 10000
    OMP_NUM_THREADS=1 python benchmarks/folder.py --large 24 --small 0 --workers 1  # processor time

The bare limit reads, decodes, encodes and writes with the same library, settings and workers, and nothing
else: no protection, no digest, no ledger, no manifest. It encodes the originals, or, as a stricter limit,
what was released of one of them, often quicker to encode. The bound adds what no other code may leave out:
as many random bytes of the operating system as the noise takes, and Pillow's own blur, which ours is to the
byte. All are timed in turn, in the same run.
"""

import argparse
import io
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image, ImageFilter

from sfumato import images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.protect import parse
from sfumato.protect.pixels import Blur

LEAST, LEAST_OF_SMALL, MOST = 0.85, 0.90, 1.15
CASES = [
    ("pixelize:cell=8", "PNG"),
    ("dp-pix:cell=8,epsilon=3", "PNG"),
    ("dp-pix:cell=4,epsilon=3", "PNG"),
    ("dp-pix-gaussian:cell=8,rho=0.5", "PNG"),
    ("blur:radius=3", "PNG"),
    ("gaussian:sigma=80", "PNG"),
    ("dp-pix:cell=8,epsilon=3", "JPEG"),
]


def photograph(rng: np.random.Generator, side: int) -> Image.Image:
    """A smooth picture with a little grain: about as hard to encode as a photograph."""
    coarse = rng.normal(128, 50, (9, 9, 3)).clip(0, 255).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC), np.int16)
    return Image.fromarray((smooth + rng.normal(0, 4, smooth.shape)).clip(0, 255).astype(np.uint8))


def write_photographs(folder: Path, count: int, side: int) -> None:
    """`count` JPEGs in one folder, cut from one picture at random."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    picture = np.asarray(photograph(rng, 4 * side))
    for i in range(count):
        y, x = rng.integers(0, 3 * side, 2)
        Image.fromarray(picture[y : y + side, x : x + side]).save(folder / f"{i:06d}.jpg", quality=90)


@dataclass(frozen=True)
class Needs:
    """What a protection cannot do without, beside decoding and encoding: random bytes, and a blur."""

    random: int = 0
    radius: float | None = None


def needs_of(spec: str, image: torch.Tensor) -> Needs:
    """Of one (C, H, W) image."""
    drawn, urandom = [], os.urandom

    def counted(count: int) -> bytes:
        drawn.append(count)
        return urandom(count)

    protection = parse(spec)
    with mock.patch.object(os, "urandom", counted):
        protection.release(image[None], fresh_noise())
    return Needs(sum(drawn), protection.radius if isinstance(protection, Blur) else None)


def transcode(source: Path, target: Path, format_name: str, instead: Path | None, needs: Needs) -> None:
    """Decode and encode, as plainly as it can be done; encode an image kept in memory where one is named."""
    with Image.open(io.BytesIO(source.read_bytes())) as opened:
        picture = opened.convert("RGB")
    if needs.radius is not None:
        picture = picture.filter(ImageFilter.GaussianBlur(needs.radius))
    os.urandom(needs.random)
    decoded = torch.from_numpy(np.array(picture).transpose(2, 0, 1))
    encoded = images.encode(decoded if instead is None else kept(instead), format_name)
    target.with_suffix(".part").write_bytes(encoded)
    target.with_suffix(".part").rename(target)


@cache
def kept(path: Path) -> torch.Tensor:
    """An image, read once."""
    return images.read(path)


def bare(
    source: Path,
    target: Path,
    format_name: str,
    workers: int,
    instead: Path | None = None,
    needs: Needs = Needs(),
) -> float:
    """Seconds that decoding and encoding alone take, start of the workers included."""
    clock = clock_of(workers)
    began = clock()
    target.mkdir()
    paths = sorted(source.iterdir())
    goals = [target / f"{path.stem}.out" for path in paths]
    rest = [[each] * len(paths) for each in (format_name, instead, needs)]
    if workers == 1:
        for job in zip(paths, goals, *rest, strict=True):
            transcode(*job)
        return clock() - began
    context = get_context("forkserver")
    with ProcessPoolExecutor(workers, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(transcode, paths, goals, *rest, chunksize=8))
    return clock() - began


def clock_of(workers: int) -> Callable[[], float]:
    """That of the processor where all is done in this process, which other work moves least."""
    return time.process_time if workers == 1 else time.perf_counter


def protected(source: Path, target: Path, spec: str, format_name: str, workers: int) -> float:
    """Seconds that protect_folder takes with a new ledger."""
    path = target.with_name(target.name + ".ledger") / "ledger.db"
    with Ledger(path) as ledger:
        ledger.set_budget(None)  # cut from one picture, many of these images are near copies
    clock = clock_of(workers)
    began = clock()
    outcome = protect_folder(
        source,
        target,
        parse(spec),
        path,
        FolderConfig(format_name=format_name),
        engine=EngineConfig(workers=workers),
    )
    assert not outcome.failures, outcome.failures
    return clock() - began


def resident(process: int) -> int:
    """Bytes of memory that a process and its descendants hold, what they share counted once (PSS)."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if int(entry.name) == process or parent in _family(process):
                    rollup = (entry / "smaps_rollup").read_text()
                    total += sum(
                        int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:")
                    )
            except (OSError, ProcessLookupError):
                continue
    return total


def _family(process: int) -> set[int]:
    family = {process}
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    grown = True
    while grown:
        children = {child for child, parent in parents.items() if parent in family}
        grown = not children <= family
        family |= children
    return family


def memory_over_time(source: Path, target: Path, spec: str, workers: int) -> list[tuple[int, int]]:
    """(images done, bytes held) as a job goes on, ten times or so."""
    done = [0]
    samples: list[tuple[int, int]] = []
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(2):
            samples.append((done[0], resident(os.getpid())))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        protect_folder(
            source,
            target,
            parse(spec),
            target.with_name("ledger") / "ledger.db",
            engine=EngineConfig(workers=workers),
            report=lambda count, *_: done.__setitem__(0, count),
        )
    finally:
        finished.set()
        watcher.join()
    return samples


def marginal(only: str, few: int = 4, many: int = 20, turns: int = 3) -> None:
    """What one more photograph takes of the processor: two folders in turn, the least of each."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {count: folder / str(count) for count in (few, many)}
        for count, source in sources.items():
            write_photographs(source, count, 1024)
        for spec, format_name in CASES:
            if not spec.startswith(only):
                continue
            taken: dict[tuple[int, str], list[float]] = {}
            for _ in range(turns):
                for count, source in sources.items():
                    seconds = protected(source, folder / "ours", spec, format_name, 1)
                    taken.setdefault((count, "ours"), []).append(seconds)
                    sample = Path(
                        shutil.copy(min((folder / "ours").glob("0*")), folder / f"{spec} {format_name}")
                    )
                    needs = needs_of(spec, images.read(min(source.iterdir())))
                    seconds = bare(source, folder / "bare", format_name, 1, sample, needs)
                    taken.setdefault((count, "bound"), []).append(seconds)
                    for done in ("ours", "ours.ledger", "bare"):
                        shutil.rmtree(folder / done)
            ours, least = (
                1000 * (min(taken[many, what]) - min(taken[few, what])) / (many - few)
                for what in ("ours", "bound")
            )
            verdict = "kept" if ours <= MOST * least else "NOT kept"
            print(
                f"{spec:30} {format_name:4} {ours:6.1f} ms, bound {least:6.1f}: "
                f"{ours / least:.2f} ({verdict})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=int, default=1000, help="JPEGs of 1024x1024; 0 for none")
    parser.add_argument("--small", type=int, default=100_000, help="files of 84x84; 0 for none")
    parser.add_argument("--only", default="", help="cases whose spec begins so")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--marginal", action="store_true", help="what one more photograph takes, alone")
    options = parser.parse_args()
    if options.workers == 1:
        torch.set_num_threads(1)
    if options.marginal:
        marginal(options.only)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "large"
        write_photographs(source, options.large, 1024)
        print(f"{options.large} JPEGs of 1024x1024, {options.workers} workers, images a second")
        for spec, format_name in CASES if options.large else []:
            if not spec.startswith(options.only):
                continue
            rates = []
            for _ in range(options.repeats):  # the best of each counts
                ours = protected(source, folder / "ours", spec, format_name, options.workers)
                shutil.rmtree(folder / "ours.ledger")
                sample = shutil.copy(min((folder / "ours").glob("0*")), folder / f"{spec} {format_name}")
                shutil.rmtree(folder / "ours")
                one = bare(source, folder / "bare", format_name, options.workers)
                shutil.rmtree(folder / "bare")
                strict = bare(source, folder / "bare", format_name, options.workers, Path(sample))
                shutil.rmtree(folder / "bare")
                needs = needs_of(spec, images.read(min(source.iterdir())))
                least = bare(source, folder / "bare", format_name, options.workers, Path(sample), needs)
                shutil.rmtree(folder / "bare")
                rates.append([options.large / seconds for seconds in (ours, one, strict, least)])
            ours, one, strict, least = (max(column) for column in zip(*rates, strict=True))
            verdict = "kept" if ours >= LEAST * one else "NOT kept"
            print(
                f"{spec:30} {format_name:4}  protect {ours:5.1f}  bare {one:5.1f}: {ours / one:.2f} "
                f"(at least {LEAST}: {verdict})  encoding a release {strict:5.1f}: {ours / strict:.2f}  "
                f"bound {least:5.1f}: {least / ours:.2f} of it (at most {MOST})",
                flush=True,
            )
        shutil.rmtree(source)
        if not options.small:
            return
        source = folder / "small"
        write_photographs(source, options.small, 84)
        began = time.perf_counter()
        samples = memory_over_time(source, folder / "out", "dp-pix:cell=4,epsilon=3", options.workers)
        seconds = time.perf_counter() - began
        alone = bare(source, folder / "bare", "PNG", options.workers)
        verdict = "kept" if alone >= LEAST_OF_SMALL * seconds else "NOT kept"
        print(
            f"{options.small} files of 84x84 in one folder: {options.small / seconds:.0f} a second, "
            f"{alone / seconds:.2f} of the {options.small / alone:.0f} of decoding and encoding alone "
            f"(at least {LEAST_OF_SMALL}: {verdict})"
        )
        for share in (0.1, 0.25, 0.5, 0.75, 0.95):
            count, held = min(samples, key=lambda one: abs(one[0] - share * options.small))
            print(f"after {count:7,} images: {held / 2**20:.0f} MiB held by all processes")


if __name__ == "__main__":
    main()
