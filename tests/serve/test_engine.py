"""Requests that come together are one forward pass, and none of them notices."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from unittest.mock import Mock

import numpy as np
import pytest

from sfumato.errors import ArtefactError, BusyError
from sfumato.serve.config import ServiceConfig
from sfumato.serve.engine import Engine
from sfumato.serve.served import Served, as_it_came

_Result = TypeVar("_Result")


class Double:
    """A model that doubles its inputs, and remembers how many came at once; `gate` holds it up."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.model = self.named("double")

    def named(self, name: str, run: Callable[[np.ndarray], np.ndarray] | None = None) -> Served:
        return Served(name, "few-shot", (), (1, 1, 1), 1, None, Mock(), run or self.run)

    def run(self, inputs: np.ndarray) -> np.ndarray:
        self.started.set()
        assert self.gate.wait(10)
        self.batches.append(len(inputs))
        return 2 * inputs


@pytest.fixture
def double() -> Double:
    return Double()


def rows(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


def work(use: Callable[[Engine], Awaitable[_Result]], observe: Any = None, **settings: Any) -> _Result:
    """Use an engine in an event loop."""

    async def used() -> _Result:
        engine = Engine(ServiceConfig(**settings), observe=observe)
        try:
            return await use(engine)
        finally:
            engine.close()

    return asyncio.run(used())


def begin(engine: Engine, *asked: tuple[Served, np.ndarray]) -> "list[asyncio.Task[np.ndarray]]":
    return [asyncio.create_task(engine.embed(*each)) for each in asked]


async def hold(engine: Engine, double: Double) -> None:
    """Let the engine begin a batch, and stay in it."""
    double.gate.clear()
    double.started.clear()
    begin(engine, (double.model, rows(0)))
    assert await asyncio.to_thread(double.started.wait, 10)


def held(double: Double, *asked: tuple[Served, np.ndarray], **settings: Any) -> list[np.ndarray]:
    """The results of requests that came while the engine was busy."""

    async def use(engine: Engine) -> list[np.ndarray]:
        await hold(engine, double)
        tasks = begin(engine, *asked)
        await asyncio.sleep(0)
        assert engine.waiting == sum(len(inputs) for _, inputs in asked)
        double.gate.set()
        return await asyncio.gather(*tasks)

    return work(use, **settings)


def test_requests_that_wait_together_are_one_batch_of_one_model_and_each_gets_its_own(double: Double):
    found = held(double, *((double.model, rows(number, number)) for number in range(5)))
    assert [each.ravel().tolist() for each in found] == [[2 * number] * 2 for number in range(5)]
    assert double.batches == [1, 10]
    models = double.model, double.named("other")
    found = held(double, *((models[number % 2], rows(number)) for number in range(6)))
    assert [each.item() for each in found] == [0, 2, 4, 6, 8, 10]
    assert double.batches[2:] == [1, 3, 3]


def test_no_batch_is_larger_than_allowed(double: Double):
    asked = [rows(*range(3))] * 3 + [rows(*range(9))]
    found = held(double, *((double.model, each) for each in asked), most_batch=4)
    assert all(np.array_equal(one, 2 * each) for one, each in zip(found, asked, strict=True))
    assert max(double.batches) <= 4
    assert sum(double.batches) == 1 + 9 + 9


def test_a_job_waits_for_company_no_longer_than_the_window_and_not_in_a_full_batch(double: Double):
    async def use(engine: Engine) -> list[float]:
        taken = []
        for asked in ([rows(1), rows(2)], [rows(1, 2, 3, 4)]):
            start = time.monotonic()
            await asyncio.gather(*begin(engine, *((double.model, each) for each in asked)))
            taken.append(time.monotonic() - start)
        return taken

    alone, full = work(use, window=0.2, most_batch=4)
    assert alone >= 0.19
    assert full < 0.19
    assert double.batches == [2, 4]


def test_a_full_queue_refuses_and_goes_on_when_there_is_room(double: Double):
    async def use(engine: Engine) -> None:
        await hold(engine, double)
        (kept,) = begin(engine, (double.model, rows(1, 2, 3)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="3 images wait already: send this again later") as raised:
            await engine.embed(double.model, rows(4, 5))
        assert raised.value.seconds > 0
        with pytest.raises(BusyError, match="3 images wait already"):  # and so is what nobody has read yet
            engine.check()
        double.gate.set()
        assert np.array_equal(await kept, rows(2, 4, 6))
        engine.check()
        assert (await engine.embed(double.model, rows(*range(9)))).shape == (9, 1)

    work(use, most_batch=2, most_waiting=4)


def test_what_was_accepted_is_done_while_closing_and_nothing_more_is_accepted(double: Double):
    async def use(engine: Engine) -> list[np.ndarray]:
        await hold(engine, double)
        accepted = begin(engine, *((double.model, rows(number)) for number in range(3)))
        await asyncio.sleep(0)
        engine.close()
        assert engine.closed
        with pytest.raises(BusyError, match="the server is closing"):
            await engine.embed(double.model, rows(9))
        double.gate.set()
        return await asyncio.gather(*accepted)

    assert [each.item() for each in work(use)] == [0, 2, 4]


def test_a_failure_is_told_to_those_whose_batch_it_was_and_the_next_are_done(double: Double):
    def fails(inputs: np.ndarray) -> np.ndarray:
        raise RuntimeError("no such layer")

    async def use(engine: Engine) -> None:
        with pytest.raises(RuntimeError, match="no such layer"):
            await engine.embed(double.named("broken", fails), rows(1))
        with pytest.raises(ArtefactError, match=r"odd: gives \(\) for 1 images"):
            await engine.embed(double.named("odd", lambda inputs: np.float32(1)), rows(1))  # type: ignore[arg-type,return-value]
        assert (await engine.embed(double.model, rows(1))).item() == 2

    work(use)


def test_what_nobody_waits_for_any_more_is_not_computed(double: Double):
    async def use(engine: Engine) -> np.ndarray:
        gone, kept = begin(engine, (double.model, rows(1, 1)), (double.model, rows(2)))
        await asyncio.sleep(0)
        gone.cancel()
        return await kept

    assert work(use, window=0.05).item() == 4
    assert double.batches == [1]


def test_forward_passes_are_reported_and_what_computes_nothing_waits_for_none(double: Double):
    seen: list[tuple[int, float]] = []

    async def use(engine: Engine) -> None:
        await hold(engine, double)
        code = rows(1, -1)
        assert await engine.embed(double.named("code", as_it_came), code) is code
        double.gate.set()
        await engine.embed(double.model, rows(1, 2))

    work(use, observe=lambda images, seconds: seen.append((images, seconds)))
    assert [images for images, _ in seen] == [1, 2]
    assert seen[0][1] > 0
