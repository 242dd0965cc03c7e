"""The size of cells, and the resolution that networks see: every pixel, as in FS-PIC, or one value a cell."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from results_page.engine import Accuracy, BySeed, Study, apart, begun, rising, shared
from sfumato import protect
from sfumato.learn import few_shot


@dataclass(frozen=True)
class Sizes:
    """A protection with cells of several sizes, b, over seeds: is one of them the best?"""

    studied: Study
    kind: str

    @cached_property
    def rows(self) -> dict[int, BySeed]:
        """Size of the cells -> accuracy of the model trained on them, by seed."""
        specs = [spec for spec in self.studied.specs if spec.startswith(f"{self.kind}:")]
        return {protect.parse(spec).cell: self.studied.accuracies("protected", spec) for spec in specs}

    @cached_property
    def values(self) -> dict[int, list[float]]:
        """The accuracies alone."""
        return {cell: [each.accuracy for each in found.values()] for cell, found in self.rows.items()}

    @property
    def whole(self) -> bool:
        """Whether every size is measured with every seed of the study."""
        seeds = len(self.studied.file["seeds"])
        return bool(self.rows) and all(len(found) == seeds for found in self.rows.values())

    @property
    def means(self) -> list[float]:
        """Over seeds, by size."""
        return [statistics.mean(found) for found in self.values.values()]

    @property
    def best(self) -> int:
        """The size of the highest mean."""
        return max(self.values, key=lambda cell: statistics.mean(self.values[cell]))

    @property
    def inside(self) -> bool:
        """Whether the best size is neither the smallest nor the largest."""
        return self.best not in (min(self.values), max(self.values))

    @property
    def falls(self) -> bool:
        """Whether accuracy falls with every larger size."""
        return all(higher > lower for higher, lower in pairwise(self.means))

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len(next(iter(self.rows.values())))

    @property
    def rising(self) -> tuple[int, int]:
        """See engine.rising."""
        return rising(each for found in self.rows.values() for each in found.values())

    @property
    def half_width(self) -> float:
        """Of the widest interval over episodes."""
        return max(each.half_width for found in self.rows.values() for each in found.values())


# Data -> study, by what the networks see: one value a cell, which is all that is released, or every pixel, as in the paper.
SIZES = {
    "cells": {"Omniglot": "omniglot-dp-pix", "LFW": "lfw-dp-pix", "Caltech-101": "caltech101-dp-pix"},
    "pixels": {
        "Omniglot": "omniglot-full",
        "LFW": "lfw-dp-pix-pixels",
        "Caltech-101": "caltech101-dp-pix-pixels",
    },
}


def sizes(kind: str, seen: str = "cells") -> dict[str, Sizes]:
    """Of each data set whose study has measured all of them, whatever else it has not measured yet."""
    started = {data: begun(name) for data, name in SIZES[seen].items()}
    return {
        data: found
        for data, studied in started.items()
        if studied is not None and (found := Sizes(studied, kind)).whole
    }


@dataclass(frozen=True)
class EveryPixel:
    """Cells of one size seen as every pixel, as in the paper, against one value a cell; of the seeds that both have."""

    cell: int
    pairs: list[tuple[Accuracy, Accuracy]]

    @property
    def gain(self) -> float:
        """Of accuracy, over the mean of seeds."""
        return statistics.mean(pixels.accuracy - cells.accuracy for pixels, cells in self.pairs)

    @property
    def apart(self) -> bool:
        """Whether the intervals over episodes meet in no seed."""
        return all(max(apart(*pair), apart(*reversed(pair))) > 0 for pair in self.pairs)

    @property
    def operations(self) -> float:
        """Of one image, as a multiple of those at one value a cell."""
        pixels, cells = self.pairs[0]
        return (pixels.operations or 0) / (cells.operations or 1)


def every_pixel(kind: str, data: str) -> list[EveryPixel]:
    """Of each size that both studies have; empty where one of them is not done."""
    pixels, cells = sizes(kind, "pixels").get(data), sizes(kind, "cells").get(data)
    if pixels is None or cells is None:
        return []
    return [
        EveryPixel(cell, shared(found, cells.rows[cell]))
        for cell, found in pixels.rows.items()
        if cell in cells.rows
    ]


@dataclass(frozen=True)
class Resolution:
    """The paper's pipeline at every pixel against the same networks at one value a cell."""

    spec: str
    paper: Accuracy
    denoised: Accuracy
    alone: Accuracy
    whole: int  # operations of the paper's pipeline
    bytes_per_image: int

    @property
    def shares(self) -> tuple[float, float]:
        """Operations with and without a denoiser, of the paper's pipeline."""
        return (self.denoised.operations or 0) / self.whole, (self.alone.operations or 0) / self.whole

    @property
    def large(self) -> bool:
        """Whether cells are of 4 pixels or more."""
        return protect.parse(self.spec).cell >= 4

    @property
    def best(self) -> Accuracy:
        """The better of the two."""
        return max(self.denoised, self.alone, key=lambda each: each.accuracy)

    @property
    def share(self) -> float:
        """The operations of the better of the two, of the paper's pipeline."""
        return (self.best.operations or 0) / self.whole

    @property
    def lower(self) -> bool:
        """Whether the better of the two is below the paper's pipeline, intervals apart."""
        return apart(self.paper, self.best) > 0

    @property
    def denoiser_helps(self) -> bool:
        """Whether a denoiser is better than the encoder alone, intervals apart."""
        return apart(self.denoised, self.alone) > 0


def resolutions(full: Study, cells: Study) -> list[Resolution]:
    """Of each protection with cells."""
    model = few_shot.untrained(1, few_shot.FewShotConfig(cell=1), [protect.parse("none")])
    whole = few_shot.operations(model, (1, 28, 28))
    return [
        Resolution(
            spec,
            full.accuracy("denoised", spec),
            cells.accuracy("denoised", spec),
            cells.accuracy("protected", spec),
            whole,
            cells.similarity(spec).bytes_per_image or 0,
        )
        for spec in cells.specs
    ]


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"sizes": sizes, "every_pixel": every_pixel, "resolutions": resolutions}
