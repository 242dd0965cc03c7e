"""How often a further secret is inferred: an attribute of the person on an image, as gender or expression.

The classes of an attribute are the same for everybody, so that an adversary learns them from releases of
people they know, and needs no photograph of the others; see sfumato.study.parts.attacks.infer.
"""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.attack import Score
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


class Result(Model):
    """The inferences of one adversary.

    Attributes:
        scores: of each of their classifiers, at least one; `hits` are those of each of the people.
        chance: the share of the commonest class of the test images.
        identities: how many classes there are.
        probes: the test images; the adversary infers the attribute of each.
        people: how many of the images show each person, in the order of their names.
    """

    scores: Annotated[list[Score], Field(min_length=1)]
    chance: float
    identities: int
    probes: int
    people: tuple[int, ...]


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each attribute."""
    return [Cell("inference", spec, seed, (("secret", label),)) for label in config.task.attributes]


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    from sfumato.study.parts.attacks import infer

    return infer.settings(lab, cell)


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Learns the attribute from releases of others, and infers it on the test images."""
    from sfumato.study.parts.attacks import infer

    return infer.attack(lab, cell)


KIND = Kind(Result, cells, settings, measure)
