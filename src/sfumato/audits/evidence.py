"""The evidence report: measured and proved risks of a release, for a data-protection officer.

It states figures and their limits. Whether they are low enough is a legal question, which it leaves open.
"""

import csv
import hashlib
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, get_args

from sfumato.assess.hits import join
from sfumato.audits.findings import Finding, Kind, Report, Risk, Table, Verdict
from sfumato.base.proportions import over_people
from sfumato.dp.guarantee import round_up
from sfumato.errors import ConfigError
from sfumato.protect.naming import bound_naming
from sfumato.study.choose.figures import Estimate, cell_name, estimate_of, interval, learner_in_words, percent
from sfumato.study.choose.groups import GROUPED, ByGroup, by_group
from sfumato.study.choose.recommend import as_protection, describe_proof, what_leaves
from sfumato.study.choose.results import Results
from sfumato.study.measure.results import Proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import ATTACKS

THRESHOLD = 0.09
"""The probability of re-identification that EMA Policy 0070 and Health Canada (PRCI) accept, 1 in 11."""

RELEASES = (1, 10, 100)  # of one person, of which each risk is wanted

_KINDS: tuple[Kind, ...] = get_args(Kind)
_TEMPLATES = Path(__file__).parent / "templates"
_SUMMARY: dict[Verdict, str] = {  # the worst first
    "above": "Above it for at least one adversary",
    "not shown": "Not shown to be below it",
    "below on average": "Measured below it, on average over people",
    "bounded": "Proved below it, on average over people",
    "not measured": "Not measured",
}
_TRUSTED = "Nobody is trusted but the device that holds the originals."
_FALSE_ALARMS, _ACCEPTED = 0.01, "tar_at_far_1e-2"  # at which pairs and sets are accepted as one person's
_ANY = (1, 1, 1)  # a shape, on which no recorded bound depends
_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """The content of an evidence report."""

    subject: str  # the release, in words
    roles: _Pairs  # who takes part, and the knowledge of each
    risks: tuple[Risk, ...]
    proof: str  # a sentence
    restricted: _Pairs = ()  # labels that law restricts, and how
    technique: Sequence[str] = ()  # of the protection, and its formal model; see techniques.csv
    utility: _Pairs = ()  # who uses the releases, and how often they are right
    groups: Sequence[ByGroup] = ()  # accuracy and naming by group of people, of this setting first
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
            ("Intruder", f"{intruders[:1].upper()}{intruders[1:]}."),
        ),
        risks=report.risks,
        proof=" ".join(proofs) or "Nothing is proved: other adversaries may find more.",
        untested=tuple((sentence, "a limit of this audit") for sentence in report.limits),
        origin=report.origin,
    )


