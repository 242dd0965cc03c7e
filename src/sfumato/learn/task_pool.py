"""A pool of tasks: the unit of privacy in meta-learning, and the sampling of tasks.

A guarantee about tasks needs a fixed pool of them. Endless fresh episodes have none: every image is in ever
more of them, without a bound.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import Label
from sfumato.episodes import Shape
from sfumato.errors import ConfigError, DataError


@dataclass(frozen=True)
class TaskPool:
    """Tasks of N classes each, with all images of these classes.

    Attributes:
        tasks: one entry a task: N tensors, the rows of the images of each of its classes.
        overlap: k, the most tasks of an image, with its copies; 1 if tasks share
            no class and there are no copies.
    """

    tasks: tuple[tuple[Tensor, ...], ...]
    overlap: int

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
    number. The pool is a function of the public class list and the seed.

    Raises:
        DataError: there are fewer than two tasks.
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
    return TaskPool(tuple(tasks), overlap_of(tasks, original or _each(label)))


def overlapping_pool(
    label: Label, shape: Shape, *, tasks: int, seed: int, original: Label | None = None
) -> TaskPool:
    """Draws `tasks` tasks of N classes at random: a class, and so an image, is in several of them.

    A proof about a task then says little about an image; see dp.accounting.Stretch.of_group with `overlap`.

    Raises:
        DataError: fewer than N classes have K + Q images.
        ConfigError: fewer than two tasks.
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
    return TaskPool(tuple(dealt), overlap_of(dealt, original or _each(label)))


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


def overlap_of(tasks: Sequence[tuple[Tensor, ...]], original: Label) -> int:
    """The most tasks of an image; `original` says which images are copies of one another."""
    occurs = torch.cat([original.codes[torch.cat(task)].unique() for task in tasks])  # once for each task
    return int(occurs.bincount().max())


def _each(label: Label) -> Label:
    """No image is a copy of another."""
    return Label(torch.arange(len(label.codes)), ())


def _large_classes(label: Label, shape: Shape) -> list[Tensor]:
    """The rows of each class that has K + Q images or more."""
    _, counts = label.codes.unique(return_counts=True)
    rows = label.codes.argsort(stable=True).split(counts.tolist())
    return [part for part in rows if len(part) >= shape.shot + shape.queries]
