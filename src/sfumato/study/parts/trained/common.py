"""The parts that recipes share."""

from typing import TYPE_CHECKING, Any

import torch

from sfumato.data.labelled import LabelledImages

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

NO_FILE = "none.safetensors"  # stands for the artefact in checks of parameters before there is one
_HELD_OUT = 10  # one in this many training images chooses the best epoch, if validation has other classes


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


def task_settings(config: "StudyConfig") -> dict[str, Any]:
    """The settings of the task that decide a training for it."""
    return {"target": config.task.target, "classes": config.task.classes}