def read_case(results: Results, path: Path, *, protection: str | None, threshold: float = THRESHOLD) -> Case:
    """The evidence on one setting of a study, by its spec; None: the recommended one.

    `path` is of the folder or file that they were read from, `threshold` for the command of the report.
    """
    study, advice = results.study, results.advice
    recommended = advice.setting.protection if advice.setting else None
    spec = protection or recommended
    if spec is None:
        near = f", such as {quote(advice.nearest.protection)}, the nearest" if advice.nearest else ""
        raise ConfigError(f"{advice.headline}: name a setting with --protection{near}")
    if spec not in study["protections"]:
        names = ", ".join(study["protections"])
        raise ConfigError(f"--protection {spec}: the study has {names}: name one of these")
    mine = [record for record in results.records if record.cell.protection == spec]
    proof, data = results.proofs.get(spec), study["data"]
    counted = [record.result.identities for record in mine if record.kind == "attack"]
    people = max(counted, default=proof.people if proof else None)
    _, height, width = data["shape"]
    tested = (
        f"{people or 'Uncounted'} people on {data['splits']['test']:,} test images, of {data['images']:,} "
        f"images of {width} x {height} pixels ({data['source']}). Adversaries learn from others."
    )
    file = path / "study.json" if path.is_dir() else path
    options = f"--protection {quote(spec)} --threshold {threshold:g}"
    used = [record for record in mine if record.kind in (*_words("records"), "accuracy")]
    return Case(
        subject=f"Releases by {spec}, in the study “{study['title']}”",
        roles=(
            ("Device", "Holds the original images, protects each and sends the release. Trusted."),
            ("Release", " ".join(what_leaves(spec)) or spec),
            ("Recipient", f"A service that learns {study['task']['target']}. It sees every release."),
            ("Intruder", _words("roles")["Intruder"]),
            ("Tested on", tested),
            *(
                [("Condition", _words("roles")["Condition"])]
                if advice.by_table and spec == recommended
                else []
            ),
        ),
        risks=(
            *_of_many(results, mine, proof, spec),
            *_of_one(results, mine, proof, spec),
            *_of_labels(results, mine, people),
        ),
        proof=describe_proof(proof),
        restricted=_restrict(study["task"]),
        technique=next((row for row in _read("techniques") if row[0] == re.split("[:@]", spec)[0]), ()),
        utility=_utility(results, spec),
        groups=sorted(by_group(results), key=lambda each: each.protection != spec),
        untested=tuple(_list_gaps(results, mine, spec)),
        origin=(
            ("command, with the file of the study", f"sfumato study run {study['name']}.yaml"),
            ("command", f"sfumato study report {quote(path.name)} --for dpo {options}"),
            (file.name, hashlib.sha256(file.read_bytes()).hexdigest()),
            ("data", data.get("digest", "–")),
            ("versions", ", ".join(f"{name} {number}" for name, number in study.get("versions", {}).items())),
            *((record.name, record.digest) for record in used),
        ),
    )


def _source(mine: Iterable[Record], kind: str, which: str | None = None) -> str:
    wanted = [record for record in mine if record.kind == kind and which in (None, *record.cell.which)]
    return ", ".join(record.digest[:12] for record in wanted)


def _bound(proof: Proved | None, prior: float, releases: int) -> float | None:
    """The most that anybody names, on average, if a guess is right with this chance; None for no proof."""
    if proof is None:
        return None
    stated = bound_naming(as_protection(proof), _ANY, prior=prior, releases=releases).chance
    recorded = [each.at_most for each in proof.naming if each.candidates * prior <= 1 + 1e-9]
    least = min([stated, *(recorded if releases == 1 else [])])
    return least if least < 1 else None


def _accepts(secret: str, releases: int, share: float, words: str, **known: Any) -> Risk:
    """How often somebody accepts what is one person's, if each person is one trial."""
    rate = Estimate(share, *over_people([share] * known["people"], [1.0] * known["people"]), seeds=1)
    adversary = f"{words} as one person's, with 1 in 100 false alarms"
    return Risk("linkability", secret, releases, adversary, rate, _FALSE_ALARMS, **known)


def _of_many(results: Results, mine: Sequence[Record], proof: Proved | None, spec: str) -> Iterable[Risk]:
    curve = results.curves.get(spec)
    every = [point for record in mine if record.kind == "many" for point in record.result.points]
    for n in RELEASES:
        point, points = curve and curve.after(n), [each for each in every if each.releases == n]
        if not point:
            continue
        panel, chance, secret = round(1 / point.chance), point.chance, results.study["task"]["sensitive"]
        chosen = " or ".join(dict.fromkeys(name for each in points for name in each.chosen))
        known: dict[str, Any] = {"people": len(point.hits.probes), "source": _source(mine, "many")}
        sure: dict[str, Any] = {"bits": point.bits, "surest": point.surest, **known}
        words = f"adversary who knows earlier releases ({chosen}; {point.had})"
        bound = _bound(proof, chance, n)
        yield Risk("singling out", secret, n, words, point.named, chance, proved=bound, **sure)
        words = f"adversary who links the labels of two services, {panel} people at a time"
        yield Risk("linkability", secret, n, words, point.linked, chance, **known)
        yield _accepts(secret, n, point.accepted, "adversary who accepts a set", **known)


