"""The model of each setting, queried with every other setting; support images have that one as well."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sfumato.study.cells import Cell, non_defaults
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import IMAGES, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


class Accuracy(Model, strict=True):
    """Over test episodes; half_width is half of its 95% interval."""

    accuracy: float
    half_width: float


class Result(Model):
    """The setting that a model was trained for -> its accuracy."""

    trained: Annotated[dict[str, Accuracy], Field(min_length=1)]


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each protection of images, if the study asks for transfer."""
    if config.transfer is None or release_kind(spec) not in IMAGES:
        return []
    return [Cell("transfer", spec, seed, (("learner", config.transfer),))]


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    task = non_defaults(lab.config.task)
    for name in ("sensitive", "attributes"):
        task.pop(name, None)
    return {"task": task, **lab.training_settings(), "specs": lab.config.specs}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Tests every model on releases of this setting."""
    from sfumato.study.parts.learners import few_shot

    learner = cell.subject
    trained = {}
    for spec in lab.config.specs:
        if release_kind(spec) not in IMAGES:
            continue
        model = few_shot.train_or_read(lab, spec, cell.seed, "clean" if spec == "none" else learner)
        accuracy = few_shot.run_episodes(lab, cell, model, lab.config.task.shape)
        trained[spec] = {"accuracy": accuracy.mean, "half_width": accuracy.half_width}
    return {"trained": trained}


KIND = Kind(Result, cells, settings, measure)
