"""The guarantees of each setting: against telling images apart, and against naming people."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfumato.dp.guarantee import round_up
from sfumato.dp.naming import ASSUMED, BY_STRENGTH, Assumption
from sfumato.protect.naming import bound_naming, log_rank
from sfumato.study.choose.estimates import Study, belonging, proofs
from sfumato.study.choose.recommend import as_protection, releases_of
from sfumato.study.measure.results import Proved
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section

AMONG = 1_000  # equally likely people, for the proof about many releases
_ANY = (1, 1, 1)  # a shape, on which no recorded value depends


@dataclass(frozen=True)
class Row:
    """The proofs for one protection.

    Attributes:
        protection: its spec.
        proof: as recorded.
        neighbours: how often a judge of two neighbouring images is right, at most; None for no proof.
        whole: the same for any two images.
        naming: number of people -> how often one of them is named correctly, at most; for proved numbers.
        many: the assumption about the study's number of releases of one person -> how often one of AMONG
            people is named, at most; each that proves more than the one before.
        log_rank: the log-rank privacy that no adversary brings one release below, among the people of the
            test images; None for nothing.
        log_rank_of_many: the assumption about the study's number of releases -> the same for all of them;
            each that proves more than the one before.
    """

    protection: str
    proof: Proved
    neighbours: str | None
    whole: str | None
    naming: dict[int, str]
    many: dict[Assumption, str]
    log_rank: str | None
    log_rank_of_many: dict[Assumption, str]


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row for each protection with a recorded proof; None if there is none.

    Studies of earlier versions have no records of proofs about naming, and no such columns.
    """
    recorded = proofs(study, records)
    if not recorded:
        return None
    many = releases_of(study)
    rows = [_row(spec, recorded[spec], many) for spec in study["protections"] if spec in recorded]
    values = {
        "rows": rows,
        "named": bool(named := belonging(study, records, "proved")),
        "candidates": sorted({count for record in named for count in record.result.asked}),
        "judged": any(row.neighbours or row.whole for row in rows),
        "many": many,
        "among": AMONG,
        "assumed": {each: ASSUMED[each] for row in rows for each in (*row.many, *row.log_rank_of_many)},
        "ranked": any(row.log_rank for row in rows),
    }
    return Section("guarantees", "What each setting guarantees", "Guarantees", values)


def _row(spec: str, proof: Proved, many: int) -> Row:
    guarantee = proof.guarantee
    return Row(
        spec,
        proof,
        success_of_judge(guarantee.definition, guarantee.value) if guarantee else None,
        success_of_judge(guarantee.definition, guarantee.whole_image) if guarantee else None,
        {each.candidates: f"{round_up(100 * each.at_most)}%" for each in proof.naming if each.at_most < 1},
        _after_many(proof, many),
        f"{least:.3f}" if (least := _log_rank(proof)) else None,
        _log_rank_of_many(proof, many),
    )


def _after_many(proof: Proved, many: int) -> dict[Assumption, str]:
    def chance(each: Assumption) -> float:
        stated = bound_naming(as_protection(proof), _ANY, candidates=AMONG, releases=many, assuming=each)
        return stated.chance if stated.proves else 1.0

    return {each: f"{round_up(100 * most)}%" for each, most in _stronger(chance, many, nothing=1.0).items()}


def _log_rank_of_many(proof: Proved, many: int) -> dict[Assumption, str]:
    found = _stronger(lambda each: -_log_rank(proof, many, each), many, nothing=0.0)
    return {each: f"{-least:.3f}" for each, least in found.items()}


def _stronger(bound: Callable[[Assumption], float], many: int, *, nothing: float) -> dict[Assumption, float]:
    """The bounds of assumptions about many releases, each below the one before; `nothing` proves nothing."""
    proves: dict[Assumption, float] = {}
    for each in BY_STRENGTH if many > 1 else ():  # the other columns are for one
        if (value := bound(each)) < nothing:
            nothing = proves[each] = value
    return proves


def _log_rank(proof: Proved, releases: int = 1, assuming: Assumption = "none") -> float:
    if proof.people is None or proof.people < 2:
        return 0.0
    least = log_rank(as_protection(proof), _ANY, people=proof.people, releases=releases, assuming=assuming)
    return math.floor(1000 * least) / 1000


def success_of_judge(definition: str | None, value: float | None) -> str | None:
    """How often the best possible judge, shown one release, says correctly which of two images it shows.

    Both images are equally likely beforehand, so that 50% is a coin. With ε-DP it is at most
    e^ε / (1 + e^ε) (Kairouz, Oh & Viswanath 2015), with μ-GDP at most Φ(μ / 2) (Dong, Roth & Su 2022,
    from the trade-off function). Rounded up: a guarantee may be understated, not overstated. None if
    that is 100%, which proves nothing.
    """
    if value is None or definition not in ("pure", "gaussian"):
        return None
    normal = statistics.NormalDist()
    share = 1 / (1 + math.exp(-value)) if definition == "pure" else normal.cdf(value / 2)
    rounded = math.ceil(1000 * share - 1e-9)
    return f"{rounded / 10:.1f}%" if rounded < 1000 else None
