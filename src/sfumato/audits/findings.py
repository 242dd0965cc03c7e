"""The findings of an audit, as typed values, with their text and JSON; `page` makes the page."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sfumato.audits.risks import Risk
from sfumato.study.choose.estimates import Estimate, percent

if TYPE_CHECKING:
    from torch import Tensor

Verdict = Literal["leaks", "bounded", "not shown", "above", "below on average", "not measured"]
"""Something leaks; a proof bounds it; or neither was shown, and it may still leak.

With a threshold: an adversary is above it; all are below it, on average over people; nobody tried.
"""


@dataclass(frozen=True)
class Table:
    """Rows of text under headings.

    Attributes:
        columns: the headings.
        rows: each with as many cells.
        caption: one sentence on its content.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """An image with the words that belong to it.

    Attributes:
        image: (C, H, W) uint8 with C of 1 or 3.
        words: its description, such as "came back" or "original".
    """

    image: "Tensor"
    words: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer of an audit.

    Attributes:
        name: a short name for JSON and links, such as "labels".
        title: the heading.
        verdict: see Verdict; None if there is nothing to judge.
        sentence: a sentence that a responsible person can act on.
        table: figures behind the sentence.
        pictures: rows, such as originals above reconstructions; the page shows six of each.
        figures: for JSON: numbers, texts, lists and mappings of them.
    """

    name: str
    title: str
    verdict: Verdict | None = None
    sentence: str
    table: Table | None = None
    pictures: tuple[tuple[Picture, ...], ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """Counts what an audit was given and did not look at.

    Attributes:
        left_out: maps each reason to the number of files, or of parts of files.
        names: maps each reason to the name of the first.
    """

    left_out: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)

    def leave_out(self, reason: str, name: str, number: int = 1) -> None:
        """Count files, or parts of one, for a reason."""
        self.left_out[reason] += number
        self.names.setdefault(reason, name)

    @property
    def words(self) -> str:
        """The numbers, the commonest reasons, and names; empty if all was looked at."""
        if not self.left_out:
            return ""
        few = [f"{n:,} {reason}, such as {self.names[reason]}" for reason, n in self.left_out.most_common(4)]
        more = self.left_out.total() - sum(n for _, n in self.left_out.most_common(4))
        return f"{self.left_out.total():,} were not looked at: {'; '.join(few)}" + (
            f"; {more:,} more" if more else ""
        )

    def findings(self) -> tuple[Finding, ...]:
        """One finding with all reasons; none if all was looked at."""
        if not self.left_out:
            return ()
        rows = tuple((why, f"{n:,}", self.names[why]) for why, n in self.left_out.most_common())
        return (
            Finding(
                name="left-out",
                title="Not looked at",
                verdict="not measured",
                sentence="This report says nothing of them: look at them yourself, or leave them out.",
                table=Table(("reason", "number", "such as"), rows),
                figures=dict(self.left_out),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of an audit.

    Attributes:
        audit: the kind of audit, such as "update".
        subject: the audited object, in words: a file, a spec, a model.
        sentence: the one sentence that everybody can act on.
        findings: in the order of display.
        changes: recommended changes, a sentence each, the most useful first.
        limits: the limits of the audit, a sentence each.
        risks: the figures of an evidence report, if the audit has such.
        origin: what the report is made of and by, each with a name: digests, a date, a version, a command.
    """

    audit: str
    subject: str
    sentence: str
    findings: tuple[Finding, ...]
    changes: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()
    origin: tuple[tuple[str, str], ...] = ()


def interval(rate: Estimate) -> str:
    """A share with its interval, in percent."""
    return f"{percent(rate.value)} ({100 * rate.low:.1f} to {100 * rate.high:.1f})"


def as_text(report: Report) -> str:
    """Format the report for a terminal: its sentence, findings with tables, changes and limits."""
    parts = [f"{report.sentence}\n"]
    for finding in report.findings:
        verdict = f" ({finding.verdict})" if finding.verdict else ""
        parts.append(f"{finding.title}{verdict}: {finding.sentence}")
        if finding.table is not None:
            parts.append(_align(finding.table))
    for heading, sentences in (("What to change", report.changes), ("What this does not say", report.limits)):
        if sentences:
            parts.append("\n".join([f"\n{heading}:", *(f"- {sentence}" for sentence in sentences)]))
    return "\n".join(parts)


def _align(table: Table) -> str:
    lines = (table.columns, *table.rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines
    ]
    return "\n".join(f"  {line.rstrip()}" for line in shown)


def as_json(report: Report) -> dict[str, Any]:
    """Convert the report to JSON for `print_json`, without pictures."""
    findings = [
        {
            "name": finding.name,
            "verdict": finding.verdict,
            "sentence": finding.sentence,
            "table": None if finding.table is None else asdict(finding.table),
            **({"figures": dict(finding.figures)} if finding.figures else {}),
        }
        for finding in report.findings
    ]
    return {
        "audit": report.audit,
        "subject": report.subject,
        "sentence": report.sentence,
        "findings": findings,
        "changes": list(report.changes),
        "limits": list(report.limits),
        **({"risks": [asdict(risk) for risk in report.risks]} if report.risks else {}),
        **({"origin": dict(report.origin)} if report.origin else {}),
    }
