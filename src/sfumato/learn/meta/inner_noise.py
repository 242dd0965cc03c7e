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
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sfumato.dp import accounting
from sfumato.dp.clipping import Moments
from sfumato.dp.clipping.policies import policy_of
from sfumato.dp.clipping.policy import check_policy, norm_in
from sfumato.dp.clipping.rows import check_above_0, check_between_0_and_1, clip_rows, row_norms
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

    def policy(self, median: float) -> "InnerPolicy":
        """The policy at its start; `median` replaces a missing start."""
        settings = {"start": median, **self.settings} if self.seeks_start else self.settings
        return policy_of(POLICIES, self.clipping, settings)


@dataclass(frozen=True)
class Seen:
    """The input of a policy at a step: first inner gradients and dL/dC of T tasks."""

    gradients: Tensor  # (T, P), before they are clipped; (T, 0) for a policy that does not follow them
    noise: Tensor  # (T, P) of a standard normal distribution, added to them
    slopes: Tensor  # (T,) derivatives of the loss after learning
    noise_multiplier: float  # σ
    expected: float  # the mean number of tasks of a step


class InnerPolicy(ABC):
    """Chooses C. State: C, and the private data that it depends on.

    Attributes:
        name: in `InnerNoise`.
        norm: C.
        follows_gradients: whether it learns from inner gradients, which are computed only for it.
    """

    name: ClassVar[str]
    follows_gradients: ClassVar[bool] = False

    def __init__(self, norm: float) -> None:
        self.norm = norm

    def frame(self, size: int) -> Frame | None:
        """The coordinates for clipping gradients of `size` values; None for their own."""
        return None

    @abstractmethod
    def learn(self, seen: Seen) -> None:
        """Chooses the next C; a step without tasks changes nothing."""

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint, from which a run resumes exactly: plain JSON."""
        return {"policy": self.name, "norm": self.norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`. Raises ArtefactError if it belongs to another policy, or is damaged."""
        check_policy(state, self.name)
        self.norm = norm_in(state, self.name)


class Fixed(InnerPolicy):
    """One C for the whole run: the paper's "vanilla"."""

    name = "fixed"

    def __init__(self, clipping_norm: float) -> None:
        check_above_0("clipping_norm", clipping_norm)
        super().__init__(clipping_norm)

    def learn(self, seen: Seen) -> None:
        """Nothing."""


class Quantile(InnerPolicy):
    """C follows a quantile of the norms of inner gradients. Source: Andrew et al. 2021; raw here."""

    name = "quantile"
    follows_gradients = True

    def __init__(self, start: float, quantile: float = 0.5, learning_rate: float = 0.2) -> None:
        check_above_0("start", start)
        check_between_0_and_1("quantile", quantile)
        check_above_0("learning_rate", learning_rate)
        super().__init__(start)
        self._quantile, self._learning_rate = quantile, learning_rate

    def learn(self, seen: Seen) -> None:
        """C ← C · exp(-η (b - γ)), b the fraction of tasks whose norm is within C."""
        if len(seen.gradients):
            within = (row_norms(seen.gradients) <= self.norm).double().mean().item()
            self.norm *= math.exp(-self._learning_rate * (within - self._quantile))


class AdaClip(InnerPolicy):
    """Coordinates are shifted and scaled by noised gradients; see `dp.clipping.Moments`."""

    name = "adaclip"
    follows_gradients = True

    def __init__(
        self,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        smallest: float = 1e-12,
        largest: float = 1.0,
    ) -> None:
        super().__init__(1.0)
        self._moments = Moments(mean_decay, variance_decay, smallest, largest)

    def frame(self, size: int) -> Frame:
        """Mean and scale of each coordinate."""
        shift, scale = self._moments.frame(size)
        return Frame(shift.float(), scale.float())

    def learn(self, seen: Seen) -> None:
        """Learns from the mean of the tasks' noised gradients."""
        count = len(seen.gradients)
        if count:
            shift, scale = self._moments.frame(seen.gradients.shape[1])
            clipped = clip_rows((seen.gradients - shift) / scale, clipping_norm=1.0)
            released = (clipped + seen.noise_multiplier * seen.noise).mean(0)
            self._moments.learn(scale * released, seen.noise_multiplier / math.sqrt(count))

    def state(self) -> dict[str, Any]:
        """Mean and deviation of each coordinate."""
        return self._moments.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from the mean and deviation of a checkpoint."""
        self._moments.restore(state)


class MetaClip(InnerPolicy):
    """C ← C - η dL/dC, by the mean derivative over the expected number of tasks.

    With logarithm=1, beyond the paper, ln C ← ln C - η dL/d(ln C), by derivatives within [-1, 1]: the unit of
    gradients and the start matter little, and no task moves C far.
    """

    name = "meta-clip"

    def __init__(self, start: float, learning_rate: float = 0.05, logarithm: float = 0.0) -> None:
        check_above_0("start", start)
        check_above_0("learning_rate", learning_rate)
        if logarithm not in (0, 1):
            raise ConfigError(f"logarithm={logarithm:g}: 1 to learn ln C, or 0 to learn C")
        super().__init__(start)
        self._smallest, self._learning_rate, self._logarithm = start / 1000, learning_rate, bool(logarithm)

    def learn(self, seen: Seen) -> None:
        """Follows the derivative."""
        slopes = torch.where(seen.slopes.isfinite(), seen.slopes, 0.0).double()
        if self._logarithm:
            slope = (self.norm * slopes).clamp(-1, 1).sum().item() / seen.expected
            self.norm *= math.exp(-self._learning_rate * slope)
            return
        slope = slopes.sum().item() / seen.expected
        self.norm = max(self.norm - self._learning_rate * slope, self._smallest)


POLICIES: dict[str, type[InnerPolicy]] = {
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
        self._policy: InnerPolicy | None = None if asked.seeks_start else asked.policy(1.0)

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
    def policy(self) -> InnerPolicy:
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
        """The coordinates of clipping."""
        return self.policy.frame(self._size)

    def draw(self, shape: Shape, generator: torch.Generator) -> Tensor:
        """(T, N, K + Q) rows of the tasks that take part in this step; maybe none. Repeatable: not secret."""

        def bits(count: int) -> bytes:
            drawn = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
            return np.asarray(drawn).tobytes()

        return self._pool.draw(poisson(len(self._pool), self._rate, bits), shape, generator)

    def learn(self, gradients: Tensor, noise: Tensor, slopes: Tensor) -> None:
        """Chooses the next C from (T, P) first inner gradients, their (T, P) noise, and (T,) derivatives."""
        expected = float(self._tasks)
        self.policy.learn(Seen(gradients, noise, slopes, self._asked.noise_multiplier, expected))

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint."""
        return self.policy.state()

    def restore(self, state: Mapping[str, Any]) -> None:
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