def _of_one(results: Results, mine: Sequence[Record], proof: Proved | None, spec: str) -> Iterable[Risk]:
    for (protection, name), risk in {**results.risks, **results.inferences}.items():
        if protection != spec:
            continue
        record, people = "inference" if risk.infers else "attack", len(risk.strongest.probes)
        known: dict[str, Any] = {"people": people, "source": _source(mine, record, name)}
        if risk.infers:
            yield Risk("inference", name, 1, risk.adversary, risk.top1, risk.chance, **known)
            continue
        secret, bound = results.study["task"]["sensitive"], _bound(proof, risk.chance, 1)
        known |= {"proved": bound, "bits": risk.bits, "surest": risk.surest}
        known["sure"] = proof and proof.surest(risk.identities)
        words = risk.adversary if risk.had is None else f"{risk.adversary} ({risk.had})"
        yield Risk("singling out", secret, 1, words, risk.top1, risk.chance, **known)
        found = [each.result for each in mine if each.kind == record and name in each.cell.which]
        accepted = [getattr(result, _ACCEPTED, None) for result in found]
        if None not in accepted:
            share = statistics.fmean(rate or 0.0 for rate in accepted)
            words = f"{ATTACKS[name].words}, who accepts a photograph and a release"
            yield _accepts(secret, 1, share, words, people=people, source=known["source"])


def _of_labels(results: Results, mine: Sequence[Record], people: int | None) -> Iterable[Risk]:
    """Every other label of the data: the task's own is there on purpose, the secret has adversaries above."""
    told = [record.result.labels for record in mine if record.kind == "tells"]
    known: dict[str, Any] = {"people": people, "source": _source(mine, "tells")}
    for label in dict.fromkeys(label for labels in told for label in labels):
        found = [labels[label] for labels in told if label in labels]
        if label not in (results.study["task"]["target"], results.study["task"].get("sensitive")):
            counted = join([each.counted for each in found], folds=results.folds)
            adversary = f"textbook classifier ({found[0].adversary})"
            rate, guess = estimate_of(counted), statistics.fmean(each.guessing for each in found)
            known["images"] = sum(each.images for each in found)
            yield Risk("inference", label, 1, adversary, rate, guess, **known)


def _utility(results: Results, spec: str) -> tuple[tuple[str, str], ...]:
    sources = ((f"{results.study['task']['target']} from releases", spec), ("from clear images", "none"))
    rows = [
        (f"{words}, {learner_in_words(learner)}", interval(rate))
        for words, wanted in sources
        for (protection, learner), rate in results.accuracies.items()
        if protection == wanted
    ]
    chance = results.guessing
    return (*rows, ("guessing", percent(chance))) if chance is not None and rows else (*rows,)


def _list_gaps(results: Results, mine: Sequence[Record], spec: str) -> Iterable[tuple[str, str]]:
    held = {record.kind for record in mine}
    yield from (
        (words, "no record in this study") for kind, words in _words("records").items() if kind not in held
    )
    if not results.study.get("groups"):
        yield "Accuracy and naming by group of people", "the study names no groups"
    left_out = results.not_tried_on(spec)
    for name, attack in ATTACKS.items():
        if attack.method is not None and name not in {record.cell.attack for record in mine}:
            reason = "the study leaves it out" if name in left_out else "it cannot look at such a release"
            yield f"The {attack.words} ({name})", reason
    curve = results.curves.get(spec)
    for n in RELEASES if curve else ():
        if curve and curve.after(n) is None:
            able = f"{curve.enough.get(n, 0)} of {curve.able} people have enough pictures"
            yield f"Naming from {n} releases", "fewer name too many already" if curve.stopped else able
    cells = {cell_name(each) for each in results.study["cells"] if each["cell"]["protection"] == spec}
    for cell in sorted(cells & {*results.missing}):
        yield f"Record {cell}", "missing: the run is not finished"


