"""The nearest prototypes, and that they are those of now."""

import asyncio
import threading

import numpy as np
import pytest
from cloud import refusing

from sfumato.learn.code_prototypes import CodePrototypes, Spread
from sfumato.learn.refusal import Refusal
from sfumato.serve import gallery
from sfumato.serve.gallery import Galleries, Together
from sfumato.serve.store import Example, Key, NotFoundError, Store, search
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
    queries = np.array([[value, 0.0] for value in values], np.float32)
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
    refusal = refusing(0.6)
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
    monkeypatch.setattr(gallery, "_MOST_BYTES", 80)  # one of two prototypes of two numbers has 72
    galleries = Galleries(store)
    for each in (place, other, place):
        ask(galleries, each, 0.0)
    assert list(galleries._kept) == [("museum", place)]


def test_a_gallery_that_fits_is_never_left_to_the_store_whatever_is_enrolled(
    kept, monkeypatch: pytest.MonkeyPatch
):
    store, key, place = kept
    monkeypatch.setattr(search, "MANY", 2)
    monkeypatch.setattr(store, "nearest", None)
    galleries = Galleries(store)
    for number in range(5):
        enrol(store, key, place, f"cup {number}", [10.0 + number])
        found = ask(galleries, place, 10.0 + number)[0].guesses[0]
        assert (found.label, found.distance) == (f"cup {number}", 0.0)
    assert list(galleries._kept) == [("museum", place)]


def test_a_gallery_that_grows_too_large_is_left_to_the_store(kept, monkeypatch: pytest.MonkeyPatch):
    store, key, place = kept
    monkeypatch.setattr(gallery, "_MOST_BYTES", 80)  # two prototypes of two numbers have 72
    galleries = Galleries(store)
    assert ask(galleries, place, 0.0)[0].guesses[0].label == "amphora"
    for value in (9.0, 9.5):
        enrol(store, key, place, f"cup {value}", [value])
        assert ask(galleries, place, value)[0].guesses[0].label == f"cup {value}"
        assert not galleries._kept


def test_a_gallery_that_is_too_large_to_keep_is_searched_by_the_store(kept, monkeypatch: pytest.MonkeyPatch):
    store, _, place = kept
    expected = ask(Galleries(store), place, 1.0)[0]
    monkeypatch.setattr(gallery, "_MOST_BYTES", 30)  # a prototype of two numbers has 36
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
    refusal = refusing(0.6)
    small = ask(Galleries(store), place, 1.0, 4.0, 2.9, refusal=refusal)
    monkeypatch.setattr(gallery, "_MOST_BYTES", 30)  # a prototype of two numbers has 36
    large = ask(Galleries(store), place, 1.0, 4.0, 2.9, refusal=refusal)
    assert (
        [one.none_of_these for one in large] == [one.none_of_these for one in small] == [False, True, False]
    )
    assert ask(Galleries(store), place, 4.0)[0].none_of_these is None


# Ties, which codes of few bits have many of.

SIGNS = [[float(word >> place & 1) * 2 - 1 for place in range(8)] for word in range(256)]


@pytest.fixture
def coded(sqlite_url: str):
    """A store, a key, and a function that makes a classifier of the prototypes of each label."""
    with Store(sqlite_url) as store:
        store.create_tenant("museum")
        key = store.create_key("museum", role="write", name="camera")[0]

        def classifier(name: str, prototypes: dict[str, list[list[float]]]) -> str:
            place = store.create_classifier("museum", name=name, model="m", by=key).id
            for label, codes in prototypes.items():
                examples = [
                    Example(f"{label} {i}", np.array(each, np.float32)) for i, each in enumerate(codes)
                ]
                store.enrol("museum", place, label, examples, by=key)
            return place

        yield store, classifier


def firsts(store: Store, place: str, queries: list[list[float]], top: int = 1) -> list[str]:
    answers = Galleries(store).answer("museum", place, np.array(queries, np.float32), top=top, refusal=None)
    return [answer.guesses[0].label for answer in answers]


