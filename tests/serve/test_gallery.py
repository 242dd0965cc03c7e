"""The nearest prototypes, and that they are those of now."""

import asyncio
import threading

import numpy as np
import pytest
import torch

from sfumato.learn.prototypes import Refusal
from sfumato.serve import gallery
from sfumato.serve.gallery import Galleries, Together
from sfumato.serve.store import Example, Key, NotFoundError, Store
from sfumato.wire.messages import ImageAnswer


@pytest.fixture
def kept(sqlite_url: str):
    """A store, a key, and the id of a classifier with two classes: of one example at 0, of three about 3."""
    with Store(sqlite_url) as store:
        store.create_tenant("museum")
        key = store.create_key("museum", role="write", name="camera")[0]
        place = store.create_classifier("museum", name="vases", model="m", by=key).id
        enrol(store, key, place, "amphora", [0.0])
        enrol(store, key, place, "bowl", [2.0, 3.0, 4.0])
        yield store, key, place


def enrol(store: Store, key: Key, place: str, label: str, values: list[float]) -> None:
    examples = [Example(f"{label} {value}", np.array([value, 0.0], np.float32)) for value in values]
    store.enrol("museum", place, label, examples, by=key)


def ask(galleries: Galleries, place: str, *values: float, refusal: Refusal | None = None, top: int = 5):
    queries = torch.tensor([[value, 0.0] for value in values])
    return galleries.answer("museum", place, queries, top=top, refusal=refusal)


def test_guesses_are_in_order_with_squared_distances_and_probabilities_of_equation_2(kept):
    store, _, place = kept
    (found,) = ask(Galleries(store), place, 1.0)
    assert [(one.label, one.distance) for one in found.guesses] == [("amphora", 1.0), ("bowl", 4.0)]
    expected = np.exp([-1.0, -4.0]) / np.exp([-1.0, -4.0]).sum()
    assert [one.probability for one in found.guesses] == pytest.approx(expected)
    assert found.none_of_these is None


def test_a_refusal_knows_of_how_many_examples_the_prototype_is(kept):
    store, _, place = kept
    # At a squared distance of 1: 1 / 2 of one example, 1 / (4 / 3) of three.
    refusal = Refusal(threshold=0.6, accepted=0.95, refused=0.5)
    answers = ask(Galleries(store), place, 1.0, 4.0, refusal=refusal)
    assert [one.none_of_these for one in answers] == [False, True]


def test_what_was_enrolled_or_forgotten_since_is_seen(kept):
    store, key, place = kept
    galleries = Galleries(store)
    ask(galleries, place, 0.0)
    enrol(store, key, place, "cup", [9.0])
    assert ask(galleries, place, 9.0)[0].guesses[0].label == "cup"
    store.forget_class("museum", place, "cup", by=key)
    assert ask(galleries, place, 9.0)[0].guesses[0].label == "bowl"


def test_what_did_not_change_is_not_read_again(kept, monkeypatch: pytest.MonkeyPatch):
    store, _, place = kept
    galleries = Galleries(store)
    ask(galleries, place, 0.0)
    seen = []
    real = store.prototypes
    monkeypatch.setattr(store, "prototypes", lambda *a, **k: seen.append(real(*a, **k)) or seen[-1])
    ask(galleries, place, 0.0)
    assert seen == [None]


def test_a_classifier_that_is_gone_is_missing(kept):
    store, key, place = kept
    galleries = Galleries(store)
    ask(galleries, place, 0.0)
    store.delete_classifier("museum", place, by=key)
    with pytest.raises(NotFoundError):
        ask(galleries, place, 0.0)


def test_without_classes_there_are_no_guesses(kept):
    store, key, _ = kept
    empty = store.create_classifier("museum", name="empty", model="m", by=key).id
    assert ask(Galleries(store), empty, 0.0, 1.0) == [ImageAnswer(guesses=[], none_of_these=None)] * 2


def test_galleries_that_were_asked_for_long_ago_are_let_go(kept, monkeypatch: pytest.MonkeyPatch):
    store, key, place = kept
    other = store.create_classifier("museum", name="other", model="m", by=key).id
    enrol(store, key, other, "cup", [9.0])
    monkeypatch.setattr(gallery, "_MOST_BYTES", 20)  # one of two prototypes of two numbers has 16
    galleries = Galleries(store)
    for each in (place, other, place):
        ask(galleries, each, 0.0)
    assert list(galleries._kept) == [("museum", place)]


def test_a_large_gallery_is_searched_by_the_store(kept, monkeypatch: pytest.MonkeyPatch):
    store, _, place = kept
    expected = ask(Galleries(store), place, 1.0)[0]
    monkeypatch.setattr(gallery, "MANY", 2)
    galleries = Galleries(store)
    for _ in range(2):
        (found,) = ask(galleries, place, 1.0)
        assert [one.label for one in found.guesses] == [one.label for one in expected.guesses]
        assert found.guesses[1].distance == pytest.approx(4.0)
        assert found.guesses[1].probability == pytest.approx(expected.guesses[1].probability)
    assert not galleries._kept
    assert len(ask(galleries, place, 1.0, top=1)[0].guesses) == 1


