"""The evidence report: measured and proved risks of a release, for a data-protection officer.

It is a Report of findings like that of an audit, so that the page, the text and the JSON are the same code.
It states figures and their limits. Whether they are low enough is a legal question, which it leaves open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

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
        roles=(
            ("Audited", f"{report.subject}. {report.sentence}"),
            ("Recipient", "Not a part of this audit: the controller names it."),
            ("Intruder", f"{_capital('; '.join(dict.fromkeys(risk.adversary for risk in report.risks)))}."),
        ),
        risks=report.risks,
        proof=" ".join(proofs) or "Nothing is proved: other adversaries may find more.",
        untested=tuple((sentence, "a limit of this audit") for sentence in report.limits),
        commands=(command,),
    )


_SUMMARY: dict[Verdict, str] = {
    "above": "Above it for at least one adversary",
    "not shown": "Not shown to be below it",
    "below on average": "Measured below it, on average over people",
    "bounded": "Proved below it, on average over people",
    "not measured": "Not measured",
}


def make_report(case: Case, *, threshold: float = THRESHOLD) -> Report:
    """Judge the risks of a case by a threshold, and list the gaps.

    A risk is below the threshold only if the upper ends of all its intervals are.

    Raises:
        ConfigError: the threshold is not between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise ConfigError(f"--threshold {threshold:g}: between 0 and 1, such as {THRESHOLD}")
    groups: dict[tuple[Kind, int], list[Risk]] = {
        (kind, count): [] for kind in get_args(Kind) for count in RELEASES
    }
    for risk in sorted(case.risks, key=lambda risk: risk.releases):
        groups.setdefault((risk.kind, risk.releases), []).append(risk)
    judged = {key: _judge(risks, threshold) for key, risks in groups.items()}
    findings = (
        Finding(
            name="roles",
            title=clauses.INTRUDER,
            sentence="Nobody is trusted but the device that holds the originals.",
            table=Table(("who", "role and knowledge"), case.roles),
        ),
        _show_all(case.risks, judged, threshold),
        *(_find(kind, case.risks, judged, threshold) for kind in get_args(Kind)),
        Finding(name="proof", title=clauses.PROOF, sentence=case.proof),
        Finding(
            name="utility",
            title=clauses.UTILITY,
            sentence="The use that is left of the releases." if case.utility else "It was not measured.",
            table=Table(("who uses them", "right, with the interval"), case.utility)
            if case.utility
            else None,
        ),
        _list_gaps(case, judged),
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
            f"The threshold is {100 * threshold:g}%. {_summarise(judged)} This report states figures and "
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


class _Judgement(NamedTuple):
    """The verdict on one risk from one number of releases, the reason, and the figure behind it."""

    verdict: Verdict
    reason: str
    figure: str


def _judge(risks: Sequence[Risk], threshold: float) -> _Judgement:
    if not any(risk.rate or risk.proved is not None for risk in risks):
        return _Judgement("not measured", "No figure is recorded. This says nothing about the risk.", "")
    limit, count = f"{100 * threshold:g}%", _count(risks[0].releases)
    measured = [(risk, risk.judged) for risk in risks if risk.judged is not None]
    proved = [risk.proved for risk in risks if risk.proved is not None]
    bound = max(proved) if len(proved) == len(risks) else 1.0
    figure = f"at most {round_up(100 * bound)}%"
    if bound < threshold:
        reason = (
            f"For any adversary a proof keeps the average over people below {limit} from {count}: {figure}."
        )
        return _Judgement("bounded", reason, figure)
    if not measured:
        return _Judgement("not shown", f"No adversary was tried from {count}; proved: {figure}.", figure)
    risk, share = max(measured, key=lambda pair: (pair[1].low >= threshold, pair[1].high))
    figure = _interval(share)
    found = f"{risk.secret}, {figure} from {count}, by the {risk.adversary}"
    if share.low >= threshold:
        return _Judgement("above", f"At least one adversary is above {limit}: {found}.", figure)
    if share.high < threshold:
        reason = f"The highest figure is {found}: its upper end is below {limit}."
        return _Judgement("below on average", reason, figure)
    reason = f"The highest figure is {found}: its interval includes {limit}. More test people decide it."
    return _Judgement("not shown", reason, figure)


_Judged = Mapping[tuple[Kind, int], _Judgement]


def _summarise(judged: _Judged) -> str:
    """Every verdict with the risks and numbers of releases that have it."""
    sentences = []
    for verdict, words in _SUMMARY.items():
        counts: dict[Kind, list[str]] = {}
        for (kind, count), judgement in judged.items():
            if judgement.verdict == verdict:
                counts.setdefault(kind, []).append(str(count))
        parts = [
            f"{kind} from {_join(of_kind)} release{'s' * (of_kind != ['1'])}"
            for kind, of_kind in counts.items()
        ]
        sentences += [f"{words}: {'; '.join(parts)}."] if parts else []
    return " ".join(sentences)


def _join(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)}{' and ' * bool(first)}{last}"


