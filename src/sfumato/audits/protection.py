"""The report of the audit of a protection."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sfumato.audits.findings import Finding, Report, Risk, Table, Verdict
from sfumato.dp.audit import AuditResult, OneRunAudit

PEOPLE = 100
"""Equally likely people in the evidence of a proof: among more, nobody is named more often."""


@dataclass(frozen=True)
class Audited:
    """A protection, the result of its audit, and its guarantee against naming people."""

    spec: str
    result: AuditResult | OneRunAudit
    naming: str  # the guarantee in words
    bounds: Mapping[int, float] = field(default_factory=dict)  # releases -> the most named, if proved


def report(subject: str, audited: Sequence[Audited]) -> Report:
    """Report on all protections of a spec."""
    convicted = [each.spec for each in audited if each.result.convicted]
    unstated = [each.spec for each in audited if each.result.stated is None]
    told = any(each.result.stated is None and each.result.lower > 0 for each in audited)
    sentence = "No fault was found in the stated guarantee: release with it, within that guarantee."
    if unstated:
        apart = ", and neighbouring images are told apart" if told else ""
        sentence = (
            f"No guarantee is stated for {', '.join(unstated)}{apart}: "
            "if you need a proof, use a protection that states one."
        )
    if convicted:
        sentence = f"Do not release with {', '.join(convicted)}: it gives away more than it states. "
        sentence += "Report this as a bug."
    who, guess = f"anybody who chooses among {PEOPLE} equally likely people, by", 1 / PEOPLE
    return Report(
        audit="protection",
        subject=subject,
        sentence=sentence,
        findings=tuple(_finding(number, each) for number, each in enumerate(audited, 1)),
        limits=("An audit can convict a protection; it cannot acquit one.",),
        risks=tuple(  # proofs against naming: no adversary was tried on people
            Risk("singling out", "identity", n, f"{who} {each.spec}", None, guess, proved=p, source="proof")
            for each in audited
            for n, p in each.bounds.items()
        ),
    )


def _finding(number: int, audited: Audited) -> Finding:
    result = audited.result
    verdict: Verdict = "bounded"
    sentence = "Neighbouring images were not told apart better than the guarantee allows."
    if result.stated is None:
        verdict, nearly = ("leaks", "") if result.lower > 0 else ("not shown", "not ")
        sentence = f"It states no guarantee, and neighbouring images were {nearly}told apart."
    if result.convicted:
        verdict, sentence = "leaks", "Neighbouring images can be told apart better than the guarantee allows."
    rows = [("told apart", str(result)), *([("naming", audited.naming)] if audited.naming else [])]
    table = Table(("question", "answer"), tuple(rows))
    figures = {**asdict(result), "spec": audited.spec, "convicted": result.convicted}
    return Finding(f"protection-{number}", audited.spec, verdict, sentence, table, figures=figures)