class _Judgement(NamedTuple):
    """The verdict on one risk from one number of releases, the reason, and the figure behind it."""

    verdict: Verdict
    reason: str
    figure: str = ""


_Judged = Mapping[tuple[Kind, int], _Judgement]


def make_report(case: Case, *, threshold: float = THRESHOLD) -> Report:
    """Judge the risks of a case: one is below the threshold only if all its intervals end below it."""
    if not 0 < threshold < 1:
        raise ConfigError(f"--threshold {threshold:g}: between 0 and 1, such as {THRESHOLD}")
    counts = sorted({*RELEASES, *(risk.releases for risk in case.risks)})
    judged = {
        (kind, n): _judge([each for each in case.risks if (each.kind, each.releases) == (kind, n)], threshold)
        for kind in _KINDS
        for n in counts
    }
    missing = [key for key, each in judged.items() if each.verdict == "not measured"]
    gaps = [(f"{kind.capitalize()} from {_count(n)}", "no figure") for kind, n in missing]
    heading, *clauses = _read("clauses")
    use = "The use that is left of the releases." if case.utility else "It was not measured."
    said = _words("sections")
    untested = (*gaps, *case.untested, *_words("untested").items())
    sentence = (
        f"The threshold is {100 * threshold:g}%, for averages over people: the largest risk is beside them. "
        f"{_summarise(judged)} This report states figures and "
        "gives no legal opinion: the controller decides if the releases are still personal data."
    )
    rows = [each.row for each in case.groups]
    told = "; ".join(str(each) for each in case.groups if each.protection == rows[0][0])
    law = [_section("Restricted uses", "Ask a lawyer first.", ("label", "law"), case.restricted)]
    findings = (
        *(law if case.restricted else []),
        _section("Recipient and intruder", _TRUSTED, ("who", "role and knowledge"), case.roles),
        _list_recipients(judged),
        _show_all(case.risks, judged),
        *(_find(kind, case.risks, judged, threshold) for kind in _KINDS),
        _section("Proof", case.proof, _read("techniques")[0], [case.technique] if case.technique else []),
        _section("Utility", use, ("who uses them", "right, with the interval"), case.utility),
        *([_section("Groups of people", f"By {told}.", GROUPED, rows)] if rows else []),
        _section("Not tested", "A risk that was not tested may be large.", ("part", "reason"), untested),
        _section("Which figure answers which question", said["ask"], heading, clauses),
        _section("How to repeat it", said["repeat"], ("part", "command or SHA-256"), case.origin),
    )
    made = Report(audit="evidence", subject=case.subject, sentence=sentence, findings=findings)
    return replace(made, limits=(*_words("limits").values(),), risks=case.risks)


