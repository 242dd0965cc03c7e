"""A storage behind a URL, by fsspec, for images and for releases."""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from sfumato.base.files import PART
from sfumato.device.ledger.local import HEAD, Entry, Identified, is_within
from sfumato.device.ledger.scopes import folder_name, without_password
from sfumato.errors import ConfigError, ImageError, MissingExtraError
from sfumato.images import reading

_SAME_BYTES = 1 << 20  # bytes compared at a time

# Names that file systems give to a file's version, the most reliable first.
_VERSIONS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True)
class Remote:
    """A storage behind a URL. fsspec takes keys and passwords from the environment or from the URL.

    An object store writes whole objects. Elsewhere a file is written under another name and then renamed, if
    the file system can rename. A user and password of the URL appear in no message and not in its identity.
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
        """Whether only this process sees its files."""
        return self.url.startswith("memory://")

    def within(self, other: Identified) -> bool:
        """See Folder."""
        return is_within(self, other)

    def at(self, name: str) -> str:
        """See Folder."""
        here = str(self)
        return f"{here}{'' if here.endswith('/') else '/'}{name}" if name else here

    def exists(self) -> bool:
        """See Folder."""
        return self._info("") is not None

    def is_folder(self) -> bool:
        """See Folder."""
        info = self._info("")
        return info is not None and info["type"] == "directory"

    def is_empty(self) -> bool:
        """See Folder."""
        try:
            return next(self.entries(""), None) is None
        except FileNotFoundError:
            return True

    def entries(self, folder: str) -> Iterator[tuple[str, Callable[[], Entry]]]:
        """See Folder."""
        files, path = self._open(), self._path(folder)
        with self._errors(folder):
            listed = files.ls(path, detail=True)
        entries = []
        for info in listed:
            name = info["name"].rstrip("/")
            if name.lstrip("/") != path.strip("/"):  # some stores list the folder itself
                base = name.rpartition("/")[2]
                entries.append((base.rpartition(".")[0], base, info))
        entries.sort(key=lambda entry: entry[:2])
        return ((base, partial(self._entry, info)) for _, base, info in entries)

    def look(self, name: str) -> Entry:
        """See Folder."""
        with self._errors(name):
            return self._entry(self._open().info(self._path(name)))

    def read(self, name: str) -> bytes:
        """See Folder."""
        try:
            return self._bytes(name, reading.MAX_BYTES + 1)
        except OSError as error:
            message = f"{self.at(name)}: cannot be read ({error.strerror})"
            raise ImageError(message, cause="cannot be read") from error

    def head(self, name: str) -> bytes:
        """See Folder."""
        return self._bytes(name, HEAD)

    def level_times(self) -> None:
        """See Folder. It does nothing: a store sets its times itself, in the order of writing."""

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """See Folder."""
        with self._errors(name):
            opened = self._open().open(self._path(name), "rb")
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
                self._open().makedirs(self._path(""), exist_ok=True)

    def remove_empty(self) -> None:
        """See Folder. It does nothing: an object store has no folders, and a bucket is not ours to remove."""

    def tidy(self) -> None:
        """See Folder. An object store has no partial files."""
        if not self._renames():
            return
        files, root = self._open(), self._path("")
        with self._errors(""):
            for folder, _, names in files.walk(root):
                for name in names:
                    if fnmatch(name, PART):
                        files.rm_file(f"{folder.rstrip('/')}/{name}")

    def size(self, name: str) -> int | None:
        """See Folder."""
        info = self._info(name)
        return None if info is None or info["type"] == "directory" else info["size"]

    def put(self, name: str, content: bytes, *, replace: bool) -> None:
        """See Folder."""
        info = self._info(name)
        if info is not None:
            if info["size"] == len(content) and self._bytes(name, len(content) + 1) == content:
                return
            self._check_replaced(name, info, replace)
        with self._whole(name) as path:
            self._open().pipe_file(path, content)

    @contextmanager
    def file(self, name: str, *, replace: bool) -> Iterator[Path]:
        """See Folder."""
        with TemporaryDirectory() as folder:
            local = Path(folder) / "whole"
            yield local
            info = self._info(name)
            if info is not None:
                if info["size"] == local.stat().st_size and self._has(name, local):
                    return
                self._check_replaced(name, info, replace)
            with self._whole(name) as path:
                self._open().put_file(str(local), path)

    def delete(self, name: str) -> None:
        """See Folder."""
        with suppress(FileNotFoundError), self._errors(name):
            # Not rm, which would read the name as a pattern.
            self._open().rm_file(self._path(name))

    def _open(self) -> Any:
        with self._errors(""):
            return _file_system(self.url)[0]

    def _renames(self) -> bool:
        from fsspec import AbstractFileSystem

        return type(self._open()).mv is not AbstractFileSystem.mv

    def _path(self, name: str) -> str:
        self._open()
        root: str = _file_system(self.url)[1]
        return f"{root}/{name}" if name else root

    def _info(self, name: str) -> dict[str, Any] | None:
        with suppress(FileNotFoundError, NotADirectoryError), self._errors(name):
            info: dict[str, Any] = self._open().info(self._path(name))
            return info
        return None

    def _entry(self, info: dict[str, Any]) -> Entry:
        link = info.get("islink", False)
        if link:  # its target
            with self._errors(""):
                info = self._open().info(info["name"])
        if info["type"] == "directory":
            return Entry("link to a folder" if link else "folder")
        if info["type"] != "file" or info["size"] is None:
            return Entry("other")
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        return Entry("file", info["size"], f"{info['size']}:{version}")

    def _bytes(self, name: str, most: int) -> bytes:
        with self._errors(name):
            content: bytes = self._open().cat_file(self._path(name), start=0, end=most)
            return content

    def _has(self, name: str, local: Path) -> bool:
        with self.stream(name) as there, local.open("rb") as here:
            while part := here.read(_SAME_BYTES):
                if there.read(len(part)) != part:
                    return False
        return True

    def _check_replaced(self, name: str, info: dict[str, Any], replace: bool) -> None:
        if info["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.at(name))
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.at(name))

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Yield a path to write to, so that the file appears whole."""
        files, path = self._open(), self._path(name)
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
                    # Some file systems do not rename over a file. If killed here, the next run repeats it.
                    files.rm_file(path)
                    files.mv(temporary, path)
            except BaseException:
                with suppress(Exception):
                    files.rm_file(temporary)
                raise

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
        """Remove the user and password of the URL from a text."""
        text = text.replace(self.url, str(self))
        authority = self.url.partition("://")[2].partition("/")[0]
        user, colon, password = authority.rpartition("@")[0].partition(":")
        if colon:
            for secret in sorted({password, unquote(password), user, unquote(user)} - {""}, key=len)[::-1]:
                text = re.sub(re.escape(secret), "***", text)
        return text


class _Stream:
    """A file that is read from a URL; its errors contain no password."""

    def __init__(self, opened: Any, errors: Callable[[], Any]) -> None:
        self._opened = opened
        self._errors = errors

    def read(self, size: int) -> bytes:
        """Read the next bytes."""
        with self._errors():
            content: bytes = self._opened.read(size)
            return content


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