def _show_all(risks: Sequence[Risk], judged: _Judged, threshold: float) -> Finding:
    """One cell for each risk and number of releases."""
    rows = []
    for kind in get_args(Kind):
        cells = [judged[kind, count] for count in RELEASES]
        worst = [risk.worst for risk in risks if risk.kind == kind and risk.worst is not None]
        shown = [f"{each.verdict}{': ' * bool(each.figure)}{each.figure}" for each in cells]
        rows.append((kind, *shown, _share(max(worst, default=None))))
    return Finding(
        name="glance",
        title="At a glance",
        sentence="The highest figure of all adversaries; for inference the share beyond guessing.",
        table=Table(("risk", *(f"from {_count(count)}" for count in RELEASES), "worst person"), tuple(rows)),
        figures={
            "threshold": threshold,
            "verdicts": [
                {"risk": kind, "releases": n, "verdict": j.verdict} for (kind, n), j in judged.items()
            ],
        },
    )


def _find(kind: Kind, risks: Sequence[Risk], judged: _Judged, threshold: float) -> Finding:
    """One of the three risks: the worst verdict of all numbers of releases, its reason, and all figures."""
    mine = sorted((risk for risk in risks if risk.kind == kind), key=lambda risk: risk.releases)
    order = list(_SUMMARY)
    verdict, words, _ = min(
        (each for (of, _), each in judged.items() if of == kind), key=lambda each: order.index(each.verdict)
    )
    known = [(risk.worst, risk.releases) for risk in mine if risk.worst is not None]
    if known:
        worst, count = max(known)
        words += (
            f" For the person at the greatest risk they are right in {percent(worst)} of tries, from "
            f"{_count(count)}{', above the threshold' * (worst >= threshold)}."
        )
    beyond = any(risk.rate != risk.judged for risk in mine)
    if beyond:
        words += (
            " A value that many people have is often guessed, so the threshold applies to the share beyond "
            "the control, (right - control) / (1 - control)."
        )
    return Finding(
        name=kind.replace(" ", "-"),
        title=_capital(kind),
        verdict=verdict,
        sentence=words,
        table=_tabulate(mine, beyond) if mine else None,
    )


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
        "How often each adversary is right, with the 95% interval over people, the widest of all seeds. "
        "Control: a guess. Over half: the share of people for whom they are right in over half of the tries. Proofs "
        "are for the average over people. A dash: not measured, or not proved.",
    )


def _list_gaps(case: Case, judged: _Judged) -> Finding:
    """Every risk and number of releases without a figure, then all that the case names."""
    rows = [
        (f"{_capital(kind)} from {_count(count)}", "no figure")
        for (kind, count), judgement in judged.items()
        if judgement.verdict == "not measured"
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


def _interval(rate: Estimate | None) -> str:
    if rate is None:
        return "–"
    return f"{percent(rate.value)} ({100 * rate.low:.1f}\u00a0to\u00a0{100 * rate.high:.1f})"


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _count(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
