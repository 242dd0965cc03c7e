"""Where images lie and where releases go: a folder of this machine, or a URL that fsspec understands.

Both offer the same. Names are paths below the place, with "/" between folders.
"""

import errno
import filecmp
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import unquote

from torch import Tensor

from sfumato import images
from sfumato.device.scopes import folder_name, is_url, without_password
from sfumato.errors import ConfigError, ImageError, MissingExtraError
from sfumato.files import PART, whole

_SAME_BYTES = 1 << 20  # compared at a time

# What file systems call what changes with the content of a file, the best first.
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True)
class Found:
    """What lies under a name.

    Attributes:
        kind: what it is.
        size: in bytes.
        stamp: changes when the file does: its size, and its modification time or version.
    """

    kind: Literal["file", "folder", "link to a folder", "other"]
    size: int = 0
    stamp: str = ""


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or a single file of it."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def identity(self) -> bytes:
        """What tells it from every other place, by whatever name it was called."""
        return folder_name(self.path)

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.name

    @property
    def parent(self) -> "Folder":
        """The folder that it lies in."""
        return Folder(self.path.parent)

    def within(self, other: "Place") -> bool:
        """Whether it is another place, or lies in it."""
        return _within(self, other)

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

    def look(self, name: str) -> Found:
        """What lies there. Raises OSError."""
        path = self.path / name
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            return Found("link to a folder" if path.is_symlink() else "folder")
        if not stat.S_ISREG(found.st_mode):
            return Found("other")
        return Found("file", found.st_size, f"{found.st_size}:{found.st_mtime_ns}")

    def entries(self, folder: str) -> Iterator[tuple[str, Callable[[], Found]]]:
        """What lies in a folder of it: the last part of each name, and what it is. Raises OSError.

        By stem first: files whose releases would have one name come one after another.
        """
        with os.scandir(self.path / folder) as entries:
            bases = sorted((entry.name.rpartition(".")[0], entry.name) for entry in entries)
        before = f"{folder}/" if folder else ""
        return ((base, partial(self.look, before + base)) for _, base in bases)

    def image(self, name: str) -> Tensor:
        """The image in a file; see images.read."""
        return images.read(self.path / name, channels=None)

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
        """Give a path to write to, which becomes a file of the place when the block ends well; see put."""
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


