"""A folder of this machine as a storage: where images lie, and where releases go."""

import filecmp
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from sfumato import images
from sfumato.base.files import PART, leads_out, whole
from sfumato.device.ledger.scopes import covers, folder_name
from sfumato.images import Pixels


@dataclass(frozen=True)
class Entry:
    """What lies under a name.

    Attributes:
        kind: what it is; "link out" is a link to a file outside of the storage.
        size: in bytes.
        stamp: changes when the file does: its size, and its modification time or version.
    """

    kind: Literal["file", "folder", "link to a folder", "link out", "other"]
    size: int = 0
    stamp: str = ""


class Identified(Protocol):
    """A storage, as far as it is told from others."""

    @property
    def identity(self) -> bytes:
        """What tells it from every other storage, by whatever name it was called."""


def is_within(storage: Identified, other: Identified) -> bool:
    """Whether a storage is another, or lies in it."""
    return covers(other.identity, storage.identity)


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or a single file of it."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def identity(self) -> bytes:
        """What tells it from every other storage, by whatever name it was called."""
        return folder_name(self.path)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.name

    @property
    def parent(self) -> "Folder":
        """The folder that it lies in."""
        return Folder(self.path.parent)

    def within(self, other: Identified) -> bool:
        """Whether it is another storage, or lies in it."""
        return is_within(self, other)

    def at(self, name: str) -> Path:
        """How a file is called in messages."""
        return self.path / name

    def exists(self) -> bool:
        """Whether anything is there."""
        return self.path.exists()

    def is_folder(self) -> bool:
        """Whether a folder is there."""
        return self.path.is_dir()

    def is_empty(self) -> bool:
        """Whether nothing lies in it, or it is not there."""
        return not (self.path.is_dir() and any(self.path.iterdir()))

    def look(self, name: str) -> Entry:
        """What lies there. Raises OSError."""
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
        """What lies in a folder of it: the last part of each name, and what it is. Raises OSError.

        By stem first: files whose releases would have one name come one after another.
        """
        with os.scandir(self.path / folder) as entries:
            bases = sorted((entry.name.rpartition(".")[0], entry.name) for entry in entries)
        before = f"{folder}/" if folder else ""
        return ((base, partial(self.look, before + base)) for _, base in bases)

    def image(self, name: str, channels: int | None = None, *, size: int | None = None) -> Pixels:
        """The image in a file; see images.read."""
        return images.read_array(self.path / name, channels=channels, size=size)

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """The content of a file, to read on from its beginning."""
        with (self.path / name).open("rb") as opened:
            yield opened

    def lies_in(self, name: str) -> Path:
        """The folder of a file, for the budgets of folders: of a link, the one that its file lies in."""
        return Path(os.path.realpath(self.path / name)).parent

    def make(self) -> None:
        """Make it where it is missing."""
        self.path.mkdir(parents=True, exist_ok=True)

    def remove_empty(self) -> None:
        """Remove it, if nothing is in it."""
        with suppress(OSError):
            self.path.rmdir()

    def tidy(self) -> None:
        """Remove the halves that a killed process left."""
        for leftover in self.path.rglob(PART):
            leftover.unlink(missing_ok=True)

    def size(self, name: str) -> int | None:
        """Of a file, in bytes; None where there is none."""
        with suppress(OSError):
            return (self.path / name).stat().st_size
        return None

    def put(self, name: str, content: bytes, *, replace: bool) -> None:
        """Write a file whole. One that has this content already is left.

        Raises:
            FileExistsError: another file is there, and not to be replaced.
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
        """Give a path to write to, which becomes a file of the folder when the block ends well; see put."""
        path = self.path / name
        with suppress(_AsBeforeError), whole(path) as temporary:
            yield temporary
            if path.exists():
                if filecmp.cmp(temporary, path, shallow=False):
                    raise _AsBeforeError
                if not replace:
                    raise FileExistsError(path)

    def delete(self, name: str) -> None:
        """Remove a file, where it is there."""
        (self.path / name).unlink(missing_ok=True)


class _AsBeforeError(Exception):
    """What was written is there already."""
