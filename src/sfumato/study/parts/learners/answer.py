"""The device's own answer: it releases the name of the class, so that no learner is needed."""

from typing import TYPE_CHECKING, Any

from sfumato.learn import classifier
from sfumato.learn.method import codes_of
from sfumato.study.cells import Cell
from sfumato.study.parts.learners import classifier as classifiers
from sfumato.study.parts.learners import few_shot
from sfumato.study.protocol import Learner

if TYPE_CHECKING:
    from sfumato.study.lab.lab import Lab


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the accuracy."""
    return few_shot.settings(lab, cell) if lab.config.episodic else classifiers.settings(lab, cell)


def accuracy(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """How often the answer is right: over episodes with received prototypes, or over test images."""
    if lab.config.episodic:
        model = few_shot.train_or_read(lab, "none", cell.seed, "clean")
        clear = Cell(cell.kind, "none", cell.seed)
        return few_shot.over_episodes(few_shot.run_episodes(lab, clear, model, lab.config.task.shape))
    target = lab.config.task.target
    released = lab.release(cell, lab.asked.images)
    codes = codes_of(lab.asked, target, released.classes, "classifier")
    return classifiers.over_images(classifier.Accuracy.of(released.values, codes, cell.protection))


def check(lab: "Lab") -> None:
    """Checks the learner of clear images, which gives the answers."""
    (few_shot if lab.config.episodic else classifiers).check(lab)


LEARNER = Learner(check, settings, accuracy)
