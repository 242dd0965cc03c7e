"""How parameters are meta-learned, and what is promised to the tasks."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sfumato.dp.clipping import PublishedMetaClip
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, did_you_mean
from sfumato.learn.adaptation import Inner
from sfumato.networks import Convolutional, FullyConnected, Strided
from sfumato.precision import resolve

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fully-connected": FullyConnected,
    "convolutional": Convolutional,
    "strided": Strided,
}

_STARTED = ("quantile", "meta-clip")  # the policies that need a first norm, and may find one privately


@dataclass(frozen=True, kw_only=True)
class Private:
    """What is promised to the tasks of a pool, and how it is kept.

    Attributes:
        epsilon, delta: the budget of the whole run, for one task added or removed.
        clipping: the name of a policy of `dp.clipping`.
        settings: of that policy.
        noise_multiplier: the standard deviation of the noise in units of the clipping norm; None for the
            least with which all steps fit the budget. With more of it than fits, the run ends early.
        start_noise: the policy's first norm is the median of the norms of all tasks of the pool, from a
            histogram with noise of this standard deviation, which is charged as a step of its own; None for
            a public one among the settings. `meta-clip-published` without a start takes the raw median.
        pool_tasks: None for a pool of tasks that share no class; a number for so many overlapping ones, of
            which an image gets the weaker promise that the card states.
    """

    epsilon: float
    delta: float
    clipping: str = "quantile"
    settings: dict[str, float] = field(default_factory=dict)
    noise_multiplier: float | None = None
    start_noise: float | None = None
    pool_tasks: int | None = None

    def __post_init__(self) -> None:
        if self.start_noise is not None and (self.clipping not in _STARTED or "start" in self.settings):
            raise ConfigError(
                f"start_noise={self.start_noise:g} with {self.clipping} and {self.settings}: it is for "
                f"{' and '.join(_STARTED)} without a start among their settings; leave one of the two out"
            )

    @property
    def seeks_start(self) -> bool:
        """Whether the first norm is found by looking at the tasks of the pool."""
        published = self.clipping == PublishedMetaClip.name and "start" not in self.settings
        return published or self.start_noise is not None


@dataclass(frozen=True, kw_only=True)
class MetaConfig:
    """How parameters are meta-learned; the defaults are MAML's for Omniglot, fully connected.

    Attributes:
        algorithm, inner_steps, inner_rate, inner_batches: see adaptation.Inner.
        test_steps: of learning a task when the model is used.
        way, shot, queries: N, K and Q of a task.
        network: "fully-connected", "convolutional" (MAML's for MiniImageNet) or "strided" (for Omniglot).
        width: filters of each convolution; None for the 64 of the source. Noise grows with the root of the
            number of parameters, which goes with the square of this: private runs want it small.
        steps: meta-steps.
        tasks: of a meta-step; in a private run how many are expected, since each comes by itself.
        meta_rate: learning rate of Adam, falling to 0 along a cosine.
        shifts: how many pixels every training image is moved by at most along each axis, before it is
            protected.
        private: what is promised; None for a run without any promise, on endless fresh tasks.
        precision: see `sfumato.precision`; bfloat16 is for the convolutional network.
    """

    algorithm: str = "maml"
    inner_steps: int = 1
    inner_rate: float = 0.4
    inner_batches: int = 1
    test_steps: int = 3
    way: int = 5
    shot: int = 1
    queries: int = 5
    network: str = "fully-connected"
    width: int | None = None
    steps: int = 10_000
    tasks: int = 16
    meta_rate: float = 1e-3
    shifts: int = 0
    private: Private | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ConfigError(
                f"no network is called {self.network!r}: {did_you_mean(self.network, NETWORKS)}"
            )
        if self.width is not None and self.network == "fully-connected":
            raise ConfigError(f"width={self.width}: a fully connected network has its own; give null")
        for name in ("steps", "tasks", "test_steps", "width"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.meta_rate < math.inf:
            raise ConfigError(f"meta_rate={self.meta_rate:g}: above 0")
        if self.shifts < 0:
            raise ConfigError(f"shifts={self.shifts}: at least 0 pixels")
        resolve(self.precision)
        self.shape, self.inner  # noqa: B018 - they check their part

    @property
    def shape(self) -> Shape:
        """The shape of a task."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def inner(self) -> Inner:
        """How a task is learned."""
        return Inner(
            algorithm=self.algorithm,
            steps=self.inner_steps,
            rate=self.inner_rate,
            batches=self.inner_batches,
        )


def config_of(settings: dict[str, Any]) -> MetaConfig:
    """The configuration that `dataclasses.asdict` took apart."""
    private = settings["private"]
    return MetaConfig(**{**settings, "private": None if private is None else Private(**private)})
