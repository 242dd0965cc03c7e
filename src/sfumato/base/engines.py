"""Engines that run the tasks of a job: this process, processes of this machine, or a Ray cluster.

One small interface: an engine takes a function of a module with its arguments, and gives a future. Repeating
a task must do no harm: a cluster repeats the tasks of a lost worker.
"""

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from sfumato.base import registry
from sfumato.base.threads import limit_threads, threads_of_children
from sfumato.errors import ConfigError, SfumatoError, did_you_mean, needs_extra

ENGINES = ("local", "ray")

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Held = TypeVar("_Held")

_LOST_WORKERS = 3  # repetitions of a task whose worker is lost


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The engine, and the resources of a task.

    Attributes:
        name: "local" or "ray".
        workers: processes, or None for one a core. On "local", 1 is this process itself, and its threads
            stay as they are. On a running Ray cluster: the most tasks at once.
        cpus: cores of each task, and threads that it uses.
        gpus: of each task, on Ray, which shows it that many; may be a fraction.
        address: of a Ray cluster; None for that of RAY_ADDRESS, or else a new one on this machine.
    """

    name: str = "local"
    workers: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(f"engine {self.name!r}: {did_you_mean(self.name, ENGINES)}")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers={self.workers}: at least 1")
        if self.cpus < 1:
            raise ConfigError(f"cpus={self.cpus}: at least 1, for each task")
        if self.gpus < 0:
            raise ConfigError(f"gpus={self.gpus:g}: at least 0, for each task")
        for setting, value in (("gpus", self.gpus), ("address", self.address)):
            if value and self.name != "ray":
                raise ConfigError(f"{setting}={value}: only for the engine ray: name it, or leave this out")


class Engine(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """The number of tasks that can run at once, now."""

    def submit(
        self, task: Callable[_Given, _Made], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> "Future[_Made]":
        """Begins a task; see `explain_lost_workers` for errors of the future."""

    def submit_to(self, worker: int, task: Callable[..., _Made], /, *args: Any) -> "Future[_Made]":
        """Begins a task in the process of that number below `workers`; on a cluster, on any node."""

    def hold(self, make: Callable[[], _Held]) -> Callable[[], _Held]:
        """Makes one object available to tasks that share no memory.

        In processes of this machine each makes its own, which suits data in a file. On a cluster one is
        made on this node; tasks get a proxy that passes method calls to it.
        """


@contextmanager
def engine(
    config: EngineConfig, *, preload: Sequence[str] = (), begin: Callable[[], object] | None = None
) -> Iterator[Engine]:
    """Yields an engine for the block; tasks that have not begun at its end never do.

    Args:
        config: which.
        preload: modules that every process of this machine needs.
        begin: called in each process that starts on this machine. A cluster does not call it, so that tasks
            must do without.

    Raises:
        MissingExtraError: the engine is not installed.
        ConfigError: no Ray cluster answers at the address, or it cannot run a task.
    """
    if config.name == "ray":
        with _ray(config) as found:
            yield found
    elif config.workers == 1:
        yield _Here()
    else:
        with _processes(config, preload, begin) as found:
            yield found


@contextmanager
def explain_lost_workers() -> Iterator[None]:
    """Wraps `Future.result`: if worker processes are lost for good, the error says what to do."""
    try:
        yield
    except (BrokenProcessPool, _LostError) as error:
        raise SfumatoError(
            "a worker process was killed, by the system for lack of memory or by hand. What was finished is "
            "kept: run the same command again to resume, with fewer workers for less memory"
        ) from error


class _LostError(Exception):
    """A task was given up, since its workers were lost again and again."""


class _Here:
    """This process. A task is done when it is submitted."""

    workers = 1

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(task(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def submit_to(self, worker: int, task: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        return self.submit(task, *args)

    def hold(self, make: Callable[[], _Held]) -> Callable[[], _Held]:
        return make


class _Processes:
    """Processes of this machine: a pool for tasks of any, and pools of one; each starts when it is used."""

    def __init__(self, pool: ProcessPoolExecutor, alone: Sequence[ProcessPoolExecutor]) -> None:
        self.workers = len(alone)
        self.submit = pool.submit
        self._alone = alone

    def submit_to(self, worker: int, task: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        return self._alone[worker].submit(task, *args)

    def hold(self, make: Callable[[], _Held]) -> Callable[[], _Held]:
        return make


@contextmanager
def _processes(
    config: EngineConfig, preload: Sequence[str], begin: Callable[[], object] | None
) -> Iterator[_Processes]:
    from multiprocessing import forkserver  # not on Windows

    # Not fork: the threads of torch would not survive it. The server does all imports once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with threads_of_children(config.cpus):
        forkserver.ensure_running()
    workers = config.workers or os.cpu_count() or 1
    given = (begin, *_surroundings(config))
    pools = [
        ProcessPoolExecutor(size, context, initializer=_begin, initargs=given)
        for size in (workers, *[1] * workers)
    ]
    try:
        yield _Processes(pools[0], pools[1:])
    except BaseException:
        for pool in pools:
            for process in (pool._processes or {}).values():  # or a study would wait for its longest cell
                process.terminate()
        raise
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


_Surroundings = tuple[Path, int, Sequence[registry.Added]]  # folder, threads, and registered things


def _surroundings(config: EngineConfig) -> _Surroundings:
    return Path.cwd(), config.cpus, registry.list_added()


def _settle(folder: Path, threads: int, added: Sequence[registry.Added]) -> None:
    """Gives a worker the folder, the threads and the registered things of the program."""
    os.chdir(folder)
    limit_threads(threads)
    registry.adopt(added)


def _begin(begin: Callable[[], object] | None, *surroundings: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _settle(*surroundings)
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    # A worker whose parent was killed would wait for its next task for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Ray:
    """A Ray cluster that this process is connected to."""

    def __init__(self, ray: Any, config: EngineConfig) -> None:
        self._ray = ray
        self._config = config
        resources = {"num_cpus": config.cpus, "num_gpus": config.gpus}
        self._task = ray.remote(_on_a_node).options(**resources, max_retries=_LOST_WORKERS)

    @property
    def workers(self) -> int:
        there = self._ray.cluster_resources()  # more when a node has joined
        places = int(there.get("CPU", 0) // self._config.cpus)
        if self._config.gpus:
            places = min(places, int(there.get("GPU", 0) / self._config.gpus))
        return min(places, self._config.workers or places)

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def unpack(done: "Future[Any]") -> None:
            error = done.exception()
            if error is None:
                value, error = done.result()
            elif isinstance(error, self._ray.exceptions.RayError):
                error = _LostError(str(error))
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        running = self._task.remote(_surroundings(self._config), task, args, kwargs)
        running.future().add_done_callback(unpack)
        return future

    def submit_to(self, worker: int, task: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        return self.submit(task, *args)

    def hold(self, make: Callable[[], _Held]) -> Callable[[], _Held]:
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        holder = self._ray.remote(_Holder).options(
            num_cpus=0, scheduling_strategy=here, max_restarts=-1, max_task_retries=-1
        )
        return _Passed(holder.remote(_surroundings(self._config), make))


@contextmanager
def _ray(config: EngineConfig) -> Iterator[_Ray]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Later versions of Ray do this, and this one warns: a task without devices sees all of them.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with needs_extra("the engine ray", "ray"):
        import ray
        import ray.util.scheduling_strategies
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address:
        _check_answers(address)
    begun_here: dict[str, Any] = {}
    if not address:
        workers = config.workers or max(1, (os.cpu_count() or 1) // config.cpus)
        begun_here = {
            "num_cpus": workers * config.cpus,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        # Not None, by which Ray would join the cluster that was last begun on this machine.
        ray.init(address or "local", log_to_driver=False, logging_level="error", **begun_here)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(str(address), error) from error
    try:
        found = _Ray(ray, config)
        if not found.workers:
            raise ConfigError(
                f"cpus={config.cpus}, gpus={config.gpus:g}: no node of the cluster can run such a task; the "
                "cluster has "
                f"{ray.cluster_resources()}"
            )
        yield found
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raises ConfigError if nothing listens at HOST:PORT: Ray itself would wait for minutes.

    Addresses of another form, such as "auto", are left to Ray.
    """
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not (colon and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"address={address!r}: no Ray cluster answers ({error}): begin one with `ray start --head`, "
        "or leave the address out, and one is started here"
    )


_ANSWERS = 5.0  # seconds
_STORE_BYTES = 100 << 20  # tasks pass paths and rows, not images


def _on_a_node(
    surroundings: _Surroundings, task: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """The result of a task or its error, as a value, which reaches the driver unchanged."""
    _settle(*surroundings)
    try:
        return task(*args, **kwargs), None
    except Exception as error:
        return None, error


class _Holder:
    """Holds one object on a node of a cluster."""

    def __init__(self, surroundings: _Surroundings, make: Callable[[], Any]) -> None:
        _settle(*surroundings)
        self._held = make()

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Exception | None]:
        try:
            return getattr(self._held, name)(*args, **kwargs), None
        except Exception as error:
            return None, error


class _Passed:
    """Passes method calls to a _Holder. Tasks call it to get the object, and the object is this."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __call__(self) -> Any:
        return self

    def __reduce__(self) -> Any:
        return _Passed, (self._holder,)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            import ray

            value, error = ray.get(self._holder.call.remote(name, args, kwargs))
            if error is not None:
                raise error
            return value

        return call
