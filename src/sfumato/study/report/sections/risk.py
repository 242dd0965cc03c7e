"""Re-identification: how often each adversary is right."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sfumato.study.choose.estimates import OVER_PEOPLE, Risk, Study, belonging, percent, risks
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import (
    DASH,
    MARK,
    Column,
    RecordTable,
    Section,
    Value,
    legend,
    show_estimate,
)
from sfumato.study.vocabulary import ADVERSARY_LOOKS, ATTACKS, IMAGES, VIEWS, AttackWords, release_kind


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A chart per family of several settings, and a table of all; None if no attack is recorded."""
    named = risks(study, records)
    if not named:
        return None
    panels = charts.risk_charts(study, records)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((f"strongest {kind} adversary", look) for kind, look in ADVERSARY_LOOKS.items() if kind in drawn),
        ("static, no protection", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    values = {
        "tried": [attack for attacks in _by_view(named).values() for attack in attacks],
        "table": _table(study, records, named),
        "panels": panels,
        "attack_legend": legend("attack", looks),
    }
    return Section("risk", "Re-identification", "Re-identification", values)


def _by_view(named: Mapping[tuple[str, str], Risk]) -> dict[str, list[AttackWords]]:
    """The views that were attacked, each with its attacks, in the order of the vocabulary."""
    tried = {attack for _, attack in named}
    views = {
        name: [attack for attack in ATTACKS.values() if attack.view == name and attack.name in tried]
        for name in VIEWS
    }
    return {name: attacks for name, attacks in views.items() if attacks}


def _table(study: Study, records: Sequence[Record], named: Mapping[tuple[str, str], Risk]) -> RecordTable:
    """A row for each setting, a column for each attack, and one for faces that a detector found."""
    faces: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in belonging(study, records, "attack"):
        if record.result.faces_found is not None:
            view = ATTACKS[record.cell.attack or ""].view
            faces[record.cell.protection, view].append(record.result.faces_found)
    tops = {spec: max(risk.top1.value for (of, _), risk in named.items() if of == spec) for spec, _ in named}
    only_images = all(release_kind(spec) in IMAGES for spec in study["protections"])
    columns: list[Column] = []
    rows: dict[str, list[Value]] = {spec: [] for spec in study["protections"]}
    for view, attacks in _by_view(named).items():
        heading = VIEWS[view].heading
        heading += " images" if view == "released" and only_images else ""
        detected = view in {seen for _, seen in faces}
        columns += [Column("adaptive" if each.adaptive else "static", group=heading) for each in attacks]
        columns += [Column("faces found", group=heading)] * detected
        for spec, values in rows.items():
            for attack in attacks:
                risk = named.get((spec, attack.name))
                values.append(_value(risk, tops[spec]) if risk else DASH)
            if detected:
                found = faces.get((spec, view))
                values.append(Value(percent(statistics.fmean(found))) if found else DASH)
    chance = " to ".join(sorted({percent(risk.chance) for risk in named.values()}))
    caption = (
        "First guesses that are right, by the best classifier of each adversary; guessing alone: "
        f"{chance}. Small numbers are the {OVER_PEOPLE} in percent. {MARK} marks the strongest "
        "adversary of a row, a dash one who was not tried."
    )
    if any(risk.rising for risk in named.values()):
        caption += (
            " <em>≥</em>: a network of the adversary still gained when its training ended, so that the "
            "figure is a lower bound."
        )
    if faces:
        caption += " <em>Faces found</em> is the share of photographs on which their detector sees a face."
    return RecordTable(
        "Table of re-identification",
        caption,
        columns,
        [list(rows.items())],
        mark="strongest",
        style="attacked",
        name="reidentification",
    )


def _value(risk: Risk, top: float) -> Value:
    return show_estimate(risk.top1, prefix="≥ " if risk.rising else "", marked=risk.top1.value == top)
