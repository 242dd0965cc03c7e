"""The threads that the work of this process may use, with PyTorch or without it.

PyTorch has a number of its own, and takes a second to import: code without it asks here.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def thread_count() -> int:
    """As many as PyTorch would use: set by `limit_threads` or OMP_NUM_THREADS, or one for each core."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(said) if said.isdecimal() and int(said) else len(os.sched_getaffinity(0))


def limit_threads(threads: int) -> None:
    """Limits the threads of this process, now and when PyTorch is imported later."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


@contextmanager
def threads_of_children(threads: int) -> Iterator[None]:
    """Limits the threads of processes that start in this block.

    The linear algebra of NumPy and SciPy counts its threads once, when it is imported. `limit_threads` comes
    too late for a process that has imported them.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
