"""Memory that this process frees, and needs again at once; and a bound of what it may take.

glibc returns every large tensor to the system when it is freed, and allocates the next one anew, zeroed page
by page: nearly half of the time of a training step on small images (docs/speed.md).
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of malloc.h
_KEEP = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: 1 << 30, _TOP_PAD: 1 << 26}
# The values that glibc reaches by itself in a process that has freed tensors of 32 MiB.
_USUAL = {_MMAP_THRESHOLD: 1 << 25, _TRIM_THRESHOLD: 1 << 26, _TOP_PAD: 1 << 17}

_lock, _limiting = threading.Lock(), threading.Lock()
_blocks = 0  # open, in all threads


@contextmanager
def keep_freed() -> Iterator[None]:
    """Keeps freed memory for the next need, with glibc; the end of the outermost block returns it.

    It grows over hours, as aligned tensors do not always fit into freed ones: call `give_back` at times.
    """
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            _set(_KEEP)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                _set(_USUAL)
                give_back()


def give_back() -> None:
    """Returns free memory to the system, in a tenth of a second for a GiB."""
    if library := _glibc():
        library.malloc_trim(0)


@contextmanager
def limit_memory(more: int) -> Iterator[None]:
    """Limits the process to its present memory and `more` bytes, if Linux can bound it."""
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    import resource

    with _limiting:
        before = resource.getrlimit(resource.RLIMIT_AS)
        most = int(status.read_text().split()[0]) * resource.getpagesize() + more
        if before[0] != resource.RLIM_INFINITY:
            most = min(most, before[0])
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _set(settings: dict[int, int]) -> None:
    if library := _glibc():
        for setting, value in settings.items():
            library.mallopt(setting, value)


@cache
def _glibc() -> Any:
    """The C library if it is glibc, else None."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # no library opens without a name, as on Windows
        return None
    return library if hasattr(library, "gnu_get_libc_version") else None
