"""The proof for a release, and the number of its outputs: it uses no photograph."""

from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Guarantee, Model
from sfumato.study.protocol import Kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

CANDIDATES = (100, 1_000, 10_000, 1_000_000)  # equally likely people, besides those on the test images


class Naming(Model):
    """A bound on anybody's chance to name the person on one release, on average over people."""

    candidates: int
    at_most: float
    source: str | None = None


class Result(Model):
    """The proof for one release.

    Attributes:
        release: its kind.
        bytes_per_image: that travel; None if an earlier version recorded none.
        guarantee: None without differential privacy.
        outputs: how many different releases there are; None for too many to count.
        naming: for each number of people; none without a proof.
        people: how many the test images show; None in records of earlier versions.
        artefact: the name of the file of a protection that the study trained; None for others.
    """

    release: str
    bytes_per_image: int | None
    guarantee: Guarantee | None = None
    outputs: int | None = None
    naming: tuple[Naming, ...] = ()
    people: int | None = None
    artefact: str | None = None

    @property
    def asked(self) -> list[int]:
        """The numbers of people to bound it for."""
        own = [] if self.people is None else [self.people]
        return sorted({*CANDIDATES, *own, *(each.candidates for each in self.naming)})

    @property
    def nothing_among(self) -> int | None:
        """The most people for whom nothing is proved; None if something is for each number.

        Among more people nobody is named more often: a proof for few holds for many.
        """
        fewest = min((each.candidates for each in self.naming if each.at_most < 1), default=None)
        return max((count for count in self.asked if fewest is None or count < fewest), default=None)


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each protection; its seed matters if a network is trained for it."""
    return [Cell("proved", spec, seed)] if seed == config.seeds[0] else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    return {"shape": list(lab.test.images.shape[1:]), "people": _people(lab)}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Computes the bounds from the protection."""
    from sfumato.protect.naming import bound_naming
    from sfumato.protect.release import kind_of

    protection = lab.protection(cell)
    artefact = lab.artefact_of(cell.protection, cell.seed)
    released = lab.release(cell, lab.test.images[:1])
    channels, height, width = lab.test.images.shape[1:]
    shape = (channels, height, width)
    among = sorted({*CANDIDATES, *_people(lab)})
    namings = [(candidates, bound_naming(protection, shape, candidates=candidates)) for candidates in among]
    return {
        "release": kind_of(protection),
        "bytes_per_image": released.bytes_per_image,
        "guarantee": lab.guarantee(cell),
        "outputs": getattr(protection, "outputs", None),
        "naming": [
            {"candidates": candidates, "at_most": naming.chance, "source": naming.source}
            for candidates, naming in namings
            if naming.chance < 1
        ],
        "people": next(iter(_people(lab)), None),
        "artefact": None if artefact is None else artefact.name,
    }


def _people(lab: "Lab") -> list[int]:
    """The number of people to name on the test images, if there are any."""
    sensitive = lab.config.task.sensitive
    return [] if sensitive is None else [len(lab.test.label(sensitive).codes.unique())]


KIND = Kind(Result, cells, settings, measure)
