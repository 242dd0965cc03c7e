"""One forward pass for requests that arrive together: a bounded list of them, and a thread that computes."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from sfumato.errors import ArtefactError, BusyError
from sfumato.serve.config import ServiceConfig
from sfumato.serve.served import Served, as_it_came


@dataclass(frozen=True, eq=False)
class _Job:
    """The images that one request wants embedded."""

    model: Served
    inputs: np.ndarray
    result: "Future[np.ndarray]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Engine:
    """Embeds images of many requests together. State: the waiting jobs, and a thread.

    A job waits for others no longer than `window`, and not at all if a batch is full. An embedding depends
    on the rest of its batch only by rounding. Codes and features need no computing, and do not wait. The
    thread takes its batches by itself: the event loop is busy just when many ask.
    """

    def __init__(self, config: ServiceConfig, *, observe: Callable[[int, float], None] | None = None) -> None:
        """`observe` is called after each forward pass with its images and seconds."""
        self._window, self._most_batch = config.window, config.most_batch
        self._most_waiting = config.most_waiting
        self._observe = observe
        self._jobs: list[_Job] = []
        self._full = threading.Condition()  # of _jobs; notified when a batch is full
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sfumato-engine")
        self._works = self.closed = False
        self._refuses = False  # from a refusal to the next batch: before it there is no room
        self._seconds_an_image = 0.01  # follows the measurements

    @property
    def waiting(self) -> int:
        """The number of images that wait."""
        return sum(len(job.inputs) for job in self._jobs)

    async def embed(self, model: Served, inputs: np.ndarray) -> np.ndarray:
        """Embed the output of `model.prepare`: (N, ...) -> (N, D).

        Raises:
            BusyError: too many wait, or the server is closing.
        """
        if self.closed:
            raise BusyError("the server is closing: send this to another one, or again later", seconds=5)
        if model.run is as_it_came:
            return inputs
        job = _Job(model, inputs)
        with self._full:
            waiting = self.waiting + len(inputs)
            # One request may be larger than the bound: it is accepted if nothing waits.
            if self._jobs and waiting > self._most_waiting:
                self._refuses = True
                self.check()
            self._jobs.append(job)
            if waiting >= self._most_batch:
                self._full.notify()
            if not self._works:
                self._works = True
                self._thread.submit(self._work)
        return await asyncio.wrap_future(job.result)

    def check(self) -> None:
        """Raise BusyError if a request has found no room since the last batch began.

        Refusing before reading costs next to nothing. A server that reads refused requests answers fewer
        requests the more it gets.
        """
        if self._refuses:
            seconds = self.waiting * self._seconds_an_image
            raise BusyError(f"{self.waiting} images wait already: send this again later", seconds=seconds)

    def close(self) -> None:
        """Accept no more jobs; the thread ends after the accepted ones."""
        self.closed = True
        self._thread.shutdown(wait=False)

    def _work(self) -> None:
        """Compute batch after batch while jobs wait, in the thread."""
        while jobs := self._next():
            start = time.perf_counter()
            try:
                embeddings = self._embed(jobs)
            except Exception as error:  # any error concerns these requests only; the next jobs run
                for job in jobs:
                    job.result.set_exception(error)
                continue
            taken = time.perf_counter() - start
            self._seconds_an_image += 0.1 * (taken / len(embeddings) - self._seconds_an_image)
            if self._observe is not None:
                self._observe(len(embeddings), taken)
            for job in jobs:
                own, embeddings = embeddings[: len(job.inputs)], embeddings[len(job.inputs) :]
                job.result.set_result(own)

    def _next(self) -> list[_Job]:
        """Wait for company, and take the jobs of the next forward pass, for one model; none at the end."""
        with self._full:
            while self._jobs:
                first = self._jobs[0]
                left = first.arrived + self._window - time.monotonic()
                if self.waiting < self._most_batch and left > 0:
                    self._full.wait(left)
                chosen, room = {first}, self._most_batch - len(first.inputs)
                for job in self._jobs[1:]:
                    if job.model is first.model and len(job.inputs) <= room:
                        chosen.add(job)
                        room -= len(job.inputs)
                jobs, self._jobs = self._jobs, [job for job in self._jobs if job not in chosen]
                self._refuses = False
                wanted = [job for job in jobs if job in chosen and job.result.set_running_or_notify_cancel()]
                if wanted:
                    return wanted
            self._works = False
            return []

    def _embed(self, jobs: list[_Job]) -> np.ndarray:
        """Embed images in passes of at most a batch, in the thread."""
        model, rows = jobs[0].model, np.concatenate([job.inputs for job in jobs])
        parts = range(0, len(rows), self._most_batch)
        found = [model.run(rows[start : start + self._most_batch]) for start in parts]
        if any(each.ndim != 2 for each in found) or sum(map(len, found)) != len(rows):
            raise ArtefactError(f"{model.name}: gives {found[0].shape} for {len(rows)} images")
        return np.concatenate(found)
