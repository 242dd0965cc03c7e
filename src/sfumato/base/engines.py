"""Engines that run the tasks of a job: this process, processes of this machine, or a Ray cluster.

Repeating a task must do no harm: a cluster repeats the tasks of a lost worker.
"""

import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from sfumato.base import registry
from sfumato.base.hardware import limit_threads, threads_of_children
from sfumato.errors import ConfigError, SfumatoError, did_you_mean, needs_extra

ENGINES = ("local", "ray")
_Made = TypeVar("_Made")
# What a worker gets from the program: its folder, threads and registered things.
_Surroundings: TypeAlias = tuple[Path, int, Sequence[registry.Added]]
_LOST_WORKERS = 3  # repetitions of a task whose worker is lost


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine, and the resources of a task."""

    name: str = "local"  # or "ray"
    # Processes, None for one a core; 1 is this process, whose threads stay. On Ray: the most tasks at once.
    workers: int | None = None
    cpus: int = 1  # cores of each task, and threads that it uses
    gpus: float = 0.0  # of each task, on Ray, which shows it that many; may be a fraction
    address: str | None = None  # of a Ray cluster; None for that of RAY_ADDRESS, or else a new one here

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(f"engine {self.name!r}: {did_you_mean(self.name, ENGINES)}")
        least = {"workers": (self.workers, 1), "cpus": (self.cpus, 1), "gpus": (self.gpus, 0)}
        for setting, (number, bound) in least.items():
            if number is not None and number < bound:
                raise ConfigError(f"{setting}={number:g}: at least {bound}")
        for setting, value in (("gpus", self.gpus), ("address", self.address)):
            if value and self.name != "ray":
                raise ConfigError(f"{setting}={value}: only for the engine ray: name it, or leave this out")


class Engine:
    """Runs tasks: one in this process, as soon as it is submitted."""

    workers = 1  # tasks that can run at once, now

    def submit(self, task: Callable[..., _Made], *args: Any, worker: int | None = None) -> "Future[_Made]":
        """Begins a task: in any process, or in that of a number below `workers`. A cluster takes any node."""
        future: Future[_Made] = Future()
        try:
            future.set_result(task(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def put(self, make: Callable[[], _Made]) -> Callable[[], _Made]:
        """Makes an object available to tasks: each process its own, or one on this node for a cluster."""
        return make


@contextmanager
def engine(
    config: EngineConfig, *, preload: Sequence[str] = (), begin: Callable[[], object] | None = None
) -> Iterator[Engine]:
    """Yields an engine for the block, or a ConfigError; tasks that have not begun at its end never do.

    Each process on this machine, and none of a cluster, has the modules of `preload` and calls `begin`.
    """
    if config.name == "ray":
        with _ray(config) as tasks:
            yield tasks
    elif config.workers == 1:
        yield Engine()
    else:
        processes = _Processes(config, preload, begin or bool)  # which does nothing
        try:
            yield processes
        except BaseException:
            for pool in processes.pools.values():
                for process in (pool._processes or {}).values():  # or a study would wait for its longest cell
                    process.terminate()
            raise
        finally:
            for pool in processes.pools.values():
                pool.shutdown(cancel_futures=True)


def gather(
    tasks: Iterable["Future[_Made]"], timeout: float | None = None
) -> Iterator[tuple["Future[_Made]", _Made]]:
    """Waits until the first of some tasks ends, and yields those that ended with their results."""
    for future in wait(tasks, timeout, FIRST_COMPLETED).done:
        yield future, explain_lost_workers(future.result)


def explain_lost_workers(call: Callable[..., _Made], *args: Any) -> _Made:
    """Calls a function of a task; the error of worker processes lost for good says what to do."""
    try:
        return call(*args)
    except Exception as error:
        ray = sys.modules.get("ray")
        if ray is not None and isinstance(error, ray.exceptions.RayTaskError):
            raise error.cause from None  # as it was raised
        lost = BrokenProcessPool if ray is None else (BrokenProcessPool, ray.exceptions.RayError)
        if not isinstance(error, lost):
            raise
        raise SfumatoError(
            "a worker process was killed, by the system for lack of memory or by hand. What was finished is "
            "kept: run the same command again to resume, with fewer workers for less memory"
        ) from error


class _Processes(Engine):
    """Processes of this machine. State: a pool for tasks of any, and pools of one; each starts when used."""

    def __init__(self, config: EngineConfig, preload: Sequence[str], begin: Callable[[], object]) -> None:
        # Not fork: the threads of torch would not survive it. The server does all imports once.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        with threads_of_children(config.cpus):
            forkserver.ensure_running()
        self.workers = config.workers or os.cpu_count() or 1
        self._given = (begin, _surroundings(config))
        self.pools: dict[int | None, ProcessPoolExecutor] = {}

    def submit(self, task: Callable[..., _Made], *args: Any, worker: int | None = None) -> "Future[_Made]":
        if worker not in self.pools:
            size = self.workers if worker is None else 1
            self.pools[worker] = ProcessPoolExecutor(size, self._context, _begin, self._given)
        return explain_lost_workers(self.pools[worker].submit, task, *args)


def _surroundings(config: EngineConfig) -> _Surroundings:
    return Path.cwd(), config.cpus, registry.list_added()


def _run_there(surroundings: _Surroundings, task: Callable[..., Any], *args: Any) -> Any:
    folder, threads, added = surroundings
    os.chdir(folder)
    limit_threads(threads)
    registry.adopt(added)
    return task(*args)


def _begin(begin: Callable[[], object], surroundings: _Surroundings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _run_there(surroundings, begin)


def _end_with_parent() -> None:
    # A worker whose parent was killed would wait for its next task for ever.
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


class _Ray(Engine):
    """A Ray cluster that this process has joined."""

    def __init__(self, ray: Any, config: EngineConfig) -> None:
        self._ray, self._config = ray, config
        resources = {"num_cpus": config.cpus, "num_gpus": config.gpus}
        self._task = ray.remote(_run_there).options(**resources, max_retries=_LOST_WORKERS)

    @property
    def workers(self) -> int:  # type: ignore[override]
        there, config = self._ray.cluster_resources(), self._config  # more when a node has joined
        places = int(there.get("CPU", 0) // config.cpus)
        places = min(places, int(there.get("GPU", 0) / config.gpus)) if config.gpus else places
        return min(places, config.workers or places)

    def submit(self, task: Callable[..., Any], /, *args: Any, worker: int | None = None) -> "Future[Any]":
        return cast("Future[Any]", self._task.remote(_surroundings(self._config), task, *args).future())

    def put(self, make: Callable[[], _Made]) -> Callable[[], Any]:
        node = self._ray.get_runtime_context().get_node_id()
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        settings = {"scheduling_strategy": here, "max_restarts": -1, "max_task_retries": -1}
        holder = self._ray.remote(_Holder).options(num_cpus=0, **settings)
        return partial(_Held, holder.remote(_surroundings(self._config), make))


class _Holder:
    """Holds one object on a node of a cluster."""

    def __init__(self, surroundings: _Surroundings, make: Callable[[], Any]) -> None:
        self._held = _run_there(surroundings, make)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._held, name)(*args, **kwargs)


class _Held:
    """Passes method calls to a _Holder."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ask = partial(self._holder.call.remote, name)
        return lambda *args, **kwargs: explain_lost_workers(ask(*args, **kwargs).future().result)


