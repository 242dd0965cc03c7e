"""The proof for a release, the number of its outputs, and how rare one is among other people's releases."""

import numpy as np

from sfumato.attack.ensemble import OTHERS
from sfumato.dp.naming.bound import lower_limit
from sfumato.protect.naming import bound_naming
from sfumato.protect.release import kind_of
from sfumato.study.cells import Cell, Facts, Kind
from sfumato.study.lab.lab import Lab
from sfumato.study.measure.results import CANDIDATES
from sfumato.study.vocabulary import attacks_of, release_kind

_FEW = 2**8  # outputs at most, so that people can be expected to share all of them
_DELTA = 0.05  # the chance that an output is rarer than is stated


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
        **(_count_outputs(lab, cell) if _counts(lab, cell) else {}),
    }


def _people(lab: Lab) -> list[int]:  # how many to name on the test images, if there are any
    sensitive = lab.config.task.sensitive
    return [] if sensitive is None else [len(lab.test.label(sensitive).codes.unique())]


def _counts(lab: Lab, cell: Cell) -> bool:
    few = release_kind(cell.protection) in ("bits", "answer")
    return few and bool(attacks_of(lab.config, cell.protection))


def _count_outputs(lab: Lab, cell: Cell) -> Facts:
    """How rare the rarest output is among releases of other people, one of each, if there are few outputs."""
    protection, others = lab.protection(cell), lab.adversaries.others
    outputs: int = getattr(protection, "outputs", None) or _FEW + 1  # too many to count
    if outputs > _FEW:
        return {}
    first = np.unique(others.label(lab.adversaries.sensitive).codes.numpy(), return_index=True)[1]
    vectors = lab.release(cell, others.images[first], OTHERS).vectors().numpy()
    counts = np.unique(vectors, axis=0, return_counts=True)[1]
    least = int(counts.min()) if len(counts) == outputs else 0
    shared = lower_limit(least, len(first), alpha=_DELTA / outputs)
    # Of one image: the noise alone makes every output at least and at most this likely.
    law = protection.laws(np.eye(1, outputs)) if hasattr(protection, "laws") else np.eye(1, outputs)
    ends = {"rarest": max(float(law.min()), shared), "likeliest": float(law.max())}
    return {**ends, "reference": len(first)}


def _settings(lab: Lab, cell: Cell) -> Facts:
    decided = {"others": lab.config.adversary.others, "seen": lab.data.digest} if _counts(lab, cell) else {}
    return {"shape": list(lab.test.images.shape[1:]), "people": _people(lab), **decided}


PROVED = Kind(  # one for each protection; its seed matters if a network is trained for it
    lambda config, spec, seed: [Cell("proved", spec, seed)] if seed == config.seeds[0] else [],
    _settings,
    _measure,
)
