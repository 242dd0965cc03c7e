"""How often an adversary names the person on a release."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind, attack_of
from sfumato.study.vocabulary import ATTACKS, attacks_of, not_taken

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig


class Score(Model):
    """How often one way to compare releases is right; top-1 with its 95% interval over people.

    Attributes:
        classifier: the same for all seeds.
        hits: of each of the result's people; None if only their sum is known.
        reading: what it read of a release, if it chose; as "2x2 means".
    """

    classifier: str
    top1: float
    low: float
    high: float
    top5: float | None = None
    top10: float | None = None
    hits: tuple[float, ...] | None = None
    reading: str = ""


class Trained(Model):
    """The training of a network of the adversary; see sfumato.attack.saturation.Training.

    Attributes:
        network: its name.
        steps, ceiling: taken, and possible.
        figure: the validation figure on held-out people; None if nobody could be held out.
        curve: steps and the figure then.
        flat: whether it had stopped rising before the ceiling; None without a figure.
    """

    network: str
    steps: int
    ceiling: int
    figure: str | None = None
    curve: tuple[tuple[int, float], ...] = ()
    flat: bool | None = None


class Result(Model):
    """The success of one adversary.

    Attributes:
        scores: of each of their classifiers, at least one.
        chance: of the best guess without looking.
        identities: how many people there are to name.
        gallery, probes: known photographs, and photographs to name.
        people: how many of the probes show each person, in the order of their names.
        faces_found: the share of probes in which a detector found a face.
        verification_auc: of one photograph of the gallery and one probe.
        trained: the networks that this study trained for them; none in records of earlier versions.
    """

    scores: Annotated[list[Score], Field(min_length=1)]
    chance: float
    identities: int
    gallery: int | None = None
    probes: int | None = None
    people: tuple[int, ...] | None = None
    faces_found: float | None = None
    verification_auc: float | None = None
    trained: tuple[Trained, ...] = ()


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each attack."""
    return [Cell("attack", spec, seed, (("attack", attack),)) for attack in attacks_of(config, spec)]


def find_omissions(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    """Attacks that are impossible on these releases."""
    if spec == "none" or config.task.sensitive is None:
        return {}
    return not_taken("attack", ATTACKS, config.attacks, spec)


KIND = Kind(
    Result,
    cells,
    lambda lab, cell: attack_of(cell.subject).settings(lab, cell),
    lambda lab, cell: attack_of(cell.subject).attack(lab, cell),
    find_omissions,
)
