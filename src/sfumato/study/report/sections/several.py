"""What several releases of one person tell: whoever enrols a person has them under one label."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Estimate, Study, several
from sfumato.study.choose.frontier import frontier
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row a protection, a column a number of releases. None where it is not recorded."""
    measured = several(study, records)
    if not measured:
        return None
    protections = [spec for spec in study["protections"] if spec in measured]
    # Of one release what the other sections say of it, interval and all.
    named: dict[str, dict[int, Estimate]] = {spec: dict(each.named) for spec, each in measured.items()}
    for setting in frontier(study, records):
        if setting.risk and 1 in named.get(setting.protection, {}):
            named[setting.protection][1] = setting.risk.top1
    values = {
        "protections": protections,
        "measured": measured,
        "named": named,
        "sizes": sorted({size for each in measured.values() for size in each.named}),
        "sizes_linked": sorted({size for each in measured.values() for size in each.linked}),
    }
    return Section("several", "What several releases of one person tell", "Several releases", values)
