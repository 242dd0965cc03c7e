"""Storages of images and releases: a folder of this machine, or a URL, both opened by fsspec.

Names are paths below the storage, with "/" between folders. Files appear whole or not at all: an object store
writes whole objects; elsewhere a file is written under another name and then renamed.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import filter as match_names
from functools import cached_property, lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import unquote

from sfumato.base.files import PART, leads_out, open_regular
from sfumato.errors import ConfigError, ImageError, MissingExtraError
from sfumato.images import reading

_SAME_BYTES = 1 << 20  # bytes compared at a time
_TIME = 315_532_800  # 1980-01-01, the first time that all archives can hold

# Names that file systems give to a file's version, the most reliable first.
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True)
class Entry:
    """An entry in a storage; "link out" is a link to a file outside of it."""

    kind: Literal["file", "folder", "link to a folder", "link out", "other"]
    size: int = 0  # in bytes
    stamp: str = ""  # size, and modification time or version: changes when the file does


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether this is a URL, such as s3://bucket/folder; a Path never is."""
    return isinstance(where, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", where) is not None


def without_password(url: str) -> str:
    """Remove "user:password@" from a URL. A user without a password stays: it may be a container."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    before, _, host = authority.rpartition("@")
    return f"{scheme.lower()}://{host if ':' in before else authority}{slash}{path}"


def storage_of(where: str | os.PathLike[str]) -> "Storage":
    """Return the storage at a path or a URL; `file://` names a local folder. ConfigError: see Storage."""
    local = not is_url(where) or str(where).startswith("file://")
    return Storage(os.fspath(where).removeprefix("file://") if local else str(where), local)


@dataclass(frozen=True)
class Storage:
    """A folder or a file. fsspec takes keys and passwords from the environment or from the URL.

    A user and password of the URL appear in no message and not in its identity. All methods raise OSError.
    """

    url: str = field(repr=False)  # or the path on this machine
    local: bool  # whether it is a path

    def __post_init__(self) -> None:
        # user:pass/word@host, and not host:22/name@work
        if not self.local and re.match(r"[^/]*://[^/@]*:(?!\d+/)[^:/@]*/.*@", self.url):
            raise ConfigError("a password in a URL has a / in it: write %2F, or set it in the environment")

    def __str__(self) -> str:
        return str(Path(self.url)) if self.local else without_password(self.url)

    @property
    def identity(self) -> bytes:
        """Its path without links, or its URL without a password: the same by whichever name it was opened."""
        return os.fsencode(Path(self.url).resolve() if self.local else str(self).rstrip("/"))

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> "Storage":
        """The folder in which it lies."""
        above = str(Path(self.url).parent) if self.local else self.url.rstrip("/").rpartition("/")[0]
        return Storage(f"{above}/" if above.endswith(":/") else above, self.local)

    def within(self, other: "Storage") -> bool:
        """Whether it equals another storage, or lies in it."""
        above = other.identity
        return self.identity == above or self.identity.startswith(above.rstrip(b"/") + b"/")

    def at(self, name: str) -> str | Path:
        """Name a file for messages."""
        here = str(self)
        if self.local:
            return Path(here, name)
        return f"{here.removesuffix('/')}/{name}" if name and not here.endswith("://") else here + name

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        return self._find("") is not None

    def is_folder(self) -> bool:
        """Whether a folder is there."""
        return (entry := self._find("")) is not None and entry.kind in ("folder", "link to a folder")

    def is_empty(self) -> bool:
        """Whether it has no entries, or does not exist."""
        return not (self.is_folder() and self.entries(""))

    def entries(self, folder: str) -> list[tuple[str, Callable[[], Entry]]]:
        """List a subfolder: the last part of each name, and a function that looks it up.

        Sorted by stem first: files whose releases would share a name are neighbours.
        """
        path, before = self._path(folder), f"{folder}/" if folder else ""
        found: dict[str, Callable[[], Entry]] = {}
        with self._errors(folder):
            if self.local:
                with os.scandir(path) as listed:
                    found = {each.name: partial(self.look, before + each.name) for each in listed}
            for info in () if self.local else self._files.ls(path, detail=True):
                name = info["name"].rstrip("/")
                if name.lstrip("/") != path.strip("/"):  # some stores list the folder itself
                    found[name.rpartition("/")[2]] = partial(self._entry, info)
        return sorted(found.items(), key=lambda entry: (entry[0].rpartition(".")[0], entry[0]))

    def look(self, name: str) -> Entry:
        """Look up an entry."""
        path = self._path(name)
        with self._errors(name):
            if not self.local:
                return self._entry(self._files.info(path))
            # By strings: pathlib would take longer than the system.
            status = os.stat(path)  # noqa: PTH116
            linked = os.path.islink(path)  # noqa: PTH114
            if stat.S_ISDIR(status.st_mode):
                return Entry("link to a folder" if linked else "folder")
            if not stat.S_ISREG(status.st_mode):
                return Entry("other")
            out = linked and leads_out(path, self._path(""))
            stamp = f"{status.st_size}:{status.st_mtime_ns}"
            return Entry("link out" if out else "file", status.st_size, stamp)

    def read(self, name: str) -> bytes:
        """Read the bytes of an image file. Raises ImageError."""
        try:
            return self.head(name, reading.MAX_BYTES + 1)
        except OSError as error:
            cause = "cannot be read"
            raise ImageError(f"{self.at(name)}: {cause} ({error.strerror})", cause=cause) from error

    def head(self, name: str, most: int = 512) -> bytes:
        """Read the first bytes of a file, which tell its format."""
        with self._errors(name):
            if not self.local:
                return bytes(self._files.cat_file(self._path(name), start=0, end=most))
            with open_regular(self._path(name)) as opened:  # a pipe would block
                return opened.read(most)

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """Open a file for reading; its errors contain no password either."""
        with self._errors(name):
            opened = self._files.open(self._path(name), "rb")

        def read(size: int) -> bytes:
            with self._errors(name):
                content: bytes = opened.read(size)
                return content

        with opened:
            yield SimpleNamespace(read=read)

    def make(self) -> None:
        """Create the folder if it is missing. An object store has no folders."""
        if self._renames:
            with self._errors(""):
                self._files.makedirs(self._path(""), exist_ok=True)

    def remove_empty(self) -> None:
        """Remove a folder of this machine if it is empty; a bucket is not ours to remove."""
        with suppress(OSError):
            if self.local:
                Path(self.url).rmdir()

    def tidy(self) -> None:
        """Remove the partial files that a killed process left. None are in an object store."""
        with self._errors(""):
            for folder, _, names in self._files.walk(self._path("")) if self._renames else ():
                for name in match_names(names, PART):
                    self._files.rm_file(f"{folder.rstrip('/')}/{name}")

    def level_times(self) -> None:
        """Give all files and folders one time, so that none tells when, or after which, it was written.

        A store behind a URL sets its times itself, in the order of writing.
        """
        here = Path(self.url)
        for path in (*here.rglob("*"), here) if self.local else ():
            os.utime(path, (_TIME, _TIME), follow_symlinks=False)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        return entry.size if (entry := self._find(name)) and entry.kind in ("file", "link out") else None

    @contextmanager
    def file(self, name: str, *, replace: bool) -> Iterator[Path]:
        """Yield a path to write to; after the block it becomes a file of the storage, which appears whole.

        A file of the same content is left. FileExistsError if another must not be replaced.
        """
        path, parent = self._path(name), self._path(name).rpartition("/")[0]
        part = f"{parent}/{PART.replace('*', secrets.token_hex(8))}"
        with ExitStack() as stack:
            if self.local:
                Path(parent).mkdir(parents=True, exist_ok=True)
                written = Path(part)
                stack.callback(written.unlink, missing_ok=True)
            else:
                written = Path(stack.enter_context(TemporaryDirectory()), "whole")
            yield written
            there = self._find(name)
            if there is not None:
                if there.kind not in ("file", "link out"):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.at(name))
                if there.size == written.stat().st_size and self._equals(name, written):
                    return
                if not replace:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.at(name))
            stack.enter_context(self._errors(name))
            if self.local:
                written.replace(path)
            elif not self._renames:
                self._files.put_file(str(written), path)
            else:
                try:
                    self._files.makedirs(parent, exist_ok=True)
                    self._files.put_file(str(written), part)
                    if there is not None:  # some file systems rename over none; a killed run is repeated
                        self._files.rm_file(path)
                    self._files.mv(part, path)
                except BaseException:
                    with suppress(Exception):
                        self._files.rm_file(part)
                    raise

    def _equals(self, name: str, written: Path) -> bool:
        with self.stream(name) as there, written.open("rb") as content:
            while (part := content.read(_SAME_BYTES)) and there.read(len(part)) == part:
                pass
        return not part

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        with suppress(FileNotFoundError), self._errors(name):
            self._files.rm_file(self._path(name))  # not rm, which would read the name as a pattern

    @property
    def _files(self) -> Any:
        with self._errors(""):
            return _file_system("file:///" if self.local else self.url)[0]

    @cached_property
    def _renames(self) -> bool:
        from fsspec import AbstractFileSystem

        return type(self._files).mv is not AbstractFileSystem.mv

    @cached_property
    def _root(self) -> str:
        with self._errors(""):
            return str(Path(self.url).absolute()) if self.local else _file_system(self.url)[1]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _find(self, name: str) -> Entry | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.look(name)
        return None

    def _entry(self, info: dict[str, Any]) -> Entry:
        link = info.get("islink", False)
        if link:  # its target
            with self._errors(""):
                info = self._files.info(info["name"])
        if info["type"] == "directory":
            return Entry("link to a folder" if link else "folder")
        if info["type"] != "file" or info["size"] is None:
            return Entry("other")
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        return Entry("file", info["size"], f"{info['size']}:{version}")

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn every error of a file system into an OSError without a password."""
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
            # The error of fsspec is not chained: its text may hold the URL.
            raise OSError(code, self._hide(said), self.at(name)) from None

    def _hide(self, text: str) -> str:
        authority = self.url.partition("://")[2].partition("/")[0]
        user, colon, password = authority.rpartition("@")[0].partition(":")
        words = {user, unquote(user), password, unquote(password)} - {""} if colon else ()
        for secret in sorted(words, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


@lru_cache(maxsize=16)
def _file_system(url: str) -> tuple[Any, str]:
    """Open a URL with fsspec. Returns a file system and the path in it."""
    from fsspec.core import url_to_fs

    try:
        # Our own instance, not a shared one: its cache of folders is turned off, since they change.
        files, path = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise MissingExtraError(f"{without_password(url)}: {error}", name=error.name) from error
    except ValueError as error:
        scheme = url.partition("://")[0]
        raise ConfigError(f"{scheme}://: not a URL that fsspec opens here ({type(error).__name__})") from None
    if hasattr(files, "dircache"):
        files.dircache.use_listings_cache = False
    return files, str(path).rstrip("/")
