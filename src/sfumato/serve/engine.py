"""One forward pass for requests that arrive together: a bounded queue, and a thread that empties it."""

import asyncio
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sfumato.base import logs
from sfumato.base.listening import stop_failed
from sfumato.errors import ArtefactError, BusyError, ConfigError
from sfumato.serve.served import Served

_Result = np.ndarray | Exception

_log = logging.getLogger("sfumato.serve")


@dataclass(frozen=True)
class _Job:
    """The images that one request wants embedded; `count` is their number.

    `waits` is the future of the request. If it belongs to an event loop, `loop`, that is woken once per
    batch.
    """

    model: Served
    inputs: np.ndarray
    count: int
    waits: "Future[np.ndarray] | asyncio.Future[np.ndarray]"
    loop: asyncio.AbstractEventLoop | None = None
    arrived: float = field(default_factory=time.monotonic)


class Engine:
    """Embeds images of many requests together. State: the waiting jobs, and the thread that does them.

    A job waits for others no longer than `window`, and not at all if a batch is full. An embedding depends on
    the rest of its batch only by rounding. Accepted jobs are finished, also while closing.
    """

    def __init__(
        self,
        *,
        window: float = 0.002,
        most_batch: int = 32,
        most_waiting: int = 512,
        observe: Callable[[int, float], None] | None = None,
        dead: Callable[[], None] = partial(stop_failed, "its engine ended by a bug"),
    ) -> None:
        """Start the thread.

        Args:
            window: seconds, at least 0.
            most_batch: images of a forward pass.
            most_waiting: images that may wait.
            observe: called after each forward pass with its images and seconds.
            dead: called if the thread ends by a bug: nothing would be answered any more.
        """
        if not 0 <= window <= 1 or not 1 <= most_batch <= most_waiting:
            raise ConfigError(
                f"window={window:g}, most_batch={most_batch}, most_waiting={most_waiting}: a window of 0 to "
                "1 s, a batch of at least 1 image, and room for one batch or more to wait"
            )
        self._window = window
        self._most_batch = most_batch
        self._most_waiting = most_waiting
        self._observe = observe
        self._dead = dead
        self._jobs: deque[_Job] = deque()
        self._waiting = 0  # images of all jobs
        self._company = 0  # images of the jobs for the model of the first job
        self._changed = threading.Condition()
        self._closed = False
        self._refuses = False  # true from a refusal to the next batch: before it there is no room
        self._seconds_an_image = 0.01  # follows the measurements
        self._thread = threading.Thread(target=self._work, name="sfumato-engine", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of images that wait."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the engine accepts and does jobs."""
        return self._thread.is_alive() and not self._closed

    def submit(self, model: Served, inputs: np.ndarray) -> Future[np.ndarray]:
        """Embed the output of `model.prepare`, later: (N, ...) -> (N, D).

        Raises:
            BusyError: the queue is full, or the server is closing.
        """
        future: Future[np.ndarray] = Future()
        self._accept(_Job(model, inputs, len(inputs), future))
        return future

    async def embed(self, model: Served, inputs: np.ndarray) -> np.ndarray:
        """Embed like submit, within an event loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[np.ndarray] = loop.create_future()
        self._accept(_Job(model, inputs, len(inputs), future, loop))
        return await future

    def check(self) -> None:
        """Raise BusyError if a request has found no room since the last batch began.

        Refusing before reading costs next to nothing. A server that reads refused requests answers fewer
        requests the more it gets.
        """
        if self._refuses:
            raise self._busy()

    def _busy(self) -> BusyError:
        seconds = self._waiting * self._seconds_an_image
        return BusyError(f"{self._waiting} images wait already: send this again later", seconds=seconds)

    def _accept(self, job: _Job) -> None:
        with self._changed:
            if self._closed:
                raise BusyError("the server is closing: send this to another one, or again later", seconds=5)
            # One request may be larger than the queue: it is accepted if nothing waits.
            if self._waiting and self._waiting + job.count > self._most_waiting:
                self._refuses = True
                raise self._busy()
            self._jobs.append(job)
            self._waiting += job.count
            if job.model is self._jobs[0].model:
                self._company += job.count
            # Otherwise the thread waits by the clock for more jobs: waking it would delay others.
            if len(self._jobs) == 1 or self._company >= self._most_batch:
                self._changed.notify()

    def close(self) -> None:
        """Accept no more jobs, finish the accepted ones, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        jobs: list[_Job] = []
        try:
            while jobs := self._next():
                self._do(jobs)
        except BaseException as error:
            logs.event(_log, logging.CRITICAL, "the engine stopped", error=type(error).__name__)
            with self._changed:
                self._closed = True
                left = [*jobs, *self._jobs]
            stopped = BusyError("the server stopped: send this to another one, or again later", seconds=5)
            _settle(left, [stopped] * len(left))
            self._dead()

    def _do(self, jobs: list[_Job]) -> None:
        start = time.perf_counter()
        try:
            embeddings = self._embed(jobs[0].model, [job.inputs for job in jobs])
        except Exception as error:  # any error concerns these requests only; the next jobs run
            _settle(jobs, [error] * len(jobs))
            return
        taken = time.perf_counter() - start
        self._seconds_an_image += 0.1 * (taken / len(embeddings) - self._seconds_an_image)
        ends = itertools.accumulate(job.count for job in jobs)
        _settle(jobs, [embeddings[end - job.count : end] for job, end in zip(jobs, ends, strict=True)])
        if self._observe is not None:
            self._observe(len(embeddings), taken)

    def _embed(self, model: Served, inputs: list[np.ndarray]) -> np.ndarray:
        """Embed images in passes of at most a batch."""
        rows = inputs[0] if len(inputs) == 1 else np.concatenate(inputs)
        parts = range(0, len(rows), self._most_batch)
        found = [model.run(rows[start : start + self._most_batch]) for start in parts]
        embeddings = found[0] if len(found) == 1 else np.concatenate(found)
        if embeddings.ndim != 2 or len(embeddings) != len(rows):
            raise ArtefactError(f"{model.name}: gives {embeddings.shape} for {len(rows)} images")
        return embeddings

    def _next(self) -> list[_Job]:
        """Take the jobs of the next forward pass, all for one model; none if the engine is closed."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            while self._jobs and not self._closed and self._company < self._most_batch:
                left = self._jobs[0].arrived + self._window - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            chosen: list[_Job] = []
            room = self._most_batch
            for job in tuple(self._jobs):
                if job.model is self._jobs[0].model and (not chosen or job.count <= room):
                    chosen.append(job)
                    room -= job.count
            for job in chosen:
                self._jobs.remove(job)
            self._refuses = False
            self._waiting = sum(job.count for job in self._jobs)
            self._company = sum(job.count for job in self._jobs if job.model is self._jobs[0].model)
        running = [job for job in chosen if _is_wanted(job)]
        return running or (self._next() if chosen else [])


def _is_wanted(job: _Job) -> bool:
    """Whether the request still waits, as far as this thread can tell."""
    if isinstance(job.waits, Future):
        return job.waits.set_running_or_notify_cancel()
    return not job.waits.cancelled()


def _settle(jobs: Sequence[_Job], results: Sequence[_Result]) -> None:
    """Give each job its result, and wake each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[tuple[_Job, _Result]]] = {}
    for job, result in zip(jobs, results, strict=True):
        by_loop.setdefault(job.loop, []).append((job, result))
    for loop, pairs in by_loop.items():
        if loop is None:
            _give(pairs)
            continue
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_give, pairs)


def _give(pairs: Sequence[tuple[_Job, _Result]]) -> None:
    for job, result in pairs:
        if job.waits.done():  # the request is gone, or has an answer
            continue
        if isinstance(result, Exception):
            job.waits.set_exception(result)
        else:
            job.waits.set_result(result)
