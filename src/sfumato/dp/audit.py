"""Audits: how well neighbours are told apart by what is released, as a lower bound that is itself proved.

An audit sees a mechanism as a black box, so that what it proves holds for the code that ran. It can only
convict: a bound below the stated value says that no fault was found, not that there is none. `audit` is for
protections of images, which are cheap to try; `audit_runs` for whole runs, of which each gives one number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist

import torch
from torch import Tensor

from sfumato.dp.guarantee import SYMBOLS, Definition, Guarantee
from sfumato.errors import ConfigError

Mechanism = Callable[[Tensor], Tensor]  # (N, C, H, W) uint8 -> (N, C', h, w) uint8

_LEAST_RUNS = 100  # even runs that give everything away prove little by fewer

_GREY = 128
_CALL = 1 << 22  # values in the images of one call of the mechanism, about
_SMALL_CALL = 8  # trials of a call, for half of them: what is reused in a batch shows from call to call
_FINALISTS = 2  # pairs that are searched thoroughly, after a quick look at all
# How many coordinates of a release are kept: under the changed pixels, elsewhere, correlated with those.
_UNDER, _ELSEWHERE, _CORRELATED, _LEADS = 32, 16, 16, 8
_BINS = 16  # of a coordinate's histogram, of about equal mass
_RIDGE = 1e-3  # added to the variances of standardised coordinates
# Orders of the Rényi divergence; each gives a valid bound, so that no finer grid is needed for its validity.
_ORDERS = 1 + torch.logspace(-3, 2.5, 56, dtype=torch.float64)
# Where scores are clipped in a `_Moment`: wide loses to the tails' spread, narrow to the clipping.
_CLIPS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """How much is tried.

    Attributes:
        shape: (C, H, W) of the audited images. A guarantee holds for every shape, and small ones are quick.
        pixels: m, how many pixels the neighbours differ in.
        trials: how many, in the search and in the proof together.
        confidence: the bound holds with at least this probability.
        seed: of the coins that choose between the neighbours. The mechanism's noise is its own affair.
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
    """What an audit proved.

    Attributes:
        lower: what the mechanism gives away, at least: in the unit of `stated`, or ε where that is None.
        confidence: the probability with which that holds.
        stated: the guarantee that was audited.
        most: the largest `lower` that so many trials can prove of any mechanism.
        trials: how many were made.
        distinguisher: what told the neighbours apart, in words.
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
        """Whether more is given away than stated. A right mechanism is, with probability 1 - confidence."""
        return self.stated is not None and self.lower > self.stated.value

    def __str__(self) -> str:
        symbol = SYMBOLS[self.stated.definition] if self.stated else "eps"
        stated = f"stated {symbol} = {self.stated.value:.4g}" if self.stated else "nothing is stated"
        return (
            f"{stated}; told apart at {symbol} >= {rounded_down(self.lower)}, where "
            f"{rounded_down(self.most)} is the most that can be shown ({100 * self.confidence:g}% "
            f"confidence, {self.trials:,} trials, {self.distinguisher}, {self.pair})"
        )


def audit(mechanism: Mechanism, stated: Guarantee | None, config: AuditConfig) -> AuditResult:
    """Prove a lower bound on what a mechanism gives away between neighbours.

    A trial releases x or x', by a coin, next to a grey image, and a grey image in the same place of
    another call. The grey releases do not depend on the coin, so that a right mechanism gives away no
    more with them; where noise is reused within a batch or from call to call, they cancel it.

    The first half of the trials searches: pairs of neighbours, distinguishers (a number, the score, from
    each trial), and what to measure of the score (`_Event`, `_Moment`). The second half measures that one
    thing, on fresh trials. What was tried in the search therefore costs no confidence; the two limits that
    enter the bound share 1 - confidence between them (Bonferroni).

    The trials of a right mechanism are independent, as the limits require. Those of a mechanism that
    reuses noise are not, but it is then rightly convicted of that.

    Args:
        mechanism: protects a batch, with noise of its own.
        stated: what it claims for `config.pixels` pixels; None: nothing, and the bound is one of ε.
        config: how much is tried.

    Raises:
        ConfigError: the guarantee is about another number of pixels, or what is released is not uint8.
    """
    if stated is not None and stated.pixels != config.pixels:
        raise ConfigError(
            f"the guarantee is about {stated.pixels} pixels and the audit about {config.pixels}: "
            "ask the protection for its guarantee of that many"
        )
    released = mechanism(torch.full((1, *config.shape), _GREY, dtype=torch.uint8))
    if released.dtype != torch.uint8 or released.ndim != 4:
        raise ConfigError(
            f"the mechanism returns {released.ndim} axes of {released.dtype}: an audit reads the "
            "(N, C, h, w) uint8 values that leave the device"
        )
    lab = _Lab(mechanism, torch.Generator().manual_seed(config.seed), released.shape[1:])
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
        most=max(e.proves(labels, perfect, alpha=alpha) for e in _evidence(definition, delta)),
        trials=config.trials,
        distinguisher=distinguisher.words,
        pair=pair.words,
    )


# Whole runs, of which each gives one number.


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """What an audit of whole runs proved.

    Attributes:
        lower: the ε that runs give away at δ, at least.
        confidence: the probability with which that holds.
        epsilon, delta: the guarantee that was audited.
        most: the largest `lower` that so many trials can prove of any runs.
        trials: how many runs were made.
        event: what told them apart, in words.
    """

    lower: float
    confidence: float
    epsilon: float
    delta: float
    most: float
    trials: int
    event: str

    @property
    def convicted(self) -> bool:
        """Whether more is given away than stated. A right run is, with probability 1 - confidence."""
        return self.lower > self.epsilon

    def __str__(self) -> str:
        return (
            f"stated eps = {self.epsilon:.4g} at delta = {self.delta:g}; told apart at eps >= "
            f"{rounded_down(self.lower)}, where {rounded_down(self.most)} is the most that can be shown "
            f"({100 * self.confidence:g}% confidence, {self.trials:,} runs, {self.event})"
        )


def audit_runs(
    run: Callable[[bool], float],
    *,
    epsilon: float,
    delta: float,
    trials: int,
    confidence: float = 0.99,
    seed: int,
) -> RunAudit:
    """Prove a lower bound on the ε of a whole run, between the data with and without one canary.

    Source: Jagielski, Ullman & Oprea 2020, "Auditing Differentially Private Machine Learning". Half of all
    runs are made with the canary, in random order. The first half of the trials searches: whether a high or
    a low score speaks for the canary, the threshold, and which neighbour P is in P(E) <= e^ε Q(E) + δ: both
    adding and removing are tried. The second half measures that one event, on fresh runs; the two
    Clopper-Pearson limits share 1 - confidence between them (Bonferroni), and the search costs none.

    Args:
        run: makes one whole run, with the canary (True) or without, and returns a score: what an adversary
            who knows all but the canary's presence makes of what was released. Runs must share no state.
        epsilon: ε >= 0, as stated; the bound does not depend on it.
        delta: δ in [0, 1), as stated.
        trials: how many runs, 100 or more.
        confidence: the bound holds with at least this probability.
        seed: of the order of runs. The noise of a run is its own affair.

    Raises:
        ConfigError: a number out of its range, or a score that is not finite.
    """
    if not 0 <= epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon:g}: at least 0 and finite, or there is nothing to refute")
    if not 0 <= delta < 1:
        raise ConfigError(f"delta={delta:g}: at least 0 and below 1")
    if trials < _LEAST_RUNS:
        raise ConfigError(f"trials={trials}: fewer than {_LEAST_RUNS} find nothing")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence:g}: it lies between 0 and 1, as 0.99")
    coins = torch.Generator().manual_seed(seed)
    alpha = (1 - confidence) / 2
    tune = _runs(run, trials // 2, coins)
    blank = _Event("approximate", delta)
    candidates = []
    for sign in (1, -1):  # whether a high or a low score speaks for the canary
        labels, scores = tune[0], sign * tune[1]
        tuned = blank.tuned(labels, scores, z=NormalDist().inv_cdf(1 - alpha))
        candidates.append((tuned.proves(labels, scores, alpha=alpha), sign, tuned))
    _, sign, event = max(candidates, key=lambda candidate: candidate[0])
    labels, scores = _runs(run, trials - trials // 2, coins)
    perfect = torch.where(labels, 1.0, -1.0).double()
    side = "at least" if event.above == (sign > 0) else "at most"
    return RunAudit(
        lower=event.proves(labels, sign * scores, alpha=alpha),
        confidence=confidence,
        epsilon=epsilon,
        delta=delta,
        most=max(replace(blank, above=above).proves(labels, perfect, alpha=alpha) for above in (True, False)),
        trials=trials,
        event=f"a score of {side} {sign * event.threshold:.4g} is likelier "
        f"{'with' if event.above else 'without'} the canary",
    )


def _runs(run: Callable[[bool], float], trials: int, coins: torch.Generator) -> tuple[Tensor, Tensor]:
    """(T,) bool, whether the canary was in, for half of them, and (T,) float64 scores."""
    labels = torch.randperm(trials, generator=coins) % 2 == 0
    scores = torch.empty(trials, dtype=torch.float64)
    for i, inserted in enumerate(labels.tolist()):
        scores[i] = run(inserted)
        if not scores[i].isfinite():
            where = "with" if inserted else "without"
            raise ConfigError(
                f"a run {where} the canary scored {scores[i].item():g}: an audit compares finite scores; "
                "give a run that fails a score of its own"
            )
    return labels, scores


# What a definition says of one event, and the limits of a probability.


def divergence(p: Tensor, q: Tensor, *, definition: Definition, delta: float = 0.0) -> Tensor:
    """The least ε, μ or ρ at which an event can have probability p under x and q under x'. (T,) each.

    It grows with p and falls with q, so that a lower limit of p and an upper limit of q give a lower limit.

    - pure and approximate: p <= e^ε q + δ.
    - gaussian: μ = Φ^-1(p) - Φ^-1(q) (Dong, Roth & Su 2022, Eq. (6)).
    - concentrated: the Rényi divergence of order α between two coins, over α, at the best of many α > 1
      (Bun & Steinke 2016, Definition 1.1 and Lemma 2.2: post-processing).

    Args:
        p: in [0, 1).
        q: in (0, 1].
        definition: as in Guarantee.
        delta: δ of the approximate definition.
    """
    if definition == "gaussian":
        result = torch.special.ndtri(p) - torch.special.ndtri(q)
    elif definition == "concentrated":
        orders = _ORDERS[:, None]
        inside = orders * p.log() + (1 - orders) * q.log()
        outside = orders * (-p).log1p() + (1 - orders) * (-q).log1p()
        result = (torch.logaddexp(inside, outside) / ((orders - 1) * orders)).amax(0)
    else:
        result = ((p - delta).clamp(min=0) / q).log()
    return torch.where(p > q, result, 0.0).clamp(min=0)


def lower_limit(hits: int, trials: int, *, alpha: float) -> float:
    """Below the probability of a hit with a probability of at least 1 - alpha (Clopper & Pearson 1934).

    The largest p with P(Binomial(trials, p) >= hits) <= alpha, by bisection from below.
    """
    if hits == 0:
        return 0.0
    k = torch.arange(hits, trials + 1, dtype=torch.float64)
    n = torch.tensor(float(trials), dtype=torch.float64)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    low, high = 0.0, hits / trials
    for _ in range(60):
        p = (low + high) / 2
        tail = (ways + k * math.log(p) + (n - k) * math.log1p(-p)).exp().sum().item()
        low, high = (p, high) if tail <= alpha else (low, p)
    return low


def upper_limit(hits: int, trials: int, *, alpha: float) -> float:
    """Above the probability of a hit with a probability of at least 1 - alpha (Clopper & Pearson 1934)."""
    return 1 - lower_limit(trials - hits, trials, alpha=alpha)


def _quick_limit(hits: Tensor, trials: int, z: float) -> Tensor:
    """About the lower (z < 0) or upper limits of many probabilities, for the search (Wilson 1927)."""
    spread = (hits * (trials - hits) / trials + z * z / 4).sqrt()
    return (hits + z * z / 2 + z * spread) / (trials + z * z)


# What is measured of the scores.


@dataclass(frozen=True)
class _Event:
    """That a score is at least (if not `above`: below) a threshold. An event bounds every definition."""

    definition: Definition
    delta: float
    threshold: float = 0.0
    above: bool = True

    def proves(self, labels: Tensor, scores: Tensor, *, alpha: float) -> float:
        inside = labels if self.above else ~labels
        event = (scores >= self.threshold) == self.above
        p = lower_limit(int((event & inside).sum()), int(inside.sum()), alpha=alpha)
        q = upper_limit(int((event & ~inside).sum()), int((~inside).sum()), alpha=alpha)
        limits = torch.tensor([[p], [q]], dtype=torch.float64)
        return divergence(*limits, definition=self.definition, delta=self.delta).item()

    def tuned(self, labels: Tensor, scores: Tensor, *, z: float) -> "_Event":
        """With the best of all thresholds; z: how careful the limits are."""
        values, places = scores.unique(return_inverse=True)
        if len(values) < 2:
            return self
        best = (0.0, self)
        for above in (True, False):
            counts = []  # of the event at each threshold, under x and x' or the other way round
            for side in (labels, ~labels) if above else (~labels, labels):
                below = places[side].bincount(minlength=len(values)).cumsum(0)[:-1].double()
                counts.append((int(side.sum()) - below if above else below, int(side.sum())))
            p, q = _quick_limit(*counts[0], -z), _quick_limit(*counts[1], z)
            found, i = divergence(p, q, definition=self.definition, delta=self.delta).max(0)
            if found.item() > best[0]:
                # Between two scores that occur, so that scores like them stay on their sides.
                threshold = ((values[i] + values[i + 1]) / 2).item()
                best = (found.item(), _Event(self.definition, self.delta, threshold, above))
        return best[1]


@dataclass(frozen=True)
class _Moment:
    """E[g] under P - ln E[e^g] under Q, g the score clipped to +-clip: at most KL(P || Q), itself at most ρ.

    Source: Donsker & Varadhan 1983 for the first, Bun & Steinke 2016, Definition 1.1 with α to 1, for the
    second. With as many trials as one makes, a single event shows two thirds of ρ at best, and all scores
    together nearly all of it. The limits of the two means are those of Maurer & Pontil 2009, Theorem 4.
    """

    clip: float
    above: bool = True  # P is the distribution under x', where scores are high; otherwise that under x

    def proves(self, labels: Tensor, scores: Tensor, *, alpha: float) -> float:
        g = (scores if self.above else -scores).clamp(-self.clip, self.clip)
        mine = labels if self.above else ~labels
        first = g[mine].mean() - _slack(g[mine], 2 * self.clip, alpha)
        powers = g[~mine].exp()
        second = powers.mean() + _slack(powers, 2 * math.sinh(self.clip), alpha)
        return max(0.0, (first - second.log()).item())

    def tuned(self, labels: Tensor, scores: Tensor, *, z: float) -> "_Moment":
        """Itself: the clips are tried one by one."""
        return self


def _slack(values: Tensor, width: float, alpha: float) -> Tensor:
    """How far off a mean of values from an interval of that width is, to one side, but for a chance alpha."""
    n, log = len(values), math.log(2 / alpha)
    return (2 * values.var() * log / n).sqrt() + 7 * width * log / (3 * (n - 1))


def _evidence(definition: Definition, delta: float) -> "list[_Event | _Moment]":
    moments = [_Moment(clip, above) for clip, above in product(_CLIPS, (True, False))]
    return [_Event(definition, delta), *(moments if definition == "concentrated" else [])]


# Neighbours.


@dataclass(frozen=True)
class _Pair:
    """Two neighbouring images."""

    words: str
    images: Tensor  # (2, C, H, W) uint8: x, x'

    def changed(self, size: torch.Size) -> Tensor:
        """(C' h w,) bool: where a release of that size shows the changed pixels, about."""
        rows, columns = (self.images[0] != self.images[1]).any(0).nonzero(as_tuple=True)
        height, width = self.images.shape[2:]
        shown = torch.zeros(size, dtype=torch.bool)
        shown[:, rows * size[1] // height, columns * size[2] // width] = True
        return shown.flatten()


def neighbours(shape: tuple[int, int, int], pixels: int, *, cell: int) -> list[_Pair]:
    """Pairs of (C, H, W) images that differ in m pixels, as strongly as they can.

    Args:
        shape: of the images.
        pixels: m.
        cell: about the side of the cells that a release shows, 1 where there are none: one place of the m
            pixels fills cell after cell, which moves their sums by the largest L2 norm.
    """
    channels, height, width = shape
    pairs: dict[bytes, _Pair] = {}
    for (background, colour), (change, values), (place, where) in product(
        (("grey", _GREY), ("black", 0)), _changes(channels), _places(height, width, pixels, cell)
    ):
        images = torch.full((2, channels, height * width), colour, dtype=torch.uint8)
        for channel, (one, other) in enumerate(values):
            images[0, channel, where], images[1, channel, where] = one, other
        what = "1 pixel" if pixels == 1 else f"{pixels} pixels"
        pair = _Pair(f"{what} {place}, {change}, on {background}", images.view(2, *shape))
        pairs.setdefault(images.numpy().tobytes(), pair)
    return list(pairs.values())


def _changes(channels: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """(words, the value under x and under x' for each changed channel)."""
    if channels == 1:
        return [("black against white", [(0, 255)])]
    return [
        ("black against white", [(0, 255)] * channels),
        ("channels in opposite directions", [((0, 255), (255, 0))[c % 2] for c in range(channels)]),
        ("black against white in the first channel", [(0, 255)]),
    ]


def _places(height: int, width: int, pixels: int, cell: int) -> list[tuple[str, Tensor]]:
    """(words, indices of m pixels): squares, which lie in one cell where they can, and single pixels."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")

    def nearest(row: int, column: int) -> Tensor:
        distance = torch.maximum((rows - row).abs(), (columns - column).abs())
        return distance.flatten().argsort(stable=True)[:pixels]

    cells = (rows // cell * width + columns // cell).flatten()
    places = [
        ("at the bottom right corner", nearest(height - 1, width - 1)),  # the smallest cell of a grid
        ("at the top left corner", cells.argsort(stable=True)[:pixels]),  # whole cells
        ("near the centre", nearest(height // 2, width // 2)),
    ]
    if pixels > 1:
        places.append(("spread evenly", torch.arange(pixels) * (height * width) // pixels))
    return places


# Trials.


@dataclass(frozen=True)
class _Lab:
    """Makes trials."""

    mechanism: Mechanism
    coins: torch.Generator
    size: torch.Size  # (C', h, w) of a release

    def look(
        self, pair: _Pair, trials: int, coordinates: Tensor | None = None, *, alone: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(T,) bool, whether x' was released, and (T, 3 D) uint8, what was seen; or (T, K), the coordinates.

        Seen are the D values of the release; those of the grey image next to it in the batch; and those of a
        grey image in its place in another call. Alone: the first D, with no grey image released.
        """
        labels = torch.rand(trials, generator=self.coins) < 0.5
        small, large = labels.tensor_split(2)
        calls = small.split(_SMALL_CALL) + large.split(max(1, _CALL // (2 * pair.images[0].numel())))
        parts = []
        for part in calls:
            images = pair.images[part.long()]  # (t, C, H, W)
            if alone:
                seen = self.mechanism(images).flatten(1)
            else:
                batch = torch.stack((images, torch.full_like(images, _GREY)), 1).flatten(0, 1)
                first = self.mechanism(batch).flatten(1)
                again = self.mechanism(torch.full_like(batch, _GREY)).flatten(1)
                seen = torch.cat((first[0::2], first[1::2], again[0::2]), 1)
            parts.append(seen if coordinates is None else seen[:, coordinates])
        return labels, torch.cat(parts)


# Distinguishers.


@dataclass(frozen=True)
class _Distinguisher:
    """A sum over coordinates of a function of the value seen there: higher under x', where it is right."""

    words: str
    coordinates: Tensor  # (K,) from 0 to 3 D - 1
    table: Tensor  # (K, 256) float64
    alone: bool  # whether it needs the release alone

    def scores(self, seen: Tensor) -> Tensor:
        """What was seen at the coordinates -> scores. (T, K) uint8 -> (T,)."""
        total = torch.zeros(len(seen), dtype=torch.float64)
        for values, column in zip(self.table, seen.T, strict=True):
            total += values[column.int()]
        return total


def _choose(labels: Tensor, seen: Tensor, changed: Tensor) -> Tensor:
    """The coordinates worth keeping: (T,) labels, (T, 3 D) values, (D,) bool places changed -> (K,) sorted.

    Of the release: those that show the changed pixels, and those elsewhere whose means or variances differ
    most. Of it and of the grey releases: those whose noise is most correlated with the noise of the first
    ones, and of the grey releases also the same places.
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
    # The 1 keeps a changed place that shows no difference before the rest.
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


def _fit(
    labels: Tensor, seen: Tensor, coordinates: Tensor, length: int
) -> list[tuple[Tensor, _Distinguisher]]:
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
        one = _Distinguisher(words, coordinates[used], table(labels, seen[:, used]), alone)
        fitted.append((used, one))
    return fitted


def _likelihood_ratio(labels: Tensor, seen: Tensor) -> Tensor:
    """ln of the ratio of the two histograms of each coordinate, as if they were independent. -> (K, 256).

    Values are merged to about _BINS of equal mass. A coordinate's ratios shrink by the share of their
    divergence that chance alone would give (James & Stein 1961), so that many idle ones do no harm.
    """
    K = seen.shape[1]
    places = seen.int() + 256 * torch.arange(K, dtype=torch.int32)
    counts = torch.stack(
        [places[side].flatten().bincount(minlength=256 * K).view(K, 256) for side in (~labels, labels)]
    ).double()  # (2, K, 256)
    pooled = counts.sum(0)
    middle = pooled.cumsum(1) - pooled / 2
    bins = (middle * (_BINS / len(seen))).long().clamp(max=_BINS - 1)  # (K, 256)
    masses = torch.zeros(2, K, _BINS, dtype=torch.float64).scatter_add_(2, bins.expand(2, -1, -1), counts)
    used = masses.sum(0) > 0
    chances = (masses + 0.5 * used) / (masses + 0.5 * used).sum(2, keepdim=True)
    ratios = torch.where(used, chances[1].log() - chances[0].log(), 0.0)
    found = ((chances[1] - chances[0]) * ratios).sum(1)
    chance = (used.sum(1) - 1) * sum(1 / max(1, int(side.sum())) for side in (labels, ~labels))
    weights = (1 - chance / found.clamp(min=1e-12)).clamp(min=0)
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


def _separation(labels: Tensor, scores: Tensor) -> float:
    """Difference of the means in standard deviations: by few trials, a steadier rank than any bound."""
    one, other = scores[~labels], scores[labels]
    return ((other.mean() - one.mean()) / ((one.var() + other.var()) / 2).sqrt().clamp(min=1e-9)).item()


def _search(
    lab: _Lab, config: AuditConfig, definition: Definition, delta: float
) -> tuple[_Pair, _Distinguisher, _Event | _Moment]:
    """What tells neighbours apart best, by half of the trials.

    A quick look at all pairs ranks them and chooses coordinates. For the first few, distinguishers are
    fitted, their evidence is tuned, and all are compared, each on trials of its own: an extreme threshold
    wins by chance easily, but not twice.
    """
    length = math.prod(lab.size)
    pairs = neighbours(config.shape, config.pixels, cell=-(-config.shape[1] // lab.size[1]))
    quick = config.trials // (10 * len(pairs))
    long = (config.trials // 2 - quick * len(pairs)) // _FINALISTS
    looks = []
    for pair in pairs:
        labels, seen = lab.look(pair, quick // 2)
        coordinates = _choose(labels, seen, pair.changed(lab.size))
        fitted = _fit(labels, seen[:, coordinates], coordinates, length)
        labels, seen = lab.look(pair, quick // 2, coordinates)
        found = max(_separation(labels, one.scores(seen[:, used])) for used, one in fitted)
        looks.append((found, pair, coordinates))
    looks.sort(key=lambda look: -look[0])
    alpha = (1 - config.confidence) / 2
    z = NormalDist().inv_cdf(1 - alpha)
    best: tuple[float, _Pair, _Distinguisher, _Event | _Moment] | None = None
    for _, pair, coordinates in looks[:_FINALISTS]:
        fitted = _fit(*lab.look(pair, long // 2, coordinates), coordinates, length)
        tune, compare = lab.look(pair, long // 4, coordinates), lab.look(pair, long // 4, coordinates)
        for used, distinguisher in fitted:
            scores = [distinguisher.scores(seen[:, used]) for _, seen in (tune, compare)]
            for evidence in _evidence(definition, delta):
                tuned = evidence.tuned(tune[0], scores[0], z=z)
                found = tuned.proves(compare[0], scores[1], alpha=alpha)
                # The grey releases are looked at for a clear gain only: a small one is chance.
                found *= 1.0 if distinguisher.alone else 0.9
                if best is None or found > best[0]:
                    best = found, pair, distinguisher, tuned
    assert best is not None
    return best[1:]


def rounded_down(value: float) -> str:
    """Three significant digits, never above the value: a proved bound may be understated, not overstated."""
    if value == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.10g}"
