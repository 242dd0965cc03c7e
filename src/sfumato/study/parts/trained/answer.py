"""The answer of a classifier that a study trains."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError
from sfumato.learn import few_shot, prototypes
from sfumato.protect import answer
from sfumato.study.cells import non_defaults
from sfumato.study.parts.trained.common import task_settings

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


@dataclass(frozen=True)
class AnswerRecipe:
    """The answer of a classifier on the device: the study's own, trained on clean images.

    In a study of episodes it is the few-shot model with a prototype of each class of the test images, each of
    as many as the task has shots; the device received them.
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
            {"training": non_defaults(config.training), "shot": config.task.shot}
            if config.episodic
            else {"classifier": non_defaults(config.classifier)}
        )
        return {"answer": learned, **task_settings(config)}

    def check(self, lab: "Lab") -> None:
        """See Recipe. The learners' check covers the one that answers."""
        if lab.config.episodic and lab.config.training.cell not in (None, 1):
            cell = lab.config.training.cell
            raise ConfigError(f"training.cell={cell}: a device that answers sees every pixel: write null")

    def train(self, lab: "Lab", seed: int, path: Path) -> None:
        """See Recipe."""
        from sfumato.study.parts.learners import classifier
        from sfumato.study.parts.learners import few_shot as few_shot_learner

        shape = (*lab.train.images.shape[1:],)
        target = lab.config.task.target
        if not lab.config.episodic:
            model = classifier.train_or_read(lab, "none", seed, "classifier-clean")
            answerer = answer.Answerer(model.network, classes=model.classes, shape=shape)
            answer.save(path, answerer, network=lab.config.classifier.network, card={"seed": seed})
            return
        few = few_shot_learner.train_or_read(lab, "none", seed, "clean")
        means, names = enrol(few, lab.asked, target, shot=lab.config.task.shot, seed=seed)
        answerer = answer.Answerer(few.encoder, classes=names, shape=shape, prototypes=means)
        answer.save(path, answerer, network=lab.config.training.encoder, card={"seed": seed})

    def with_artefact(self, path: str) -> str:
        """See Recipe."""
        return answer.Answer(path).spec


def enrol(
    model: few_shot.FewShotModel, data: LabelledImages, target: str, *, shot: int, seed: int
) -> tuple[Tensor, list[str]]:
    """(classes, D) prototypes of clean images, of at most `shot` a class, and the names of the classes."""
    label = data.label(target)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    classes = label.codes.unique()
    means = []
    for number in classes:
        rows = order[label.codes[order] == number][:shot]
        means.append(prototypes.prototypes(model.embed(data.images[rows])))
    return torch.stack(means), [label.names[number] for number in classes.tolist()]
