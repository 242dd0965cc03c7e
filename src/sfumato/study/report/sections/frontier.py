"""Privacy and utility: every setting, its cost and its worth."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Estimate, Study, risks
from sfumato.study.choose.frontier import frontier
from sfumato.study.choose.recommend import recommend
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.answers import states_a_half
from sfumato.study.report.sections.section import Section, legend
from sfumato.study.vocabulary import ATTACKS


def section(study: Study, records: Sequence[Record]) -> Section:
    """The frontier, in charts and as a table; and the settings it leaves out.

    If the secret is the task, static and adaptive adversaries are apart.
    """
    adversaries: dict[str, tuple[str, Sequence[str]]] = {
        "strongest": ("Best accuracy against strongest re-identification", list(ATTACKS))
    }
    if study["task"].get("secret_is_task"):
        adversaries = {
            "static": (
                "Against static adversaries",
                [name for name in ATTACKS if not ATTACKS[name].adaptive],
            ),
            "adaptive": (
                "Against adaptive adversaries",
                [name for name in ATTACKS if ATTACKS[name].adaptive],
            ),
        }
    advice = recommend(study, records)
    drawn = [
        charts.frontier_chart(
            study, frontier(study, records, attacks), advice, name=f"frontier {name}", title=title
        )
        for name, (title, attacks) in adversaries.items()
    ]
    looks = charts.looks(study)
    families = [(family.legend, looks[family.name]) for family in charts.families(study)]
    title = "Privacy and utility" if study["task"].get("sensitive") else "Utility"
    values = {
        "fronts": [chart for chart in drawn if chart],
        "settings": frontier(study, records),
        "strongest_of": {
            name: _strongest_of(study, records, attacks) for name, (_, attacks) in adversaries.items()
        },
        "family_legend": legend("family", [("no protection", looks["none"]), *families]),
        "left_out": study.get("left_out") or [],
        "of_all": states_a_half(advice),
    }
    return Section("frontier", title, title, values)


def _strongest_of(
    study: Study, records: Sequence[Record], attacks: Sequence[str]
) -> dict[str, Estimate | None]:
    """Protection -> the strongest of these attacks on it; None if none of them ran."""
    measured = risks(study, records)
    tops = {
        spec: [measured[spec, attack].top1 for attack in attacks if (spec, attack) in measured]
        for spec in study["protections"]
    }
    return {spec: max(ran, key=lambda top: top.value, default=None) for spec, ran in tops.items()}