@dataclass(frozen=True)
class Remote:
    """What a URL names, by fsspec, which takes keys and passwords from the environment or from the URL.

    An object store puts objects whole. Elsewhere a file is written beside its place and then renamed, if the
    file system can rename. A user and password of the URL are in no message, and not in its identity.
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        authority, _, path = self.url.partition("://")[2].partition("/")
        port = authority.rpartition(":")[2]
        if ":" in authority and "@" not in authority and "@" in path and not port.isdigit():
            raise ConfigError("a password in a URL has a / in it: write %2F, or set it in the environment")

    def __str__(self) -> str:
        return without_password(self.url)

    @property
    def identity(self) -> bytes:
        """See Folder."""
        return folder_name(self.url)

    @property
    def name(self) -> str:
        """See Folder."""
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> "Remote":
        """See Folder."""
        above = self.url.rstrip("/").rpartition("/")[0]
        return Remote(f"{above}/" if above.endswith(":/") else above)

    @property
    def of_one_process(self) -> bool:
        """Whether what is written there is seen by nobody else."""
        return self.url.startswith("memory://")

    def within(self, other: "Place") -> bool:
        """See Folder."""
        return _within(self, other)

    def at(self, name: str) -> str:
        """See Folder."""
        here = str(self)
        return f"{here}{'' if here.endswith('/') else '/'}{name}" if name else here

    def exists(self) -> bool:
        """See Folder."""
        return self._info("") is not None

    def is_folder(self) -> bool:
        """See Folder."""
        found = self._info("")
        return found is not None and found["type"] == "directory"

    def is_empty(self) -> bool:
        """See Folder."""
        try:
            return next(self.entries(""), None) is None
        except FileNotFoundError:
            return True

    def entries(self, folder: str) -> Iterator[tuple[str, Callable[[], Found]]]:
        """See Folder."""
        files, path = self._opened(), self._path(folder)
        with self._errors(folder):
            listed = files.ls(path, detail=True)
        found = []
        for entry in listed:
            name = entry["name"].rstrip("/")
            if name.lstrip("/") != path.strip("/"):  # some stores list the folder itself
                base = name.rpartition("/")[2]
                found.append((base.rpartition(".")[0], base, entry))
        found.sort(key=lambda one: one[:2])
        return ((base, partial(self._found, entry)) for _, base, entry in found)

    def look(self, name: str) -> Found:
        """See Folder."""
        with self._errors(name):
            return self._found(self._opened().info(self._path(name)))

    def image(self, name: str) -> Tensor:
        """See Folder."""
        try:
            data = self._bytes(name, images.MAX_BYTES + 1)
        except OSError as error:
            message = f"{self.at(name)}: cannot be read ({error.strerror})"
            raise ImageError(message, cause="cannot be read") from error
        return images.read(data, channels=None)

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """See Folder."""
        with self._errors(name):
            opened = self._opened().open(self._path(name), "rb")
        try:
            yield _Stream(opened, partial(self._errors, name))
        finally:
            opened.close()

    def lies_in(self, name: str) -> str:
        """See Folder."""
        return self.at(name.rpartition("/")[0])

    def make(self) -> None:
        """See Folder. An object store has no folders."""
        if self._renames():
            with self._errors(""):
                self._opened().makedirs(self._path(""), exist_ok=True)

    def tidy(self) -> None:
        """See Folder. In an object store nothing is ever half there."""
        if not self._renames():
            return
        files, root = self._opened(), self._path("")
        with self._errors(""):
            for folder, _, names in files.walk(root):
                for name in names:
                    if fnmatch(name, PART):
                        files.rm_file(f"{folder.rstrip('/')}/{name}")

    def size(self, name: str) -> int | None:
        """See Folder."""
        found = self._info(name)
        return None if found is None or found["type"] == "directory" else found["size"]

    def put(self, name: str, content: bytes, *, replace: bool) -> None:
        """See Folder."""
        found = self._info(name)
        if found is not None:
            if found["size"] == len(content) and self._bytes(name, len(content) + 1) == content:
                return
            self._check_replaced(name, found, replace)
        with self._whole(name) as path:
            self._opened().pipe_file(path, content)

    @contextmanager
    def file(self, name: str, *, replace: bool) -> Iterator[Path]:
        """See Folder."""
        with TemporaryDirectory() as folder:
            local = Path(folder) / "whole"
            yield local
            found = self._info(name)
            if found is not None:
                if found["size"] == local.stat().st_size and self._has(name, local):
                    return
                self._check_replaced(name, found, replace)
            with self._whole(name) as path:
                self._opened().put_file(str(local), path)

    def delete(self, name: str) -> None:
        """See Folder."""
        with suppress(FileNotFoundError), self._errors(name):
            # Not rm, which would take the name for a pattern.
            self._opened().rm_file(self._path(name))

    def _opened(self) -> Any:
        with self._errors(""):
            return _file_system(self.url)[0]

    def _renames(self) -> bool:
        from fsspec import AbstractFileSystem

        return type(self._opened()).mv is not AbstractFileSystem.mv

    def _path(self, name: str) -> str:
        self._opened()
        root: str = _file_system(self.url)[1]
        return f"{root}/{name}" if name else root

    def _info(self, name: str) -> dict[str, Any] | None:
        with suppress(FileNotFoundError, NotADirectoryError), self._errors(name):
            found: dict[str, Any] = self._opened().info(self._path(name))
            return found
        return None

    def _found(self, entry: dict[str, Any]) -> Found:
        link = entry.get("islink", False)
        if link:  # what it leads to
            with self._errors(""):
                entry = self._opened().info(entry["name"])
        if entry["type"] == "directory":
            return Found("link to a folder" if link else "folder")
        if entry["type"] != "file" or entry["size"] is None:
            return Found("other")
        version = next((str(entry[key]) for key in _VERSIONS if entry.get(key)), "")
        return Found("file", entry["size"], f"{entry['size']}:{version}")

    def _bytes(self, name: str, most: int) -> bytes:
        with self._errors(name):
            content: bytes = self._opened().cat_file(self._path(name), start=0, end=most)
            return content

    def _has(self, name: str, local: Path) -> bool:
        with self.stream(name) as there, local.open("rb") as here:
            while part := here.read(_SAME_BYTES):
                if there.read(len(part)) != part:
                    return False
        return True

    def _check_replaced(self, name: str, found: dict[str, Any], replace: bool) -> None:
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.at(name))
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.at(name))

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Where to write a file so that it appears whole."""
        files, path = self._opened(), self._path(name)
        with self._errors(name):
            if not self._renames():
                yield path
                return
            parent = path.rpartition("/")[0]
            files.makedirs(parent, exist_ok=True)
            temporary = f"{parent}/{PART.replace('*', secrets.token_hex(8))}"
            try:
                yield temporary
                try:
                    files.mv(temporary, path)
                except Exception:
                    if self._info(name) is None:
                        raise
                    # Some rename over no file. Killed in between, the next run writes the release again.
                    files.rm_file(path)
                    files.mv(temporary, path)
            except BaseException:
                with suppress(Exception):
                    files.rm_file(temporary)
                raise

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Have every error of a file system be an OSError that tells no password."""
        try:
            yield
        except (MissingExtraError, ConfigError):
            raise
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.at(name)) from None
        except Exception as error:
            code, said = errno.EIO, f"{type(error).__name__}: {error}"
            if isinstance(error, OSError) and error.errno and error.strerror:
                code, said = error.errno, error.strerror
            # None of what fsspec raised stays behind: its text may hold the URL.
            raise OSError(code, self._hidden(said), self.at(name)) from None

    def _hidden(self, text: str) -> str:
        """A text without the user and password of the URL."""
        text = text.replace(self.url, str(self))
        authority = self.url.partition("://")[2].partition("/")[0]
        user, colon, password = authority.rpartition("@")[0].partition(":")
        if colon:
            for secret in sorted({password, unquote(password), user, unquote(user)} - {""}, key=len)[::-1]:
                text = re.sub(re.escape(secret), "***", text)
        return text


Place = Folder | Remote


def place(where: str | os.PathLike[str]) -> Place:
    """The place that a path or a URL names. What `file://` names is a folder like any other.

    Raises:
        ConfigError: a password in the URL is not quoted.
    """
    if not is_url(where):
        return Folder(Path(where))
    url = str(where)
    return Folder(Path(url.removeprefix("file://"))) if url.startswith("file://") else Remote(url)


def _within(one: Place, other: Place) -> bool:
    return one.identity == other.identity or one.identity.startswith(other.identity.rstrip(b"/") + b"/")


class _AsBeforeError(Exception):
    """What was written is there already."""


class _Stream:
    """A file that is read from a URL, with errors that tell no password."""

    def __init__(self, opened: Any, errors: Callable[[], Any]) -> None:
        self._opened = opened
        self._errors = errors

    def read(self, size: int) -> bytes:
        """The next bytes."""
        with self._errors():
            content: bytes = self._opened.read(size)
            return content


@lru_cache(maxsize=16)
def _file_system(url: str) -> tuple[Any, str]:
    """What fsspec makes of a URL: a file system, and the path in it."""
    from fsspec.core import url_to_fs

    try:
        # Our own, not one that others set up, since what it remembers of folders is turned off: they change.
        files, path = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise MissingExtraError(f"{without_password(url)}: {error}", name=error.name) from error
    except ValueError as error:
        scheme = url.partition("://")[0]
        raise ConfigError(f"{scheme}://: not a URL that fsspec opens here ({type(error).__name__})") from None
    if hasattr(files, "dircache"):
        files.dircache.use_listings_cache = False
    return files, str(path).rstrip("/")
