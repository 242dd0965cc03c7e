"""Images that do not fit memory: decoded once into a file of the user's cache, and read from there by rows.

The file holds bare pixels, mapped into memory. It is a copy of private images, without protection. It lies in
the cache folder of the user, below `place()`; only its owner can read it; and it stays until it is cleared:
`sfumato data cache --clear`.

    SFUMATO_MEMORY  bytes up to which the images of a source are held in memory: 2147483648 (2 GiB)
    SFUMATO_CACHE   a folder for the file: never one that others read
"""

import errno
import hashlib
import json
import math
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import PIL
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from sfumato import __version__
from sfumato.base.files import PART, cache_folder, claim, whole
from sfumato.errors import BusyError, ConfigError, DataError, ImageError

MEMORY = 2 << 30  # bytes

Fill: TypeAlias = Callable[[Callable[[Tensor], object]], tuple[dict[int, ImageError], int]]

_BATCHES = 32  # to the memory
_FORMAT = 3  # of the file, and of how pixels are made
_FILE, _ABOUT = "pixels", "about.json"
_WAIT = 0.2  # seconds between two looks for a file of another process
# Python 3.11 has no name for it.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_TENSOR: Any = Tensor  # whose properties have types of their own in the stubs
_CHEAP = {getattr(_TENSOR, name).__get__ for name in ("shape", "dtype", "device", "ndim")}
_CHEAP |= {getattr(_TENSOR, name) for name in ("size", "dim", "numel", "__len__", "is_floating_point")}


def memory() -> int:
    """Bytes up to which a source holds its images in memory."""
    value = os.environ.get("SFUMATO_MEMORY", str(MEMORY))
    if not value.isdecimal():
        raise ConfigError(f"SFUMATO_MEMORY={value}: a whole number of bytes, such as {MEMORY}")
    return int(value)


def at_once() -> int:
    """Bytes of a batch: decoded ahead, and the most that a selection reads when it is made."""
    return memory() // _BATCHES


def place() -> Path:
    """The folder of the files: below SFUMATO_CACHE, or the cache folder of this user."""
    return cache_folder("images")