def test_a_large_gallery_refuses_by_the_number_of_examples_as_a_small_one_does(
    kept, monkeypatch: pytest.MonkeyPatch
):
    store, _, place = kept
    refusal = Refusal(threshold=0.6, accepted=0.95, refused=0.5)
    small = ask(Galleries(store), place, 1.0, 4.0, 2.9, refusal=refusal)
    monkeypatch.setattr(gallery, "MANY", 2)
    large = ask(Galleries(store), place, 1.0, 4.0, 2.9, refusal=refusal)
    assert (
        [one.none_of_these for one in large] == [one.none_of_these for one in small] == [False, True, False]
    )
    assert ask(Galleries(store), place, 4.0)[0].none_of_these is None


# Several at once.


def put(together: Together, place: str, *asked: tuple[float, int]) -> list[list[ImageAnswer]]:
    """Ask for the classes of each number, so many of them, all at once."""

    async def all_of_them() -> list[list[ImageAnswer]]:
        return await asyncio.gather(
            *(
                together.answer("museum", place, torch.tensor([[value, 0.0]]), top=top, refusal=None)
                for value, top in asked
            )
        )

    return asyncio.run(all_of_them())


class Looks:
    """Counts how often the store is asked for the prototypes."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = store.prototypes

        def counted(*given, **more):
            self.count += 1
            return real(*given, **more)

        monkeypatch.setattr(store, "prototypes", counted)


def test_questions_that_come_together_are_answered_by_one_look_as_they_would_be_alone(
    kept, monkeypatch: pytest.MonkeyPatch
):
    store, _, place = kept
    asked = [(value / 4, 1 + value % 2) for value in range(20)]
    alone = [ask(Galleries(store), place, value, top=top) for value, top in asked]
    looks = Looks(store, monkeypatch)
    assert put(Together(Galleries(store)), place, *asked) == alone
    assert looks.count <= 2  # the first does not wait for company


def test_no_more_queries_are_answered_together_than_fit(kept, monkeypatch: pytest.MonkeyPatch):
    store, _, place = kept
    monkeypatch.setattr(gallery, "_MOST_TOGETHER", 2)
    looks = Looks(store, monkeypatch)
    found = put(Together(Galleries(store)), place, *[(0.0, 5)] * 7)
    assert [len(each) for each in found] == [1] * 7
    assert looks.count >= 4


def test_a_question_is_answered_by_what_was_enrolled_before_it_came_however_busy(
    kept, monkeypatch: pytest.MonkeyPatch
):
    store, key, place = kept
    together = Together(Galleries(store))
    looked, go_on = threading.Event(), threading.Event()
    real = store.prototypes

    def slow(*given, **more):
        found = real(*given, **more)
        looked.set()
        assert go_on.wait(10)
        return found

    monkeypatch.setattr(store, "prototypes", slow)

    def question(value: float):
        return together.answer("museum", place, torch.tensor([[value, 0.0]]), top=1, refusal=None)

    async def second_while_the_first_is_answered() -> list[ImageAnswer]:
        first = asyncio.create_task(question(9.0))
        await asyncio.to_thread(looked.wait, 10)
        await asyncio.to_thread(enrol, store, key, place, "cup", [9.0])
        second = asyncio.create_task(question(9.0))
        await asyncio.sleep(0)
        go_on.set()
        return [*(await first), *(await second)]

    before, after = asyncio.run(second_while_the_first_is_answered())
    assert (before.guesses[0].label, after.guesses[0].label) == ("bowl", "cup")


def test_an_error_reaches_all_who_asked_and_the_next_are_answered(kept, monkeypatch: pytest.MonkeyPatch):
    store, key, place = kept
    together = Together(Galleries(store))
    gone = store.create_classifier("museum", name="gone", model="m", by=key).id
    store.delete_classifier("museum", gone, by=key)

    async def twice() -> list[object]:
        asked = [together.answer("museum", gone, torch.zeros(1, 2), top=1, refusal=None) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in asyncio.run(twice())] == [NotFoundError] * 3
    assert put(together, place, (0.0, 1))[0][0].guesses[0].label == "amphora"


def test_who_stopped_waiting_holds_up_nobody(kept):
    store, _, place = kept
    together = Together(Galleries(store))

    async def one_leaves() -> list[ImageAnswer]:
        asked = [
            asyncio.create_task(together.answer("museum", place, torch.zeros(1, 2), top=1, refusal=None))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        asked[1].cancel()
        return [*(await asked[0]), *(await asked[2])]

    assert [each.guesses[0].label for each in asyncio.run(one_leaves())] == ["amphora"] * 2
    assert not together._waiting
