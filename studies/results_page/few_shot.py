"""Few-shot studies: three models on protected images, resolution, other settings than the trained one, adversaries."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from results_page.engine import Accuracy, Study, begun, rises, rising, study
from results_page.reading import Record, read, read_all
from sfumato import protect
from sfumato.learn import few_shot
from sfumato.study.estimates import Estimate


def apart(higher: Accuracy, lower: Accuracy) -> float:
    """How far the interval of one accuracy is above that of another; negative where they overlap."""
    return higher.accuracy - higher.half_width - lower.accuracy - lower.half_width


LEARNERS = ("clean", "protected", "denoised")
BySeed = dict[int, Accuracy]
T = TypeVar("T")


def shared(ours: BySeed, theirs: BySeed) -> list[tuple[Accuracy, Accuracy]]:
    """The accuracies of each seed that both have."""
    return [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]


def merged(by_seed: Iterable[dict[int, T]]) -> dict[int, T]:
    """What several studies have measured of each seed; of a seed that two have, what the last has."""
    return {seed: measured for of_study in by_seed for seed, measured in of_study.items()}


@dataclass(frozen=True)
class Models:
    """The models of one protection, as far as they are known: trained on clean and on protected images, and with a denoiser.

    `accuracies` are of each model, `ssims` of what is released and of what the denoiser makes of it, by seed.
    """

    spec: str
    accuracies: dict[str, BySeed]
    ssims: dict[str, dict[int, float]]

    @property
    def value(self) -> str:
        """The parameter that the paper varies."""
        return self.spec.partition("=")[2].partition(",")[0]

    def values(self, learner: str, of: str = "accuracy") -> list[Any]:
        """The accuracies alone, or another value of the records, seed by seed."""
        return [getattr(each, of) for each in self.accuracies[learner].values()]

    def pairs(self, ours: str, theirs: str) -> list[tuple[Accuracy, Accuracy]]:
        """The accuracies of two models, of each seed that both have."""
        return shared(self.accuracies[ours], self.accuracies[theirs])

    def ahead(self, ours: str, theirs: str) -> float | None:
        """How far the mean of one model is above that of another, of the seeds that both have; None where there are none."""
        pairs = self.pairs(ours, theirs)
        return statistics.mean(our.accuracy - their.accuracy for our, their in pairs) if pairs else None

    @property
    def gain(self) -> float:
        """Of the denoiser, of the accuracy without."""
        with_it, without = zip(*self.pairs("denoised", "protected"), strict=True)
        return sum(each.accuracy for each in with_it) / sum(each.accuracy for each in without) - 1

    @property
    def gap(self) -> float:
        """Between the intervals of the protected and the clean-trained model, in the seed where it is least."""
        return min(apart(*pair) for pair in self.pairs("protected", "clean"))


def models(spec: str, studies: Sequence[Study]) -> Models:
    """Of one protection, of one or of several studies."""
    return Models(
        spec,
        {learner: merged(studied.accuracies(learner, spec) for studied in studies) for learner in LEARNERS},
        {view: merged(studied.ssims(spec, view) for studied in studies) for view in ("released", "denoised")},
    )


def three_models(studied: Study) -> list[Models]:
    """Of each protection of a study."""
    return [models(spec, [studied]) for spec in studied.specs]


def lowest_ssim(rows: list[Models]) -> dict[str, float]:
    """Obfuscation -> the lowest SSIM of its settings to the originals."""
    found: dict[str, float] = {}
    for row in rows:
        kind = row.spec.partition(":")[0]
        found[kind] = min(*row.ssims["released"].values(), found.get(kind, 1.0))
    return found


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
class Full:
    """Studies of all values of all obfuscations (Fig. 3 and 4), as far as they have run; each has models of its own."""

    studies: list[Study]

    @property
    def studied(self) -> Study:
        """That of the models that are trained on clean and on protected images."""
        return self.studies[0]

    @property
    def done(self) -> tuple[int, int]:
        """How many of the accuracies have a record; of how many."""
        cells = [
            cell["digest"] not in studied.missing
            for studied in self.studies
            for cell in studied.file["cells"]
            if cell["kind"] == "accuracy"
        ]
        return sum(cells), len(cells)

    @property
    def clear(self) -> list[float]:
        """Accuracy of the model of clean images on clean images, seed by seed."""
        return [each.accuracy for each in self.studied.accuracies("clean").values()]

    @cached_property
    def kinds(self) -> dict[str, list[Models]]:
        """Obfuscation -> its values, in the order of the study."""
        found: dict[str, list[Models]] = {}
        for spec in self.studied.specs:
            found.setdefault(spec.partition(":")[0], []).append(models(spec, self.studies))
        return found

    @property
    def rows(self) -> list[Models]:
        """Of all obfuscations."""
        return [row for rows in self.kinds.values() for row in rows]

    @property
    def learners(self) -> list[str]:
        """The models of which something is known."""
        return [learner for learner in LEARNERS if any(row.values(learner) for row in self.rows)]

    def ahead(self, ours: str, theirs: str) -> list[float]:
        """By how much one model's mean is above another's, of each value of which both are known."""
        return [gap for row in self.rows if (gap := row.ahead(ours, theirs)) is not None]

    def falls(self, kind: str, learner: str) -> bool | None:
        """Whether the mean falls with each stronger value; None where a value is not known."""
        means = [statistics.mean(values) for row in self.kinds[kind] if (values := row.values(learner))]
        if len(means) < len(self.kinds[kind]):
            return None
        return all(higher > lower for higher, lower in pairwise(means))

    @property
    def rising(self) -> tuple[int, int]:
        """See engine.rising."""
        return rising(
            each for row in self.rows for found in row.accuracies.values() for each in found.values()
        )


FULL = {"Omniglot": ("omniglot-full", "omniglot-denoised")}


def full() -> dict[str, Full]:
    """Of each data set whose study has begun: one value of one obfuscation, at least."""
    started = {data: [studied for name in names if (studied := begun(name))] for data, names in FULL.items()}
    found = {data: Full(studies) for data, studies in started.items() if studies}
    return {data: each for data, each in found.items() if each.learners}


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


VIEWS = {
    "released": ("reidentify-static", "reidentify-adaptive"),
    "denoised": ("reidentify-denoised", "reidentify-denoised-adaptive"),
    "restored": ("reidentify-restored", "reidentify-restored-adaptive"),
}


@dataclass(frozen=True)
class Adversaries:
    """Seven adversaries on one protection: static and adaptive, on three views; and on the values."""

    studied: Study
    spec: str

    @cached_property
    def top1(self) -> list[Estimate | None]:
        """Of each, in the order of the views, static before adaptive; at last of the one on values."""
        attacks = [attack for pair in VIEWS.values() for attack in pair]
        return [self.studied.top1(self.spec, attack) for attack in [*attacks, "reidentify-values"]]

    @property
    def strongest(self) -> Estimate:
        """The one that names most."""
        return max((each for each in self.top1 if each), key=lambda each: each.value)

    @property
    def papers(self) -> Estimate:
        """The stronger of the paper's: static, on released and on denoised images."""
        made = [self.studied.top1(self.spec, VIEWS[view][0]) for view in ("released", "denoised")]
        return max((each for each in made if each), key=lambda each: each.value)

    @property
    def risen(self) -> float | None:
        """How much more the paper's static adversary names after the denoiser; None where it did not run."""
        released, denoised = (
            self.studied.top1(self.spec, VIEWS[view][0]) for view in ("released", "denoised")
        )
        return None if released is None or denoised is None else denoised.value - released.value

    @property
    def shown(self) -> list[str]:
        """The views that were looked at."""
        return [view for view, (static, _) in VIEWS.items() if self.studied.top1(self.spec, static)]

    @property
    def faces(self) -> list[float]:
        """How often a face is found, view by view."""
        return [self.studied.attack(self.spec, VIEWS[view][0]).faces_found or 0.0 for view in self.shown]

    @property
    def alike(self) -> list[float]:
        """SSIM to the original, view by view."""
        return [self.studied.similarity(self.spec, view).ssim for view in self.shown]


