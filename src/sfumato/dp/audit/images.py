"""Audits of protections of images, which are cheap to try: by scores of a release, fitted to trials."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from sfumato.dp.audit.evidence import Event, Moment, evidence_of, round_down
from sfumato.dp.audit.neighbours import Lab, Mechanism, Pair, neighbours, size_of_release
from sfumato.dp.guarantee import SYMBOLS, Definition, Guarantee
from sfumato.errors import ConfigError

_FINALISTS = 2  # pairs to search thoroughly, after a quick look at all
# How many coordinates of a release to keep: under the changed pixels, elsewhere, correlated with those.
_UNDER, _ELSEWHERE, _CORRELATED, _LEADS = 32, 16, 16, 8
_BINS = 16  # of a coordinate's histogram, of about equal mass
_RIDGE = 1e-3  # added to the variances of standardised coordinates


@dataclass(frozen=True)
class Distinguisher:
    """A sum over coordinates of a function of the value there: higher under x', if it is right."""

    words: str
    coordinates: Tensor  # (K,) from 0 to 3 D - 1
    table: Tensor  # (K, 256) float64
    alone: bool  # whether it reads the release alone

    def scores(self, seen: Tensor) -> Tensor:
        """The values at the coordinates -> scores. (T, K) uint8 -> (T,)."""
        total = torch.zeros(len(seen), dtype=torch.float64)
        for values, column in zip(self.table, seen.T, strict=True):
            total += values[column.int()]
        return total


def choose_coordinates(labels: Tensor, seen: Tensor, changed: Tensor) -> Tensor:
    """Chooses the useful coordinates: (T,) labels, (T, 3 D) values, (D,) bool changed -> (K,) sorted.

    From the release: those that show the changed pixels, and others whose means or variances differ most.
    From the release and the grey releases: those whose noise is most correlated with the noise of the first
    ones; from the grey releases also the same coordinates.
    """
    z = seen.float()
    for side in (labels, ~labels):
        z[side] -= z[side].mean(0)
    values = seen[:, : len(changed)].float()
    values = (values - values.mean(0)) / values.std(0).clamp(min=1e-9)
    differences = torch.stack(
        [
            (m[labels].mean(0) - m[~labels].mean(0)).abs() / m.std(0).clamp(min=1e-9)
            for m in (values, values**2)
        ]
    ).amax(0)  # (D,)
    # The 1 puts a changed coordinate that shows no difference before the rest.
    under = torch.where(changed, differences + 1, 0).argsort(descending=True)[:_UNDER]
    under = under[changed[under]]
    differences[under] = -1
    chosen = torch.cat((under, differences.argsort(descending=True)[:_ELSEWHERE]))
    z /= z.norm(dim=0).clamp(min=1e-9)
    correlations = (z[:, chosen[:_LEADS]].T @ z).abs().amax(0)  # (3 D,)
    correlations[chosen] = -1
    correlated = [
        view * len(changed) + part.argsort(descending=True)[:_CORRELATED]
        for view, part in enumerate(correlations.split(len(changed)))
    ]
    same = [view * len(changed) + chosen[:_LEADS] for view in (1, 2)]
    coordinates: Tensor = torch.cat((chosen, *correlated, *same)).unique()
    return coordinates


def fit_distinguishers(
    labels: Tensor, seen: Tensor, coordinates: Tensor, length: int
) -> list[tuple[Tensor, Distinguisher]]:
    """Distinguishers fitted to (T,) labels and (T, K) values, each with the columns it uses, (K,) bool."""
    view = coordinates // length
    ratio, linear = "likelihood ratio", "linear distinguisher"
    fitted = []
    for words, used, table in (
        (ratio, view == 0, _likelihood_ratio),
        (linear, view == 0, _linear),
        (f"{linear} that sees the next image of the batch", view != 2, _linear),
        (f"{linear} that sees another call", view != 1, _linear),
    ):
        alone = bool((view[used] == 0).all())
        fitted.append((used, Distinguisher(words, coordinates[used], table(labels, seen[:, used]), alone)))
    return fitted


