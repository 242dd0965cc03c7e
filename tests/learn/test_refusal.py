"""When a query is of none of the enrolled classes: it holds the rates that it states."""

from functools import lru_cache

import numpy as np
import pytest
from cloud import refusing

from sfumato.learn.code_prototypes import CodePrototypes, Spread
from sfumato.learn.gallery import (
    ACCEPTED,
    Gallery,
    answers_of_episodes,
    gallery_of_classes,
    mean_of,
    measure_refusal,
    threshold_of,
)
from sfumato.learn.refusal import Refusal

SPREAD = Spread(0.1, 0.9)


def bits_of(count: int, images: int, *, bits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of new classes, drawn from the prior of SPREAD; many are equal where they have few bits."""
    draw = np.random.default_rng(seed)
    a = (1 / SPREAD.between - 1) / 2
    chances = draw.beta(a, a, (count, 1, bits))
    codes = np.where(draw.random((count, images, bits)) < chances, 1, -1).astype(np.float32)
    return codes.reshape(-1, bits), np.repeat(np.arange(count), images)


def numbers_of(count: int, images: int, *, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    middles = spread * draw.normal(size=(count, 1, 24))
    values = (middles + draw.normal(size=(count, images, 24))).astype(np.float32)
    return values.reshape(-1, 24), np.repeat(np.arange(count), images)


@lru_cache
def measured(bits: int) -> tuple[Refusal, CodePrototypes]:
    made = CodePrototypes(bits, bits, SPREAD)
    refusal, _ = measure_refusal(*bits_of(60, 30, bits=bits, seed=0), way=4, shot=5, codes=made)
    assert refusal is not None
    return refusal, made


def rates(
    refusal: Refusal,
    codes: np.ndarray,
    classes: np.ndarray,
    made: CodePrototypes | None,
    shots: list[int],
    *,
    galleries: int = 100,
) -> tuple[float, float]:
    """Accepted and refused by galleries of classes of these numbers of examples, and one class more."""
    of = [codes[classes == each] for each in np.unique(classes)]
    draw = np.random.default_rng(1)
    accepted, refused = [], []
    for _ in range(galleries):
        chosen = draw.permutation(len(of))[: len(shots) + 1]
        own, other = [draw.permutation(of[each]) for each in chosen[:-1]], draw.permutation(of[chosen[-1]])
        support = [each[:shot] for each, shot in zip(own, shots, strict=True)]
        labels = np.repeat(np.arange(len(shots)), shots)
        gallery = gallery_of_classes(np.concatenate(support), labels, np.ones(len(labels)), made)
        inside = np.concatenate([each[-5:] for each in own])
        for queries, found in ((inside, accepted), (other[-5:], refused)):
            none = gallery.name(queries, top=1, refusal=refusal).none_of_these
            assert none is not None
            found.append(none.mean())
    return 1 - float(np.mean(accepted)), float(np.mean(refused))


@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("shots", [[1] * 2, [5] * 5, [90] * 2, [1, 5, 20, 90] * 2, [5] * 40])
def test_of_codes_of_few_bits_as_many_are_accepted_as_stated_whatever_is_enrolled(
    bits: int, shots: list[int]
):
    refusal, made = measured(bits)
    galleries = max(20, 200 // len(shots))
    accepted, _ = rates(refusal, *bits_of(60, 100, bits=bits, seed=1), made, shots, galleries=galleries)
    assert accepted >= ACCEPTED - 0.025  # 1,000 queries or more, of 60 classes


def test_of_queries_of_other_classes_as_many_are_refused_as_stated():
    refusal, made = measured(16)
    _, refused = rates(refusal, *bits_of(60, 30, bits=16, seed=1), made, [refusal.shot] * refusal.classes)
    assert refused == pytest.approx(refusal.refused.share, abs=0.08)


@pytest.mark.parametrize(
    ("bits", "message"), [(1, "it would refuse"), (16, "2 classes of validation images")]
)
def test_a_code_that_cannot_refuse_says_why(bits: int, message: str):
    made = CodePrototypes(bits, bits, SPREAD)
    codes = bits_of(60 if bits == 1 else 2, 30, bits=bits, seed=0)
    refusal, reason = measure_refusal(*codes, way=4, shot=5, codes=made)
    assert refusal is None
    assert message in reason


def test_a_refusal_of_embeddings_measured_at_five_shots_serves_other_numbers():
    refusal, _ = measure_refusal(*numbers_of(60, 30, spread=3.0, seed=0), way=4, shot=5)
    numbers = numbers_of(60, 30, spread=3.0, seed=1)
    for shots in ([1] * 5, [2] * 5, [10] * 5):
        accepted, refused = rates(refusal, *numbers, None, shots, galleries=40)
        assert accepted == pytest.approx(ACCEPTED, abs=0.03)
        assert refused > 0.99


def drawn(draw: np.random.Generator, count: int, images: int) -> np.ndarray:
    """(count, images, 6): classes whose middles and whose spreads differ, as those of people do."""
    middles, spreads = 2.5 * draw.normal(size=(count, 1, 6)), np.exp(0.4 * draw.normal(size=(count, 1, 1)))
    return (middles + spreads * draw.normal(size=(count, images, 6))).astype(np.float32)


def test_the_intervals_of_a_card_hold_for_classes_that_nobody_measured_and_more_classes_narrow_them():
    draw = np.random.default_rng(0)
    # Of 5 classes of 5 examples and another class, drawn anew each time: by the distances alone.
    episodes = drawn(draw, 6 * 4000, 6).reshape(4000, 6, 6, 6)
    means, queries = episodes[:, :5, :5].mean(2), episodes[:, :, 5]
    away = np.square(queries[:, :, None] - means[:, None]).sum(-1).min(-1) / (1 + 1 / 5)  # (4000, 6)
    held, widths, over = [], [], []
    for count in [7] * 30 + [40] * 2:
        embeddings, classes = drawn(draw, count, 10).reshape(-1, 6), np.repeat(np.arange(count), 10)
        refusal, _ = measure_refusal(embeddings, classes, way=5, shot=5)
        assert refusal is not None
        assert (refusal.measured, refusal.classes, refusal.shot) == (count, 5, 5)
        truth = (away[:, :5] <= refusal.threshold).mean(), (away[:, 5] > refusal.threshold).mean()
        held.append(
            [
                each.low <= true <= each.high
                for each, true in zip((refusal.accepted, refusal.refused), truth, strict=True)
            ]
        )
        widths.append([each.high - each.low for each in (refusal.accepted, refusal.refused)])
        over.append(refusal.accepted.share - truth[0])
    # At 95%, of 30 draws 28.5 hold on average, with a deviation of 1.2.
    assert (np.sum(held[:30], 0) >= 25).all(), np.sum(held[:30], 0)
    assert (np.mean(widths[30:], 0) < np.mean(widths[:30], 0) / 2).all()
    # By a threshold that the same classes chose, it is 0.035.
    assert np.mean(over[:30]) == pytest.approx(0, abs=0.02)


def test_classes_that_are_all_alike_are_not_refused():
    refusal, reason = measure_refusal(*numbers_of(60, 30, spread=0.0, seed=0), way=4, shot=5)
    assert refusal is None
    assert "of queries of other classes, and" in reason


def test_a_threshold_lies_between_two_distances_that_there_are():
    own = np.repeat([0.0, 4.0, 8.0], [90, 8, 2])
    assert threshold_of(own) == 6.0
    assert threshold_of(np.repeat([1.0, 2.0], [96, 4])) == 1.5
    assert threshold_of(np.ones(10)) == pytest.approx(1, rel=1e-4)


def test_a_class_further_away_may_accept_what_the_nearest_refuses():
    means, counts = np.array([[0.0], [3.4]], np.float32), np.array([90, 1])
    gallery = Gallery.of(("many", "few"), means, counts.astype(float), counts, None)
    refusal = refusing(2.0)
    named = gallery.name(np.array([[1.5]], np.float32), top=1, refusal=refusal)
    assert named.rows.tolist() == [[0]]
    assert named.squared[0, 0] > 2.0 * (1 + 1 / 90)
    assert named.none_of_these is not None
    assert named.none_of_these.tolist() == [3.4 - 1.5 > 2.0]  # 3.61 is at most 2 * (1 + 1)


def test_the_answers_of_episodes_are_those_of_a_plain_loop():
    draw = np.random.default_rng(0)
    vectors, weights = draw.normal(size=(60, 3)).astype(np.float32), draw.uniform(0.5, 2, 60)
    places = np.stack([draw.permutation(60).reshape(4, 15) for _ in range(3)])
    refusal = refusing(1.0)
    hits, accepted = answers_of_episodes(vectors, places, shot=5, weights=weights, refusal=refusal)
    assert accepted is not None
    for e, episode in enumerate(places):
        means = [mean_of(weights[row[:5]] @ vectors[row[:5]], weights[row[:5]].sum()) for row in episode]
        for own, row in enumerate(episode):
            for q, place in enumerate(row[5:]):
                away = [np.square(vectors[place] - mean).sum() for mean in means]
                assert hits[e, own, q] == (int(np.argmin(away)) == own)
                assert accepted[e, own, q] == (min(away) <= 1.2)
