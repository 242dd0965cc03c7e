"""Protections that a study trains itself: a spec without `artefact=`, such as "mask:keep=0.1,0.25".

Each is trained on the training images of the study, with the settings that the study file has for its kind,
and leaves an artefact that `sfumato protect`, `train` and `serve` take.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from sfumato import protect
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, SpecError
from sfumato.learn import adversarial_mask, few_shot, private_feature, prototypes
from sfumato.protect import answer
from sfumato.protect.feature import Feature
from sfumato.protect.mask import Mask
from sfumato.protect.parameters import canonical
from sfumato.protect.release import KINDS, kind_of
from sfumato.protect.spec import expand_as
from sfumato.study.cells import changed
from sfumato.study.models import with_checkpoint

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab import Lab

_NO_FILE = "none.safetensors"  # stands for the artefact where parameters are checked before there is one
_HELD_OUT = 10  # one of so many training images chooses the best epoch, where validation has other classes


class Recipe(Protocol):
    """A protection that a study trains. Implementations are frozen dataclasses of its parameters."""

    name: ClassVar[str]

    @property
    def spec(self) -> str:
        """As the study file has it, and its records."""

    @property
    def kind(self) -> str:
        """Of what it releases."""

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """All that decides its artefact, beside data and seed."""

    def check(self, lab: "Lab") -> None:
        """Raise an error now, where it could not be trained after an hour."""

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """Train it, and write its artefact. Goes on from a checkpoint beside it where there is one."""

    def with_artefact(self, path: str) -> str:
        """The spec of the protection that is trained."""


@dataclass(frozen=True)
class MaskRecipe:
    """A mask; see protect.mask.Mask. One artefact serves all `values`."""

    keep: float
    values: str = "hard"

    name: ClassVar[str] = "mask"

    def __post_init__(self) -> None:
        Mask(_NO_FILE, keep=self.keep, values=self.values)  # checks them

    @property
    def spec(self) -> str:
        """See Recipe."""
        return canonical(self.name, self)

    @property
    def kind(self) -> str:
        """See Recipe."""
        return kind_of(Mask(_NO_FILE, values=self.values))

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        return {"masks": changed(replace(config.masks, keep=self.keep)), **_task(config)}

    def check(self, lab: "Lab") -> None:
        """See Recipe."""
        config = replace(lab.config.masks, keep=self.keep)
        adversarial_mask.trainable(lab.train, config, lab.config.task.target)

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        training, validation = same_classes(lab)
        with_checkpoint(
            lambda checkpoint: adversarial_mask.train(
                training,
                replace(lab.config.masks, keep=self.keep),
                target=lab.config.task.target,
                validation=validation,
                seed=seed,
                checkpoint=checkpoint,
                progress=lab.progress.within,
            )
        )(path)

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return Mask(path, keep=self.keep, values=self.values).spec


@dataclass(frozen=True)
class FeatureRecipe:
    """A private feature; see protect.feature.Feature. One artefact serves all noise.

    Attributes:
        dimension: of the feature; None for that of the study's settings.
    """

    noise: float
    dimension: int | None = None
    norm: float | None = None

    name: ClassVar[str] = "feature"
    kind: ClassVar[str] = "numbers"

    def __post_init__(self) -> None:
        Feature(_NO_FILE, noise=self.noise, norm=self.norm)  # checks them
        if self.dimension is not None and self.dimension < 1:
            raise SpecError(f"feature: dimension={self.dimension}: at least 1 number")

    @property
    def spec(self) -> str:
        """See Recipe."""
        return canonical(self.name, self)

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        return {
            "features": changed(self._config(config)),
            "sensitive": config.task.sensitive,
            **_task(config),
        }

    def check(self, lab: "Lab") -> None:
        """See Recipe."""
        target = lab.config.task.target
        private_feature.trainable(lab.train, self._config(lab.config), [target], self._sensitive(lab))

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        training, validation = same_classes(lab)
        with_checkpoint(
            lambda checkpoint: private_feature.train(
                training,
                self._config(lab.config),
                targets=[lab.config.task.target],
                sensitive=self._sensitive(lab),
                validation=validation,
                seed=seed,
                checkpoint=checkpoint,
                progress=lab.progress.within,
            )
        )(path)

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return Feature(path, noise=self.noise, norm=self.norm).spec

    def _sensitive(self, lab: "Lab") -> str:
        task = lab.config.task
        if task.sensitive is None or task.sensitive == task.target:
            raise SpecError(
                f"{self.spec}: a feature removes a label: name one as task.sensitive, not the target"
            )
        return task.sensitive

    def _config(self, config: "StudyConfig") -> private_feature.FeatureConfig:
        dimension = config.features.dimension if self.dimension is None else self.dimension
        return replace(config.features, dimension=dimension)


@dataclass(frozen=True)
class AnswerRecipe:
    """The answer of a classifier on the device: the study's own, trained on clean images.

    In a study of episodes it is the few-shot model with a prototype of each class of the test images, of as
    many of them as the task has shots; they came down to the device.
    """

    name: ClassVar[str] = "answer"
    kind: ClassVar[str] = "answer"

    @property
    def spec(self) -> str:
        """See Recipe."""
        return self.name

    def settings(self, config: "StudyConfig") -> dict[str, Any]:
        """See Recipe."""
        learned = (
            {"training": changed(config.training), "shot": config.task.shot}
            if config.episodic
            else {"classifier": changed(config.classifier)}
        )
        return {"answer": learned, **_task(config)}

    def check(self, lab: "Lab") -> None:
        """See Recipe. The learner that answers is checked where learners are."""
        if lab.config.episodic and lab.config.training.cell not in (None, 1):
            cell = lab.config.training.cell
            raise ConfigError(f"training.cell={cell}: a device that answers sees every pixel: write null")

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        from sfumato.study.learners import classifier
        from sfumato.study.learners import few_shot as few_shot_learner

        shape = (*lab.train.images.shape[1:],)
        target = lab.config.task.target
        if not lab.config.episodic:
            model = classifier.trained(lab, "none", seed, "classifier-clean")
            answerer = answer.Answerer(model.network, classes=model.classes, shape=shape)
            answer.save(path, answerer, network=lab.config.classifier.network, card={"seed": seed})
            return
        few = few_shot_learner.trained(lab, "none", seed, "clean")
        means, names = enrolled(few, lab.asked, target, shot=lab.config.task.shot, seed=seed)
        answerer = answer.Answerer(few.encoder, classes=names, shape=shape, prototypes=means)
        answer.save(path, answerer, network=lab.config.training.encoder, card={"seed": seed})

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return answer.Answer(path).spec


RECIPES: Mapping[str, Any] = {recipe.name: recipe for recipe in (MaskRecipe, FeatureRecipe, AnswerRecipe)}


def expand(spec: str) -> list[Any]:
    """The protections of a spec of a study, whose keys may list values: those to train are recipes.

    Raises:
        SpecError: see protect.expand.
    """
    name, _, rest = spec.strip().partition(":")
    keys = {part.partition("=")[0].strip() for part in rest.split(",") if "=" in part}
    if name in RECIPES and "artefact" not in keys:
        return expand_as(spec, RECIPES)
    return protect.expand(spec, takes=KINDS)


def recipe_of(spec: str) -> Recipe | None:
    """The recipe of one canonical spec of a study; None where nothing is to be trained for it."""
    (protection,) = expand(spec)
    return protection if isinstance(protection, MaskRecipe | FeatureRecipe | AnswerRecipe) else None


def same_classes(lab: "Lab") -> tuple[LabelledImages, LabelledImages | None]:
    """Training and validation images of the same classes.

    Validation images of episodes have classes of their own: there, some of the training images are kept out.
    """
    if not lab.config.episodic:
        return lab.train, lab.validation
    order = torch.randperm(len(lab.train), generator=torch.Generator().manual_seed(0))
    codes = lab.train.label(lab.config.task.target).codes
    kept, held = order[len(order) // _HELD_OUT :], order[: len(order) // _HELD_OUT]
    held = held[torch.isin(codes[held], codes[kept])]
    return lab.train.rows(kept), lab.train.rows(held) if len(held) else None


def enrolled(
    model: few_shot.FewShotModel, data: LabelledImages, target: str, *, shot: int, seed: int
) -> tuple[torch.Tensor, list[str]]:
    """(classes, D) prototypes of clean images, of at most `shot` a class, and the names of the classes."""
    label = data.label(target)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    classes = label.codes.unique()
    means = []
    for code in classes:
        rows = order[label.codes[order] == code][:shot]
        means.append(prototypes.prototypes(model.embed(data.images[rows])))
    return torch.stack(means), [label.names[code] for code in classes.tolist()]


def _task(config: "StudyConfig") -> dict[str, Any]:
    return {"target": config.task.target, "classes": config.task.classes}
