"""Ways to store vectors, and remedies that are tried on them; each is learned from one half of the people."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.attack import plda, sets

Transform = Callable[[np.ndarray], np.ndarray]  # (N, D) float32 -> (N, d) float32

_CODE = 8  # bits
_PROJECTED = 64  # numbers at most
_SMALL = 1e-6  # of the largest variance; smaller ones count as 0


@dataclass(frozen=True)
class Form:
    """One way to keep vectors.

    Attributes:
        name: for JSON and words, such as "sign bits".
        bytes: of a vector.
        transform: from the vectors as they are.
        outputs: the number of different releases, if it is small.
        remedy: whether it is meant to protect.
        without: the names of numbers that it leaves out.
    """

    name: str
    bytes: int
    transform: Transform
    outputs: int | None = None
    remedy: bool = True
    without: tuple[str, ...] = ()


def as_stored(learned: np.ndarray, seed: int) -> Iterator[Form]:
    """Yield the forms in which databases keep vectors.

    Args:
        learned: (M, D) vectors that set scales and thresholds.
        seed: of the random projection.
    """
    mean, width = learned.mean(0), learned.shape[1]
    least, step = learned.min(), (learned.max() - learned.min()) / 255
    fewer = max(2, min(_PROJECTED, width // 4))
    turn = np.random.default_rng(seed).standard_normal((width, fewer)).astype(np.float32) / math.sqrt(fewer)
    yield Form("float32", 4 * width, lambda x: x, remedy=False)
    yield Form(
        "int8", width, lambda x: ((x - least) / step).round().clip(0, 255) * step + least, remedy=False
    )
    yield Form("sign bits", -(-width // 8), lambda x: _signs(x - mean), remedy=False)
    yield Form(f"random projection to {fewer}", 4 * fewer, lambda x: x @ turn, remedy=False)


def without(numbers: np.ndarray, names: Sequence[str], width: int) -> Form:
    """Return the form that leaves out some of `width` numbers."""
    left = width - len(numbers)
    words = f"all but {' and '.join(names)}"
    return Form(words, 4 * left, lambda x: np.delete(x, numbers, axis=1), without=tuple(names))


def remedies(learned: np.ndarray, people: np.ndarray, target: np.ndarray | None) -> Iterator[Form]:
    """Yield remedies.

    Args:
        learned: (M, D) vectors of people who are not looked for afterwards.
        people: (M,) int64.
        target: (M,) int64 classes of the attribute that is to be kept, -1 if unknown; None without one.
    """
    mean, width = learned.mean(0), learned.shape[1]
    most = min(len(np.unique(people)) - 1, width - max(1, width // 8))
    for count in sorted({max(1, most // 2), most}):
        removal = remove_identity(learned, people, count)
        yield Form(f"identity removed, {count} of {width} directions", 4 * width, removal)
    components = plda.principal_components(learned, _CODE)
    yield Form(
        f"code of {components.shape[1]} bits",
        1,
        lambda x: _signs((x - mean) @ components),
        2 ** components.shape[1],
    )
    if target is not None:
        known = target >= 0
        answer, classes = classify(learned[known], target[known]), int(target.max()) + 1
        one_hot = np.eye(classes, dtype=np.float32)
        yield Form(
            f"answer alone, one of {classes} classes", 1, lambda x: one_hot[answer(x).argmax(1)], classes
        )


def remove_identity(values: np.ndarray, people: np.ndarray, count: int) -> Transform:
    """Remove the directions that tell people apart best, by the closed form of LEACE.

    Source: Belrose et al. 2023, Theorem 4.3: x - W⁺·P·W·(x - μ), with W the whitening by the covariance of
    the vectors and P the projection on the whitened means of classes. There P removes all of their span, and
    no linear model of these classes does better than guessing. Here it removes the `count` directions in
    which they vary most: with more people than numbers, the whole span would be everything.
    """
    mean, scale = values.mean(0), sets.even(values)
    values = ((values - mean) / scale).astype(np.float64)
    variances, axes = np.linalg.eigh(np.cov(values.T))
    kept = variances > _SMALL * variances[-1]
    variances, axes = variances[kept], axes[:, kept]
    whiten, back = axes / np.sqrt(variances), (axes * np.sqrt(variances)).T
    _, counts, means, _ = plda.group(values @ whiten, people)
    directions = np.linalg.svd(np.sqrt(counts)[:, None] * means, full_matrices=False)[2][:count]
    removed = (whiten @ directions.T @ directions @ back).astype(np.float32)
    return lambda x: x - (x - mean) / scale @ removed * scale


def classify(values: np.ndarray, classes: np.ndarray) -> Transform:
    """Fit a logistic regression; the result maps vectors to log-probabilities of classes."""
    mean, spread = values.mean(0), values.std(0).clip(min=1e-3)

    def scale(x: np.ndarray) -> np.ndarray:
        return np.column_stack([(x - mean) / spread, np.ones(len(x), np.float32)])

    weights = sets.regress(scale(values)[None], classes, int(classes.max()) + 1)[0]
    return lambda x: sets.log_softmax(scale(x) @ weights)


def _signs(x: np.ndarray) -> np.ndarray:
    signs: np.ndarray = np.where(x > 0, np.float32(1), np.float32(-1))
    return signs
