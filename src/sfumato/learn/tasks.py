"""Tasks of few images, the settings of learning one, and the pool of tasks that a promise is about.

A guarantee about tasks needs a fixed pool of them. Endless fresh episodes have none: every image is in ever
more of them, without a bound.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import Label
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, DataError, did_you_mean

ALGORITHMS = ("maml", "fomaml", "reptile", "meta-sgd")


@dataclass(frozen=True, kw_only=True)
class Inner:
    """The settings of learning a task.

    Attributes:
        algorithm: "maml"; "fomaml", MAML of first order, which uses the gradient after learning instead of
            the one before; "reptile"; or "meta-sgd", which learns a rate for every parameter as well.
        batches: each step sees one of this many parts of the images, in turn; 1 for all of them in every
            step. Reptile learns from differences between its steps, and little without parts.
    """

    algorithm: str = "maml"
    steps: int = 1  # of gradient descent on the support
    rate: float = 0.4  # of learning; for Meta-SGD, the initial one of all parameters
    batches: int = 1
    clipping_norm: float | None = None  # C, to which each inner gradient is clipped; None for no clipping
    noise_multiplier: float = 0.0  # the deviation of the Gaussian noise on it after that, in units of C

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


@dataclass(frozen=True)
class TaskPool:
    """Tasks of N classes each, with all images of these classes."""

    tasks: tuple[tuple[Tensor, ...], ...]  # of each task, N tensors: the rows of the images of its classes
    overlap: int  # k, the most tasks of an image, with its copies

    def __len__(self) -> int:
        return len(self.tasks)

    def draw(self, numbers: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
        """Draws support and queries of some of the tasks, anew from the images of each.

        The order of the classes, which decides the label of each inside the task, is drawn as well.

        (T,) int64 numbers of tasks -> (T, N, K + Q) int64 rows; of each class, the K support rows come first.
        """
        each = shape.shot + shape.queries
        drawn = torch.empty(len(numbers), shape.way, each, dtype=torch.int64)
        for place, number in enumerate(numbers.tolist()):
            classes = self.tasks[number]
            order = torch.randperm(len(classes), generator=generator).tolist()
            for label, which in enumerate(order):
                rows = classes[which]
                drawn[place, label] = rows[torch.randperm(len(rows), generator=generator)[:each]]
        return drawn


def disjoint_pool(label: Label, shape: Shape, *, seed: int, original: Label | None = None) -> TaskPool:
    """Deals all classes to tasks of N, each class to one task: no image is in two, unless it has copies.

    Classes with fewer than K + Q images are left out, and so are the last ones when N does not divide their
    number. The pool is a function of the public class list and the seed. Raises DataError: under two tasks.
    """
    classes = _large_classes(label, shape)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed)).tolist()
    count = len(classes) // shape.way
    if count < 2:
        raise DataError(
            f"{len(classes)} classes have {shape.shot + shape.queries} images, enough for {count} tasks of "
            f"way={shape.way}: a pool needs two tasks or more; add classes, or lower way, shot or queries"
        )
    tasks = [tuple(classes[i] for i in order[n * shape.way : (n + 1) * shape.way]) for n in range(count)]
    return TaskPool(tuple(tasks), overlap_of(tasks, original))


def overlapping_pool(
    label: Label, shape: Shape, *, tasks: int, seed: int, original: Label | None = None
) -> TaskPool:
    """Draws `tasks` tasks of N classes at random: a class, and so an image, is in several of them.

    A proof about a task then says little about an image; see dp.accounting.Stretch.of_group with `overlap`.
    """
    if tasks < 2:
        raise ConfigError(f"tasks={tasks}: a pool needs two or more")
    classes = _large_classes(label, shape)
    if len(classes) < shape.way:
        raise DataError(
            f"{len(classes)} classes have {shape.shot + shape.queries} images and way={shape.way}: add "
            "classes, or lower way, shot or queries"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(tasks, len(classes), generator=generator).topk(shape.way).indices  # (tasks, N)
    dealt = [tuple(classes[i] for i in row) for row in chosen.tolist()]
    return TaskPool(tuple(dealt), overlap_of(dealt, original))


def poisson(pool: int, rate: float, bits: Callable[[int], bytes] = os.urandom) -> Tensor:
    """(T,) the tasks of `pool` that take part in a step, each independently with `rate`; maybe none.

    The participants must stay secret: sampling adds only then to a guarantee.

    Args:
        pool: how many tasks there are.
        rate: from 0 to 1; the actual one is lower by at most 2^-64.
        bits: gives that many random bytes; the operating system's, unless the run promises nothing.
    """
    words = np.frombuffer(bits(8 * pool), np.uint64)
    drawn = words < np.uint64(min(math.floor(rate * 2**64), 2**64 - 1)) if rate < 1 else np.ones(pool, bool)
    return torch.from_numpy(drawn.nonzero()[0].copy())


def overlap_of(tasks: Sequence[tuple[Tensor, ...]], original: Label | None) -> int:
    """The most tasks of an image; `original` says which images are copies of one another."""
    rows = [torch.cat(task) for task in tasks]
    occurs = torch.cat([(part if original is None else original.codes[part]).unique() for part in rows])
    return int(occurs.bincount().max())


def _large_classes(label: Label, shape: Shape) -> list[Tensor]:
    """The rows of each class that has K + Q images or more."""
    _, counts = label.codes.unique(return_counts=True)
    rows = label.codes.argsort(stable=True).split(counts.tolist())
    return [part for part in rows if len(part) >= shape.shot + shape.queries]