def test_each_class_at_equal_distance_is_named_as_often(coded):
    store, classifier = coded
    place = classifier("same", {label: [[1.0] * 8] for label in "abcd"})
    counts = np.unique(firsts(store, place, SIGNS), return_counts=True)[1]
    # Binomial, 256 draws of 1/4: mean 64, deviation 7.
    assert len(counts) == 4
    assert (abs(counts - 64) < 4 * 7).all()


def test_a_tie_is_broken_the_same_way_when_asked_again_in_any_company_and_by_any_gallery(
    coded, monkeypatch: pytest.MonkeyPatch
):
    store, classifier = coded
    place = classifier("one", {label: [[1.0] * 8] for label in "abcd"})
    other = classifier("other", {label: [[1.0] * 8] for label in "dbca"})
    named = firsts(store, place, SIGNS)
    assert firsts(store, place, SIGNS, top=3) == named
    assert [firsts(store, place, [query])[0] for query in SIGNS] == named
    assert firsts(store, other, SIGNS) == named
    monkeypatch.setattr(gallery, "_MOST_BYTES", 30)  # a prototype of two numbers has 36
    assert firsts(store, place, SIGNS) == named


def test_a_nearer_class_is_named_before_all_that_tie_behind_it(coded):
    store, classifier = coded
    far = [[1.0] * 7 + [-1.0]]
    place = classifier("near", {"a": far, "b": far, "near": [[1.0] * 8], "c": far})
    answers = [
        Galleries(store).answer("museum", place, np.ones((1, 8)), top=top, refusal=None)[0].guesses
        for top in (1, 2, 4)
    ]
    assert [[guess.distance for guess in guesses] for guesses in answers] == [[0], [0, 4], [0, 4, 4, 4]]
    assert [guesses[0].label for guesses in answers] == ["near"] * 3
    assert answers[1][1] == answers[2][1]


def test_distances_that_differ_by_rounding_alone_are_equal(coded):
    """Means of three codes are thirds, which no float is: two that are as far must not be told apart."""
    store, classifier = coded
    draw = np.random.default_rng(0)
    wins = 0
    for number in range(40):
        codes = draw.choice([-1.0, 1.0], (3, 8))
        mirrored = codes[:, draw.permutation(8)]  # as far from a code of 1s as the first
        place = classifier(str(number), {"a": codes.tolist(), "b": mirrored.tolist()})
        wins += firsts(store, place, [[1.7] * 8]) == ["a"]
    assert wins in (0, 40)  # the query and the labels decide, which are the same


def test_classes_that_are_all_but_equally_far_are_in_order(coded):
    store, classifier = coded
    place = classifier("close", {"a": [[1.001, 0.0]], "b": [[1.0, 0.0]]})
    assert firsts(store, place, [[0.0, 0.0], [9.0, 0.0], [-9.0, 0.0]]) == ["b", "a", "b"]


def test_numbers_too_large_to_compare_are_answered_all_the_same(coded):
    store, classifier = coded
    place = classifier("huge", {"a": [[1e30] * 2], "b": [[-1e30] * 2], "c": [[0.0] * 2]})
    assert len(firsts(store, place, [[3e38, 3e38], [0.0, 0.0]])) == 2


# Codes whose noise is known.

HALF = 0.5  # what is left of a bit that is flipped by a quarter
FLIPPED = CodePrototypes(4, 4, Spread(1 / 3, 2 / 3), refusing(100.0), (0.25, None, None))


@pytest.fixture
def unequal(sqlite_url: str):
    """A store, and a classifier of noisy bits: of one example, and of nine, none of which was flipped."""
    with Store(sqlite_url) as store:
        store.create_tenant("museum")
        key = store.create_key("museum", role="write", name="camera")[0]
        place = store.create_classifier("museum", name="vases", model="m", by=key).id
        for label, bits, count in (("few", [1, 1, 1, 1], 1), ("many", [1, 1, -1, -1], 9)):
            vector = np.array(bits, np.float32) / HALF
            examples = [Example(f"{label} {i}", vector, HALF**2) for i in range(count)]
            store.enrol("museum", place, label, examples, by=key)
        yield store, place


