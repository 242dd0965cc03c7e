"""The nearest prototypes, and that they are those of now."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cloud import refusing

from sfumato.learn.code_prototypes import CodePrototypes, Spread
from sfumato.learn.refusal import Refusal
from sfumato.serve import gallery
from sfumato.serve.gallery import Galleries
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


def test_questions_of_one_moment_are_answered_together_each_its_own_and_of_now(kept):
    store, key, place = kept
    galleries = Galleries(store)

    async def together() -> list[list[ImageAnswer]]:  # in two parts: 64 at most
        queries = [np.array([[float(each), 0.0]], np.float32) for each in range(100)]
        return await asyncio.gather(
            *(galleries.ask("museum", place, each, top=2, refusal=refusing(9.0)) for each in queries)
        )

    for label in ("cup", "jug"):  # at first nothing is read yet; then the version is new
        enrol(store, key, place, label, [9.0, 9.0])
        alone = ask(galleries, place, *map(float, range(100)), refusal=refusing(9.0), top=2)
        for (one,), other in zip(asyncio.run(together()), alone, strict=True):
            assert [each.label for each in one.guesses] == [each.label for each in other.guesses]
            assert one.none_of_these == other.none_of_these
    store.delete_classifier("museum", place, by=key)
    with pytest.raises(NotFoundError):
        asyncio.run(together())


def test_a_gallery_that_many_ask_for_at_once_is_read_by_one_of_them(kept, monkeypatch: pytest.MonkeyPatch):
    store, _, place = kept
    galleries, reads, real = Galleries(store), [], store.prototypes
    begun = threading.Barrier(8)

    def ask_together(_: int):
        begun.wait(10)
        return ask(galleries, place, 0.0)

    monkeypatch.setattr(store, "prototypes", lambda *given: reads.append(given) or real(*given))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask_together, range(8)))
    assert all(each == answers[0] for each in answers)
    assert len(reads) == 1


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


# In PostgreSQL, which searches galleries that are too large to keep.


def test_a_gallery_that_is_too_large_to_keep_is_searched_by_the_store(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
):
    with Store(postgresql_url) as store:
        store.create_tenant("museum")
        key = store.create_key("museum", role="write", name="camera")[0]
        place = store.create_classifier("museum", name="vases", model="m", by=key).id
        enrol(store, key, place, "amphora", [0.0])
        enrol(store, key, place, "bowl", [2.0, 3.0, 4.0])
        small = ask(Galleries(store), place, 1.0, 4.0, 2.9, refusal=refusing(0.6))
        codes = SIGNS[0][:2]
        monkeypatch.setattr(gallery, "_MOST_BYTES", 30)  # a prototype of two numbers has 36
        galleries = Galleries(store)
        large = ask(galleries, place, 1.0, 4.0, 2.9, refusal=refusing(0.6))
        assert not galleries._kept
        assert [one.none_of_these for one in large] == [False, True, False]
        for one, other in zip(large, small, strict=True):
            assert one.none_of_these == other.none_of_these
            assert [guess.label for guess in one.guesses] == [guess.label for guess in other.guesses]
            for ours, theirs in zip(one.guesses, other.guesses, strict=True):
                assert ours.distance == pytest.approx(theirs.distance, abs=1e-5)
                assert ours.probability == pytest.approx(theirs.probability)
        assert len(ask(galleries, place, 1.0, top=1)[0].guesses) == 1
        (answer,) = galleries.answer(
            "museum", place, np.array([codes]), top=1, refusal=refusing(0.0), codes=FLIPPED
        )
        assert answer.none_of_these is None  # no code is refused there
        enrol(store, key, place, "cup", [9.0])
        assert ask(galleries, place, 9.0)[0].guesses[0].label == "cup"


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


def test_a_tie_is_broken_the_same_way_when_asked_again_in_any_company_and_by_any_gallery(coded):
    store, classifier = coded
    place = classifier("one", {label: [[1.0] * 8] for label in "abcd"})
    other = classifier("other", {label: [[1.0] * 8] for label in "dbca"})
    named = firsts(store, place, SIGNS)
    assert firsts(store, place, SIGNS, top=3) == named
    assert [firsts(store, place, [query])[0] for query in SIGNS] == named
    assert firsts(store, other, SIGNS) == named


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