class Stored(Tensor):
    """(n, C, H, W) uint8 images in a mapped file: only selected images are read.

    A large selection of rows is again Stored, in any order, and takes 8 bytes an image. Everything
    else that a tensor can do is done on a plain one that is read for it; consecutive rows need no copy.
    A write into it, which would be lost, is a DataError: clone the part to change.
    """

    _source: Tensor
    _rows: Tensor
    _batch: int

    @staticmethod
    def __new__(cls, source: Tensor, rows: Tensor, batch: int) -> "Stored":
        """(n,) rows of an (N, C, H, W) source; selections of up to `batch` bytes are plain tensors."""
        shape = (len(rows), *source.shape[1:])
        made: Stored = Tensor._make_wrapper_subclass(cls, shape, dtype=source.dtype)
        made._source, made._rows, made._batch = source, rows, batch
        return made

    def read_all(self) -> Tensor:
        """All images as a plain tensor: a view if the rows are consecutive, otherwise a copy."""
        rows = self._rows
        if len(rows) and bool((rows.diff() == 1).all()):
            return self._source[int(rows[0]) : int(rows[-1]) + 1]
        return self._source[rows]

    def __getitem__(self, index: Any) -> Tensor:
        """Images by number, slice, rows or mask; another index works as for any tensor."""
        if not isinstance(index, int | slice | list | Tensor):
            return self.read_all()[index]
        rows = self._rows[index]
        large = rows.ndim == 1 and len(rows) * math.prod(self._source.shape[1:]) > self._batch
        if not large and not isinstance(index, slice):
            return self._source[rows]
        part = Stored(self._source, rows, self._batch)
        return part if large else part.read_all()

    def __iter__(self) -> Any:
        """One image after the other."""
        return (self[row] for row in range(len(self)))

    def split(self, split_size: Any, dim: int = 0) -> Any:
        """Parts of that many images, not read yet."""
        return self._parts("split", split_size, dim)

    def tensor_split(self, sections: Any, dim: int = 0) -> Any:
        """That many parts, not read yet."""
        return self._parts("tensor_split", sections, dim)

    def _parts(self, how: str, by: Any, dim: int) -> Any:
        if dim != 0:
            return getattr(self.read_all(), how)(by, dim)
        return tuple(Stored(self._source, rows, self._batch) for rows in getattr(self._rows, how)(by))

    def __repr__(self) -> str:  # type: ignore[override]
        """The shape alone: a tensor's own representation would read all images."""
        return f"Stored(shape={tuple(self.shape)})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs a function of torch: on plain tensors, unless it needs only the shape."""
        if func in _CHEAP:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        name = func.__name__
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if writes and isinstance(args[0], Stored):
            raise DataError(f"{name} on images in a file, which are read-only: clone the part to change")
        args, kwargs = tree_map_only(Stored, Stored.read_all, (args, kwargs or {}))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Does the same for calls by code that is not Python."""
        args, kwargs = tree_map_only(Stored, Stored.read_all, (args, kwargs or {}))
        return func(*args, **kwargs)


def fetch(
    name: str,
    files: Sequence[Path],
    shape: tuple[int, int, int, int],
    settings: object,
    fill: Fill,
) -> tuple[Tensor, dict[int, ImageError], int]:
    """The images of files from the cache; missing ones are stored there first.

    They are identified by the paths, lengths and times of the files, their (N, C, H, W) shape, the settings,
    and the versions of their decoders. If two processes need them, one decodes, and one waits.
    `fill` is called with a function that takes one (C, H, W) image after the other; it returns the errors of
    the others, by their number, and how many further pictures the files have: both follow the images here.
    """
    size = math.prod(shape)
    folder = place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # also for an existing one: fails if it belongs to somebody else
        path = folder / _key(files, shape, settings) / _FILE
        while (found := _read_description(path)) is None:
            try:
                with claim(path):
                    if _read_description(path) is None:
                        _write(path, name, shape[1:], size, fill)
            except BusyError:
                time.sleep(_WAIT)
        count, failures = found["shape"][0], found["failures"]
        with path.open("rb") as file:
            # Private and writable: a write into a part stays in this process; on a read-only map it would end
            # it. Not reserved: Linux counts it as memory otherwise, and refuses more than the machine has.
            flags, protection = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            pages = mmap.mmap(file.fileno(), 0, flags=flags, prot=protection)
        pixels = torch.frombuffer(pages, dtype=torch.uint8, count=count * math.prod(shape[1:]))
    except OSError as error:
        raise DataError(
            f"{folder}: {size:,} bytes of images of {name} cannot be kept there ({error.strerror}): make "
            "room with `sfumato data cache --clear`, name a folder of your own in SFUMATO_CACHE, or hold "
            f"them in memory with SFUMATO_MEMORY={size}"
        ) from error
    errors = {row: ImageError(message, cause=cause) for row, message, cause in failures}
    return Stored(pixels.view(count, *shape[1:]), torch.arange(count), at_once()), errors, found["further"]


@dataclass(frozen=True)
class Entry:
    """One file of images in the cache."""

    folder: Path
    name: str | None  # of the source; None if a process was stopped before the end, or is still writing
    shape: tuple[int, ...]  # N, C, H, W
    bytes: int  # on the disk


def entries() -> list[Entry]:
    """All files of the cache."""
    found = []
    for folder in sorted(place().glob("*/")):
        about = _read_description(folder / _FILE) or {"name": None, "shape": ()}
        taken = sum(each.stat().st_size for each in folder.iterdir())
        found.append(Entry(folder, about["name"], tuple(about["shape"]), taken))
    return found


def clear() -> list[Entry]:
    """Deletes the files of the cache that no process writes, else BusyError. Their readers keep the data."""
    gone = []
    for entry in entries():
        path = entry.folder / _FILE
        with claim(path):
            for each in (path, path.with_name(_ABOUT), *entry.folder.glob(PART)):
                each.unlink(missing_ok=True)
        gone.append(entry)
        with suppress(OSError):  # another process has begun anew
            entry.folder.rmdir()
    return gone


def _key(files: Sequence[Path], shape: tuple[int, ...], settings: object) -> str:
    sha = hashlib.sha256(repr((_FORMAT, __version__, PIL.__version__, shape, settings)).encode())
    for path in files:
        try:
            found = path.stat()
            stamp = found.st_size, found.st_mtime_ns
        except OSError:
            stamp = -1, -1  # `fill` reports its error
        sha.update(repr((os.fspath(path.absolute()), *stamp)).encode())
    return sha.hexdigest()


def _write(path: Path, name: str, shape: tuple[int, int, int], size: int, fill: Fill) -> None:
    for part in path.parent.glob(PART):  # of a process that was killed: nobody else writes here now
        part.unlink(missing_ok=True)
    if shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # now, rather than after hours
    with whole(path) as temporary:
        temporary.touch(mode=0o600, exist_ok=False)
        with temporary.open("wb") as out:
            failures, further = fill(lambda image: out.write(image.contiguous().numpy().data))
            count = out.tell() // math.prod(shape)
            out.flush()
            os.fsync(out.fileno())  # or a power cut could leave the name of a file without all its pixels
    errors = [(row, str(error), error.cause) for row, error in failures.items()]
    about = {"name": name, "shape": [count, *shape], "failures": errors, "further": further}
    with whole(path.with_name(_ABOUT)) as temporary:
        temporary.write_text(json.dumps(about))


def _read_description(path: Path) -> dict[str, Any] | None:
    """The description of a file; None if either is missing or damaged."""
    try:
        about: dict[str, Any] = json.loads(path.with_name(_ABOUT).read_bytes())
        return about if path.stat().st_size == math.prod(about["shape"]) else None
    except (FileNotFoundError, ValueError):
        return None
