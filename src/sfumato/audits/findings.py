"""The findings and risks of an audit as typed values, with their text, their JSON and their page."""

import base64
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sfumato import study
from sfumato.assess import identity
from sfumato.base.files import whole
from sfumato.errors import needs_extra
from sfumato.study.choose.figures import Estimate

if TYPE_CHECKING:
    from torch import Tensor

Verdict = Literal["leaks", "bounded", "not shown", "above", "below on average", "not measured"]
"""Something leaks; a proof bounds it; or neither was shown, and it may still leak.

With a threshold: an adversary is above it; all are below it, on average over people; nobody tried.
"""
Kind = Literal["singling out", "linkability", "inference"]
"""The three risks of WP29 Opinion 05/2014, Sec. 3: to find a person, to join records, to learn a value."""
Progress = Callable[[int, int], None]  # called with the numbers of parts done and planned


def quiet(done: int, planned: int) -> None:
    """Report no progress."""


def shown(leaks: bool) -> Verdict:
    """The verdict on an attempt that proves nothing if it fails."""
    return "leaks" if leaks else "not shown"


@dataclass(frozen=True)
class Risk:
    """How often one adversary succeeds, with the control and the proof to compare it with, from 0 to 1."""

    kind: Kind
    secret: str  # the thing that comes out, such as "identity" or "gender"
    releases: int  # of one person, which the adversary has
    adversary: str  # in words
    rate: Estimate | None  # how often they are right; None if there is a proof alone
    control: float  # how often a guess, or the control attack, is right
    _: KW_ONLY
    beyond: bool = False  # a threshold applies to the share beyond the control; of inference it always does
    bits: Estimate | None = None  # of identity, by calibrated probabilities; None if not measured
    surest: Estimate | None = None  # how many of the surest hundredth of answers are right; likewise
    proved: float | None = None  # the most that any adversary can reach; None if nothing is proved
    sure: float | None = None  # the most that anybody can be sure of one of these people, likewise
    people: int | None = None  # tested; None if they were not counted
    images: int | None = None  # likewise
    source: str  # the digest of the record of the figure, or a command

    @property
    def judged(self) -> Estimate | None:
        """The share that a threshold applies to: the rate, or its excess over the control.

        Source of the excess: Giomi et al. 2023 (Anonymeter): (rate - control) / (1 - control).
        """
        if self.rate is None or not (self.beyond or self.kind == "inference"):
            return self.rate
        ends, rest = (self.rate.value, self.rate.low, self.rate.high), max(1e-12, 1 - self.control)
        value, low, high = (max(0.0, (end - self.control) / rest) for end in ends)
        return Estimate(value, low, high, self.rate.seeds)


def calibrate(scores: Sequence[Any], right: Any, people: Any, half: Any = None) -> dict[str, Any]:
    """The bits of identity, and how sure namings are; arguments: see identity.by_person."""
    made = identity.by_person(scores, right, people, half)
    bits = identity.mean_over_people(made["bits"], np.unique(people, return_counts=True)[1].tolist())
    surest = identity.precision(made["surest"], made["surest_of"])
    return {"bits": Estimate(*bits, seeds=1), "surest": Estimate(*surest, seeds=1)}


