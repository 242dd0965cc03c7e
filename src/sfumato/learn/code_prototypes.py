"""Prototypes of codes with known noise: the expected clean codes of a class, given its noisy ones.

A mean of noisy codes is unbiased, but the fewer and the noisier they are, the longer it is, and a long mean
is far from every query: classes of one example lose to those of twenty. Here a prototype is a posterior mean.

For bits: in a class each is 1 with a probability of θ, drawn from Beta(a, a). Randomised response that leaves
ℓ of a bit (Warner 1965; see part_left) makes that q(θ) = (1 + ℓ·(2θ - 1)) / 2, and s of n examples are 1:

    E[2θ - 1 | s] = ∫ (2θ - 1) q^s (1 - q)^(n - s) Beta(θ; a, a) dθ / ∫ q^s (1 - q)^(n - s) Beta(θ; a, a) dθ

Both are of polynomials, for which Gauss-Jacobi quadrature is exact (Golub & Welsch 1969). Without noise that
is the known (2s - n) / (n + 2a). One response may change all bits of a word; here each counts by itself.

For numbers, with Gaussian noise of variance v on each: a mean of n examples is moved towards the mean of all
prototypes, to n / (n + k) of its way, k = (within + v) / between: the best linear estimate, or credibility
(Bühlmann & Straub 1970); for normal numbers the posterior mean; with estimated variances, empirical
Bayes after James & Stein 1961.

A code of a codebook (learn.codebook) is decoded first, and is then like numbers: under noise, by the words
whose mean over releases is the word without noise.

A query is compared with posterior means by its squared distance, as with any prototypes. Its likelihood under
each class is no more accurate under noise, and half a point more without (docs/speed.md).
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pydantic
from pydantic import BaseModel, Field, model_validator

from sfumato import artefacts
from sfumato.errors import ArtefactError
from sfumato.learn.refusal import OF_CARD, Refusal
from sfumato.protect.code import KIND, MEANS, Code, Lengths

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_WEIGHT = 1e-30
_LEAST_SPREAD = 1e-6
_MOST_COUNTED = 4096  # examples of bits: more count as this many, since they add nothing
_MOST_NODES = 256
_TOGETHER = 1 << 20  # numbers of a quadrature that are computed at a time

_Variance = Annotated[float, Field(ge=_LEAST_SPREAD, le=1e6)]


@pydantic.dataclasses.dataclass(frozen=True, config=OF_CARD)
class Spread:
    """The variance of a number, or a bit as 1 or -1, within a new class, and of the means of classes."""

    within: _Variance
    between: _Variance


BITS = Spread(1 / 3, 2 / 3)  # for bits trained without validation images; as measured on `faces`


def measure_spread(codes: "Tensor", classes: "Tensor", *, bits: bool) -> Spread:
    """The spread of (n, D) clean codes, bits as 1 and -1, by the analysis of variance of one factor."""
    import torch

    places = classes.unique(return_inverse=True)[1]
    counts = places.bincount().to(codes.dtype)
    means = torch.zeros(len(counts), codes.shape[1]).index_add(0, places, codes) / counts[:, None]
    within = (codes - means[places]).square().sum().item() / ((len(codes) - len(counts)) * codes.shape[1])
    if bits:
        within = min(max(within, _LEAST_SPREAD), 1 - _LEAST_SPREAD)
        return Spread(within, 1 - within)
    between = means.var(0).mean().item() - within * counts.reciprocal().mean().item()
    return Spread(max(within, _LEAST_SPREAD), max(between, _LEAST_SPREAD))


class _Known(BaseModel):
    model_config = OF_CARD

    spread: Spread
    refusal: Refusal | None
    no_refusal: str  # the reason; "" if there is a refusal
    flip: float | None
    norm: float | None
    noise: float | None


class _Card(artefacts.Card):
    config: Lengths
    shape: artefacts.ImageShape
    prototypes: _Known | None = None

    @model_validator(mode="after")
    def _spread_is_of_bits(self) -> "_Card":
        if self.config.bits is not None and self.prototypes and self.prototypes.spread.between >= 1:
            raise ValueError("prototypes.spread.between: below 1 for bits, which are 1 or -1")
        return self


@dataclass(frozen=True)
class CodePrototypes:
    """The prototypes of an encoder's codes."""

    bits: int | None  # None for numbers
    dimension: int  # the length of a code
    spread: Spread | None = None  # None without validation images: numbers then have plain means
    refusal: Refusal | None = None  # for codes with the noise of `noise`; None if useless, or not measured
    noise: tuple[float | None, float | None, float | None] = (None, None, None)  # flip, norm and noise
    words: np.ndarray | None = field(default=None, compare=False)  # (2^b, D) of a codebook, of unit length

    @property
    def are_signs(self) -> bool:
        """Whether embeddings are bits themselves, as 1 and -1; not numbers, or words of a codebook."""
        return self.bits is not None and self.words is None

    def unbias(self, codes: np.ndarray, code: Code) -> np.ndarray:
        """(N, b) codes as released, bits as 1 and -1 -> (N, D) embeddings, on average those of clean ones."""
        if self.words is not None:
            rows = (codes > 0) @ (1 << np.arange(self.dimension - 1, -1, -1))
            return np.asarray(_remove_bias(self.words, code, self.dimension)[rows])
        return np.asarray(codes if self.bits is None else codes / part_left(code, self.dimension))

    def weight(self, code: Code) -> float:
        """The weight of an example in a mean of unbiased codes: 1 / (1 + noise), above 0.

        The noise is its variance relative to a clean code: 1 for bits, 1/D for numbers of a norm of about 1.
        """
        if self.words is not None:
            longer = np.square(_remove_bias(self.words, code, self.dimension)).sum(1).mean() - 1
            return max(1 / (1 + max(0.0, float(longer))), _LEAST_WEIGHT)
        if self.bits is not None:
            return max(part_left(code, self.dimension) ** 2, _LEAST_WEIGHT)
        return 1 / (1 + self.dimension * (code.noise or 0))

    def refusal_of(self, code: Code) -> Refusal | None:
        """The refusal for queries of this protection; None if it has other noise, and so other distances."""
        if code.epsilon is not None or (code.flip, code.norm, code.noise) != self.noise:
            return None
        return self.refusal

    def posterior(
        self, means: np.ndarray, weights: np.ndarray, examples: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Prototypes of classes, (..., N, D), and the shots of each for a Refusal, (N,) float64.

        These are the number of examples, plus the weight of the prior in examples; infinite for noisy bits.
        `means` are weighted means of `examples` unbiased codes, and `weights` the sums of their weights.
        """
        counts = examples.astype(np.float64)
        shares = np.minimum(weights / counts, 1)
        spread = self.spread or (BITS if self.are_signs else None)
        if spread is None:
            return means, counts
        unit = 1 if self.are_signs else 1 / means.shape[-1]
        prior = (spread.within + (1 / shares - 1) * unit) / spread.between  # in examples
        if self.are_signs:
            # The noise of a query is most of its distance, and bounded. Without regard to shots one threshold
            # accepts 94 to 97% from 1 to 20 shots, and by K + k 86 to 100% (drawn faces, flips of 0.1, 0.25).
            shots = np.where(shares < 1, math.inf, counts + prior)
            return _posterior_bits(means, counts, np.sqrt(shares), spread.between), shots
        centre = means.mean(-2, keepdims=True)
        kept = (counts / (counts + prior)).astype(means.dtype)[:, None]
        return centre + kept * (means - centre), counts + prior


def read(path: str | os.PathLike[str]) -> tuple[CodePrototypes, tuple[int, int, int]]:
    """Reads an artefact of learn.code without its encoder, and (C, H, W) of its images."""
    tables: dict[str, np.ndarray] = {}

    def take(name: str, dtype: str, shape: Sequence[int], data: bytearray) -> None:
        if name.startswith("network.codebook.") and dtype == "torch.float32":
            tables[name] = np.frombuffer(data, np.float32).reshape(shape)

    card, shapes = artefacts.load_card(path, kind=KIND, schema=_Card, take=take)
    channels, height, width = card["shape"]
    made = of_card(card, [tables[name] for name in sorted(tables)])
    inner = made.dimension if made.words is None else made.words.shape[1]
    fits = shapes.get("network.project.weight", (0,))[0] == inner
    if card["config"].get("codebook") == MEANS:
        fits &= made.words is not None and len(made.words) == 1 << made.dimension
        fits &= made.words is not None and bool(np.isfinite(made.words).all())
    if not fits:
        raise ArtefactError(f"{path}: damaged: its weights do not fit codes of length {made.dimension}")
    return made, (channels, height, width)


def of_card(card: Mapping[str, Any], tables: Sequence[np.ndarray] = ()) -> CodePrototypes:
    """The prototypes of a card, with its tables; without validation images, no spread and no refusal."""
    bits, known = card["config"].get("bits"), card.get("prototypes")
    words = None
    if tables:
        words = reduce(lambda sums, table: (sums[:, None] + table).reshape(-1, table.shape[1]), tables)
        words = words / np.maximum(np.sqrt(np.square(words).sum(1, keepdims=True)), 1e-12)
    made = CodePrototypes(bits, bits or card["config"].get("numbers"), words=words)
    if known is None:
        return made
    noise = (known["flip"], known["norm"], known["noise"])
    spread, refusal = Spread(**known["spread"]), Refusal.of_card(known["refusal"])
    return replace(made, spread=spread, refusal=refusal, noise=noise)


def part_left(code: Code, bits: int) -> float:
    """The part of a bit, written as 1 or -1, that noise leaves on average: means divided by it are unbiased.

    Source: Warner 1965. A bit that is flipped with a probability of p is 1 - 2p of itself, in expectation. A
    word of b bits by randomised response at ε is true with a probability of (e^ε - 1) / (e^ε - 1 + 2^b), and
    otherwise any word, with a mean of 0 in each bit.
    """
    if code.flip is not None:
        return 1 - 2 * code.flip
    if code.epsilon is not None:
        told = -math.expm1(-code.epsilon)  # both sides of the fraction times e^-ε, which does not overflow
        return told / (told + math.exp(bits * math.log(2) - code.epsilon))
    return 1.0


def _remove_bias(words: np.ndarray, code: Code, bits: int) -> np.ndarray:
    """(2^b, D) words -> those whose mean over the noise of a code's word is the word itself."""
    left = part_left(code, bits)
    if code.epsilon is not None:
        return np.asarray((words - (1 - left) * words.mean(0)) / left)
    if code.flip is not None:  # the inverse of each bit's flip
        grid = words.reshape(*[2] * bits, -1)
        for axis in range(bits):
            grid = ((1 - code.flip) * grid - code.flip * np.flip(grid, axis)) / left
        return np.asarray(grid.reshape(words.shape))
    return words


def _posterior_bits(means: np.ndarray, counts: np.ndarray, left: np.ndarray, between: float) -> np.ndarray:
    """(..., N, D) unbiased means of (N,) examples with (N,) parts left -> their posterior means."""
    counts = np.minimum(counts, _MOST_COUNTED)
    nodes, weights = _quadrature(min(_MOST_NODES, int(counts.max()) // 2 + 2), (1 / between - 1) / 2)
    # (N, M): q, at each node 2θ - 1; nodes next to 1 round to it.
    chances = ((1 + left[:, None] * nodes) / 2).clip(1e-15, 1 - 1e-15)
    # The ones among the examples; noise of several sizes leaves a fraction.
    ones = (1 + left[:, None] * means.astype(np.float64)).clip(0, 2) / 2 * counts[:, None]  # (..., N, D)
    found = np.empty(ones.shape, means.dtype)
    size = max(1, _TOGETHER // (len(nodes) * ones[..., :1, :].size))
    for start in range(0, len(counts), size):
        rows = slice(start, start + size)
        yes, no = np.log(chances[rows])[:, None], np.log1p(-chances[rows])[:, None]  # (n, 1, M)
        s = ones[..., rows, :, None]
        likelihoods = s * yes + (counts[rows, None, None] - s) * no  # (..., n, D, M)
        likelihoods = np.exp(likelihoods - likelihoods.max(-1, keepdims=True))
        found[..., rows, :] = (likelihoods @ (weights * nodes)) / (likelihoods @ weights)
    return found


@lru_cache(maxsize=64)
def _quadrature(count: int, a: float) -> tuple[np.ndarray, np.ndarray]:
    """(M,) nodes in (-1, 1) and their weights, for means over 2θ - 1 of θ from Beta(a, a).

    Source: Golub & Welsch 1969, of Jacobi polynomials with equal exponents a - 1.
    """
    k = np.arange(1, count)
    with np.errstate(invalid="ignore"):  # of k = 1 and a = 1/2
        squares = k * (k + 2 * a - 2) / ((2 * k + 2 * a - 2) ** 2 - 1)
    squares[:1] = 1 / (2 * a + 1)
    nodes, vectors = np.linalg.eigh(np.diag(np.sqrt(squares), -1))
    return nodes, vectors[0] ** 2
