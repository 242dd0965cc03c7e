"""Few-shot episodes, and how to draw them.

An episode is a table of rows into a data set: N classes (the way), K support and Q query images of each. It
holds no images: thousands are drawn at once, and images are fetched, protected and embedded in batches.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from sfumato.data.labelled import Label
from sfumato.errors import ConfigError, DataError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
Settings = TypeVar("Settings", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of an episode."""

    way: int  # N, how many classes; at least 2
    shot: int  # K, support images of each; at least 1
    queries: int  # Q, query images of each; at least 1

    def __post_init__(self) -> None:
        for name, least in (("way", 2), ("shot", 1), ("queries", 1)):
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{name}={getattr(self, name)}: an episode needs a {name} of at least {least}"
                )

    def __str__(self) -> str:
        return f"{self.way}-way {self.shot}-shot"


def largest(codes: Tensor, *, way: int, shot: int, queries: int) -> tuple[int, int, int]:
    """Lowers way, shot and queries if the classes have too few images.

    The way is lowered to the number of classes with two images or more, then shot and queries to the images
    of that many classes. With fewer than two such classes nothing changes: the sampler says what is missing.
    `codes`: (n,) int64 class of each image.
    """
    _, counts = codes.unique(return_counts=True)
    counts = counts[counts >= 2].sort(descending=True).values
    way = min(way, len(counts))
    if way < 2:
        return 2, shot, queries
    most = int(counts[way - 1])
    shot = min(shot, most - 1)
    return way, shot, min(queries, most - shot)


def fit_episodes(settings: Settings, codes: Tensor, *, prefix: str = "") -> Settings:
    """Settings with the `largest` way, shot and queries; `prefix`: of these fields' names."""
    names = [f"{prefix}{name}" for name in ("way", "shot", "queries")]
    way, shot, queries = (getattr(settings, name) for name in names)
    values = largest(codes, way=way, shot=shot, queries=queries)
    return replace(settings, **dict(zip(names, values, strict=True)))


def describe_fit(subject: str, before: Shape, after: Shape) -> str:
    """Describes the change by `fit_episodes`, in words; "" if nothing changed."""
    if before == after:
        return ""
    sizes = [
        f"{shape} with {shape.queries} {'query' if shape.queries == 1 else 'queries'}"
        for shape in (after, before)
    ]
    return f"{subject} episodes: {sizes[0]}, the largest that the classes allow, and not {sizes[1]}"


class Sampler:
    """Draws episodes: classes without replacement, then images within each, all equally likely.

    State: none that changes; the rows of every class that has at least K + Q images, and the groups of
    classes that episodes stay within, if any.

    Attributes:
        left_out: names of the classes that are too small.
    """

    def __init__(self, label: Label, shape: Shape, within: Label | None = None) -> None:
        """Prepares to draw from the rows of `label`.

        `within` is a label that all images of a class share, such as the alphabet of a character. The classes
        of an episode then share it, too, which makes them harder to distinguish; each of its values with N
        classes or more is equally likely.

        Raises DataError: fewer than N classes have K + Q images, within one value of `within` if it is given;
        or images of one class differ in it.
        """
        self.shape = shape
        each = shape.shot + shape.queries
        codes, counts = label.codes.unique(return_counts=True)
        large = counts >= each
        self.left_out = tuple(label.names[c] for c in codes[~large].tolist())
        if large.sum() < shape.way:
            smallest = ""
            if len(codes):
                smallest = f"; the smallest is {label.names[codes[counts.argmin()]]!r} with {counts.min()}"
            way, shot, queries = largest(label.codes, way=shape.way, shot=shape.shot, queries=shape.queries)
            fits = int((counts >= 2).sum()) >= 2
            raise DataError(
                f"{int(large.sum())} classes have {each} images "
                f"(shot {shape.shot} + queries {shape.queries}) and the way is {shape.way}{smallest}: "
                "add images or classes"
                + (f", or set way={way}, shot={shot} and queries={queries}" if fits else "")
            )
        self._counts = counts[large]  # (M,)
        rows = label.codes.argsort(stable=True).split(counts.tolist())
        kept = [part for part, keep in zip(rows, large.tolist(), strict=True) if keep]
        self._rows = torch.nn.utils.rnn.pad_sequence(kept, batch_first=True)  # (M, most)
        self._members = None if within is None else self._group(label, within)  # (G, M)

    def _group(self, label: Label, within: Label) -> Tensor:
        """(G, M) whether a class is in a group, for groups with N classes or more."""
        pairs = torch.stack([label.codes, within.codes]).unique(dim=1)
        classes, counts = pairs[0].unique(return_counts=True)
        if (counts > 1).any():
            mixed = classes[counts > 1][0]
            names = [within.names[group] for group in pairs[1, pairs[0] == mixed].tolist()]
            raise DataError(
                f"episodes within one value of a label: images of class {label.names[mixed]!r} have several, "
                f"{', '.join(map(repr, names))}: name a label that all images of a class share"
            )
        groups, of_class = within.codes[self._rows[:, 0]].unique(return_inverse=True)  # (M,)
        sizes = of_class.bincount()
        large = (sizes >= self.shape.way).nonzero()[:, 0]
        if not len(large):
            largest_group = within.names[groups[sizes.argmax()]]
            raise DataError(
                f"the largest group of classes, {largest_group!r}, has {sizes.max()} with enough images, "
                f"and the way is {self.shape.way}: set a smaller way, or draw any classes"
            )
        members: Tensor = of_class == large[:, None]
        return members

    def draw(self, episodes: int, generator: torch.Generator) -> Tensor:
        """(episodes, N, K + Q) int64 rows of the data set; for each class, the K support rows come first."""
        shape, classes = self.shape, len(self._rows)
        chance = torch.rand(episodes, classes, generator=generator)
        if self._members is not None:
            group = torch.randint(len(self._members), (episodes,), generator=generator)
            chance[~self._members[group]] = -1
        drawn = chance.topk(shape.way).indices  # (E, N)
        order = torch.rand(*drawn.shape, self._rows.shape[1], generator=generator)
        # Positions beyond the end of a smaller class come last in the order, and are never reached.
        order[torch.arange(order.shape[2]) >= self._counts[drawn][..., None]] = -1
        places = order.topk(shape.shot + shape.queries).indices  # (E, N, K + Q)
        return self._rows[drawn].gather(2, places)


def seed_of(*parts: int) -> int:
    """One 63-bit seed from several numbers, so that neither epochs nor seeds overlap."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
