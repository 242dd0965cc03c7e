"""The settings of meta-learning, and of the promise to the tasks."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from sfumato.base.hardware import resolve
from sfumato.dp.accounting import check_budget, check_delta
from sfumato.episodes import Shape
from sfumato.errors import ArtefactError, ConfigError, did_you_mean
from sfumato.learn.meta.inner_noise import InnerNoise
from sfumato.learn.tasks import Inner
from sfumato.networks import Convolutional, FullyConnected, Linear, Strided

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "fully-connected": FullyConnected,
    "convolutional": Convolutional,
    "strided": Strided,
    "linear": Linear,
}


def digest_of_start(path: str | None) -> str | None:
    """SHA-256 of a file to begin with, in hexadecimal. Raises ArtefactError if it is missing."""
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ArtefactError(f"start={path}: {error.strerror}: name a file of `sfumato train meta`") from error


@dataclass(frozen=True, kw_only=True)
class Private:
    """The promise to the tasks of a pool, and how it is kept.

    Attributes:
        epsilon, delta: the budget of the whole run, for one task added or removed.
        clipping, settings: the name of a policy of `dp.clipping`, and its settings.
        noise_multiplier: the standard deviation of the noise in units of the clipping norm; None for the
            least with which all steps fit the budget. With more of it than fits, the run ends early.
        inner_noise: for "meta-clip", whose derivative means little if noise costs nothing: Gaussian noise
            of this standard deviation, in units of C, on every inner gradient in training. It proves nothing.
        pool_tasks: None for a pool of tasks that share no class; a number for that many overlapping ones,
            with the weaker promise to an image on the card.
    """

    epsilon: float
    delta: float
    clipping: str = "quantile"
    settings: dict[str, float] = field(default_factory=dict)
    noise_multiplier: float | None = None
    inner_noise: float = 0.0
    pool_tasks: int | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_delta(self.delta)
        if self.inner_noise and self.clipping != "meta-clip":
            raise ConfigError(
                f"inner_noise={self.inner_noise:g} with {self.clipping}: it is for meta-clip, which follows "
                "the cost of noise; leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class MetaConfig:
    """The settings of meta-learning; the defaults are MAML's for Omniglot, fully connected.

    Attributes:
        algorithm, inner_steps, inner_rate, inner_batches: see tasks.Inner.
        test_steps: of learning a task in use.
        way, shot, queries: N, K and Q of a task.
        network: "fully-connected", "convolutional" (MAML's for MiniImageNet), "strided" (for Omniglot) or
            "linear" (for audits).
        width: filters of each convolution; None for the 64 of the source. Noise grows with the root of the
            number of parameters, which grows with the square of this: private runs want it small.
        steps: meta-steps.
        tasks: of a meta-step; in a private run the expected number, since each takes part by chance.
        meta_rate: learning rate of Adam, falling to 0 along a cosine.
        shifts: the most pixels that every training image is moved by along each axis, before it is protected.
        start: a file of `sfumato train meta` whose network, images, way and algorithm are the same: training
            begins with its parameters. Its training data are public, and cost no budget here. None for
            random ones.
        private: the promise; None for a run without any promise, on endless fresh tasks.
        inner_noise: clipping and noise inside the learning of each task, as Meta-Clip was published, on the
            tasks of a pool; nothing is promised. None without them.
        precision: see `sfumato.base.hardware`; bfloat16 gains with the wide convolutional network alone.
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
    start: str | None = field(default=None, metadata={"by_content": digest_of_start})
    private: Private | None = None
    inner_noise: InnerNoise | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ConfigError(
                f"no network is called {self.network!r}: {did_you_mean(self.network, NETWORKS)}"
            )
        if self.width is not None and self.network in ("fully-connected", "linear"):
            raise ConfigError(f"width={self.width}: a {self.network} network has its own; give null")
        for name in ("steps", "tasks", "test_steps", "width"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.meta_rate < math.inf:
            raise ConfigError(f"meta_rate={self.meta_rate:g}: above 0")
        if self.shifts < 0:
            raise ConfigError(f"shifts={self.shifts}: at least 0 pixels")
        if self.private is not None and self.inner_noise is not None:
            raise ConfigError(
                "private and inner_noise: nothing is promised with inner_noise; give one of them"
            )
        resolve(self.precision)
        self.shape, self.inner  # noqa: B018 - they check their part

    @property
    def shape(self) -> Shape:
        """The shape of a task."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def inner(self) -> Inner:
        """The settings of learning a task."""
        return Inner(
            algorithm=self.algorithm,
            steps=self.inner_steps,
            rate=self.inner_rate,
            batches=self.inner_batches,
        )


def config_of(settings: dict[str, Any]) -> MetaConfig:
    """The configuration from a dict of `dataclasses.asdict`."""
    private, noise = settings["private"], settings.get("inner_noise")
    made = {
        "private": None if private is None else Private(**private),
        "inner_noise": None if noise is None else InnerNoise(**noise),
    }
    return MetaConfig(**{**settings, **made})