def _likelihood_ratio(labels: Tensor, seen: Tensor) -> Tensor:
    """ln of the ratio of the two histograms of each coordinate, as if they were independent. -> (K, 256).

    Values are merged to about _BINS of equal mass. A coordinate's ratios shrink by the share of their
    divergence that chance alone would give (James & Stein 1961), so many idle coordinates do no harm.
    """
    K = seen.shape[1]
    cells = seen.int() + 256 * torch.arange(K, dtype=torch.int32)
    counts = torch.stack(
        [cells[side].flatten().bincount(minlength=256 * K).view(K, 256) for side in (~labels, labels)]
    ).double()  # (2, K, 256)
    pooled = counts.sum(0)
    middle = pooled.cumsum(1) - pooled / 2
    bins = (middle * (_BINS / len(seen))).long().clamp(max=_BINS - 1)  # (K, 256)
    masses = torch.zeros(2, K, _BINS, dtype=torch.float64).scatter_add_(2, bins.expand(2, -1, -1), counts)
    used = masses.sum(0) > 0
    chances = (masses + 0.5 * used) / (masses + 0.5 * used).sum(2, keepdim=True)
    ratios = torch.where(used, chances[1].log() - chances[0].log(), 0.0)
    divergences = ((chances[1] - chances[0]) * ratios).sum(1)
    chance = (used.sum(1) - 1) * sum(1 / max(1, int(side.sum())) for side in (labels, ~labels))
    weights = (1 - chance / divergences.clamp(min=1e-12)).clamp(min=0)
    return weights[:, None] * ratios.gather(1, bins)


