"""Tasks of few images, the settings of learning one, and the fixed pool of tasks that a promise is about."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import Label
from sfumato.dp.clipping.rows import check_above_0
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, DataError
from sfumato.learn.method import check_known, check_least

ALGORITHMS = ("maml", "fomaml", "reptile", "meta-sgd")


@dataclass(frozen=True, kw_only=True)
class Inner:
    """The settings of learning a task.

    Attributes:
        algorithm: "maml"; "fomaml", MAML of first order, which uses the gradient after learning instead of
            the one before; "reptile"; or "meta-sgd", which learns a rate for every parameter as well.
        batches: each step sees one of this many parts of the images, in turn. Reptile learns from differences
            between its steps, and little with 1, which is all images in every step.
    """

    algorithm: str = "maml"
    steps: int = 1  # of gradient descent on the support
    rate: float = 0.4  # of learning; for Meta-SGD, the initial one of all parameters
    batches: int = 1
    clipping_norm: float | None = None  # C, to which each inner gradient is clipped; None for no clipping
    noise_multiplier: float = 0.0  # the deviation of the Gaussian noise on it after that, in units of C

    def __post_init__(self) -> None:
        check_known("algorithm", self.algorithm, ALGORITHMS)
        check_least(self, steps=1, batches=1)
        check_above_0("rate", self.rate)
        if self.clipping_norm is not None:
            check_above_0("clipping_norm", self.clipping_norm)
        elif self.noise_multiplier:
            raise ConfigError(f"noise_multiplier={self.noise_multiplier:g} without a clipping_norm, its unit")

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
    labels = torch.arange(images.shape[1], device=images.device)[:, None].expand(images.shape[1:3])

    def part(chosen: slice) -> tuple[Tensor, Tensor]:
        return images[:, :, chosen].flatten(1, 2), labels[:, chosen].flatten().expand(len(images), -1)

    return Tasks(*part(slice(shot)), *part(slice(shot, None)))


@dataclass(frozen=True)
class TaskPool:
    """Tasks of N classes, with all images of these; fixed, since fresh tasks have no bound for an image."""

    # Of each task, N tensors: the rows of the images of its classes. One without classes is never drawn.
    tasks: tuple[tuple[Tensor, ...], ...]

    def __len__(self) -> int:
        return len(self.tasks)

    def draw(self, numbers: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
        """(T,) int64 numbers of tasks -> (T, N, K + Q) int64 rows, drawn anew from the images of each.

        For each class, the K support rows come first. The order of the classes, their labels, is drawn, too.
        """
        each, tasks = shape.shot + shape.queries, [self.tasks[n] for n in numbers.tolist() if self.tasks[n]]
        drawn = torch.empty(len(tasks), shape.way, each, dtype=torch.int64)
        for place, classes in enumerate(tasks):
            for label, which in enumerate(torch.randperm(len(classes), generator=generator).tolist()):
                order = torch.randperm(len(classes[which]), generator=generator)
                drawn[place, label] = classes[which][order[:each]]
        return drawn


def deal_pool(label: Label, shape: Shape, *, seed: int, tasks: int | None = None, step: int = 1) -> TaskPool:
    """A pool of tasks of N classes: a function of the public class list and the seed.

    Without a number of `tasks`, each class is dealt to one task: no image is in two, unless it has copies.
    With it, the classes of each task are drawn: an image is in several tasks, see `overlap_of`, and a proof
    about a task says little about it. Classes are left out with fewer than K + Q images, and if N does not
    divide their number. `step`: the tasks expected in one.

    Raises ConfigError for fewer than two tasks, and DataError for too few classes.
    """
    if tasks is not None and tasks < 2:
        raise ConfigError(f"pool_tasks={tasks}: a pool needs two or more")
    each, generator = shape.shot + shape.queries, torch.Generator().manual_seed(seed)
    _, counts = label.codes.unique(return_counts=True)
    rows = label.codes.argsort(stable=True).split(counts.tolist())
    classes = [part for part in rows if len(part) >= each]
    count, least = (len(classes) // shape.way, 2 * shape.way) if tasks is None else (tasks, shape.way)
    if len(classes) < least:
        raise DataError(
            f"{len(classes)} classes have {each} images, and a pool of two tasks or more of way={shape.way} "
            f"needs {least}: add classes, or lower way, shot or queries"
        )
    if step > count:
        raise ConfigError(f"tasks={step}: the pool has {count} tasks, and a step can have no more")
    if tasks is None:
        order = torch.randperm(len(classes), generator=generator)
        chosen = order[: count * shape.way].view(count, shape.way)
    else:
        chosen = torch.rand(count, len(classes), generator=generator).topk(shape.way).indices  # (tasks, N)
    return TaskPool(tuple(tuple(classes[i] for i in row) for row in chosen.tolist()))


def poisson(pool: int, rate: float, bits: Callable[[int], bytes] = os.urandom) -> Tensor:
    """(T,) the tasks of `pool` that take part in a step, each independently with `rate`; maybe none.

    The participants must stay secret: sampling adds only then to a guarantee. The actual rate is lower by at
    most 2^-64. `bits` gives that many random bytes: the operating system's, unless nothing is promised.
    """
    words = np.frombuffer(bits(8 * pool), np.uint64)
    drawn = words < np.uint64(min(math.floor(rate * 2**64), 2**64 - 1)) if rate < 1 else np.ones(pool, bool)
    return torch.from_numpy(drawn.nonzero()[0].copy())


def overlap_of(pool: TaskPool, original: Label) -> int:
    """The most tasks of an image; `original` says which images are copies of one another."""
    return int(torch.cat([original.codes[torch.cat(task)].unique() for task in pool.tasks]).bincount().max())
