"""The process's memory allocator, told what training needs of it."""

import ctypes

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's mallopt(3)
_KEPT = 1 << 30  # bytes


def keep_memory() -> bool:
    """Let this process keep up to a gigabyte that it frees, for itself. -> whether the allocator can.

    glibc gives every large tensor back to the system when it is freed, and a moment later takes it anew,
    zeroed page by page: a quarter of the time of training convolutions on a processor, or more
    (benchmarks/allocator.py). For commands that train: the peak of memory grows by about a tenth. Elsewhere
    than on glibc nothing is done.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(name, _KEPT) for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
