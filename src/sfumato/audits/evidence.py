"""The evidence report: measured and proved risks of a release, for a data-protection officer.

It states figures and their limits. Whether they are low enough is a legal question, which it leaves open.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sfumato.audits.findings import Finding, Kind, Report, Risk, Table, Verdict, interval
from sfumato.dp.guarantee import round_up
from sfumato.errors import ConfigError
from sfumato.study.choose.results import percent

THRESHOLD = 0.09
"""The probability of re-identification that EMA Policy 0070 and Health Canada (PRCI) accept, 1 in 11."""

RELEASES = (1, 10, 100)  # of one person, of which each risk is wanted

_KINDS: tuple[Kind, ...] = get_args(Kind)
_CLAUSES = Path(__file__).parent / "templates" / "clauses.csv"  # questions of regulators, in our words
_SUMMARY: dict[Verdict, str] = {  # the worst first
    "above": "Above it for at least one adversary",
    "not shown": "Not shown to be below it",
    "below on average": "Measured below it, on average over people",
    "bounded": "Proved below it, on average over people",
    "not measured": "Not measured",
}
_UNTESTED = (
    ("People who know the person, or have other photographs of them", "needs people: sfumato annotate"),
    ("Times, places, devices and accounts that travel with a release", "depends on the service"),
    ("Searches of the internet and inquiries", "no public source is asked"),
)
_LIMITS = (
    "An adversary whom nobody has thought of yet may find more, up to the proof.",
    "The figures hold for these people, these images and these adversaries; other data give others.",
    "The worst of many people is partly bad luck: with few tries for each person it looks too high.",
)
_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """The content of an evidence report."""

    subject: str  # the release, in words
    roles: _Pairs  # who takes part, and the knowledge of each
    risks: tuple[Risk, ...]
    proof: str  # a sentence
    utility: _Pairs = ()  # who uses the releases, and how often they are right
    untested: _Pairs = ()  # parts that were not tested, and why
    origin: _Pairs  # commands that make the report again, and digests of files and records by their names


def of_audit(report: Report) -> Case:
    """The case of an audit that measured risks. Raises ConfigError: it measured none."""
    if not report.risks:
        raise ConfigError(
            f"--for dpo: this audit of {report.subject} measured no risk to report: leave the option out, "
            "or make a study: sfumato study report RUN --for dpo"
        )
    proofs = [finding.sentence for finding in report.findings if finding.verdict == "bounded"]
    intruders = "; ".join(dict.fromkeys(risk.adversary for risk in report.risks))
    return Case(
        subject=report.subject,
        roles=(
            ("Audited", f"{report.subject}. {report.sentence}"),
            ("Recipient", "Not a part of this audit: the controller names it."),
            ("Intruder", f"{_capital(intruders)}."),
        ),
        risks=report.risks,
        proof=" ".join(proofs) or "Nothing is proved: other adversaries may find more.",
        untested=tuple((sentence, "a limit of this audit") for sentence in report.limits),
        origin=report.origin,
    )


class _Judgement(NamedTuple):
    """The verdict on one risk from one number of releases, the reason, and the figure behind it."""

    verdict: Verdict
    reason: str
    figure: str = ""


_Judged = Mapping[tuple[Kind, int], _Judgement]


def make_report(case: Case, *, threshold: float = THRESHOLD) -> Report:
    """Judge the risks of a case by a threshold, and list the gaps.

    A risk is below the threshold only if the upper ends of all its intervals are.

    Raises ConfigError: the threshold is not between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise ConfigError(f"--threshold {threshold:g}: between 0 and 1, such as {THRESHOLD}")
    counts = sorted({*RELEASES, *(risk.releases for risk in case.risks)})
    judged = {
        (kind, n): _judge([each for each in case.risks if (each.kind, each.releases) == (kind, n)], threshold)
        for kind in _KINDS
        for n in counts
    }
    missing = [key for key, each in judged.items() if each.verdict == "not measured"]
    gaps = [(f"{_capital(kind)} from {_count(n)}", "no figure") for kind, n in missing]
    with _CLAUSES.open(encoding="utf-8", newline="") as file:
        heading, *clauses = csv.reader(file)
    first = "Nobody is trusted but the device that holds the originals."
    use = "The use that is left of the releases." if case.utility else "It was not measured."
    ask = "The questions are in our words. The table finds figures; it claims no conformity."
    repeat = "Repeat it when the protection, the data or the known attacks change."
    untested = (*gaps, *case.untested, *_UNTESTED)
    sentence = (
        f"The threshold is {100 * threshold:g}%. {_summarise(judged)} This report states figures and "
        "gives no legal opinion: the controller decides if the releases are still personal data."
    )
    findings = (
        _section("Recipient and intruder", first, ("who", "role and knowledge"), case.roles),
        _show_all(case.risks, judged),
        *(_find(kind, case.risks, judged, threshold) for kind in _KINDS),
        _section("Proof", case.proof),
        _section("Utility", use, ("who uses them", "right, with the interval"), case.utility),
        _section("Not tested", "A risk that was not tested may be large.", ("part", "reason"), untested),
        _section("Which figure answers which question", ask, heading, clauses),
        _section("How to repeat it", repeat, ("part", "command or SHA-256"), case.origin),
    )
    more: dict[str, Any] = {"findings": findings, "limits": _LIMITS, "risks": case.risks}
    return Report(audit="evidence", subject=case.subject, sentence=sentence, **more)


