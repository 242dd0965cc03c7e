"""Log-rank privacy of numbers and bits: with a feature's accuracy, a point of its curve.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Procedure 2: one trained feature serves all noise.
"""

from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds.common import Model
from sfumato.study.protocol import Kind
from sfumato.study.vocabulary import BITS, NUMBERS, release_kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

_TAKES = (NUMBERS, BITS)


class Result(Model):
    """The privacy against the strongest of three adversaries, and the accuracy of the target.

    Attributes:
        lrp, low, high: log-rank privacy, with its 95% interval over people; see assess.log_rank.LogRank.
        guessing: that of blind guessing.
        strongest: the adversary.
        features, identities: releases to name, and people to choose from.
        images, chance: test images for the accuracy, and the share of their commonest class.
        accuracy: how often the feature's own classifier is right; None for codes, which have none.
    """

    lrp: float
    low: float
    high: float
    guessing: float
    strongest: str
    features: int
    identities: int
    images: int
    chance: float
    accuracy: float | None = None


def cells(config: "StudyConfig", spec: str, seed: int) -> list[Cell]:
    """One for each protection that releases numbers or bits, if the study asks for it."""
    return [Cell("log-rank", spec, seed)] if config.log_rank and release_kind(spec) in _TAKES else []


def find_omissions(config: "StudyConfig", spec: str) -> dict[str, tuple[str, ...]]:
    """Releases whose values are no numbers to rank people by."""
    taken = spec == "none" or release_kind(spec) in _TAKES
    return {} if taken or not config.log_rank else {"log-rank privacy": _TAKES}


def settings(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The settings that decide the result, besides cell, data and artefacts."""
    task, adversary = lab.config.task, lab.config.adversary
    return {
        "log-rank": 1,
        "task": [task.target, task.classes, task.sensitive],
        "known": [adversary.gallery, adversary.probes, adversary.copies],
    }


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """Ranks the people on test images, and asks the feature's classifier for the target."""
    from sfumato.protect import parse
    from sfumato.study.lab.ranks import RankConfig, attribute_accuracies, rank_privacy

    task, protection = lab.config.task, parse(lab.protection(cell).spec, takes=_TAKES)
    gallery, probes, copies = settings(lab, cell)["known"]
    known = RankConfig(known=gallery, asked=probes, least=min(4, gallery), copies=copies, seed=cell.seed)
    people = lab.test.label(str(task.sensitive)).codes
    ranked = rank_privacy(protection, lab.test.images, people, known)
    worst = ranked.adversaries[ranked.strongest]
    codes = lab.asked.label(task.target).codes
    return {
        **{
            name: getattr(worst, name)
            for name in ("lrp", "low", "high", "guessing", "features", "identities")
        },
        "strongest": ranked.strongest,
        "images": len(codes),
        "chance": int(codes.bincount().max()) / len(codes),
        "accuracy": attribute_accuracies(protection, lab.asked, cell.seed).get(task.target),
    }


KIND = Kind(Result, cells, settings, measure, find_omissions)
