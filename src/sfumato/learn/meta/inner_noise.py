"""Clipping and noise inside the learning of each task, as Meta-Clip was published. NOT private.

Source: Meta-Clip (docs/papers.md), Algorithms 1 to 3. In every step of learning a task, its gradient g
becomes g / max(1, |g| / C) + N(0, σ^2 C^2 I), in training and in use. The meta-update is the plain mean of
the tasks' contributions; the meta-gradient reaches C through the factor C / |g| and through the scale of the
noise. The policies differ only in their choice of C, so they can be compared.

Where the paper is silent, we decided: C follows its raw derivative at a separate rate, and does not fall
below a thousandth of its start; derivatives that are not finite count as zero; for Reptile, whose update has
no gradient of a loss, the derivative is that of the loss of all images of the task after learning; the first
epoch is a look at every task of the pool, at the first parameters.

Nothing is proved. The queries' gradients reach the meta-update without noise, and C is a function
of private tasks that no noise covers. `conditional` is the statement of the paper's accounting.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.dp import accounting
from sfumato.dp.clipping import AdaClip, ClippingPolicy, Fixed, Quantile, policy_of
from sfumato.dp.clipping.rows import check_above_0
from sfumato.episodes import Shape
from sfumato.errors import ConfigError
from sfumato.learn.method import finite
from sfumato.learn.task_pool import TaskPool, poisson
from sfumato.learn.tasks import Frame, Inner

NOT_COVERED = (
    "the clipping norm, which follows private tasks without noise; the gradients of the queries, which reach "
    "the meta-update without noise; and the number of tasks of a step"
)


@dataclass(frozen=True, kw_only=True)
class InnerNoise:
    """The settings of clipping and noising inner gradients.

    Attributes:
        noise_multiplier: σ, the standard deviation of the noise in units of C.
        clipping: the choice of C: "fixed", "quantile", "adaclip" or "meta-clip".
        settings: of that policy. "fixed" needs clipping_norm. "quantile" and "meta-clip" take start (by
            default the median of the first epoch's norms) and learning_rate, the first also quantile, the
            other logarithm; "adaclip" takes mean_decay, variance_decay, smallest and largest.
        pool_tasks: the number of overlapping tasks, each of which takes part in a step independently.
        delta: of the bound of the paper's accounting.
    """

    noise_multiplier: float
    clipping: str = "meta-clip"
    settings: dict[str, float] = field(default_factory=dict)
    pool_tasks: int = 10_000
    delta: float = 1e-5

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


class MetaClip(ClippingPolicy):
    """C ← C - η dL/dC, by the mean derivative over the expected number of tasks.

    With logarithm=1, beyond the paper, ln C ← ln C - η dL/d(ln C), by derivatives within [-1, 1]: the unit of
    gradients and the start matter little, and no task moves C far.
    """

    name = "meta-clip"
    follows_norm = True

    def __init__(self, start: float, learning_rate: float = 0.05, logarithm: float = 0.0) -> None:
        check_above_0("start", start)
        check_above_0("learning_rate", learning_rate)
        if logarithm not in (0, 1):
            raise ConfigError(f"logarithm={logarithm:g}: 1 to learn ln C, or 0 to learn C")
        super().__init__(start)
        self._smallest, self._learning_rate, self._logarithm = start / 1000, learning_rate, bool(logarithm)

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """The derivative, as it is; or that by ln C, clipped."""
        slopes = torch.where(slopes.isfinite(), slopes, 0.0).double()
        return (self.norm * slopes).clamp(-1, 1) if self._logarithm else slopes

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """Follows the derivative."""
        step = self._learning_rate * vote
        self.norm = self.norm * math.exp(-step) if self._logarithm else max(self.norm - step, self._smallest)
        return mean


POLICIES: dict[str, type[ClippingPolicy]] = {
    policy.name: policy for policy in (Fixed, Quantile, AdaClip, MetaClip)
}


class TaskNoise:
    """Inner clipping and noise under way. State: the policy, which is private data."""

    def __init__(self, asked: InnerNoise, pool: TaskPool, tasks: int, inner: Inner, size: int) -> None:
        """Prepares for `tasks` of the pool a step, and parameters of `size`."""
        self._asked, self._pool, self._tasks, self._inner, self._size = asked, pool, tasks, inner, size
        self._rate = tasks / len(pool)
        if self._rate > 1:
            raise ConfigError(f"tasks={tasks}: the pool has {len(pool)} tasks, and a step can have no more")
        self._policy: ClippingPolicy | None = None if asked.seeks_start else asked.policy(1.0)

    def begin(self, norms: Callable[[TaskPool], Tensor]) -> None:
        """Before the first step: without a start, C is the median of the norms of the first epoch."""
        if self._policy is None:
            known = norms(self._pool).double()
            known = known[known.isfinite()]
            if not len(known) or not known.median() > 0:
                raise ConfigError(
                    "the median of the first epoch's norms is not above 0: give clipping a start"
                )
            self._policy = self._asked.policy(float(known.quantile(0.5)))

    @property
    def policy(self) -> ClippingPolicy:
        """The policy, once it has begun."""
        assert self._policy is not None
        return self._policy

    @property
    def inner(self) -> Inner:
        """The settings of learning a task at this step."""
        multiplier = self._asked.noise_multiplier
        return replace(self._inner, clipping_norm=self.policy.norm, noise_multiplier=multiplier)

    @property
    def frame(self) -> Frame | None:
        """The coordinates of clipping: of AdaClip; the others have those of the gradients."""
        if not isinstance(self.policy, AdaClip):
            return None
        shift, scale = self.policy.frame(self._size)
        return Frame(shift.float(), scale.float())

    @property
    def follows_gradients(self) -> bool:
        """Whether the policy learns from inner gradients, which are computed only for it."""
        return isinstance(self.policy, Quantile | AdaClip)

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        """(T, N, K + Q) rows of the tasks that take part in this step; maybe none. Repeatable: not secret."""

        def bits(count: int) -> bytes:
            drawn = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
            return np.asarray(drawn).tobytes()

        return self._pool.draw(poisson(len(self._pool), self._rate, bits), shape, generator)

    def learn(self, gradients: Tensor, noise: Tensor, slopes: Tensor) -> None:
        """Chooses the next C; a step without tasks changes nothing.

        Args:
            gradients: (T, P), the first inner ones before they are clipped, if the policy follows them.
            noise: (T, P) of a standard normal distribution, added to them.
            slopes: (T,) derivatives of the loss after learning, by C.
        """
        policy, sigma, count = self.policy, self._asked.noise_multiplier, len(slopes)
        if not count:
            return
        if isinstance(policy, AdaClip):
            released = (policy.clip(gradients) + sigma * noise).mean(0)
            policy.learn(released, 0.0, sigma / math.sqrt(count))
        else:
            divisor = count if self.follows_gradients else self._tasks
            policy.learn(gradients, policy.vote(gradients, slopes).sum().item() / divisor, sigma)

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint."""
        return self.policy.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Resumes from a checkpoint."""
        self._policy = self._asked.policy(1.0)
        self._policy.restore(state)

    def card(self, steps: int) -> dict[str, Any]:
        """The bound of the paper's accounting after these steps (None: infinite), and what it leaves out."""
        stretches = [accounting.Stretch(self._asked.noise_multiplier, self._rate, steps * self._inner.steps)]
        delta = self._asked.delta
        return {
            "clipping": self.policy.name,
            "noise_multiplier": self._asked.noise_multiplier,
            "norm": self.policy.norm,
            "pool": len(self._pool),
            "rate": self._rate,
            "delta": delta,
            "epsilon": None,
            "conditional": {
                "gdp": finite(accounting.epsilon(stretches, delta, "gdp")),
                "pld": finite(accounting.epsilon(stretches, delta, "pld")),
            },
            "not_covered": [NOT_COVERED],
        }
