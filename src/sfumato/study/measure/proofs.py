"""The proof for a release, and the number of its outputs: it uses no photograph."""

from sfumato.protect.naming import bound_naming
from sfumato.protect.release import kind_of
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.lab.lab import Lab
from sfumato.study.measure.results import CANDIDATES


def _measure(lab: Lab, cell: Cell) -> Facts:
    protection = lab.protection(cell)
    artefact = lab.artefact_of(cell.protection, cell.seed)
    released = lab.release(cell, lab.test.images[:1])
    channels, height, width = lab.test.images.shape[1:]
    people = _people(lab)
    namings = {
        candidates: bound_naming(protection, (channels, height, width), candidates=candidates)
        for candidates in sorted({*CANDIDATES, *people})
    }
    return {
        "release": kind_of(protection),
        "bytes_per_image": released.bytes_per_image,
        "guarantee": lab.guarantee(cell),
        "outputs": getattr(protection, "outputs", None),
        "naming": [
            {"candidates": candidates, "at_most": naming.chance, "source": naming.source}
            for candidates, naming in namings.items()
            if naming.chance < 1
        ],
        "people": next(iter(people), None),
        "artefact": None if artefact is None else artefact.name,
    }


def _people(lab: Lab) -> list[int]:  # how many to name on the test images, if there are any
    sensitive = lab.config.task.sensitive
    return [] if sensitive is None else [len(lab.test.label(sensitive).codes.unique())]


PROVED = Kind(  # one for each protection; its seed matters if a network is trained for it
    lambda config, spec, seed: [Cell("proved", spec, seed)] if seed == config.seeds[0] else [],
    lambda lab, cell: {"shape": list(lab.test.images.shape[1:]), "people": _people(lab)},
    _measure,
)
