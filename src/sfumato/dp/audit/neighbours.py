"""Pairs of neighbouring images, and trials that release one of the two."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ConfigError

Mechanism = Callable[[Tensor], Tensor]  # (N, C, H, W) uint8 -> (N, C', h, w) uint8
GREY = 128
_CALL = 1 << 22  # values in the images of one call of the mechanism, approximately
_SMALL_CALL = 8  # trials of a call, for half of them: noise that a batch shares then differs between calls


def size_of_release(
    mechanism: Mechanism, stated: Guarantee | None, shape: tuple[int, int, int], pixels: int
) -> torch.Size:
    """The (C', h, w) of a release of an image.

    Raises:
        ConfigError: the guarantee is about another number of pixels, or the releases are not uint8.
    """
    if stated is not None and stated.pixels != pixels:
        raise ConfigError(
            f"the guarantee is about {stated.pixels} pixels and the audit about {pixels}: "
            "ask the protection for its guarantee of that many"
        )
    released = mechanism(torch.full((1, *shape), GREY, dtype=torch.uint8))
    if released.dtype != torch.uint8 or released.ndim != 4:
        raise ConfigError(
            f"the mechanism returns {released.ndim} axes of {released.dtype}: an audit reads the "
            "(N, C, h, w) uint8 values that leave the device"
        )
    return released.shape[1:]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring images."""

    words: str
    images: Tensor  # (2, C, H, W) uint8: x, x'

    def changes(self, size: torch.Size) -> Tensor:
        """(C' h w,) bool: which values of a release of that size show the changed pixels, approximately."""
        rows, columns = (self.images[0] != self.images[1]).any(0).nonzero(as_tuple=True)
        height, width = self.images.shape[2:]
        shown = torch.zeros(size, dtype=torch.bool)
        shown[:, rows * size[1] // height, columns * size[2] // width] = True
        return shown.flatten()


def neighbours(shape: tuple[int, int, int], pixels: int, *, cell: int) -> list[Pair]:
    """Pairs of (C, H, W) images that differ in m pixels, as strongly as they can.

    Args:
        shape: of the images.
        pixels: m.
        cell: the approximate side of the cells of a release, 1 without cells: one choice of the m pixels
            fills cell after cell, which moves their sums by the largest L2 norm.
    """
    channels, height, width = shape
    pairs: dict[bytes, Pair] = {}
    for (background, colour), (change, values), (place, where) in product(
        (("grey", GREY), ("black", 0)), _changes(channels), _places(height, width, pixels, cell)
    ):
        images = torch.full((2, channels, height * width), colour, dtype=torch.uint8)
        for channel, (value, changed) in enumerate(values):
            images[0, channel, where], images[1, channel, where] = value, changed
        what = "1 pixel" if pixels == 1 else f"{pixels} pixels"
        pair = Pair(f"{what} {place}, {change}, on {background}", images.view(2, *shape))
        pairs.setdefault(images.numpy().tobytes(), pair)
    return list(pairs.values())


def _changes(channels: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """(words, the value under x and under x' for each changed channel)."""
    if channels == 1:
        return [("black against white", [(0, 255)])]
    return [
        ("black against white", [(0, 255)] * channels),
        ("channels in opposite directions", [((0, 255), (255, 0))[c % 2] for c in range(channels)]),
        ("black against white in the first channel", [(0, 255)]),
    ]


def _places(height: int, width: int, pixels: int, cell: int) -> list[tuple[str, Tensor]]:
    """(words, indices of m pixels): squares, in one cell if possible, and single pixels."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")

    def nearest(row: int, column: int) -> Tensor:
        distance = torch.maximum((rows - row).abs(), (columns - column).abs())
        return distance.flatten().argsort(stable=True)[:pixels]

    cells = (rows // cell * width + columns // cell).flatten()
    places = [
        ("at the bottom right corner", nearest(height - 1, width - 1)),  # the smallest cell of a grid
        ("at the top left corner", cells.argsort(stable=True)[:pixels]),  # whole cells
        ("near the centre", nearest(height // 2, width // 2)),
    ]
    if pixels > 1:
        places.append(("spread evenly", torch.arange(pixels) * (height * width) // pixels))
    return places


@dataclass(frozen=True)
class Lab:
    """Makes trials."""

    mechanism: Mechanism
    coins: torch.Generator
    size: torch.Size  # (C', h, w) of a release

    def look(
        self, pair: Pair, trials: int, coordinates: Tensor | None = None, *, alone: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(T,) bool, whether x' was released, and (T, 3 D) uint8, all values; or (T, K), the coordinates.

        The values are the D values of the release; those of the grey image next to it in the batch; and those
        of a grey image at its position in another call. Alone: the first D, without releasing a grey image.
        """
        labels = torch.rand(trials, generator=self.coins) < 0.5
        small, large = labels.tensor_split(2)
        calls = small.split(_SMALL_CALL) + large.split(max(1, _CALL // (2 * pair.images[0].numel())))
        parts = []
        for part in calls:
            images = pair.images[part.long()]  # (t, C, H, W)
            if alone:
                seen = self.mechanism(images).flatten(1)
            else:
                batch = torch.stack((images, torch.full_like(images, GREY)), 1).flatten(0, 1)
                first = self.mechanism(batch).flatten(1)
                again = self.mechanism(torch.full_like(batch, GREY)).flatten(1)
                seen = torch.cat((first[0::2], first[1::2], again[0::2]), 1)
            parts.append(seen if coordinates is None else seen[:, coordinates])
        return labels, torch.cat(parts)
