"""The nearest prototypes, and that they are those of now."""

import asyncio

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
def url(sqlite_url: str) -> str:
    return sqlite_url


class Shelf:
    """A store, a key of it, and the classifiers that it makes."""

    def __init__(self, store: Store, key: Key) -> None:
        self.store, self.key = store, key

    def new(self, name: str, classes: dict[str, list[list[float]]], weight: float = 1.0) -> str:
        """The id of a new classifier with prototypes of each label."""
        place = self.store.create_classifier("museum", name=name, model="m", by=self.key).id
        for label, vectors in classes.items():
            self.enrol(place, label, vectors, weight)
        return place

    def enrol(self, place: str, label: str, vectors: list[list[float]], weight: float = 1.0) -> None:
        examples = [
            Example(f"{label} {i}", np.array(each, np.float32), weight) for i, each in enumerate(vectors)
        ]
        self.store.enrol("museum", place, label, examples, by=self.key)


VASES = {"amphora": [[0.0, 0.0]], "bowl": [[2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]}


@pytest.fixture
def shelf(store: Store, key: Key) -> Shelf:
    return Shelf(store, key)


@pytest.fixture
def place(shelf: Shelf) -> str:
    """A classifier with two classes: of one example at 0, of three about 3."""
    return shelf.new("vases", VASES)


def ask(galleries: Galleries, place: str, *values: float, refusal: Refusal | None = None, top: int = 5):
    queries = np.array([[value, 0.0] for value in values], np.float32)
    return galleries.answer("museum", place, queries, top=top, refusal=refusal)


def test_guesses_are_in_order_with_squared_distances_and_probabilities_of_equation_2(
    shelf: Shelf, place: str
):
    (found,) = ask(Galleries(shelf.store), place, 1.0)
    assert [(one.label, one.distance) for one in found.guesses] == [("amphora", 1.0), ("bowl", 4.0)]
    expected = np.exp([-1.0, -4.0]) / np.exp([-1.0, -4.0]).sum()
    assert [one.probability for one in found.guesses] == pytest.approx(expected)
    assert found.none_of_these is None
    empty = shelf.new("empty", {})
    assert ask(Galleries(shelf.store), empty, 0.0, 1.0) == [ImageAnswer(guesses=[], none_of_these=None)] * 2


def test_a_refusal_knows_of_how_many_examples_the_prototype_is(shelf: Shelf, place: str):
    # At a squared distance of 1: 1 / 2 of one example, 1 / (4 / 3) of three.
    answers = ask(Galleries(shelf.store), place, 1.0, 4.0, refusal=refusing(0.6))
    assert [one.none_of_these for one in answers] == [False, True]


def test_what_was_enrolled_or_forgotten_since_is_seen(shelf: Shelf, place: str):
    galleries = Galleries(shelf.store)
    ask(galleries, place, 0.0)
    shelf.enrol(place, "cup", [[9.0, 0.0]])
    assert ask(galleries, place, 9.0)[0].guesses[0].label == "cup"
    shelf.store.forget_class("museum", place, "cup", by=shelf.key)
    assert ask(galleries, place, 9.0)[0].guesses[0].label == "bowl"
    shelf.store.delete_classifier("museum", place, by=shelf.key)
    with pytest.raises(NotFoundError):
        ask(galleries, place, 0.0)


def test_questions_of_one_moment_are_answered_together_each_its_own_and_of_now(shelf: Shelf, place: str):
    galleries = Galleries(shelf.store)

    async def together() -> list[list[ImageAnswer]]:  # in two parts: 64 at most
        queries = [np.array([[float(each), 0.0]], np.float32) for each in range(100)]
        return await asyncio.gather(
            *(galleries.ask("museum", place, each, top=2, refusal=refusing(9.0)) for each in queries)
        )

    for label in ("cup", "jug"):  # at first nothing is read yet; then the version is new
        shelf.enrol(place, label, [[9.0, 0.0]])
        alone = ask(galleries, place, *map(float, range(100)), refusal=refusing(9.0), top=2)
        for (one,), other in zip(asyncio.run(together()), alone, strict=True):
            assert [each.label for each in one.guesses] == [each.label for each in other.guesses]
            assert one.none_of_these == other.none_of_these
    shelf.store.delete_classifier("museum", place, by=shelf.key)
    with pytest.raises(NotFoundError):
        asyncio.run(together())


def test_galleries_that_were_asked_for_long_ago_are_let_go(
    shelf: Shelf, place: str, monkeypatch: pytest.MonkeyPatch
):
    other = shelf.new("other", {"cup": [[9.0, 0.0]]})
    monkeypatch.setattr(gallery, "_MOST_BYTES", 80)  # one of two prototypes of two numbers has 72
    galleries = Galleries(shelf.store)
    for each in (place, other, place):
        ask(galleries, each, 0.0)
    assert list(galleries._kept) == [("museum", place)]


def test_a_gallery_that_is_too_large_to_keep_is_searched_by_the_store(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
):
    with Store(postgresql_url) as store:
        store.create_tenant("museum")
        shelf = Shelf(store, store.create_key("museum", role="write", name="camera")[0])
        place = shelf.new("vases", VASES)
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
        shelf.enrol(place, "cup", [[9.0, 0.0]])
        assert ask(galleries, place, 9.0)[0].guesses[0].label == "cup"


SIGNS = [[float(word >> place & 1) * 2 - 1 for place in range(8)] for word in range(256)]


def firsts(store: Store, place: str, queries: list[list[float]], top: int = 1) -> list[str]:
    answers = Galleries(store).answer("museum", place, np.array(queries, np.float32), top=top, refusal=None)
    return [answer.guesses[0].label for answer in answers]


def test_each_class_at_equal_distance_is_named_as_often(shelf: Shelf):
    place = shelf.new("same", {label: [[1.0] * 8] for label in "abcd"})
    counts = np.unique(firsts(shelf.store, place, SIGNS), return_counts=True)[1]
    # Binomial, 256 draws of 1/4: mean 64, deviation 7.
    assert len(counts) == 4
    assert (abs(counts - 64) < 4 * 7).all()


def test_a_tie_is_broken_the_same_way_when_asked_again_in_any_company_and_by_any_gallery(shelf: Shelf):
    place = shelf.new("one", {label: [[1.0] * 8] for label in "abcd"})
    other = shelf.new("other", {label: [[1.0] * 8] for label in "dbca"})
    named = firsts(shelf.store, place, SIGNS)
    assert firsts(shelf.store, place, SIGNS, top=3) == named
    assert [firsts(shelf.store, place, [query])[0] for query in SIGNS] == named
    assert firsts(shelf.store, other, SIGNS) == named


def test_a_nearer_class_is_named_before_all_that_tie_behind_it(shelf: Shelf):
    far = [[1.0] * 7 + [-1.0]]
    place = shelf.new("near", {"a": far, "b": far, "near": [[1.0] * 8], "c": far})
    answers = [
        Galleries(shelf.store).answer("museum", place, np.ones((1, 8)), top=top, refusal=None)[0].guesses
        for top in (1, 2, 4)
    ]
    assert [[guess.distance for guess in guesses] for guesses in answers] == [[0], [0, 4], [0, 4, 4, 4]]
    assert [guesses[0].label for guesses in answers] == ["near"] * 3
    assert answers[1][1] == answers[2][1]


def test_distances_that_differ_by_rounding_alone_are_equal(shelf: Shelf):
    """Means of three codes are thirds, which no float is: two that are as far must not be told apart."""
    draw = np.random.default_rng(0)
    wins = 0
    for number in range(40):
        codes = draw.choice([-1.0, 1.0], (3, 8))
        mirrored = codes[:, draw.permutation(8)]  # as far from a code of 1s as the first
        place = shelf.new(str(number), {"a": codes.tolist(), "b": mirrored.tolist()})
        wins += firsts(shelf.store, place, [[1.7] * 8]) == ["a"]
    assert wins in (0, 40)  # the query and the labels decide, which are the same


def test_classes_that_are_all_but_equally_far_are_in_order(shelf: Shelf):
    place = shelf.new("close", {"a": [[1.001, 0.0]], "b": [[1.0, 0.0]]})
    assert firsts(shelf.store, place, [[0.0, 0.0], [9.0, 0.0], [-9.0, 0.0]]) == ["b", "a", "b"]


def test_numbers_too_large_to_compare_are_answered_all_the_same(shelf: Shelf):
    place = shelf.new("huge", {"a": [[1e30] * 2], "b": [[-1e30] * 2], "c": [[0.0] * 2]})
    assert len(firsts(shelf.store, place, [[3e38, 3e38], [0.0, 0.0]])) == 2


HALF = 0.5  # what is left of a bit that is flipped by a quarter
FLIPPED = CodePrototypes(4, 4, Spread(1 / 3, 2 / 3), refusing(100.0), (0.25, None, None))


@pytest.fixture
def unequal(shelf: Shelf) -> str:
    """A classifier of noisy bits: of one example, and of nine, none of which was flipped."""
    few, many = ([bit / HALF for bit in bits] for bits in ([1, 1, 1, 1], [1, 1, -1, -1]))
    return shelf.new("vases", {"few": [few], "many": [many] * 9}, HALF**2)


def test_prototypes_of_noisy_codes_are_posterior_means(shelf: Shelf, unequal: str):
    ask_codes = Galleries(shelf.store).answer
    query = np.array([[1.0, 1, 1, -1]], np.float32) / HALF  # as many bits from both
    fair = ask_codes("museum", unequal, query, top=2, refusal=None, codes=FLIPPED)[0].guesses
    plain = Galleries(shelf.store).answer("museum", unequal, query, top=2, refusal=None)[0].guesses
    means = np.array([[1.0, 1, 1, 1], [1, 1, -1, -1]]) / HALF
    weights, counts = np.array([0.25, 2.25]), np.array([1, 9])
    expected = np.square(query - FLIPPED.posterior(means, weights, counts)[0]).sum(1)
    assert {guess.label: guess.distance for guess in fair} == {
        "few": pytest.approx(expected[0], rel=1e-5),
        "many": pytest.approx(expected[1], rel=1e-5),
    }
    assert [guess.distance for guess in plain] == [16.0, 16.0]


def test_noisy_codes_are_refused_by_their_distance_whatever_the_shots(shelf: Shelf, unequal: str):
    queries = np.array([[1.0, 1, 1, 1], [-1, -1, 1, 1]], np.float32) / HALF
    ask_codes = Galleries(shelf.store).answer
    near, far = (
        answer.guesses[0].distance
        for answer in ask_codes("museum", unequal, queries, top=1, refusal=None, codes=FLIPPED)
    )
    refusal = refusing((near + far) / 2)
    answers = ask_codes("museum", unequal, queries, top=1, refusal=refusal, codes=FLIPPED)
    assert [answer.none_of_these for answer in answers] == [False, True]
