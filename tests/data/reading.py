"""What processes do in the tests of stored images: started ones find it by the name of its module."""

import itertools
import os
import resource
import signal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import torch

from sfumato import images
from sfumato.data import folder
from sfumato.errors import DataError


def reader(line: Any, environment: dict[str, str], photos: Path, halfway: int) -> None:
    """Read a folder, and wait for a word when so many images are decoded. Says digest and images decoded."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    read, count = images.read_first, itertools.count()

    def logged(*arguments: Any, **settings: Any) -> tuple[np.ndarray, int]:
        if next(count) == halfway:
            line.send("halfway")
            line.recv()
        return read(*arguments, **settings)

    images.read_first = logged
    digest = folder(photos, size=8).digest
    line.send((digest, next(count)))


def bounded(line: Any, environment: dict[str, str], photos: Path) -> None:
    os.environ.update(environment)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    with pytest.raises(DataError) as caught:
        folder(photos, size=8)
    line.send(str(caught.value))


def trainer(line: Any, environment: dict[str, str], place: Path, bound: int) -> None:
    """What training does with data. Says its digest, a sum of pixels, and the peak of anonymous memory."""
    os.environ.update(environment | {"SFUMATO_CACHE": str(place), "SFUMATO_MEMORY": str(bound)})
    torch.set_num_threads(1)

    def drawn(path: Path, *, channels: int, size: int) -> tuple[np.ndarray, int]:
        return np.full((channels, size, size), int(path.stem) % 256, dtype=np.uint8), 0

    images.read_first = drawn
    before, peak, done = anonymous(), [0], Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    watcher = Thread(target=watch)
    watcher.start()
    loaded = folder(place / "many", size=64)
    train = loaded.split("train")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    sums = sum(int(train.images[rows][:, 0, 0, 0].sum()) for rows in order.split(64))
    sums += sum(int(part[:, 0, 0, 0].sum()) for part in train.images[order].split(64))
    digest = loaded.digest
    done.set()
    watcher.join()
    line.send((digest, sums, peak[0] - before))


def anonymous() -> int:
    """Bytes of memory of this process that no file holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
