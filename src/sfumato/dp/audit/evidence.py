"""Measurements of scores, their meaning in each definition, and confidence limits of a probability."""

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from sfumato.dp.guarantee import Definition
from sfumato.dp.naming.bound import lower_limit, upper_limit

# Orders of the Rényi divergence; each gives a valid bound, so validity needs no finer grid.
_ORDERS = 1 + torch.logspace(-3, 2.5, 56, dtype=torch.float64)
# The clips of a `Moment`: a wide one loses to the spread of the tails, a narrow one to the clipping.
_CLIPS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)


def divergence(p: Tensor, q: Tensor, *, definition: Definition, delta: float = 0.0) -> Tensor:
    """The least ε, μ or ρ at which an event can have probability p under x and q under x'. (T,) each.

    It grows with p and falls with q: a lower limit of p and an upper limit of q give a lower limit.

    - pure and approximate: p <= e^ε q + δ.
    - gaussian: μ = Φ^-1(p) - Φ^-1(q) (Dong, Roth & Su 2022, Eq. (6)).
    - concentrated: the Rényi divergence of order α between two coins, over α, at the best of many α > 1
      (Bun & Steinke 2016, Definition 1.1 and Lemma 2.2: post-processing).

    p is in [0, 1), q in (0, 1].
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


def _quick_limit(hits: Tensor, trials: int, z: float) -> Tensor:
    """Approximate lower (z < 0) or upper limits of many probabilities, for the search (Wilson 1927)."""
    spread = (hits * (trials - hits) / trials + z * z / 4).sqrt()
    return (hits + z * z / 2 + z * spread) / (trials + z * z)


@dataclass(frozen=True)
class Event:
    """The event that a score is at least (if not `above`: below) a threshold. It bounds every definition."""

    definition: Definition
    delta: float
    threshold: float = 0.0
    above: bool = True

    def proves(self, labels: Tensor, scores: Tensor, *, alpha: float) -> float:
        """A lower bound on the leak, but for a chance of 2 alpha. (T,) bool and (T,)."""
        inside = labels if self.above else ~labels
        event = (scores >= self.threshold) == self.above
        p = lower_limit(int((event & inside).sum()), int(inside.sum()), alpha=alpha)
        q = upper_limit(int((event & ~inside).sum()), int((~inside).sum()), alpha=alpha)
        limits = torch.tensor([[p], [q]], dtype=torch.float64)
        return divergence(*limits, definition=self.definition, delta=self.delta).item()

    def tune(self, labels: Tensor, scores: Tensor, *, z: float) -> "Event":
        """Chooses the best threshold; z: how careful the limits are."""
        values, ranks = scores.unique(return_inverse=True)
        if len(values) < 2:
            return self
        best = (0.0, self)
        for above in (True, False):
            counts = []  # of the event at each threshold, under x and x' or the other way round
            for side in (labels, ~labels) if above else (~labels, labels):
                below = ranks[side].bincount(minlength=len(values)).cumsum(0)[:-1].double()
                counts.append((int(side.sum()) - below if above else below, int(side.sum())))
            p, q = _quick_limit(*counts[0], -z), _quick_limit(*counts[1], z)
            bound, i = divergence(p, q, definition=self.definition, delta=self.delta).max(0)
            if bound.item() > best[0]:
                # Between two scores that occur, so that similar scores stay on their sides.
                threshold = ((values[i] + values[i + 1]) / 2).item()
                best = (bound.item(), Event(self.definition, self.delta, threshold, above))
        return best[1]


@dataclass(frozen=True)
class Moment:
    """E[g] under P - ln E[e^g] under Q, g the score clipped to +-clip: at most KL(P || Q), itself at most ρ.

    Source: Donsker & Varadhan 1983 for the first, Bun & Steinke 2016, Definition 1.1 with α to 1, for the
    second. With a usual number of trials, a single event shows two thirds of ρ at best, and all scores
    together nearly all of it. The limits of the two means are those of Maurer & Pontil 2009, Theorem 4.
    """

    clip: float
    above: bool = True  # P is the distribution under x', with high scores; otherwise that under x

    def proves(self, labels: Tensor, scores: Tensor, *, alpha: float) -> float:
        """A lower bound on the leak, but for a chance of 2 alpha. (T,) bool and (T,)."""
        g = (scores if self.above else -scores).clamp(-self.clip, self.clip)
        mine = labels if self.above else ~labels
        first = g[mine].mean() - _slack(g[mine], 2 * self.clip, alpha)
        powers = g[~mine].exp()
        second = powers.mean() + _slack(powers, 2 * math.sinh(self.clip), alpha)
        return max(0.0, (first - second.log()).item())

    def tune(self, labels: Tensor, scores: Tensor, *, z: float) -> "Moment":
        """Returns itself: the clips are tried one by one."""
        return self


def _slack(values: Tensor, width: float, alpha: float) -> Tensor:
    """A bound on the error of a mean of values from an interval, to one side, but for a chance alpha."""
    n, log = len(values), math.log(2 / alpha)
    return (2 * values.var() * log / n).sqrt() + 7 * width * log / (3 * (n - 1))


def evidence_of(definition: Definition, delta: float) -> list[Event | Moment]:
    """All measurements for a definition, before tuning."""
    moments = [Moment(clip, above) for clip, above in product(_CLIPS, (True, False))]
    return [Event(definition, delta), *(moments if definition == "concentrated" else [])]


def round_down(value: float) -> str:
    """Rounds down to three significant digits: a proved bound may be understated, not overstated."""
    if value == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.floor(value / unit) * unit:.10g}"
