"""Files that appear whole or not at all, who may make them, and how their names are shown."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfumato.errors import BusyError

# A short name of its own: the name of the file itself may be as long as the system allows.
PART = ".sfumato-*.part"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary path, for a file or a folder, that takes the place of `path` when the block ends well.

    When it does not, what was at `path` is untouched and the temporary is gone; only a process that is killed
    leaves it, under a name that matches PART. The folder of `path` is made where it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(PART.replace("*", secrets.token_hex(8)))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep the making of `path` to one process at a time, by a lock that the system lets go of when it ends.

    Look within the block whether the file is there by now: the one before may have made it.

    Raises:
        BusyError: another process is making it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_suffix(".lock")
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{path}: another process is making it: wait for it") from error
        yield
        # Only now that the file is there: whoever takes the name of the lock anew will find it.
        lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


def printable(name: str) -> str:
    """A file name without what would move a cursor, break the line, or be no text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