def _read(name: str) -> list[list[str]]:
    """The rows of a table beside the templates, its heading first."""
    with (_TEMPLATES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _words(part: str) -> dict[str, str]:
    """The texts of one part of the report."""
    return {key: words for about, key, words in _read("words") if about == part}


def _restrict(task: Mapping[str, Any]) -> _Pairs:
    """Labels that law restricts, and how."""
    labels = [each for each in (task["target"], task.get("sensitive"), *task.get("attributes", ())) if each]
    return tuple((each, law) for each in labels for rule, law in _read("restricted") if re.search(rule, each))


def _list_recipients(judged: "_Judged") -> Finding:
    """What each recipient holds, and the figures of those who have releases."""
    heading, *rows = _read("recipients")
    for kind in _KINDS:
        cell = "; ".join(f"from {n}: {judged[kind, n].figure or judged[kind, n].verdict}" for n in RELEASES)
        rows.append([kind.capitalize(), cell, cell, "no release reaches them", "certain"])
    return _section("Who could do it", "Figures are for those who have releases.", heading, rows)


def _section(
    title: str, sentence: str, columns: Sequence[str] = (), rows: Sequence[Sequence[str]] = ()
) -> Finding:
    table = Table(tuple(columns), tuple(map(tuple, rows))) if rows else None
    return Finding(title.lower().replace(" ", "-"), title, None, sentence, table)


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
    sentences = []
    for verdict, words in _SUMMARY.items():
        parts: dict[Kind, str] = {}
        for (kind, n), each in judged.items():
            if each.verdict == verdict:
                begun = f"{parts[kind]}, " if kind in parts else f"{kind} "
                parts[kind] = begun + f"from {_count(n)}: {each.figure}".removesuffix(": ")
        sentences += [f"{words}: {'; '.join(parts.values())}."] if parts else []
    return " ".join(sentences)


def _show_all(risks: Sequence[Risk], judged: _Judged) -> Finding:
    rows = []
    for kind in _KINDS:
        sure = [risk.surest.value for risk in risks if risk.kind == kind and risk.surest is not None]
        of_kind = (judged[kind, n] for n in RELEASES)
        cells = (f"{each.verdict}: {each.figure}".removesuffix(": ") for each in of_kind)
        rows.append((kind, *cells, _show(percent, max(sure, default=None))))
    sentence = "The highest figure of all adversaries; for inference the share beyond guessing."
    columns = ("risk", *(f"from {_count(n)}" for n in RELEASES), "surest 1% right")
    return _section("At a glance", sentence, columns, rows)


def _find(kind: Kind, risks: Sequence[Risk], judged: _Judged, threshold: float) -> Finding:
    """One of the three risks: the worst verdict of all numbers of releases, its reason, and all figures."""
    mine = sorted((risk for risk in risks if risk.kind == kind), key=lambda risk: risk.releases)
    worst_first, verdicts = list(_SUMMARY), {n: each for (of, n), each in judged.items() if of == kind}
    said = _words("risks")
    verdict, words, _ = min(verdicts.values(), key=lambda each: worst_first.index(each.verdict))
    if known := [(risk.surest.value, risk.releases) for risk in mine if risk.surest is not None]:
        sure, count = max(known)
        above = ", above the threshold" * (sure >= threshold)
        words += said["surest"].format(percent(sure), f"{_count(count)}{above}")
    if proofs := [risk.sure for risk in mine if risk.sure is not None]:
        words += said["proved"].format(round_up(100 * max(proofs)))
    if beyond := any(risk.rate != risk.judged for risk in mine):
        words += said["beyond"]
    table = _tabulate(mine, beyond) if mine else None
    figures = {"threshold": threshold, "verdicts": {str(n): each.verdict for n, each in verdicts.items()}}
    section = _section(kind.capitalize(), words)
    return replace(section, verdict=verdict, table=table, figures=figures)


def _tabulate(risks: Sequence[Risk], beyond: bool) -> Table:
    columns: dict[str, Callable[[Risk], str]] = {
        "releases": lambda risk: str(risk.releases),
        "secret and adversary": lambda risk: f"{risk.secret}: {risk.adversary}",
        "right": lambda risk: _show(interval, risk.rate),
        **({"beyond control": lambda risk: _show(interval, risk.judged)} if beyond else {}),
        "control": lambda risk: percent(risk.control),
        "surest 1% right": lambda risk: _show(interval, risk.surest),
        "nobody surer": lambda risk: _show("{}%".format, risk.sure and round_up(100 * risk.sure)),
        "bits of identity": lambda risk: _show("{0.value:.2f}".format, risk.bits),
        "proved at most": lambda risk: _show("{}%".format, risk.proved and round_up(100 * risk.proved)),
        "people tested": lambda risk: _show("{:,}".format, risk.people),
        "source": lambda risk: risk.source,
    }
    rows = (tuple(show(risk) for show in columns.values()) for risk in risks)
    return Table(tuple(columns), tuple(rows), _words("risks")["caption"])


def _show(words: Callable[[Any], str], value: Any) -> str:
    return "–" if value is None else words(value)


def _count(releases: int) -> str:
    return f"{releases} release{'s' * (releases != 1)}"
