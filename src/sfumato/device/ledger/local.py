"""A folder of this machine as a storage, for images and for releases."""

import filecmp
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from sfumato.base.files import PART, leads_out, open_regular, whole
from sfumato.device.ledger.scopes import covers, folder_name
from sfumato.images.reading import name_and_bytes

HEAD = 512  # bytes, by which the format of a file is told
_TIME = 315_532_800  # 1980-01-01, the first time that all archives can hold


@dataclass(frozen=True)
class Entry:
    """The kind, size and stamp of an entry in a storage.

    Attributes:
        kind: "link out" is a link to a file outside of the storage.
        size: in bytes.
        stamp: size, and modification time or version: changes when the file does.
    """

    kind: Literal["file", "folder", "link to a folder", "link out", "other"]
    size: int = 0
    stamp: str = ""


class Identified(Protocol):
    """Anything with the identity of a storage."""

    @property
    def identity(self) -> bytes:
        """Bytes that identify the storage, whichever name it was opened by."""


def is_within(storage: Identified, other: Identified) -> bool:
    """Whether a storage equals another, or lies in it."""
    return covers(other.identity, storage.identity)


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or a single file of it."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def identity(self) -> bytes:
        """Bytes that identify the storage, whichever name it was opened by."""
        return folder_name(self.path)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @property
    def parent(self) -> "Folder":
        """The folder in which it lies."""
        return Folder(self.path.parent)

    def within(self, other: Identified) -> bool:
        """Whether it equals another storage, or lies in it."""
        return is_within(self, other)

    def at(self, name: str) -> Path:
        """Name a file for messages."""
        return self.path / name

    def exists(self) -> bool:
        """Whether a file or folder exists at the path."""
        return self.path.exists()

    def is_folder(self) -> bool:
        """Whether a folder exists at the path."""
        return self.path.is_dir()

    def is_empty(self) -> bool:
        """Whether it has no entries, or does not exist."""
        return not (self.path.is_dir() and any(self.path.iterdir()))

    def look(self, name: str) -> Entry:
        """Look up an entry. Raises OSError."""
        path = self.path / name
        status = path.stat()
        linked = path.is_symlink()
        if stat.S_ISDIR(status.st_mode):
            return Entry("link to a folder" if linked else "folder")
        if not stat.S_ISREG(status.st_mode):
            return Entry("other")
        out = linked and leads_out(path, self.path)
        return Entry("link out" if out else "file", status.st_size, f"{status.st_size}:{status.st_mtime_ns}")

    def entries(self, folder: str) -> Iterator[tuple[str, Callable[[], Entry]]]:
        """List a subfolder: the last part of each name, and a function that looks it up. Raises OSError.

        Sorted by stem first: files whose releases would share a name are neighbours.
        """
        with os.scandir(self.path / folder) as entries:
            bases = sorted((entry.name.rpartition(".")[0], entry.name) for entry in entries)
        before = f"{folder}/" if folder else ""
        return ((base, partial(self.look, before + base)) for _, base in bases)

    def read(self, name: str) -> bytes:
        """Read the bytes of an image file. Raises ImageError as images.read does."""
        return name_and_bytes(self.path / name)[1]

    def head(self, name: str) -> bytes:
        """Read the first bytes of a file. Raises OSError."""
        with open_regular(self.path / name) as opened:
            return opened.read(HEAD)

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """Open a file for reading."""
        with (self.path / name).open("rb") as opened:
            yield opened

    def lies_in(self, name: str) -> Path:
        """Return the folder of a file for the budgets of folders; for a link, the folder of its target."""
        return Path(os.path.realpath(self.path / name)).parent

    def make(self) -> None:
        """Create the folder if it is missing."""
        self.path.mkdir(parents=True, exist_ok=True)

    def remove_empty(self) -> None:
        """Remove the folder if it is empty."""
        with suppress(OSError):
            self.path.rmdir()

    def tidy(self) -> None:
        """Remove the partial files that a killed process left."""
        for leftover in self.path.rglob(PART):
            leftover.unlink(missing_ok=True)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        with suppress(OSError):
            return (self.path / name).stat().st_size
        return None

    def put(self, name: str, content: bytes, *, replace: bool) -> None:
        """Write a whole file, unless it has this content already.

        Raises:
            FileExistsError: another file is there, and `replace` is false.
            OSError: it cannot be written.
        """
        path = self.path / name
        if path.exists():
            if path.read_bytes() == content:
                return
            if not replace:
                raise FileExistsError(path)
        with whole(path) as temporary:
            temporary.write_bytes(content)

    @contextmanager
    def file(self, name: str, *, replace: bool) -> Iterator[Path]:
        """Yield a path to write to; after the block it becomes a file of the folder, see put."""
        path = self.path / name
        with suppress(_AsBeforeError), whole(path) as temporary:
            yield temporary
            if path.exists():
                if filecmp.cmp(temporary, path, shallow=False):
                    raise _AsBeforeError
                if not replace:
                    raise FileExistsError(path)

    def level_times(self) -> None:
        """Give all files and folders one time, so that none tells when, or after which, it was written."""
        for path in (*self.path.rglob("*"), self.path):
            os.utime(path, (_TIME, _TIME), follow_symlinks=False)

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        (self.path / name).unlink(missing_ok=True)


class _AsBeforeError(Exception):
    """The file exists with the same content."""