@dataclass(frozen=True)
class Table:
    """Rows of text under headings, with one sentence on their content."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """An image with the words that belong to it, such as "came back" or "original"."""

    image: "Tensor"  # (C, H, W) uint8 with C of 1 or 3
    words: str


@dataclass(frozen=True)
class Finding:
    """One answer of an audit, in a sentence that a responsible person can act on."""

    name: str  # for JSON and links, such as "labels"
    title: str
    verdict: Verdict | None  # None if there is nothing to judge
    sentence: str
    table: Table | None = None
    pictures: tuple[tuple[Picture, ...], ...] = ()  # rows; the page shows six of each
    figures: Mapping[str, Any] = field(default_factory=dict)  # for JSON


@dataclass
class Outcome:
    """Counts what an audit was given and did not look at."""

    left_out: Counter[str] = field(default_factory=Counter)  # reason -> files, or parts of files
    names: dict[str, str] = field(default_factory=dict)  # reason -> the first

    def leave_out(self, reason: str, name: str, number: int = 1) -> None:
        """Count files, or parts of one, for a reason."""
        self.left_out[reason] += number
        self.names.setdefault(reason, name)

    @property
    def words(self) -> str:
        """The numbers, the commonest reasons, and names; empty if all was looked at."""
        common, total = self.left_out.most_common(4), self.left_out.total()
        few = [f"{n:,} {reason}, such as {self.names[reason]}" for reason, n in common]
        if more := total - sum(n for _, n in common):
            few.append(f"{more:,} more")
        return f"{total:,} were not looked at: {'; '.join(few)}" if few else ""

    def findings(self) -> tuple[Finding, ...]:
        """One finding with all reasons; none if all was looked at."""
        rows = tuple((why, f"{n:,}", self.names[why]) for why, n in self.left_out.most_common())
        words = "This report says nothing of them: look at them yourself, or leave them out."
        table, figures = Table(("reason", "number", "such as"), rows), dict(self.left_out)
        made = Finding("left-out", "Not looked at", "not measured", words, table, figures=figures)
        return (made,) if rows else ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of an audit."""

    audit: str  # its kind, such as "update"
    subject: str  # the audited object, in words: a file, a spec, a model
    sentence: str  # that everybody can act on
    findings: tuple[Finding, ...]  # in the order of display
    changes: tuple[str, ...] = ()  # a sentence each, the most useful first
    limits: tuple[str, ...] = ()  # a sentence each
    risks: tuple[Risk, ...] = ()  # for an evidence report
    origin: tuple[tuple[str, str], ...] = ()  # name -> digest, date, version or command


def as_text(report: Report) -> str:
    """Format the report for a terminal."""
    parts = [f"{report.sentence}\n"]
    for finding in report.findings:
        verdict = f" ({finding.verdict})" if finding.verdict else ""
        parts.append(f"{finding.title}{verdict}: {finding.sentence}")
        if finding.table is not None:
            lines = (finding.table.columns, *finding.table.rows)
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            padded = ([f"{cell:<{size}}" for cell, size in zip(line, widths, strict=True)] for line in lines)
            parts += [f"  {'  '.join(line).rstrip()}" for line in padded]
    for heading, sentences in (("What to change", report.changes), ("What this does not say", report.limits)):
        if sentences:
            parts.append("\n".join([f"\n{heading}:", *(f"- {sentence}" for sentence in sentences)]))
    return "\n".join(parts)


def as_json(report: Report) -> dict[str, Any]:
    """Convert the report to JSON for `print_json`, without pictures."""
    made: dict[str, Any] = {name: getattr(report, name) for name in ("audit", "subject", "sentence")}
    made["findings"] = [
        {name: getattr(each, name) for name in ("name", "verdict", "sentence")}
        | {"table": each.table and asdict(each.table)}
        | ({"figures": dict(each.figures)} if each.figures else {})
        for each in report.findings
    ]
    made |= {"changes": list(report.changes), "limits": list(report.limits)}
    made |= {"risks": [asdict(risk) for risk in report.risks]} if report.risks else {}
    return made | ({"origin": dict(report.origin)} if report.origin else {})


def write_page(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the report as one page, whole or not at all. Raises as `as_page`."""
    with whole(Path(path)) as temporary:
        temporary.write_text(as_page(report), encoding="utf-8", newline="")
    return Path(path)


def as_page(report: Report) -> str:
    """Format the report as one self-contained HTML file: the same report gives the same bytes.

    Raises MissingExtraError: Jinja2 is not installed.
    """
    with needs_extra("a page", "study"):
        import jinja2

    def encode(picture: Picture) -> str:
        from sfumato import images  # with PyTorch, which a report without pictures can do without

        return "data:image/png;base64," + base64.b64encode(images.encode(picture.image)).decode()

    # The style sheet of a study's report is shared.
    folders = [Path(__file__).parent / "templates", Path(study.__file__).parent / "report" / "templates"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["source"] = encode
    return environment.get_template("audit.html").render(report=report)
