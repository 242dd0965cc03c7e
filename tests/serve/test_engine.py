"""Requests that come together are one forward pass, and none of them notices."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfumato.errors import ArtefactError, BusyError, ConfigError
from sfumato.serve.engine import Engine
from sfumato.serve.served import Served


class Double:
    """A model that doubles its inputs, and remembers how many came at once; `gate` holds it up."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.model = self.named("double")

    def named(self, name: str) -> Served:
        def prepare(*_: Any) -> np.ndarray:
            raise NotImplementedError

        return Served(name, "few-shot", (), (1, 1, 1), 1, None, prepare, self.run)

    def run(self, inputs: np.ndarray) -> np.ndarray:
        self.started.set()
        assert self.gate.wait(10)
        self.batches.append(len(inputs))
        return 2 * inputs


Begin = Callable[..., Engine]


@pytest.fixture
def double() -> Iterator[Double]:
    made = Double()
    yield made
    made.gate.set()


@pytest.fixture
def begin(double: Double) -> Iterator[Begin]:
    engines: list[Engine] = []

    def new(**settings: Any) -> Engine:
        engines.append(Engine(**settings))
        return engines[-1]

    yield new
    double.gate.set()
    for engine in engines:
        engine.close()


def rows(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)[:, None]


def hold(engine: Engine, double: Double) -> None:
    """Let the engine begin a batch, and stay in it."""
    double.gate.clear()
    engine.submit(double.model, rows(0))
    assert double.started.wait(10)


def test_what_was_submitted_comes_back_computed(begin: Begin, double: Double):
    found = begin().submit(double.model, rows(1, 2, 3)).result(10)
    assert np.array_equal(found, rows(2, 4, 6))


def test_requests_that_wait_together_are_one_batch_and_each_gets_its_own(begin: Begin, double: Double):
    engine = begin()
    hold(engine, double)
    futures = [engine.submit(double.model, rows(number, number)) for number in range(5)]
    assert engine.waiting == 10
    double.gate.set()
    for number, future in enumerate(futures):
        assert np.array_equal(future.result(10), rows(2 * number, 2 * number))
    assert double.batches == [1, 10]


def test_no_batch_is_larger_than_allowed(begin: Begin, double: Double):
    engine = begin(most_batch=4)
    hold(engine, double)
    futures = [engine.submit(double.model, rows(*range(3))) for _ in range(3)]
    futures.append(engine.submit(double.model, rows(*range(9))))
    double.gate.set()
    for future in futures:
        future.result(10)
    assert max(double.batches) <= 4
    assert sum(double.batches) == 1 + 9 + 9


def test_a_job_waits_for_company_no_longer_than_the_window(begin: Begin, double: Double):
    engine = begin(window=0.2)
    start = time.monotonic()
    first = engine.submit(double.model, rows(1))
    second = engine.submit(double.model, rows(2))
    assert (first.result(10), second.result(10)) == (rows(2), rows(4))
    assert time.monotonic() - start >= 0.19
    assert double.batches == [2]


def test_a_full_batch_does_not_wait(begin: Begin, double: Double):
    engine = begin(window=1.0, most_batch=2)
    assert np.array_equal(engine.submit(double.model, rows(1, 2)).result(0.9), rows(2, 4))


def test_models_are_never_mixed(begin: Begin, double: Double):
    engine = begin()
    hold(engine, double)
    other = double.named("other")
    futures = [engine.submit((double.model, other)[number % 2], rows(number)) for number in range(6)]
    double.gate.set()
    assert [future.result(10).item() for future in futures] == [0, 2, 4, 6, 8, 10]
    assert double.batches == [1, 3, 3]


def test_a_full_queue_refuses_and_goes_on_when_there_is_room(begin: Begin, double: Double):
    engine = begin(most_batch=2, most_waiting=4)
    hold(engine, double)
    kept = engine.submit(double.model, rows(1, 2, 3))
    with pytest.raises(BusyError, match="3 images wait already: send this again later") as raised:
        engine.submit(double.model, rows(4, 5))
    assert raised.value.seconds > 0
    with pytest.raises(BusyError, match="3 images wait already"):  # and so is what nobody has read yet
        engine.check()
    double.gate.set()
    assert np.array_equal(kept.result(10), rows(2, 4, 6))
    engine.check()
    assert engine.submit(double.model, rows(*range(9))).result(10).shape == (9, 1)


def test_what_was_accepted_is_done_while_closing_and_nothing_more_is_accepted(begin: Begin, double: Double):
    engine = begin(window=0.05)
    hold(engine, double)
    accepted = [engine.submit(double.model, rows(number)) for number in range(3)]
    closing = threading.Thread(target=engine.close)
    closing.start()
    while engine.alive:
        time.sleep(0.001)
    with pytest.raises(BusyError, match="the server is closing"):
        engine.submit(double.model, rows(9))
    double.gate.set()
    closing.join(10)
    assert [future.result(0).item() for future in accepted] == [0, 2, 4]


