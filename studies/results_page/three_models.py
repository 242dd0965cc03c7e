"""Three models on protected images: of a few settings, and of every value of every obfuscation (FS-PIC, Fig. 3, 4 and 11)."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from results_page.engine import Accuracy, BySeed, Study, apart, rising, shared, study

LEARNERS = ("clean", "protected", "denoised")
T = TypeVar("T")


def merged(by_seed: Iterable[dict[int, T]]) -> dict[int, T]:
    """What several studies have measured of each seed; of a seed that two have, what the last has."""
    return {seed: measured for of_study in by_seed for seed, measured in of_study.items()}


@dataclass(frozen=True)
class Models:
    """The models of one protection: trained on clean and on protected images, and with a denoiser.

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

    def ahead(self, ours: str, theirs: str, of: str = "accuracy") -> float:
        """How far the mean of one model is above that of another, of the seeds that both have."""
        return statistics.mean(
            getattr(our, of) - getattr(their, of) for our, their in self.pairs(ours, theirs)
        )

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
class Full:
    """Studies of all values of all obfuscations (Fig. 3 and 4), each of models of its own: the first of those without denoiser."""

    studies: list[Study]

    @property
    def clear(self) -> list[float]:
        """Accuracy of the model of clean images on clean images, seed by seed."""
        return [each.accuracy for each in self.studies[0].accuracies("clean").values()]

    @cached_property
    def kinds(self) -> dict[str, list[Models]]:
        """Obfuscation -> its values, in the order of the study."""
        found: dict[str, list[Models]] = {}
        for spec in self.studies[0].specs:
            found.setdefault(spec.partition(":")[0], []).append(models(spec, self.studies))
        return found

    @property
    def rows(self) -> list[Models]:
        """Of all obfuscations."""
        return [row for rows in self.kinds.values() for row in rows]

    @property
    def learners(self) -> list[str]:
        """The models that were measured."""
        return [learner for learner in LEARNERS if self.rows[0].values(learner)]

    def ahead(self, ours: str, theirs: str, of: str = "accuracy") -> list[float]:
        """By how much one model's mean is above another's, of each value."""
        return [row.ahead(ours, theirs, of) for row in self.rows]

    def falls(self, kind: str, learner: str) -> bool:
        """Whether the mean falls with each stronger value."""
        means = [statistics.mean(row.values(learner)) for row in self.kinds[kind]]
        return all(higher > lower for higher, lower in pairwise(means))

    @property
    def rising(self) -> tuple[int, int]:
        """See engine.rising."""
        return rising(
            each for row in self.rows for found in row.accuracies.values() for each in found.values()
        )


def values() -> dict[str, Any]:
    """What templates may use; `in_other_tests`: the models of Omniglot in tests of other ways and shots."""
    return {
        "three_models": three_models,
        "lowest_ssim": lowest_ssim,
        "full": Full([study("omniglot-full"), study("omniglot-denoised")]),
        "in_other_tests": Full([study("omniglot-full-ways")]),
    }
