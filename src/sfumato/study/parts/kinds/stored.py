"""The risk of a service's stored embeddings: a thief names the people on the images behind them."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.attack import Score
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind
from sfumato.study.selection import learners_of
from sfumato.study.vocabulary import FEW_SHOT, IMAGES, LEARNERS, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


class Result(Model):
    """How often a thief names the person behind an embedding; see attack.Result.

    Attributes:
        embeddings: how many were stolen.
    """

    scores: Annotated[list[Score], Field(min_length=1)]
    chance: float
    identities: int
    embeddings: int


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each few-shot learner of images, if there is a secret."""
    if not config.stored or config.task.sensitive is None or release_kind(spec) not in IMAGES:
        return []
    return [
        Cell("stored", spec, seed, (("learner", name),))
        for name in learners_of(config, spec)
        if LEARNERS[name].method == FEW_SHOT
    ]


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    task = lab.config.task
    adversary = lab.config.adversary
    return {
        **lab.training_settings(),
        "sensitive": task.sensitive,
        "gallery": [adversary.gallery, adversary.probes],
    }


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Compares stolen embeddings with those of known people, released and embedded alike."""
    from sfumato.study.parts.attacks import reidentify
    from sfumato.study.parts.learners import few_shot

    model = few_shot.train_or_read(lab, cell.protection, cell.seed, cell.subject)
    compared = reidentify.of_vectors(lab, cell, lambda released: model.embed(released.images()))
    return {**compared.result, "embeddings": compared.result["probes"]}


KIND = Kind(Result, cells, settings, measure)
