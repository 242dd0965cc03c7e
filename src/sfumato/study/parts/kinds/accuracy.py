"""How often a learner names the target correctly from releases."""

from typing import TYPE_CHECKING

import pydantic

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind, learner_of
from sfumato.study.vocabulary import LEARNERS, learners_of, not_taken, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig


class Promise(Model):
    """The promise of a meta-learned model to its training images; see learn.meta.

    Attributes:
        promise: in words. Without a promise the others are None.
        clipping: the policy.
        epsilon, delta: of `unit`; ε is None if the policy is not covered, and
            `epsilon_if_the_norm_were_public` then is its hypothetical value.
        rdp, gdp_approximation: by the other accountants.
        image_epsilon: of an image that is in several tasks; None if no bound is known.
        unit, not_covered: the unit whose price ε is, and the exceptions.
    """

    promise: str
    clipping: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    rdp: float | None = None
    gdp_approximation: float | None = None
    image_epsilon: float | None = None
    epsilon_if_the_norm_were_public: float | None = None
    unit: str | None = None
    not_covered: list[str] = pydantic.Field(default_factory=list)

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> "Promise":
        needed = {"clipping", "epsilon", "delta", "unit", "not_covered"}
        if len(self.model_fields_set) > 1 and not needed <= self.model_fields_set:
            raise ValueError(f"it has no {min(needed - self.model_fields_set)!r}")
        return self


class Half(Model):
    """An accuracy on one half of the test images, with its 95% interval."""

    accuracy: float
    low: float
    high: float


class Served(Model):
    """A service's answers on test images, with the training images enrolled.

    Attributes:
        accuracy, low, high: the share it names correctly, with its 95% interval.
        accepted_right: the share that it names correctly without "none of these"; None if it refuses
            nothing.
    """

    accuracy: float
    low: float
    high: float
    accepted_right: float | None = None


class Result(Model):
    """An accuracy with its interval: over episodes, or over test images.

    Attributes:
        accuracy: the share named correctly.
        half_width, episodes: half of its 95% interval over this many episodes; for learners of new classes.
        low, high, images, chance: its 95% interval over this many test images, and the share of the
            commonest class; for learners that know the classes.
        accepted_right: the share of queries that a service names correctly without "none of these", with
            half of its interval; for few-shot learners and codes that refuse.
        served: a service's answers if classes are known beforehand: see Served; for bits and numbers.
        halves: the same on two halves of the test images; none in records of earlier versions.
        privacy: the promise of a model to its training images.
        operations: multiply-adds of a query.
        curve: the validation accuracy after each epoch of training, for few-shot learners.
    """

    accuracy: float
    half_width: float | None = None
    episodes: int | None = None
    low: float | None = None
    high: float | None = None
    images: int | None = None
    chance: float | None = None
    accepted_right: float | None = None
    accepted_right_half_width: float | None = None
    served: Served | None = None
    train_seconds: float | None = None
    precision: str | None = None
    operations: int | None = None
    curve: tuple[float, ...] = ()
    halves: tuple[Half, Half] | tuple[()] = ()
    privacy: Promise | None = None

    @pydantic.model_validator(mode="after")
    def _has_an_interval(self) -> "Result":
        over_images = (self.low, self.high, self.images, self.chance)
        if None in over_images and None in (self.half_width, self.episodes):
            raise ValueError(
                "it has neither half_width and episodes nor low, high, images and chance of its interval"
            )
        return self


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each learner."""
    return [Cell("accuracy", spec, seed, (("learner", learner),)) for learner in learners_of(config, spec)]


def find_omissions(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    """Learners that cannot use these releases."""
    if spec == "none" or release_kind(spec) == "answer":
        return {}
    return not_taken("learner", LEARNERS, config.learners, spec)


KIND = Kind(
    Result,
    cells,
    lambda lab, cell: learner_of(cell.subject).settings(lab, cell),
    lambda lab, cell: learner_of(cell.subject).accuracy(lab, cell),
    find_omissions,
)
