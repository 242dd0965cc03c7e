"""Tasks of few images, and the settings of learning one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor

from sfumato.errors import ConfigError, did_you_mean

ALGORITHMS = ("maml", "fomaml", "reptile", "meta-sgd")


@dataclass(frozen=True, kw_only=True)
class Inner:
    """The settings of learning a task.

    Attributes:
        algorithm: "maml"; "fomaml", MAML of first order, which uses the gradient after learning instead of
            the one before; "reptile"; or "meta-sgd", which learns a rate for every parameter as well.
        steps: of gradient descent on the support.
        rate: its learning rate; for Meta-SGD, the initial one of all.
        batches: each step sees one of this many parts of the images, in turn; 1 for all of them in every
            step. Reptile learns from differences between its steps, and little without parts.
        clipping_norm: the inner gradient is clipped to this L2 norm, C; None for no clipping.
        noise_multiplier: Gaussian noise of this standard deviation, in units of C, is added to every inner
            gradient after clipping; 0 adds no noise.
    """

    algorithm: str = "maml"
    steps: int = 1
    rate: float = 0.4
    batches: int = 1
    clipping_norm: float | None = None
    noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ConfigError(
                f"no algorithm is called {self.algorithm!r}: {did_you_mean(self.algorithm, ALGORITHMS)}"
            )
        if self.steps < 1:
            raise ConfigError(f"steps={self.steps}: at least 1 step of learning a task")
        if not 0 < self.rate < math.inf:
            raise ConfigError(f"rate={self.rate:g}: above 0, and finite (MAML uses 0.4 on Omniglot)")
        if self.batches < 1:
            raise ConfigError(f"batches={self.batches}: at least 1, for all images in every step")
        if self.clipping_norm is not None and not self.clipping_norm > 0:
            raise ConfigError(f"clipping_norm={self.clipping_norm:g}: above 0, or None for no clipping")
        if not 0 <= self.noise_multiplier < math.inf:
            raise ConfigError(f"noise_multiplier={self.noise_multiplier:g}: 0 for no noise, or above, finite")
        if self.noise_multiplier and self.clipping_norm is None:
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier:g} without a clipping_norm: it is in units of one"
            )

    def parts(self, images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The part of (n, ...) images for each step: every `batches`-th, so that classes are shared out."""
        each = [(images[i :: self.batches], labels[i :: self.batches]) for i in range(self.batches)]
        return islice(cycle(each), self.steps)


@dataclass(frozen=True)
class Frame:
    """Coordinates for clipping and noising inner gradients, as in AdaClip: (g - shift) / scale."""

    shift: Tensor  # (P,)
    scale: Tensor  # (P,) above 0


@dataclass(frozen=True)
class Tasks:
    """T tasks of one shape, with labels from 0 to N - 1 in each."""

    support: Tensor  # (T, N * K, C, H, W) float
    support_labels: Tensor  # (T, N * K) int64
    queries: Tensor  # (T, N * Q, C, H, W) float
    query_labels: Tensor  # (T, N * Q) int64

    def __len__(self) -> int:
        return len(self.support)

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Support, its labels, queries, their labels."""
        return self.support, self.support_labels, self.queries, self.query_labels


def tasks_of(images: Tensor, shot: int) -> Tasks:
    """(T, N, K + Q, C, H, W) float images, the K of the support first -> Tasks."""
    count, way = images.shape[:2]
    labels = torch.arange(way, device=images.device)[:, None].expand(way, images.shape[2])

    def part(chosen: slice) -> tuple[Tensor, Tensor]:
        return images[:, :, chosen].flatten(1, 2), labels[:, chosen].flatten().expand(count, -1)

    return Tasks(*part(slice(shot)), *part(slice(shot, None)))
