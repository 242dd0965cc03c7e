"""Bounds from one run: many canaries, each in or out by a fair coin, and how many of them are guessed right.

Every canary of one run is a trial. A few runs may be
taken together: independent runs with their own canaries are one run with all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from sfumato.dp.audit.evidence import round_down
from sfumato.dp.guarantee import SYMBOLS, Definition, Guarantee
from sfumato.dp.naming.bound import binomial
from sfumato.errors import ConfigError

_NORMAL = NormalDist()
_HALVINGS = 40
_LARGEST = 64.0  # the search for a bound ends here
_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """The guesses of an adversary about one run, or several, without seeing the coins.

    Attributes:
        canaries: m, each in or out by a fair coin.
        guesses: r, the number of guesses. It must be chosen before the coins are seen: a number chosen
            because it looks best proves nothing.
        right: v, how many guesses were right.
    """

    canaries: int
    guesses: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.guesses <= self.canaries:
            raise ConfigError(
                f"{self.right} right of {self.guesses} guesses for {self.canaries} canaries: there are at "
                "most as many right ones as guesses, and guesses as canaries"
            )

    def __add__(self, other: "Guesses") -> "Guesses":
        """The guesses of two independent runs together."""
        return Guesses(
            canaries=self.canaries + other.canaries,
            guesses=self.guesses + other.guesses,
            right=self.right + other.right,
        )


def guess(scores: Tensor, inserted: Tensor, *, guesses: int) -> Guesses:
    """Guesses the canaries whose scores are farthest from 0: in if above, out if below.

    Ties are broken by the order of canaries, which is independent of the coins. The (m,) scores, above 0 for
    a canary that seems to be in, decide how many are guessed in and how many out, as they may: only the
    number of guesses must be known before. NaN is guessed last.
    """
    if len(scores) != len(inserted) or not 0 <= guesses <= len(scores):
        raise ConfigError(
            f"{guesses} guesses for {len(inserted)} canaries with {len(scores)} scores: give a score for "
            "each canary, and guess at most as many as there are"
        )
    distances = scores.double().abs().nan_to_num(nan=-1.0, posinf=math.inf)
    chosen = distances.argsort(descending=True, stable=True)[:guesses]
    right = ((scores > 0) == inserted)[chosen].sum()
    return Guesses(canaries=len(scores), guesses=guesses, right=int(right))


def p_value(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of at least v right guesses, if the run is (ε, δ)-DP per canary.

    Source: Steinke, Nasr & Jagielski 2023, "Privacy Auditing with One (1) Training Run", its theorem on
    approximate DP. With X ~ Binomial(r, e^ε / (1 + e^ε)), as for randomised response:

        P(V >= v) <= P(X >= v) + 2 m δ max over i of 1, ..., v of P(v > X >= v - i) / i.
    """
    r, v = guesses.guesses, guesses.right
    if v == 0:
        return 1.0
    lie = math.exp(-epsilon)
    chances = torch.from_numpy(binomial(r, 1 / (1 + lie), lie / (1 + lie)))  # (r + 1,)
    beta = chances[v:].sum().item()
    if delta == 0:
        return min(1.0, beta)
    below = chances[:v].flip(0).cumsum(0)  # (v,): P(v > X >= v - i) for i = 1, ..., v
    alpha = (below / torch.arange(1, v + 1)).max().item()
    return min(1.0, beta + 2 * guesses.canaries * delta * alpha)


def refutes_mu(guesses: Guesses, *, mu: float, alpha: float) -> bool:
    """Whether at least v right guesses have a probability below alpha, if the run is μ-GDP per canary.

    Source: Mahloujifar, Melis & Chaudhuri 2024, arXiv:2410.22235, Algorithm 3, for the trade-off curve of
    Gaussians, G(x) = Φ(Φ^-1(1 - x) - μ) (Dong, Roth & Su 2022, Eq. (6)).

    Why it holds. p_k is the probability of k right guesses, and R_i = sum over k >= i of k p_k / m that of a
    random canary to be guessed right while i or more are; H_i, with r - k instead of k, is the same for a
    wrong guess. Turning the canary's coin makes a right guess a wrong one, so R_i <= 1 - G(H_{i-1}), and
    H_{i-1} >= Φ(Φ^-1(R_i) - μ). From P(V >= v) = alpha, all of it at v, the least mass at v - 1, v - 2, ...
    follows; more mass, or mass above v, needs more below. If R_0 + H_0, which is r / m times all mass,
    exceeds r / m, the probability is below alpha.
    """
    m, r, v = guesses.canaries, guesses.guesses, guesses.right
    right, wrong = alpha * v / m, alpha * (r - v) / m
    for i in range(v, 0, -1):
        if right + wrong > r / m:
            return True
        needed = _NORMAL.cdf(_NORMAL.inv_cdf(right) - mu) if 0 < right < 1 else right
        if needed <= wrong:
            break  # no mass is needed, here and below
        right += (i - 1) / (r - i + 1) * (needed - wrong)
        wrong = needed
    return right + wrong > r / m * (1 + 1e-12)


