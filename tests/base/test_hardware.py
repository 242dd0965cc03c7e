"""How many threads there are, with PyTorch and without."""

import subprocess
import sys

import pytest
import torch

from sfumato.base.hardware import thread_count


def test_there_are_as_many_threads_as_pytorch_has_or_without_it_the_environment_says(monkeypatch):
    assert thread_count() == torch.get_num_threads()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert thread_count() == 5
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert thread_count() >= 1


LATER = """
from sfumato.base.hardware import limit_threads, thread_count
limit_threads(1); first = thread_count()
import torch; assert first == torch.get_num_threads() == thread_count() == 1
"""
PRELOADED = """
import os, threadpoolctl; from sfumato.base.engines import EngineConfig, engine
with engine(EngineConfig(workers=2), preload=['numpy']) as tasks:
    pools = tasks.submit(threadpoolctl.threadpool_info).result(60)
assert [pool['num_threads'] for pool in pools] == [1], pools
assert 'OMP_NUM_THREADS' not in os.environ
"""


@pytest.mark.parametrize("code", [LATER, PRELOADED], ids=["PyTorch comes later", "a worker preloads NumPy"])
def test_a_limit_holds_for_libraries_whenever_they_are_imported(code: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
