"""Engines: tasks in this process, in processes of this machine, and on a real Ray cluster of two nodes.

What they are for is tested where it is used: tests/protect/test_engines.py, tests/study/test_engines.py.
"""

import os
import socket
import sys
import time
from operator import truediv
from pathlib import Path

import pytest
import torch

from sfumato.base import engines
from sfumato.base.engines import EngineConfig
from sfumato.errors import ConfigError, SfumatoError
from sfumato.protect import parse

pytestmark = pytest.mark.xdist_group("ray")

SECONDS = 120  # a task that needs longer hangs


def where():
    return os.getpid(), torch.get_num_threads(), Path.cwd()


def until_there(path, marker):
    """Say that it began, and end once a file is there."""
    (marker / f"{os.getpid()}").touch()
    until = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid()


def added(held, number):
    held().append(number)
    return held().count(number)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "rey"}, "engine 'rey': did you mean 'ray'"),
        ({"workers": 0}, "workers=0: at least 1"),
        ({"cpus": 0}, "cpus=0: at least 1"),
        ({"name": "ray", "gpus": -1.0}, "gpus=-1: at least 0"),
        ({"gpus": 1.0}, "gpus=1.0: only for the engine ray"),
        ({"address": "10.0.0.1:6379"}, "address=10.0.0.1:6379: only for the engine ray"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        EngineConfig(**settings)


# This process, and processes of this machine


def test_one_local_worker_is_this_process_with_its_threads():
    with engines.engine(EngineConfig(workers=1)) as tasks:
        assert tasks.workers == 1
        assert tasks.submit(where).result() == tasks.submit(where, worker=0).result() == where()
        with pytest.raises(ZeroDivisionError):
            tasks.submit(truediv, 1, 0).result()


def test_local_workers_are_other_processes_of_one_thread_that_know_what_was_registered(registering):
    registering("protections", "plain", "sfumato.protect.pixels:Clear")
    with engines.engine(EngineConfig(workers=2)) as tasks:
        assert tasks.workers == 2
        first, again, second = (tasks.submit(os.getpid, worker=at).result(SECONDS) for at in (0, 0, 1))
        assert first == again != second
        assert os.getpid() not in (first, second)
        assert tasks.submit(torch.get_num_threads).result(SECONDS) == 1
        assert tasks.submit(parse, "plain").result(SECONDS) == parse("none")
        with pytest.raises(ZeroDivisionError):
            tasks.submit(truediv, 1, 0).result(SECONDS)
        with pytest.raises(SfumatoError, match="a worker process was killed"):
            dict(engines.gather([tasks.submit(os._exit, 1)]))


# A Ray cluster


@pytest.fixture(scope="module")
def on_ray(ray_cluster):
    """An engine on the cluster, which can have functions of this module, and gives up a task soon."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "_LOST_WORKERS", 1)
        with engines.engine(EngineConfig(name="ray", address=ray_cluster.address)) as tasks:
            yield tasks
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_tasks_on_ray_run_at_once_in_other_processes_of_one_thread_that_know_what_was_registered(
    on_ray, registering, tmp_path
):
    registering("protections", "plain", "sfumato.protect.pixels:Clear")
    assert on_ray.submit(parse, "plain").result(SECONDS) == parse("none")
    both = [on_ray.submit(until_there, tmp_path / "go", tmp_path) for _ in range(2)]
    until = time.monotonic() + SECONDS
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    processes = {future.result(SECONDS) for future in both}
    assert len(processes) == 2
    assert os.getpid() not in processes
    process, threads, folder = on_ray.submit(where).result(SECONDS)
    assert (process in processes, threads, folder) == (True, 1, Path.cwd())
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        on_ray.submit(truediv, 1, 0).result(SECONDS)


def test_what_is_held_on_ray_is_one_object_for_all_tasks(on_ray):
    held = on_ray.put(list)
    with pytest.raises(ValueError, match="not in list"):
        held().remove("x")  # an error arrives as it is
    for future in [on_ray.submit(added, held, "x") for _ in range(6)]:
        future.result(SECONDS)
    assert held().count("x") == 6  # also for who holds it


def test_a_task_on_ray_whose_worker_is_killed_is_done_again_and_at_last_given_up(
    on_ray, ray_cluster, tmp_path
):
    future = on_ray.submit(until_there, tmp_path / "go", tmp_path)
    killed = ray_cluster.kill_worker()
    (tmp_path / "go").touch()
    assert future.result(SECONDS) != killed
    with pytest.raises(SfumatoError, match="a worker process was killed"):
        dict(engines.gather([on_ray.submit(os._exit, 1)]))


def test_a_cluster_that_cannot_be_reached_is_told_at_once():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=f"address='{address}': no Ray cluster answers .*refused"),
            engines.engine(EngineConfig(name="ray", address=address)),
        ):
            pass
