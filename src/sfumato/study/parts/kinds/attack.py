"""How often an adversary names who is on a release."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Attack, Kind, attack_of
from sfumato.study.selection import attacks_of, not_taken
from sfumato.study.vocabulary import ATTACKS

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab


class Verification(Model):
    """How well it is known whether two are of one person.

    Attributes:
        auc: the area under the ROC curve.
        tar_at_far: the share of pairs of one person that are accepted where so many of two are: "1e-2",
            "1e-3".
    """

    auc: float
    tar_at_far: dict[str, float]


class Group(Verification):
    """What several releases of one person tell together, and whether they are of the person of a label.

    Attributes:
        top1, low, high: the share of groups that are named rightly, and its 95% interval, in which groups of
            one person are not independent trials.
        hits: the groups of each of the result's people that are named rightly.
    """

    top1: float
    low: float
    high: float
    hits: tuple[float, ...]


class Link(Group):
    """How often a label of one service is linked to that of the same person at another one.

    Attributes:
        classifier: how the two are compared.
        releases: of each person at each service.
        rounds: how often people were linked, by other photographs each time; `hits` are of them.
    """

    classifier: str
    releases: int
    rounds: int


class Score(Model):
    """How often one way to compare releases is right; top-1 with its 95% interval over probes.

    `hits` are those of each of the result's people, and `groups` what so many releases of one person tell
    together; None in records of earlier versions.
    """

    classifier: str
    top1: float
    low: float
    high: float
    top5: float | None = None
    top10: float | None = None
    hits: tuple[float, ...] | None = None
    groups: dict[int, Group] | None = None


class Trained(Model):
    """How a network of the adversary was trained; see sfumato.attack.saturation.Training.

    Attributes:
        network: which.
        steps, ceiling: that were made, and that could be.
        figure: what was validated on people who were held out; None where nobody could be.
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
    """What one adversary reaches.

    Attributes:
        scores: of each of their classifiers, at least one.
        chance: of the best guess without looking.
        identities: how many people there are to name.
        gallery, probes: photographs that are known, and that are to be named.
        people: how many of the probes show each person, in the order of their names.
        groups: how many releases of one person -> how many such groups of each person's probes there are.
        no_groups: how many -> why there are none.
        linking: labels of two services, where the adversary compares releases with releases.
        faces_found: the share of probes in which a detector found a face.
        verification_auc: of one photograph of the gallery and one probe.
        trained: the networks of theirs that this study trained; none in records of earlier versions.
    """

    scores: Annotated[list[Score], Field(min_length=1)]
    chance: float
    identities: int
    gallery: int | None = None
    probes: int | None = None
    people: tuple[int, ...] | None = None
    groups: dict[int, tuple[int, ...]] | None = None
    no_groups: dict[int, str] = Field(default_factory=dict)
    linking: tuple[Link, ...] = ()
    faces_found: float | None = None
    verification_auc: float | None = None
    trained: tuple[Trained, ...] = ()


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One of each attack."""
    return [Cell("attack", spec, seed, (("attack", attack),)) for attack in attacks_of(config, spec)]


def left_out(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    """Attacks that cannot be made on what is released."""
    if spec == "none" or config.task.sensitive is None:
        return {}
    return not_taken("attack", ATTACKS, config.attacks, spec)


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """What decides the result, beside cell, data and artefacts."""
    return _attack(cell).settings(lab, cell)


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Look for everybody, and count."""
    return _attack(cell).attack(lab, cell)


def _attack(cell: Cell) -> Attack:
    return attack_of(dict(cell.which)["attack"])


KIND = Kind(Result, cells, settings, measure, left_out)
