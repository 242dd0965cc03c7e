"""What a release proves, and of how many outputs it is: no photograph is looked at."""

from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Guarantee, Model
from sfumato.study.protocol import Kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

CANDIDATES = (100, 1_000, 10_000, 1_000_000)  # equally likely people, beside as many as the test images show


class Naming(Model):
    """The most that anybody's chance can be to name the person on one release, on average over people."""

    candidates: int
    at_most: float
    source: str | None = None


class Result(Model):
    """What is proved of one release.

    Attributes:
        release: the kind of what is released.
        bytes_per_image: that travel; None where an earlier version recorded none.
        guarantee: None where there is no differential privacy.
        outputs: how many different releases there are; None for too many to count.
        naming: for each number of people; none where nothing is proved.
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
        """The numbers of people that it is asked of."""
        own = [] if self.people is None else [self.people]
        return sorted({*CANDIDATES, *own, *(each.candidates for each in self.naming)})

    @property
    def nothing_among(self) -> int | None:
        """The most people among whom nothing is proved; None where something is of each number.

        Among more people nobody is named more often: what is proved of few holds of many.
        """
        fewest = min((each.candidates for each in self.naming if each.at_most < 1), default=None)
        return max((count for count in self.asked if fewest is None or count < fewest), default=None)


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One of each protection; its seed matters where a network is trained for it."""
    return [Cell("proved", spec, seed)] if seed == config.seeds[0] else []


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """What decides the result, beside cell, data and artefacts."""
    return {"shape": list(lab.test.images.shape[1:]), "people": _people(lab)}


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Ask the protection."""
    from sfumato.protect.naming import bound_naming
    from sfumato.protect.release import kind_of

    protection = lab.protection(cell)
    artefact = lab.artefact_of(cell.protection, cell.seed)
    released = lab.released(cell, lab.test.images[:1])
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
    """How many people there are to name on the test images, where there is somebody to name."""
    sensitive = lab.config.task.sensitive
    return [] if sensitive is None else [len(lab.test.label(sensitive).codes.unique())]


KIND = Kind(Result, cells, settings, measure)
