"""The report of the audit of a protection."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sfumato.audits.findings import Finding, Report, Table, Verdict
from sfumato.audits.risks import Risk
from sfumato.dp.audit import AuditResult, OneRunAudit

PEOPLE = 100
"""Equally likely people in the evidence of a proof: among more, nobody is named more often."""


@dataclass(frozen=True)
class Audited:
    """A protection, the result of its audit, and its guarantee against naming people.

    Attributes:
        spec, result: the protection, and its audit.
        naming: the guarantee in words.
        bounds: number of releases -> the most that anybody names among PEOPLE, if something is proved.
    """

    spec: str
    result: AuditResult | OneRunAudit
    naming: str
    bounds: Mapping[int, float] = field(default_factory=dict)


def report(subject: str, audited: Sequence[Audited]) -> Report:
    """Report on all protections of a spec."""
    convicted = [each.spec for each in audited if each.result.convicted]
    unstated = [each.spec for each in audited if each.result.stated is None]
    told = any(each.result.stated is None and each.result.lower > 0 for each in audited)
    apart = ", and neighbouring images are told apart" if told else ""
    if convicted:
        sentence = (
            f"Do not release with {', '.join(convicted)}: it gives away more than it states. "
            "Report this as a bug."
        )
    elif unstated:
        sentence = (
            f"No guarantee is stated for {', '.join(unstated)}{apart}: "
            "if you need a proof, use a protection that states one."
        )
    else:
        sentence = "No fault was found in the stated guarantee: release with it, within that guarantee."
    return Report(
        audit="protection",
        subject=subject,
        sentence=sentence,
        findings=tuple(_finding(number, each) for number, each in enumerate(audited)),
        limits=("An audit can convict a protection; it cannot acquit one.",),
        risks=tuple(risk for each in audited for risk in _risks(each)),
    )


def _risks(audited: Audited) -> list[Risk]:
    """The proofs against naming: no adversary was tried on people."""
    return [
        Risk(
            kind="singling out",
            secret="identity",
            releases=releases,
            adversary=f"anybody who chooses among {PEOPLE} equally likely people, by {audited.spec}",
            rate=None,
            control=1 / PEOPLE,
            proved=bound,
            source="proof",
        )
        for releases, bound in audited.bounds.items()
    ]


def _finding(number: int, audited: Audited) -> Finding:
    result = audited.result
    verdict: Verdict = "bounded" if result.stated is not None else "not shown"
    if result.convicted or (result.stated is None and result.lower > 0):
        verdict = "leaks"
    rows = [("told apart", str(result))]
    if audited.naming:
        rows.append(("naming", audited.naming))
    return Finding(
        name=f"protection-{number + 1}",
        title=audited.spec,
        verdict=verdict,
        sentence=(
            "Neighbouring images can be told apart better than the guarantee allows."
            if result.convicted
            else "Neighbouring images were not told apart better than the guarantee allows."
            if result.stated is not None
            else "It states no guarantee, and neighbouring images were told apart."
        ),
        table=Table(("question", "answer"), tuple(rows)),
        figures={**asdict(result), "spec": audited.spec, "convicted": result.convicted},
    )
