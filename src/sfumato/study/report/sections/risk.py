"""Re-identification: how often each adversary is right."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.study.choose.estimates import Risk, Study, belonging, percent, risks
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend
from sfumato.study.vocabulary import ADVERSARY_LOOKS, ATTACKS, IMAGES, VIEWS, AttackWords, View, release_kind


@dataclass(frozen=True)
class Column:
    """What is looked at, and the attacks on it that ran.

    Attributes:
        view: what is looked at.
        heading: in words.
        attacks: in the order of the vocabulary.
        detected: whether it is recorded how often a detector found the faces.
    """

    view: View
    heading: str
    attacks: list[AttackWords]
    detected: bool


@dataclass(frozen=True)
class Reidentification:
    """The table of re-identification: a row a protection, a column an attack that ran.

    Attributes:
        columns: in the order of VIEWS.
        risks: (protection, attack) -> its risk.
        strongest: (protection, attack) of the strongest of each row; all of them where several are equal.
        faces: (protection, view) -> the share of photographs on which the detector found a face.
        chance: how often pure guessing is right, in words.
    """

    columns: list[Column]
    risks: dict[tuple[str, str], Risk]
    strongest: set[tuple[str, str]]
    faces: dict[tuple[str, str], float]
    chance: str

    @property
    def rising(self) -> bool:
        """Whether a figure of the table is a lower bound."""
        return any(risk.rising for risk in self.risks.values())

    @property
    def attacks(self) -> list[AttackWords]:
        """The attacks that ran, view by view."""
        return [attack for column in self.columns for attack in column.attacks]


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A chart a family of several settings, and a table of all; None where no attack is recorded."""
    table = _table(study, records)
    if table is None:
        return None
    panels = charts.risk_charts(study, records)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((f"strongest {kind} adversary", look) for kind, look in ADVERSARY_LOOKS.items() if kind in drawn),
        ("static, no protection", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    values = {
        "table": table,
        "panels": panels,
        "attack_legend": legend("attack", looks),
    }
    return Section("risk", "Re-identification", "Re-identification", values)


def _table(study: Study, records: Sequence[Record]) -> Reidentification | None:
    measured = risks(study, records)
    if not measured:
        return None
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in belonging(study, records, "attack"):
        share = record.result.faces_found
        if share is not None:
            shares[record.cell.protection, ATTACKS[record.cell.attack or ""].view].append(share)
    tops: dict[str, float] = defaultdict(float)
    for (spec, _), risk in measured.items():
        tops[spec] = max(tops[spec], risk.top1.value)
    tried = {attack for _, attack in measured}
    only_images = all(release_kind(spec) in IMAGES for spec in study["protections"])
    columns = [
        Column(
            view,
            f"{view.heading} images" if view.name == "released" and only_images else view.heading,
            [attack for attack in ATTACKS.values() if attack.view == view.name and attack.name in tried],
            view.name in {seen for _, seen in shares},
        )
        for view in VIEWS.values()
    ]
    return Reidentification(
        columns=[column for column in columns if column.attacks],
        risks=measured,
        strongest={key for key, risk in measured.items() if risk.top1.value == tops[key[0]]},
        faces={key: statistics.fmean(values) for key, values in shares.items()},
        chance=" to ".join(sorted({percent(risk.chance) for risk in measured.values()})),
    )