@contextmanager
def _ray(config: EngineConfig) -> Iterator[_Ray]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Later versions of Ray do this, and this one warns: a task without devices sees all of them.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with needs_extra("the engine ray", "ray"):
        import ray
        import ray.util.scheduling_strategies
    address = config.address or os.environ.get("RAY_ADDRESS")
    cpus = config.cpus * (config.workers or max(1, (os.cpu_count() or 1) // config.cpus))
    new = {"num_cpus": cpus, "object_store_memory": 100 << 20, "include_dashboard": False}
    try:
        host, colon, port = (address or "").rpartition("://")[2].rpartition(":")
        if colon and port.isdecimal():  # Ray itself would wait for minutes if nobody listens there
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        # Not None, by which Ray would join the cluster that was last begun on this machine.
        ray.init(address or "local", log_to_driver=False, logging_level="error", **({} if address else new))
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        cure = "begin one with `ray start --head`, or leave the address out, and one is started here"
        raise ConfigError(f"address={address!r}: no Ray cluster answers ({error}): {cure}") from error
    try:
        tasks = _Ray(ray, config)
        if not tasks.workers:
            words = f"no node of the cluster can run such a task; it has {ray.cluster_resources()}"
            raise ConfigError(f"cpus={config.cpus}, gpus={config.gpus:g}: {words}")
        yield tasks
    finally:
        ray.shutdown()