def _linear(labels: Tensor, seen: Tensor) -> Tensor:
    """Fisher's linear discriminant, in the scale of a likelihood ratio. -> (K, 256)."""
    values = seen.double()
    scale = values.std(0).clamp(min=1e-9)
    z = values / scale
    means = torch.stack([z[side].mean(0) for side in (~labels, labels)])  # (2, K)
    z -= means[labels.long()]
    covariance = z.T @ z / len(z) + _RIDGE * torch.eye(z.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(covariance, means[1] - means[0])
    levels = torch.arange(256, dtype=torch.float64) / scale[:, None]  # (K, 256)
    table: Tensor = weights[:, None] * (levels - means.mean(0)[:, None])
    return table


def separation(labels: Tensor, scores: Tensor) -> float:
    """The difference of the means in standard deviations: with few trials, it ranks better than any bound."""
    low, high = scores[~labels], scores[labels]
    return ((high.mean() - low.mean()) / ((low.var() + high.var()) / 2).sqrt().clamp(min=1e-9)).item()


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """The settings of an audit of a protection.

    Attributes:
        shape: (C, H, W) of the audited images. A guarantee holds for every shape, and small ones are quick.
        pixels: m, how many pixels the neighbours differ in.
        trials: in the search and in the proof together.
        confidence: the bound holds with at least this probability.
        seed: of the coins that choose between the neighbours, not of the mechanism's noise.
    """

    shape: tuple[int, int, int] = (3, 28, 28)
    pixels: int = 1
    trials: int = 100_000
    confidence: float = 0.99
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ConfigError(f"shape: channels, height and width are at least 1, got {self.shape}")
        if not 1 <= self.pixels <= self.shape[1] * self.shape[2]:
            most = self.shape[1] * self.shape[2]
            raise ConfigError(f"pixels={self.pixels}: neighbours of this shape differ in 1 to {most} pixels")
        if self.trials < 10_000:
            raise ConfigError(f"trials={self.trials}: fewer than 10000 find nothing")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence={self.confidence:g}: it lies between 0 and 1, as 0.99")


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The result of an audit of a protection.

    Attributes:
        lower: a lower bound on the leak, in the unit of `stated`, or ε if that is None.
        confidence: the probability with which it holds.
        stated: the audited guarantee.
        most: the largest `lower` that this number of trials can prove, for any mechanism.
        trials: made in all.
        distinguisher: the one that distinguished the neighbours, in words.
        pair: the neighbours, in words.
    """

    lower: float
    confidence: float
    stated: Guarantee | None
    most: float
    trials: int
    distinguisher: str
    pair: str

    @property
    def convicted(self) -> bool:
        """Whether it leaks more than stated. A right one is convicted with probability 1 - confidence."""
        return self.stated is not None and self.lower > self.stated.value

    def __str__(self) -> str:
        symbol = SYMBOLS[self.stated.definition] if self.stated else "eps"
        stated = f"stated {symbol} = {self.stated.value:.4g}" if self.stated else "nothing is stated"
        return (
            f"{stated}; told apart at {symbol} >= {round_down(self.lower)}; these trials can show at most "
            f"{round_down(self.most)} ({100 * self.confidence:g}% "
            f"confidence, {self.trials:,} trials, {self.distinguisher}, {self.pair})"
        )


def audit(mechanism: Mechanism, stated: Guarantee | None, config: AuditConfig) -> AuditResult:
    """Proves a lower bound on how much a mechanism leaks between neighbours.

    A trial releases x or x', by a coin, next to a grey image, and a grey image at the same position of
    another call. The grey releases do not depend on the coin, so a right mechanism leaks no more with them;
    if noise is reused within a batch or from call to call, they cancel it.

    The first half of the trials searches: pairs of neighbours, distinguishers (a number, the score, from
    each trial), and measurements of the score (`Event`, `Moment`). The second half makes that one
    measurement, on fresh trials. The search therefore costs no confidence; the two limits that enter the
    bound share 1 - confidence between them (Bonferroni).

    The trials of a right mechanism are independent, as the limits require. Those of a mechanism that
    reuses noise are not, but it is then rightly convicted of that.

    The `mechanism` protects a batch, with noise of its own; `stated` is its claim for `config.pixels` pixels.
    None: no claim, and the bound is on ε. Raises ConfigError: see size_of_release.
    """
    size = size_of_release(mechanism, stated, config.shape, config.pixels)
    lab = Lab(mechanism, torch.Generator().manual_seed(config.seed), size)
    definition, delta = (stated.definition, stated.delta) if stated else ("pure", 0.0)
    alpha = (1 - config.confidence) / 2
    pair, distinguisher, evidence = _search(lab, config, definition, delta)
    trials = config.trials - config.trials // 2
    labels, seen = lab.look(pair, trials, distinguisher.coordinates, alone=distinguisher.alone)
    perfect = torch.where(labels, 99.0, -99.0).double()
    return AuditResult(
        lower=evidence.proves(labels, distinguisher.scores(seen), alpha=alpha),
        confidence=config.confidence,
        stated=stated,
        most=max(e.proves(labels, perfect, alpha=alpha) for e in evidence_of(definition, delta)),
        trials=config.trials,
        distinguisher=distinguisher.words,
        pair=pair.words,
    )


def _search(
    lab: Lab, config: AuditConfig, definition: Definition, delta: float
) -> tuple[Pair, Distinguisher, Event | Moment]:
    """The pair and the distinguisher that work best, by half of the trials.

    A quick look at all pairs ranks them and chooses coordinates. For the first few, distinguishers are
    fitted, their evidence is tuned, and all are compared, each on its own trials: an extreme threshold
    wins by chance easily, but not twice.
    """
    length = math.prod(lab.size)
    pairs = neighbours(config.shape, config.pixels, cell=-(-config.shape[1] // lab.size[1]))
    quick = config.trials // (10 * len(pairs))
    long = (config.trials // 2 - quick * len(pairs)) // _FINALISTS
    looks = []
    for pair in pairs:
        labels, seen = lab.look(pair, quick // 2)
        coordinates = choose_coordinates(labels, seen, pair.changes(lab.size))
        fitted = fit_distinguishers(labels, seen[:, coordinates], coordinates, length)
        labels, seen = lab.look(pair, quick // 2, coordinates)
        rank = max(separation(labels, distinguisher.scores(seen[:, used])) for used, distinguisher in fitted)
        looks.append((rank, pair, coordinates))
    looks.sort(key=lambda look: -look[0])
    alpha = (1 - config.confidence) / 2
    z = NormalDist().inv_cdf(1 - alpha)
    best: tuple[float, Pair, Distinguisher, Event | Moment] | None = None
    for _, pair, coordinates in looks[:_FINALISTS]:
        fitted = fit_distinguishers(*lab.look(pair, long // 2, coordinates), coordinates, length)
        tune, compare = lab.look(pair, long // 4, coordinates), lab.look(pair, long // 4, coordinates)
        for used, distinguisher in fitted:
            scores = [distinguisher.scores(seen[:, used]) for _, seen in (tune, compare)]
            for evidence in evidence_of(definition, delta):
                tuned = evidence.tune(tune[0], scores[0], z=z)
                bound = tuned.proves(compare[0], scores[1], alpha=alpha)
                # The grey releases count only for a clear gain: a small one is chance.
                bound *= 1.0 if distinguisher.alone else 0.9
                if best is None or bound > best[0]:
                    best = bound, pair, distinguisher, tuned
    assert best is not None
    return best[1:]