def plan_guesses(canaries: int, *, mu: float, bound: Callable[[Guesses], float]) -> int:
    """The number of guesses with the largest expected bound, if a canary moves its score by μ deviations.

    It depends on the stated value, not on the run, so it may choose the number. Many guesses are right less
    often, and few prove little. If no number is expected to prove anything, it is half of the canaries, which
    convicts a gross fault. `mu` may be an approximation, and `bound` is the bound to make large.
    """
    # The distance of a score from the middle, for a thousand canaries with equal chances.
    quantiles = torch.special.ndtri((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
    distances = (quantiles + mu / 2).abs().sort(descending=True).values
    chances = torch.sigmoid(mu * distances)  # that the guess is right, by the likelihood ratio

    def bound_expected(guesses: int) -> float:
        share = chances[: max(1, 1000 * guesses // canaries)].mean().item()
        return bound(Guesses(canaries=canaries, guesses=guesses, right=int(share * guesses)))

    shares = sorted(_SHARES, key=lambda share: abs(share - 0.5))  # max takes the first of equal ones
    return max((max(1, int(share * canaries)) for share in shares), key=bound_expected)


@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """The result of guesses on one run, or on a few together.

    Attributes:
        lower: a lower bound on the ε or μ of the run.
        definition: "pure", "approximate" or "gaussian": the definition of `stated`, and the unit of `lower`.
        stated: the audited ε or μ; None if nothing is stated.
        delta: δ of "approximate".
        confidence: the probability with which the bound holds.
        most: the largest `lower` that this number of guesses can prove.
        guesses: how many were right.
        runs: made in all.
        run: the word for a run.
    """

    lower: float
    definition: Definition
    stated: float | None
    delta: float
    confidence: float
    most: float
    guesses: Guesses
    runs: int
    run: str = "run"

    @property
    def convicted(self) -> bool:
        """Whether it leaks more than stated. A right run is convicted with probability 1 - confidence."""
        return self.stated is not None and self.lower > self.stated

    def epsilon(self, delta: float) -> float:
        """The bound as an ε: a μ converts at δ, if trade-off curves are those of Gaussians."""
        if self.definition != "gaussian" or self.lower == 0:
            return self.lower
        bound = Guarantee(
            definition="gaussian", value=self.lower, pixels=1, whole_image=self.lower, source="one run"
        )
        return bound.to("approximate", delta=delta).value

    def __str__(self) -> str:
        symbol, found = SYMBOLS[self.definition], self.guesses
        at = f" at delta = {self.delta:g}" if self.delta else ""
        said = "nothing stated" if self.stated is None else f"stated {symbol} = {self.stated:.4g}{at}"
        runs = f"{self.runs} {self.run}{'' if self.runs == 1 else 's'}"
        return (
            f"{said}; canaries told apart at {symbol} >= {round_down(self.lower)}; these guesses can show "
            f"at most {round_down(self.most)} ({100 * self.confidence:g}% "
            f"confidence, {runs}, {found.right:,} of {found.guesses:,} guesses right, "
            f"{found.canaries:,} canaries)"
        )


def proves(guesses: Guesses, definition: Definition, *, delta: float = 0.0, confidence: float) -> float:
    """The largest ε at δ, or μ, that the guesses refute: a lower bound; 0 if they refute none.

    With a probability of at least `confidence` it is at most that of the run: whatever refutes a value
    refutes all smaller ones, which promise more. A μ holds for mechanisms with the trade-off curve of
    Gaussians: it convicts one that states a μ, and says nothing about one that states (ε, δ) alone.

    Raises:
        ConfigError: zCDP, for which no bound from one run is known here: state it as (ε, δ); or a number out
            of range.
    """
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence:g}: it lies between 0 and 1, as 0.99")
    if not 0 <= delta < 1:
        raise ConfigError(f"delta={delta:g}: at least 0 and below 1")
    if definition == "concentrated":
        raise ConfigError("zCDP: no bound from one run is known; audit its (eps, delta)")
    alpha = 1 - confidence
    if definition == "gaussian":
        return _largest_refuted(lambda mu: refutes_mu(guesses, mu=mu, alpha=alpha))
    return _largest_refuted(lambda epsilon: p_value(guesses, epsilon=epsilon, delta=delta) <= alpha)


def conclude(
    guesses: Guesses,
    *,
    definition: Definition,
    stated: float | None,
    delta: float = 0.0,
    confidence: float = 0.99,
    runs: int = 1,
    run: str = "run",
) -> OneRunAudit:
    """The audit that follows from guesses, in the stated unit. Raises ConfigError as `proves` does."""
    perfect = Guesses(canaries=guesses.canaries, guesses=guesses.guesses, right=guesses.guesses)
    return OneRunAudit(
        lower=proves(guesses, definition, delta=delta, confidence=confidence),
        definition=definition,
        stated=stated,
        delta=delta,
        confidence=confidence,
        most=proves(perfect, definition, delta=delta, confidence=confidence),
        guesses=guesses,
        runs=runs,
        run=run,
    )


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Searches from below, so that the result is itself refuted, or 0."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < _LARGEST and refuted(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
