"""The size of cells, and the resolution that networks see: every pixel, as in FS-PIC, or one value a cell."""

import statistics
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from results_page.engine import BySeed, Study, apart, rising, shared, study
from results_page.reading import Row
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
    """Of each data set whose study has this protection."""
    found = {data: Sizes(study(name), kind) for data, name in SIZES[seen].items()}
    return {data: of for data, of in found.items() if of.rows}


def every_pixel(kind: str, data: str) -> list[Row]:
    """Cells seen as every pixel, as in the paper, against one value a cell, of each size and of the seeds that both have.

    `gain` of accuracy in the mean; `apart`: the intervals over episodes meet in no seed; `operations` of one image, as
    a multiple.
    """
    pixels, cells = sizes(kind, "pixels")[data], sizes(kind, "cells")[data]
    found = []
    for cell in pixels.rows.keys() & cells.rows.keys():
        pairs = shared(pixels.rows[cell], cells.rows[cell])
        gain = statistics.mean(every.accuracy - one.accuracy for every, one in pairs)
        distinct = all(max(apart(*pair), apart(*reversed(pair))) > 0 for pair in pairs)
        times = (pairs[0][0].operations or 0) / (pairs[0][1].operations or 1)
        found.append(Row(cell=cell, pairs=pairs, gain=gain, apart=distinct, operations=times))
    return sorted(found, key=lambda each: each.cell)


def resolutions(full: Study, cells: Study) -> list[Row]:
    """The paper's pipeline at every pixel against the same networks at one value a cell, of each protection with cells.

    `shares`: operations with and without a denoiser, of the paper's pipeline; `share`: of the better of the two, and
    `lower`: that one is below the paper's pipeline, intervals apart. `large`: cells are of 4 pixels or more.
    """
    model = few_shot.untrained(1, few_shot.FewShotConfig(cell=1), [protect.parse("none")])
    whole = few_shot.operations(model, (1, 28, 28))
    rows = []
    for spec in cells.specs:
        paper = full.accuracy("denoised", spec)
        denoised, alone = (cells.accuracy(learner, spec) for learner in ("denoised", "protected"))
        best = max(denoised, alone, key=lambda each: each.accuracy)
        rows.append(
            Row(
                spec=spec,
                paper=paper,
                denoised=denoised,
                alone=alone,
                shares=[each.operations / whole for each in (denoised, alone)],
                share=best.operations / whole,
                lower=apart(paper, best) > 0,
                denoiser_helps=apart(denoised, alone) > 0,
                large=protect.parse(spec).cell >= 4,
                bytes_per_image=cells.similarity(spec).bytes_per_image or 0,
            )
        )
    return rows


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"sizes": sizes, "every_pixel": every_pixel, "resolutions": resolutions}
