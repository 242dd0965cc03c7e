"""Meta-Clip as it was published: clipping and noise inside the learning of each task. NOT private."""

import math
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sfumato.base.hardware import to_device
from sfumato.dp import accounting, clipping
from sfumato.dp.clipping import AdaClip, ClippingPolicy, Fixed, Quantile, policy_of
from sfumato.dp.clipping.rows import check_above_0
from sfumato.errors import ConfigError
from sfumato.learn.method import finite
from sfumato.learn.tasks import Frame, TaskPool


class MetaClip(clipping.MetaClip):
    """C ← C - η dL/dC, by the mean derivative over the expected number of tasks, as published. NOT private.

    With logarithm=1, beyond the paper, ln C ← ln C - η dL/d(ln C), by derivatives within [-1, 1]: the unit of
    gradients and the start matter little, and no task moves C far. Where the paper is silent, we decided: C
    does not fall below a thousandth of its start, and derivatives that are not finite count as zero.
    """

    def __init__(self, start: float, learning_rate: float = 0.05, logarithm: float = 0.0) -> None:
        if logarithm not in (0, 1):
            raise ConfigError(f"logarithm={logarithm:g}: 1 to learn ln C, or 0 to learn C")
        super().__init__(start, 1.0, learning_rate, smallest=start / 1000, largest=sys.float_info.max)
        self.share, self._logarithm = 0.0, bool(logarithm)  # nothing pays for the derivatives

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """The derivative, as it is; or that by ln C, clipped."""
        slopes = torch.where(slopes.isfinite(), slopes, 0.0).double()
        return (self.norm * slopes).clamp(-1, 1) if self._logarithm else slopes

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """Follows the derivative."""
        if not self._logarithm:
            return super().learn(mean, vote, sigma)
        self.norm *= math.exp(-self._learning_rate * vote)
        return mean


POLICIES: dict[str, type[ClippingPolicy]] = {each.name: each for each in (Fixed, Quantile, AdaClip, MetaClip)}


@dataclass(frozen=True, kw_only=True)
class InnerNoise:
    """The settings of clipping and noising inner gradients.

    Attributes:
        settings: of the policy. "fixed" needs clipping_norm. "quantile" and "meta-clip" take start (by
            default the median of the first epoch's norms) and learning_rate, the first also quantile, the
            other logarithm; "adaclip" takes mean_decay, variance_decay, smallest and largest.
    """

    noise_multiplier: float  # σ, the standard deviation of the noise in units of C
    clipping: str = "meta-clip"  # the choice of C: one of POLICIES
    settings: dict[str, float] = field(default_factory=dict)
    pool_tasks: int = 10_000  # overlapping ones, each of which takes part in a step independently
    delta: float = 1e-5  # of the bound of the paper's accounting

    def __post_init__(self) -> None:
        check_above_0("noise_multiplier", self.noise_multiplier)
        self.policy(1.0)

    @property
    def seeks_start(self) -> bool:
        """Whether the first C is the median of the norms of the first epoch."""
        return self.clipping in ("quantile", "meta-clip") and "start" not in self.settings

    def policy(self, median: float) -> ClippingPolicy:
        """The policy at its start; `median` replaces a missing start."""
        settings = {"start": median, **self.settings} if self.seeks_start else self.settings
        return policy_of(POLICIES, self.clipping, settings)


class TaskNoise:
    """Clipping and noise inside the learning of each task, as published. NOT private. State: the policy.

    Source: Meta-Clip (docs/papers.md), Algorithms 1 to 3. In every step of learning a task, its gradient g
    becomes g / max(1, |g| / C) + N(0, σ^2 C^2 I), in training and in use. The meta-update is the plain mean
    of the contributions; its gradient reaches C through C / |g| and through the scale of the noise.

    Where the paper is silent, we decided: for Reptile, whose update has no gradient of a loss, the derivative
    by C is that of the loss of all images after learning; the first epoch is a look at every task of the
    pool, at the first parameters.

    Nothing is proved: see `not_covered` of the card. `conditional`: the statement of the paper's accounting.
    """

    def __init__(self, asked: InnerNoise, pool: TaskPool, tasks: int, steps: int) -> None:
        """`tasks`: the number expected in a step, each learned in some `steps`."""
        self._asked, self._tasks, self._steps = asked, tasks, steps
        self.pool, self.rate = pool, tasks / len(pool)
        self.sigma, self.seeks_start = asked.noise_multiplier, asked.seeks_start
        self.policy = asked.policy(1.0)
        self.follows_gradients = isinstance(self.policy, Quantile | AdaClip)

    def begin(self, norms: Tensor) -> None:
        """Before the first step: without a start, C is the median of the (T,) norms of the first epoch."""
        known = norms[norms.isfinite()].double()
        if not len(known) or not known.median() > 0:
            raise ConfigError("the median of the first epoch's norms is not above 0: give clipping a start")
        self.policy = self._asked.policy(float(known.quantile(0.5)))

    def frame(self, size: int, device: torch.device) -> Frame | None:
        """The coordinates of clipping P parameters: of AdaClip; the others have those of the gradients."""
        if not isinstance(self.policy, AdaClip):
            return None
        return Frame(*(to_device(each.float(), device) for each in self.policy.frame(size)))

    def learn(self, gradients: Tensor, noise: Tensor, slopes: Tensor) -> None:
        """Chooses the next C; a step without tasks changes nothing.

        (T, P) first inner gradients before they are clipped, if the policy follows them; (T, P) the standard
        normal noise added to them; (T,) derivatives of the loss after learning, by C.
        """
        policy, sigma, count = self.policy, self.sigma, len(slopes)
        if count and isinstance(policy, AdaClip):
            released = (policy.clip(gradients) + sigma * noise).mean(0)
            policy.learn(released, 0.0, sigma / math.sqrt(count))
        elif count:
            divisor = count if self.follows_gradients else self._tasks
            policy.learn(gradients, policy.vote(gradients, slopes).sum().item() / divisor, sigma)

    def card(self, steps: int) -> dict[str, Any]:
        """The bound of the paper's accounting after these steps (None: infinite), and its gaps."""
        delta, stretch = self._asked.delta, accounting.Stretch(self.sigma, self.rate, steps * self._steps)
        return {
            "clipping": self.policy.name,
            "noise_multiplier": self.sigma,
            "norm": self.policy.norm,
            "pool": len(self.pool),
            "rate": self.rate,
            "delta": delta,
            "epsilon": None,
            "conditional": {k: finite(accounting.epsilon([stretch], delta, k)) for k in ("gdp", "pld")},
            "not_covered": [
                "the clipping norm, which follows private tasks without noise; the gradients of the queries, "
                "which reach the meta-update without noise; and the number of tasks of a step"
            ],
        }
