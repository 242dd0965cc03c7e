"""Audits of protections of images, which are cheap to try."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch

from sfumato.dp.audit.distinguishers import (
    Distinguisher,
    choose_coordinates,
    fit_distinguishers,
    separation,
)
from sfumato.dp.audit.evidence import Event, Moment, evidence_of, round_down
from sfumato.dp.audit.neighbours import GREY, Lab, Mechanism, Pair, neighbours
from sfumato.dp.guarantee import SYMBOLS, Definition, Guarantee
from sfumato.errors import ConfigError

_FINALISTS = 2  # pairs to search thoroughly, after a quick look at all


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

    Args:
        mechanism: protects a batch, with noise of its own.
        stated: its claim for `config.pixels` pixels; None: no claim, and the bound is on ε.
        config: the settings.

    Raises:
        ConfigError: the guarantee is about another number of pixels, or the releases are not uint8.
    """
    if stated is not None and stated.pixels != config.pixels:
        raise ConfigError(
            f"the guarantee is about {stated.pixels} pixels and the audit about {config.pixels}: "
            "ask the protection for its guarantee of that many"
        )
    released = mechanism(torch.full((1, *config.shape), GREY, dtype=torch.uint8))
    if released.dtype != torch.uint8 or released.ndim != 4:
        raise ConfigError(
            f"the mechanism returns {released.ndim} axes of {released.dtype}: an audit reads the "
            "(N, C, h, w) uint8 values that leave the device"
        )
    lab = Lab(mechanism, torch.Generator().manual_seed(config.seed), released.shape[1:])
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