def _section(
    title: str, sentence: str, columns: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()
) -> Finding:
    table = Table(tuple(columns), tuple(map(tuple, rows))) if rows else None
    return Finding(_name(title), title, None, sentence, table)


def _judge(risks: Sequence[Risk], threshold: float) -> _Judgement:
    measured = [(risk, risk.judged) for risk in risks if risk.judged is not None]
    proved = [risk.proved for risk in risks if risk.proved is not None]
    if not measured and not proved:
        return _Judgement("not measured", "No figure is recorded. This says nothing about the risk.")
    limit, count = f"{100 * threshold:g}%", _count(risks[0].releases)
    bound = max(proved) if len(proved) == len(risks) else 1.0
    figure = f"at most {round_up(100 * bound)}%"
    if bound < threshold:
        reason = f"A proof keeps the average over people below {limit} from {count}, for anybody: {figure}."
        return _Judgement("bounded", reason, figure)
    if not measured:
        return _Judgement("not shown", f"No adversary was tried from {count}; proved: {figure}.", figure)
    risk, share = max(measured, key=lambda pair: (pair[1].low >= threshold, pair[1].high))
    figure = interval(share)
    found = f"{risk.secret}, {figure} from {count}, by the {risk.adversary}"
    if share.low >= threshold:
        return _Judgement("above", f"At least one adversary is above {limit}: {found}.", figure)
    found = f"The highest figure is {found}"
    if share.high < threshold:
        return _Judgement("below on average", f"{found}: its upper end is below {limit}.", figure)
    reason = f"{found}: its interval includes {limit}. More test people decide it."
    return _Judgement("not shown", reason, figure)


def _summarise(judged: _Judged) -> str:
    """Every verdict with the risks and numbers of releases that have it, and their figures."""
    sentences = []
    for verdict, words in _SUMMARY.items():
        parts: dict[Kind, str] = {}
        for (kind, n), each in judged.items():
            if each.verdict == verdict:
                begun = f"{parts[kind]}, " if kind in parts else f"{kind} "
                parts[kind] = begun + _join(f"from {_count(n)}", each.figure)
        sentences += [f"{words}: {'; '.join(parts.values())}."] if parts else []
    return " ".join(sentences)


def _show_all(risks: Sequence[Risk], judged: _Judged) -> Finding:
    """One cell for each risk and number of releases."""
    rows = []
    for kind in _KINDS:
        worst = [risk.worst for risk in risks if risk.kind == kind and risk.worst is not None]
        cells = (_join(judged[kind, n].verdict, judged[kind, n].figure) for n in RELEASES)
        rows.append((kind, *cells, _show(percent, max(worst, default=None))))
    sentence = "The highest figure of all adversaries; for inference the share beyond guessing."
    columns = ("risk", *(f"from {_count(n)}" for n in RELEASES), "worst person")
    return _section("At a glance", sentence, columns, rows)


def _find(kind: Kind, risks: Sequence[Risk], judged: _Judged, threshold: float) -> Finding:
    """One of the three risks: the worst verdict of all numbers of releases, its reason, and all figures."""
    mine = sorted((risk for risk in risks if risk.kind == kind), key=lambda risk: risk.releases)
    worst_first, verdicts = list(_SUMMARY), {n: each for (of, n), each in judged.items() if of == kind}
    verdict, words, _ = min(verdicts.values(), key=lambda each: worst_first.index(each.verdict))
    if known := [(risk.worst, risk.releases) for risk in mine if risk.worst is not None]:
        worst, count = max(known)
        above = ", above the threshold" * (worst >= threshold)
        words += f" For the person at the greatest risk they are right in {percent(worst)} of tries, "
        words += f"from {_count(count)}{above}."
    if beyond := any(risk.rate != risk.judged for risk in mine):
        words += " A value that many people have is often guessed, so the threshold applies to the share "
        words += "beyond the control, (right - control) / (1 - control)."
    table = _tabulate(mine, beyond) if mine else None
    figures = {"threshold": threshold, "verdicts": {str(n): each.verdict for n, each in verdicts.items()}}
    return Finding(_name(kind), _capital(kind), verdict, words, table, figures=figures)


def _tabulate(risks: Sequence[Risk], beyond: bool) -> Table:
    columns: dict[str, Callable[[Risk], str]] = {
        "releases": lambda risk: str(risk.releases),
        "secret and adversary": lambda risk: f"{risk.secret}: {risk.adversary}",
        "right": lambda risk: _show(interval, risk.rate),
        **({"beyond control": lambda risk: _show(interval, risk.judged)} if beyond else {}),
        "control": lambda risk: percent(risk.control),
        "worst person": lambda risk: _show(percent, risk.worst),
        "over half": lambda risk: _show(percent, risk.named_often),
        "proved at most": lambda risk: _show("{}%".format, risk.proved and round_up(100 * risk.proved)),
        "people tested": lambda risk: _show("{:,}".format, risk.people),
        "source": lambda risk: risk.source,
    }
    caption = (
        "How often each adversary is right, with the 95% interval over the people who are tested. "
        "Control: a guess. Over half: the share of people for whom they are right in over half of the tries. "
        "Proofs are for the average over people. A dash: not measured, or not proved."
    )
    rows = (tuple(show(risk) for show in columns.values()) for risk in risks)
    return Table(tuple(columns), tuple(rows), caption)


def _show(words: Callable[[Any], str], value: Any) -> str:
    return "–" if value is None else words(value)


def _join(words: str, figure: str) -> str:
    return f"{words}: {figure}" if figure else words


def _count(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _name(title: str) -> str:
    return title.lower().replace(" ", "-")
