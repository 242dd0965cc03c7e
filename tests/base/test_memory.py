"""Freed memory is kept within a block, and given back after it."""

import gc
import platform
import resource
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from sfumato.base import memory

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting"
)

MIB = 1 << 20
SIZE = 256


def held() -> float:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


def held_at_rest() -> float:
    """MiB in memory once nothing is left that is free: what other tests freed would be used again first."""
    gc.collect()
    memory.give_back()
    return held()


def use_and_free() -> None:
    torch.zeros(SIZE * MIB, dtype=torch.uint8).fill_(1)


def test_without_a_block_a_large_tensor_goes_back_at_once():
    """It comes first: later the heap has a free piece as large, from which the tensor would come."""
    before = held_at_rest()
    use_and_free()
    assert held() - before < 0.2 * SIZE


def test_what_is_freed_is_kept_within_the_outermost_block_and_given_back_after_it():
    before = held_at_rest()
    with memory.keep_freed():
        with memory.keep_freed():
            use_and_free()
        assert held() - before > 0.9 * SIZE
        memory.give_back()  # also on demand
        assert held() - before < 0.2 * SIZE
        use_and_free()
    assert held() - before < 0.2 * SIZE


def test_a_block_that_fails_gives_back_as_well():
    before = held_at_rest()
    with suppress(RuntimeError), memory.keep_freed():
        use_and_free()
        raise RuntimeError
    assert held() - before < 0.2 * SIZE


def test_other_c_libraries_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with memory.keep_freed():
        use_and_free()
