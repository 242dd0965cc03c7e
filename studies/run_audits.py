"""Audits of whole runs, each of which gives one number: studies/audit_training.py asks for them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch
from torch import Tensor

from sfumato.dp.audit.evidence import Event, round_down
from sfumato.errors import ConfigError

_LEAST_RUNS = 100  # with fewer, even runs that leak everything prove little


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """The result of an audit of whole runs.

    Attributes:
        lower: a lower bound on the ε of runs at δ.
        confidence: the probability with which it holds.
        epsilon, delta: the audited guarantee.
        most: the largest `lower` that this number of runs can prove.
        trials: how many runs were made.
        event: the one that distinguished them, in words.
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
        """Whether it leaks more than stated. A right run is convicted with probability 1 - confidence."""
        return self.lower > self.epsilon

    def __str__(self) -> str:
        return (
            f"stated eps = {self.epsilon:.4g} at delta = {self.delta:g}; told apart at eps >= "
            f"{round_down(self.lower)}; these runs can show at most {round_down(self.most)} "
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
    """Proves a lower bound on the ε of a whole run, between the data with and without one canary.

    Source: Jagielski, Ullman & Oprea 2020, "Auditing Differentially Private Machine Learning". Half of all
    runs are made with the canary, in random order. The first half of the trials searches: whether a high or
    a low score speaks for the canary, the threshold, and which neighbour P is in P(E) <= e^ε Q(E) + δ: both
    adding and removing are tried. The second half measures that one event, on fresh runs; the two
    Clopper-Pearson limits share 1 - confidence between them (Bonferroni), and the search costs none.

    Args:
        run: makes one whole run, with the canary (True) or without, and returns a score: computed from the
            release by an adversary who knows all but the canary's presence. Runs must share no state.
        epsilon: ε >= 0, as stated; the bound does not depend on it.
        delta: δ in [0, 1), as stated.
        trials: how many runs, 100 or more.
        confidence: the bound holds with at least this probability.
        seed: of the order of runs, not of the noise of a run.

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
    blank = Event("approximate", delta)
    candidates = []
    for sign in (1, -1):  # whether a high or a low score speaks for the canary
        labels, scores = tune[0], sign * tune[1]
        tuned = blank.tune(labels, scores, z=NormalDist().inv_cdf(1 - alpha))
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
