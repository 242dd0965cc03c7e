"""Data larger than memory: decoding once, random batches from the file and from memory, and peak memory.

    OMP_NUM_THREADS=1 python benchmarks/streaming.py [--images 4000]

Images of noise, 64 x 64, as PNG. Each line is a process of its own, for that many images and for 4 times as
many; memory is what no file holds (RssAnon), at its peak, above what the process had before. The bound for
the stored images is a quarter of what the smaller number takes.
"""

import argparse
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread

import torch

from sfumato import images
from sfumato.data import folder

SIDE = 64
BATCH = 64
BATCHES = 500
PEOPLE = 10


def draw(root: Path, count: int) -> Path:
    for number in range(count):
        noise = torch.randint(0, 256, (3, SIDE, SIDE), generator=torch.Generator().manual_seed(number))
        person = root / f"{count} images" / f"{number % PEOPLE}"
        images.write(person / f"{number}.png", noise.byte())
    return root / f"{count} images"


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def measured(root: Path, bound: int, cache: Path) -> tuple[float, float, int]:
    """Seconds to read the folder, seconds for a random batch of a split, and the peak of memory in bytes."""
    os.environ |= {"SFUMATO_MEMORY": str(bound), "SFUMATO_CACHE": str(cache)}
    before, peak, done = anonymous(), [0], Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    train = folder(root, size=SIDE).split("train")
    read = time.perf_counter() - start
    rows = torch.randint(len(train), (BATCHES, BATCH), generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    for each in rows:
        images.to_float(train.images[each])
    batch = (time.perf_counter() - start) / BATCHES
    done.set()
    watcher.join()
    return read, batch, peak[0] - before


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4000)
    count = parser.parse_args().images
    bound = count * 3 * SIDE**2 // 4
    with tempfile.TemporaryDirectory() as temporary:
        for number in (count, 4 * count):
            root = draw(Path(temporary), number)
            for what, limit in (("memory", 1 << 40), ("file, first", bound), ("file, again", bound)):
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                    asked = alone.submit(measured, root, limit, Path(temporary) / "cache")
                    read, batch, peak = asked.result()
                print(
                    f"{number:,} images, {what}: read in {read:.2f} s, {1e3 * batch:.2f} ms a batch of "
                    f"{BATCH}, {peak / 1e6:.0f} MB"
                )


if __name__ == "__main__":
    main()
