"""The evidence report: measured and proved risks of a release, for a data-protection officer.

It is a Report of findings like that of an audit, so that the page, the text and the JSON are the same code.
It states figures and their limits. Whether they are low enough is a legal question, which it leaves open.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import get_args

from sfumato.audits import clauses
from sfumato.audits.findings import Finding, Report, Table, Verdict
from sfumato.audits.risks import Kind, Risk
from sfumato.dp.guarantee import round_up
from sfumato.errors import ConfigError
from sfumato.study.choose.estimates import Estimate, percent

THRESHOLD = 0.09
"""The probability of re-identification that EMA Policy 0070 and Health Canada (PRCI) accept, 1 in 11."""

RELEASES = (1, 10, 100)  # of one person, of which each risk is wanted


@dataclass(frozen=True, kw_only=True)
class Case:
    """The content of an evidence report.

    Attributes:
        subject: the release, in words.
        roles: who takes part, and the knowledge of each.
        risks: all figures.
        proof: a sentence.
        utility: who uses the releases, and how often they are right.
        untested: parts that were not tested, and why.
        commands: that make the report again.
        digests: of files and records, by their names.
    """

    subject: str
    roles: tuple[tuple[str, str], ...]
    risks: tuple[Risk, ...]
    proof: str
    utility: tuple[tuple[str, str], ...] = ()
    untested: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...]
    digests: tuple[tuple[str, str], ...] = ()


def of_audit(report: Report, *, command: str) -> Case:
    """The case of an audit that measured risks.

    Raises:
        ConfigError: it measured none.
    """
    if not report.risks:
        raise ConfigError(
            f"--for dpo: this audit of {report.subject} measured no risk to report: leave the option out, "
            "or make a study: sfumato study report RUN --for dpo"
        )
    proofs = [finding.sentence for finding in report.findings if finding.verdict == "bounded"]
    return Case(
        subject=report.subject,
        roles=(("Audited", f"{report.subject}. {report.sentence}"),),
        risks=report.risks,
        proof=" ".join(proofs) or "Nothing is proved: other adversaries may find more.",
        untested=tuple((sentence, "a limit of this audit") for sentence in report.limits),
        commands=(command,),
    )


_SUMMARY: dict[Verdict, str] = {
    "above": "Above it for at least one adversary",
    "not shown": "Not shown to be below it",
    "not measured": "Not measured",
    "below on average": "Measured below it, on average over people",
    "bounded": "Proved below it, on average over people",
}


def make_report(case: Case, *, threshold: float = THRESHOLD) -> Report:
    """Judge the risks of a case by a threshold, and list the gaps.

    A risk is below the threshold only if the upper ends of all its intervals are.

    Raises:
        ConfigError: the threshold is not between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise ConfigError(f"--threshold {threshold:g}: between 0 and 1, such as {THRESHOLD}")
    judged = [_judge(kind, case.risks, threshold) for kind in get_args(Kind)]
    summary = [
        f"{words}: {'; '.join(titles)}."
        for verdict, words in _SUMMARY.items()
        if (titles := [f"{each.title.lower()}{_from(each)}" for each in judged if each.verdict == verdict])
    ]
    findings = (
        Finding(
            name="roles",
            title=clauses.INTRUDER,
            sentence="The device that holds the original images is trusted; nobody else is.",
            table=Table(("who", "role and knowledge"), case.roles),
        ),
        *judged,
        Finding(name="proof", title=clauses.PROOF, sentence=case.proof),
        Finding(
            name="utility",
            title=clauses.UTILITY,
            sentence="The use that is left of the releases." if case.utility else "It was not measured.",
            table=Table(("who uses them", "right, with the interval"), case.utility)
            if case.utility
            else None,
        ),
        _list_gaps(case),
        Finding(
            name="clauses",
            title="Which figure answers which question",
            sentence="The questions are in our words. The table finds figures; it claims no conformity.",
            table=Table(("text", "asks for", "answered in"), tuple(map(tuple, clauses.CLAUSES))),
        ),
        Finding(
            name="repeating",
            title=clauses.REPEATING,
            sentence="Repeat it when the protection, the data or the known attacks change. The commands:",
            table=Table(
                ("part", "command or SHA-256"),
                (*(("command", command) for command in case.commands), *case.digests),
            ),
        ),
    )
    return Report(
        audit="evidence",
        subject=case.subject,
        sentence=(
            f"The threshold is {100 * threshold:g}%. {' '.join(summary)} This report states figures and "
            "gives no legal opinion: the controller decides if the releases are still personal data."
        ),
        findings=findings,
        limits=(
            "An adversary whom nobody has thought of yet may find more, up to the proof.",
            "The figures hold for these people, these images and these adversaries; other data give others.",
            "The worst of many people is partly bad luck: with few tries for each person it looks too high.",
        ),
        risks=case.risks,
    )