def test_a_failure_is_told_to_those_whose_batch_it_was_and_the_next_are_done(begin: Begin, double: Double):
    engine = begin()

    def fails(inputs: np.ndarray) -> np.ndarray:
        raise RuntimeError("broken")

    broken = Served("broken", "few-shot", (), (1, 1, 1), 1, None, double.model.prepare, fails)
    with pytest.raises(RuntimeError, match="broken"):
        engine.submit(broken, rows(1)).result(10)
    assert engine.submit(double.model, rows(1)).result(10).item() == 2


def test_what_nobody_waits_for_any_more_is_not_computed(begin: Begin, double: Double):
    engine = begin()
    hold(engine, double)
    gone = engine.submit(double.model, rows(1, 1, 1))
    kept = engine.submit(double.model, rows(2))
    assert gone.cancel()
    double.gate.set()
    kept.result(10)
    assert double.batches == [1, 1]


def test_forward_passes_are_reported(double: Double):
    seen: list[tuple[int, float]] = []
    engine = Engine(observe=lambda images, seconds: seen.append((images, seconds)))
    engine.submit(double.model, rows(1, 2)).result(10)
    engine.close()
    assert [images for images, _ in seen] == [2]
    assert seen[0][1] > 0


def test_requests_of_an_event_loop_are_answered_by_one_wake_of_it(begin: Begin, double: Double):
    engine = begin(window=0.2)

    async def several() -> tuple[list[np.ndarray], int]:
        loop, wakes = asyncio.get_running_loop(), []
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *what: wakes.append(what) or real(*what)  # type: ignore[method-assign]
        found = await asyncio.gather(*(engine.embed(double.model, rows(number)) for number in range(4)))
        return found, len(wakes)

    found, wakes = asyncio.run(several())
    assert [each.item() for each in found] == [0, 2, 4, 6]
    assert (wakes, double.batches) == (1, [4])


def test_an_error_of_a_model_reaches_the_request_of_an_event_loop_and_one_that_left_is_not_computed(
    begin: Begin, double: Double
):
    engine = begin(window=0.05)

    async def one_leaves() -> np.ndarray:
        gone = asyncio.create_task(engine.embed(double.model, rows(1, 1)))
        kept = asyncio.create_task(engine.embed(double.model, rows(2)))
        await asyncio.sleep(0)
        gone.cancel()
        return await kept

    def fails(inputs: np.ndarray) -> np.ndarray:
        raise ValueError("no such layer")

    assert asyncio.run(one_leaves()).item() == 4
    assert double.batches == [1]
    with pytest.raises(ValueError, match="no such layer"):
        asyncio.run(engine.embed(replace(double.model, run=fails), rows(1)))


@pytest.mark.parametrize(
    "settings", [{"window": -1}, {"most_batch": 0}, {"most_batch": 8, "most_waiting": 4}]
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]):
    with pytest.raises(ConfigError, match=r"window=.*, most_batch=.*, most_waiting=.*: a window of 0 to"):
        Engine(**settings)


class _Odd:
    """A model whose answers have no rows. `run` is replaced by each test."""

    name, dimension = "odd", 3


def test_a_model_that_gives_no_rows_fails_its_request_and_no_other():
    odd = _Odd()
    odd.run = lambda rows: np.float32(1) if len(rows) == 1 else rows  # type: ignore[attr-defined]
    with closing(Engine(window=0)) as engine:
        with pytest.raises(ArtefactError, match=r"odd: gives \(\) for 1 images"):
            engine.submit(odd, np.zeros((1, 3), np.float32)).result(5)  # type: ignore[arg-type]
        assert engine.submit(odd, np.zeros((2, 3), np.float32)).result(5).shape == (2, 3)  # type: ignore[arg-type]


def test_an_engine_that_dies_says_so_to_those_who_wait_and_ends_the_process():
    ended = threading.Event()

    def fault(images: int, seconds: float) -> None:
        raise MemoryError

    odd = _Odd()
    odd.run = lambda rows: rows  # type: ignore[attr-defined]
    engine = Engine(window=0, observe=fault, dead=ended.set)
    engine.submit(odd, np.zeros((1, 3), np.float32)).result(5)  # type: ignore[arg-type]
    assert ended.wait(5)
    assert not engine.alive
    with pytest.raises(BusyError, match="the server is closing"):
        engine.submit(odd, np.zeros((1, 3), np.float32))  # type: ignore[arg-type]
    engine.close()
