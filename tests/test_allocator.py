import ctypes
import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from sfumato.allocator import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
def once():
    torch.empty(1 << 24, dtype=torch.uint8).fill_(1)
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(way):
    """How many pages the system had to give for 50 tensors of 16 MiB, one after the other."""
    told = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    words = [sys.executable, "-c", FAULTS, way]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=told)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc only")
def test_a_process_that_keeps_its_memory_asks_the_system_for_none_anew():
    assert faults("as it is") > 50 * 1000
    assert faults("keep") < 5000