def _judge(kind: Kind, risks: Sequence[Risk], threshold: float) -> Finding:
    """One of the three risks: its verdict, the sentence behind it, and all figures."""
    mine = [risk for risk in risks if risk.kind == kind]
    title = _capital(kind)
    if not mine:
        return Finding(
            name=kind.replace(" ", "-"),
            title=title,
            verdict="not measured",
            sentence="No figure is recorded. This says nothing about the risk.",
        )
    verdict, words = _compare(mine, threshold)
    worst = max(
        (risk for risk in mine if risk.worst is not None), key=lambda risk: risk.worst or 0, default=None
    )
    if worst is not None and worst.worst is not None:
        words += (
            f" For the person at the greatest risk they are right in {percent(worst.worst)} of tries, from "
            f"{_count(worst.releases)}{', which is above it' * (worst.worst >= threshold)}."
        )
    beyond = any(risk.rate != risk.judged for risk in mine)
    if beyond:
        words += (
            " A value that many people have is often guessed, so the threshold applies to the share beyond "
            "the control, (right - control) / (1 - control)."
        )
    return Finding(
        name=kind.replace(" ", "-"),
        title=title,
        verdict=verdict,
        sentence=words,
        table=_tabulate(mine, beyond),
        figures={"threshold": threshold, "risks": [asdict(risk) for risk in mine]},
    )


def _compare(risks: Sequence[Risk], threshold: float) -> tuple[Verdict, str]:
    """The verdict on risks of one kind, and its reason."""
    limit = f"{100 * threshold:g}%"
    measured = [(risk, risk.judged) for risk in risks if risk.judged is not None]
    proved = [risk.proved for risk in risks]
    if all(bound is not None and bound < threshold for bound in proved):
        return "bounded", f"A proof keeps the average over people below {limit}, for any adversary."
    if not measured:
        return "not shown", f"No adversary was tried, and no proof keeps it below {limit}."
    risk, highest = max(measured, key=lambda pair: pair[1].high)
    found = _describe(risk, highest)
    if highest.high < threshold:
        return "below on average", f"The highest figure is {found}: its upper end is below {limit}."
    above = [pair for pair in measured if pair[1].low >= threshold]
    if above:
        found = _describe(*max(above, key=lambda pair: pair[1].low))
        return "above", f"At least one adversary is above {limit}: {found}."
    return (
        "not shown",
        f"The highest figure is {found}: its interval includes {limit}. More people decide it.",
    )


def _from(finding: Finding) -> str:
    """The numbers of releases behind a finding, such as " from 1, 10 and 100 releases"; "" for none."""
    counts = sorted({risk["releases"] for risk in finding.figures.get("risks", ())})
    if not counts:
        return ""
    *first, last = map(str, counts)
    return f" from {', '.join(first)}{' and ' * bool(first)}{last} release{'s' * (counts != [1])}"


def _tabulate(risks: Sequence[Risk], beyond: bool) -> Table:
    rows = [
        (
            str(risk.releases),
            f"{risk.secret}: {risk.adversary}",
            _interval(risk.rate),
            *([_interval(risk.judged)] if beyond else []),
            percent(risk.control),
            _share(risk.worst),
            _share(risk.named_often),
            "–" if risk.proved is None else f"{round_up(100 * risk.proved)}%",
            "–" if risk.people is None else f"{risk.people:,}",
            risk.source,
        )
        for risk in risks
    ]
    columns = (
        *("releases", "secret and adversary", "right", *(["beyond control"] if beyond else [])),
        *("control", "worst person", "over half", "proved at most", "people", "source"),
    )
    return Table(
        columns,
        tuple(rows),
        "How often each adversary is right, with the 95% interval, or the widest of several seeds. Control: "
        "a guess. Over half: the share of people for whom they are right in over half of the tries. Proofs "
        "are for the average over people. A dash: not measured, or not proved.",
    )


def _list_gaps(case: Case) -> Finding:
    """Every risk and number of releases without a figure, then all that the case names."""
    found = {(each.kind, each.releases) for each in case.risks if each.rate or each.proved is not None}
    rows = [
        (f"{_capital(kind)} from {_count(releases)}", "no figure")
        for kind in get_args(Kind)
        for releases in RELEASES
        if (kind, releases) not in found
    ]
    rows += case.untested
    rows += [
        ("People who know the person, or have other photographs of them", "needs people: sfumato annotate"),
        ("Times, places, devices and accounts that travel with a release", "depends on the service"),
        ("Searches of the internet and inquiries", "no public source is asked"),
    ]
    return Finding(
        name="untested",
        title=clauses.UNTESTED,
        sentence="A risk that was not tested may be large.",
        table=Table(("part", "reason"), tuple(rows)),
    )


def _describe(risk: Risk, judged: Estimate) -> str:
    return f"{risk.secret}, {_interval(judged)} from {_count(risk.releases)}, by the {risk.adversary}"


def _interval(estimate: Estimate | None) -> str:
    return (
        "–"
        if estimate is None
        else f"{percent(estimate.value)} ({100 * estimate.low:.1f}\u00a0to\u00a0{100 * estimate.high:.1f})"
    )


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _count(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