def test_prototypes_of_noisy_codes_are_posterior_means(unequal):
    store, place = unequal
    query = np.array([[1.0, 1, 1, -1]], np.float32) / HALF  # as many bits from both
    plain = Galleries(store).answer("museum", place, query, top=2, refusal=None)[0].guesses
    fair = Galleries(store).answer("museum", place, query, top=2, refusal=None, codes=FLIPPED)[0].guesses
    means = np.array([[1.0, 1, 1, 1], [1, 1, -1, -1]]) / HALF
    weights, counts = np.array([0.25, 2.25]), np.array([1, 9])
    expected = np.square(query - FLIPPED.posterior(means, weights, counts)[0]).sum(1)
    assert {guess.label: guess.distance for guess in fair} == {
        "few": pytest.approx(expected[0], rel=1e-5),
        "many": pytest.approx(expected[1], rel=1e-5),
    }
    assert [guess.distance for guess in plain] == [16.0, 16.0]


def test_noisy_codes_are_refused_by_their_distance_whatever_the_shots(unequal):
    store, place = unequal
    queries = np.array([[1.0, 1, 1, 1], [-1, -1, 1, 1]], np.float32) / HALF
    ask_codes = Galleries(store).answer
    near, far = (
        answer.guesses[0].distance
        for answer in ask_codes("museum", place, queries, top=1, refusal=None, codes=FLIPPED)
    )
    refusal = refusing((near + far) / 2)
    answers = ask_codes("museum", place, queries, top=1, refusal=refusal, codes=FLIPPED)
    assert [answer.none_of_these for answer in answers] == [False, True]


def test_a_gallery_that_the_store_searches_refuses_no_codes(unequal, monkeypatch: pytest.MonkeyPatch):
    store, place = unequal
    monkeypatch.setattr(gallery, "_MOST_BYTES", 30)  # a prototype of two numbers has 36
    answers = Galleries(store).answer(
        "museum",
        place,
        np.ones((1, 4)),
        top=1,
        refusal=refusing(0.0),
        codes=FLIPPED,
    )
    assert answers[0].none_of_these is None


def test_questions_of_other_noise_are_not_refused_by_the_same_threshold(unequal):
    store, place = unequal
    together = Together(Galleries(store))
    strict = refusing(0.0)
    refusals = [None, strict, None, strict, FLIPPED.refusal, None]

    async def all_of_them() -> list[list[ImageAnswer]]:
        asked = [
            together.answer("museum", place, np.ones((1, 4)), top=1, refusal=refusal, codes=FLIPPED)
            for refusal in refusals
        ]
        return await asyncio.gather(*asked)

    found = [answer.none_of_these for (answer,) in asyncio.run(all_of_them())]
    assert found == [None, True, None, True, False, None]


# Several at once.


def put(together: Together, place: str, *asked: tuple[float, int]) -> list[list[ImageAnswer]]:
    """Ask for the classes of each number, so many of them, all at once."""

    async def all_of_them() -> list[list[ImageAnswer]]:
        return await asyncio.gather(
            *(
                together.answer("museum", place, np.array([[value, 0.0]], np.float32), top=top, refusal=None)
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
        return together.answer("museum", place, np.array([[value, 0.0]], np.float32), top=1, refusal=None)

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
        asked = [together.answer("museum", gone, np.zeros((1, 2)), top=1, refusal=None) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in asyncio.run(twice())] == [NotFoundError] * 3
    assert put(together, place, (0.0, 1))[0][0].guesses[0].label == "amphora"


def test_who_stopped_waiting_holds_up_nobody(kept):
    store, _, place = kept
    together = Together(Galleries(store))

    async def one_leaves() -> list[ImageAnswer]:
        asked = [
            asyncio.create_task(together.answer("museum", place, np.zeros((1, 2)), top=1, refusal=None))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        asked[1].cancel()
        return [*(await asked[0]), *(await asked[2])]

    assert [each.guesses[0].label for each in asyncio.run(one_leaves())] == ["amphora"] * 2
    assert not together._waiting