def adversaries(studied: Study) -> list[Adversaries]:
    """Of each protection of a study."""
    return [Adversaries(studied, spec) for spec in studied.file["protections"]]


@dataclass(frozen=True)
class Matrix:
    """Models for one setting, queried with another: asked -> trained for -> accuracy."""

    specs: list[str]
    accuracies: dict[str, dict[str, Accuracy]]

    def best(self, asked: str) -> str:
        """The setting whose model is best on images of a setting."""
        return max(self.specs, key=lambda spec: self.accuracies[asked][spec].accuracy)

    @property
    def own(self) -> int:
        """In how many columns the model for the setting is the best one."""
        return sum(self.best(asked) == asked for asked in self.specs)

    @property
    def lost(self) -> list[float]:
        """What a model for another setting loses."""
        return [
            self.accuracies[asked][asked].accuracy - self.accuracies[asked][spec].accuracy
            for asked in self.specs
            for spec in self.specs
            if spec != asked
        ]

    @property
    def half_width(self) -> float:
        """The widest interval's."""
        return max(each.half_width for row in self.accuracies.values() for each in row.values())


def transferred(studied: Study) -> Matrix:
    """The matrix of a study of transfer."""
    return Matrix(studied.file["protections"], studied.transfer())


class Seconds(Record):
    """Of training."""

    alone: dict[str, float]
    together: float


