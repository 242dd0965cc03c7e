"""Measure a refusal on validation images, through the gallery that a service answers from."""

from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.learn.code_prototypes import CodePrototypes
from sfumato.learn.gallery import Gallery, gallery_of_support
from sfumato.learn.refusal import Rate, Refusal, is_useful, threshold_of

CLASSES = (2, 5, 10, 20, 40)  # enrolled, of the rates on a card
SHOTS = (1, 5, 20, 90)

_EPISODES = 400  # of the threshold and the rates beside it
_FEWER = 100  # of each other rate
_QUERIES = 10  # of a class, at most

_Trial = tuple[np.ndarray, np.ndarray, np.ndarray]


def measured_refusal(
    embeddings: np.ndarray,
    classes: np.ndarray,
    *,
    way: int,
    shot: int,
    weights: np.ndarray | None = None,
    codes: CodePrototypes | None = None,
) -> tuple[Refusal | None, str]:
    """The refusal of some embeddings, measured among `way` enrolled classes of `shot` examples.

    In each episode the queries of the enrolled classes are to be accepted, and those of one more class are to
    be refused. So two classes have no refusal: with both enrolled, no image is of another one.

    Args:
        embeddings: (n, D) float32 of validation images.
        classes: (n,) int of each.
        way: how many are enrolled; fewer where there are no more classes.
        shot: K.
        weights: (n,) what each weighs in a prototype; None for 1.
        codes: how prototypes are made of means; None for the means.

    Returns:
        the refusal and "", or None and why there is none.
    """
    weights = np.ones(len(embeddings)) if weights is None else weights
    rows = [(classes == each).nonzero()[0] for each in np.unique(classes)]
    rows = [each for each in rows if len(each) > shot]
    way = min(way, len(rows) - 1)
    if way < 2:
        return None, f"{len(rows)} classes of validation images: a refusal is measured with three or more"

    def trials(way: int, shot: int, count: int) -> Iterator[_Trial]:
        draw = np.random.default_rng(0)
        fit = [each for each in rows if len(each) > shot]
        for _ in range(count):
            yield _trial(draw, fit, embeddings, weights, codes, way=way, shot=shot)

    main = [np.concatenate(each) for each in zip(*trials(way, shot, _EPISODES), strict=True)]
    threshold = threshold_of(main[0])
    rates = []
    for count, images in ((count, images) for count in CLASSES for images in SHOTS):
        if sum(len(each) > images for each in rows) > count:
            parts = zip(*trials(count, images, _FEWER), strict=True)
            rates.append(_rate(count, images, threshold, [np.concatenate(each) for each in parts]))
    rate = _rate(way, shot, threshold, main)
    if not is_useful(rate.accepted, rate.refused):
        return None, (
            f"it would refuse {rate.refused:.0%} of queries of other classes, and {1 - rate.accepted:.0%} of "
            f"those of {way} enrolled ones"
        )
    return Refusal(threshold, rate.accepted, rate.refused, way, shot, tuple(rates)), ""


def _trial(
    draw: np.random.Generator,
    rows: Sequence[np.ndarray],
    embeddings: np.ndarray,
    weights: np.ndarray,
    codes: CodePrototypes | None,
    *,
    way: int,
    shot: int,
) -> _Trial:
    """Scaled squared distances: of queries from their own class, from the nearest; of others from that."""
    chosen = [draw.permutation(rows[each]) for each in draw.permutation(len(rows))[: way + 1]]
    support = np.stack([each[:shot] for each in chosen[:way]])
    gallery = gallery_of_support(embeddings, support, weights, codes)
    asked = [each[shot : shot + _QUERIES] for each in chosen]
    inside = _scaled(embeddings[np.concatenate(asked[:way])], gallery)
    own = np.repeat(np.arange(way), [len(each) for each in asked[:way]])
    others = _scaled(embeddings[asked[way]], gallery).min(1)
    return inside[np.arange(len(own)), own], inside.min(1), others


def _scaled(queries: np.ndarray, gallery: Gallery) -> np.ndarray:
    """(Q, N) squared distances, each divided by what the examples of the class make of them."""
    away = queries[:, None] - gallery.vectors
    scaled: np.ndarray = np.einsum("qnd,qnd->qn", away, away) / (1 + 1 / gallery.shots)
    return scaled


def _rate(classes: int, shot: int, threshold: float, distances: Sequence[np.ndarray]) -> Rate:
    _, nearest, others = distances
    return Rate(classes, shot, float((nearest <= threshold).mean()), float((others > threshold).mean()))