class Range(Record):
    """Models for each of some settings, and one for all."""

    name: str
    settings: list[str]
    between: str
    alone: dict[str, dict[str, Accuracy]]
    together: dict[str, Accuracy]
    mixed: dict[str, Accuracy]
    weights: dict[str, float]
    seconds: Seconds

    @property
    def asked(self) -> list[str]:
        """The settings, and one between them that no model was trained for."""
        return [*self.settings, self.between]

    @property
    def lost(self) -> list[float]:
        """What the model for all is below the one for a setting, setting by setting."""
        return [self.alone[spec][spec].accuracy - self.together[spec].accuracy for spec in self.settings]

    @property
    def weighed(self) -> float:
        """How far the interval of prototypes that weigh by protection is above that of those that do not."""
        return apart(self.mixed["by protection"], self.mixed["alike"])


class Ranges(Record):
    """The record of studies/ranges.py."""

    ranges: list[Range]
    seed: int
    threads: int

    @property
    def seconds(self) -> float:
        """Of all training."""
        return sum(sum(each.seconds.alone.values()) + each.seconds.together for each in self.ranges)


class Error(Record):
    """How often the wrong character is named, over tasks."""

    error: float
    half_width: float

    @property
    def words(self) -> str:
        """With half its 95% interval, in %."""
        return f"{100 * self.error:.1f} ± {100 * self.half_width:.1f}"


class LakeTraining(Record):
    """Of the network."""

    encoder: str = "conv4"
    pretraining_steps: int
    episodes: int
    warps: float
    within: bool = False
    curve: tuple[float, ...]

    @property
    def options(self) -> str:
        """Of the command that trains it."""
        encoder = "" if self.encoder == "conv4" else f" --encoder {self.encoder}"
        warps = f" --warps {self.warps:g}" if self.warps else ""
        return encoder + warps + (" --within" if self.within else "")


class Lake(Record):
    """A record of studies/lake.py; the first ones have no views."""

    tasks: int
    training: LakeTraining
    one_place: Error
    nine_places: Error
    views: Error | None = None

    @property
    def least(self) -> Error:
        """The lower of the two means over views; both are of the same tasks."""
        return min((each for each in (self.nine_places, self.views) if each), key=lambda each: each.error)

    @property
    def rises(self) -> bool:
        """See engine.rises."""
        return bool(rises(self.training.curve))


def lake() -> list[Lake]:
    """The records: by encoder, and drawings as they are first."""
    found = read_all("lake/*.json", Lake)
    return sorted(found, key=lambda each: (each.training.encoder, each.training.warps, each.training.within))


def values() -> dict[str, Any]:
    """What templates may use."""
    return {
        "study": study,
        "three_models": three_models,
        "resolutions": resolutions,
        "sizes": sizes,
        "every_pixel": every_pixel,
        "full": full(),
        "lowest_ssim": lowest_ssim,
        "adversaries": adversaries,
        "transferred": transferred,
        "lake": lake(),
        "ranges": read("ranges.json", Ranges),
    }
