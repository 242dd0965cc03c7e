"""The evidence of a study: the risks of one of its settings, from its records."""

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import sfumato
from sfumato.audits.evidence import RELEASES, THRESHOLD, Case
from sfumato.audits.risks import Risk
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError
from sfumato.protect.naming import bound_naming
from sfumato.study.choose import estimates
from sfumato.study.choose.estimates import Estimate, Study, belonging, percent
from sfumato.study.choose.frontier import not_tried_on
from sfumato.study.choose.recommend import (
    Recommendation,
    as_protection,
    describe_proof,
    recommend,
)
from sfumato.study.hits import Hits
from sfumato.study.parts.kinds import proved
from sfumato.study.records import Record
from sfumato.study.report.answers import what_leaves
from sfumato.study.vocabulary import ATTACKS

_FALSE_ALARMS = 0.01  # at which sets and pairs are accepted as one person's
_ACCEPTED = "tar_at_far_1e-2"
_ANY = (1, 1, 1)  # a shape, on which no recorded bound depends
_DIGITS = 12  # of a digest, in a table
_KINDS = {
    "attack": "Naming from one release",
    "many": "Naming and linking from many releases",
    "tells": "Inference of every label of the data",
    "inference": "Inference of attributes that must stay hidden",
    "reconstruction": "Reconstruction of the original image",
    "stored": "Naming from stored embeddings",
    "proved": "Proof",
}


def read_case(
    study: Study,
    records: Sequence[Record],
    path: Path,
    *,
    protection: str | None,
    threshold: float = THRESHOLD,
) -> Case:
    """The evidence on one setting of a study.

    Args:
        study, records: see study.choose.reading.load.
        path: of the folder or file that they were read from.
        protection: its spec, one of the study's; None: the recommended one.
        threshold: for the command that repeats the report.

    Raises:
        ConfigError: the study has no such setting, or recommends none.
    """
    advice = recommend(study, records)
    spec = protection or _choose(advice)
    if spec not in study["protections"]:
        raise ConfigError(
            f"--protection {spec}: the study has {', '.join(study['protections'])}: name one of these"
        )
    mine = [record for record in belonging(study, records) if record.cell.protection == spec]
    proof = estimates.proofs(study, records).get(spec)
    people = _people(mine, proof)
    risks = (
        *_many(study, records, spec, proof, mine),
        *_attacks(study, records, spec, proof, mine),
        *_inferences(study, records, spec, mine),
        *_tells(study, mine, people),
    )
    used = [record for record in mine if record.kind in (*_KINDS, "accuracy")]
    file = path / "study.json" if path.is_dir() else path
    options = f" --protection {quote(spec)} --threshold {threshold:g}"
    return Case(
        subject=f"Releases by {spec}, in the study “{study['title']}”",
        roles=(*_roles(study, spec, people), *_condition(advice, spec)),
        risks=risks,
        proof=describe_proof(proof),
        utility=_utility(study, records, spec),
        untested=tuple(_list_gaps(study, records, spec, mine)),
        commands=(
            f"sfumato study run {study['name']}.yaml",
            f"sfumato study report {quote(path.name)} --for dpo{options}",
        ),
        digests=(
            (file.name, hashlib.sha256(file.read_bytes()).hexdigest()),
            ("data", study["data"].get("digest", "-")),
            ("version", ", ".join(f"{k} {v}" for k, v in (study.get("versions") or _VERSION).items())),
            *((record.name, record.digest) for record in used),
        ),
    )


_VERSION = {"sfumato": sfumato.__version__}


def _choose(advice: Recommendation) -> str:
    if advice.setting is None:
        near = f", such as {quote(advice.nearest.protection)}, the nearest" if advice.nearest else ""
        raise ConfigError(f"{advice.headline}: name a setting with --protection{near}")
    return advice.setting.protection


def _people(mine: Sequence[Record], proof: proved.Result | None) -> int | None:
    named = [record.result.identities for record in mine if record.kind == "attack"]
    return max(named, default=proof.people if proof else None)


def _source(mine: Iterable[Record], kind: str, which: str | None = None) -> str:
    """The digests of the records of one figure, a seed each."""
    wanted = [record for record in mine if record.kind == kind and which in (None, *record.cell.which)]
    return ", ".join(record.digest[:_DIGITS] for record in wanted)


def _bound(proof: proved.Result | None, prior: float, releases: int) -> float | None:
    """The most that anybody names, on average, if a guess is right with this chance; None for no proof."""
    if proof is None:
        return None
    stated = bound_naming(as_protection(proof), _ANY, prior=prior, releases=releases)
    recorded = [each.at_most for each in proof.naming if each.candidates * prior <= 1 + 1e-9]
    least = min([stated.chance, *(recorded if releases == 1 else [])])
    return least if least < 1 else None


def _many(
    study: Study, records: Sequence[Record], spec: str, proof: proved.Result | None, mine: Sequence[Record]
) -> list[Risk]:
    """Naming, linking two services and recognising, from several releases."""
    curve = estimates.curves(study, records).get(spec)
    results = [record.result for record in mine if record.kind == "many"]
    risks, source, secret = [], _source(mine, "many"), study["task"]["sensitive"]
    for point in curve.points if curve else ():
        if point.releases not in RELEASES:
            continue
        points = [each for result in results for each in result.points if each.releases == point.releases]
        people, panel, tries = (
            len(point.hits.probes),
            round(1 / point.chance),
            [each.tries for each in points],
        )
        chosen = " or ".join(dict.fromkeys(name for each in points for name in each.chosen))
        links = [rate for each in points for rate in each.linked]
        risks += [
            Risk(
                kind="singling out",
                secret=secret,
                releases=point.releases,
                adversary=f"adversary who knows earlier releases of each of {panel} people ({chosen})",
                rate=_of_all([each.named for each in points], tries),
                control=point.chance,
                worst=point.worst,
                named_often=point.over_half,
                proved=_bound(proof, point.chance, point.releases),
                people=people,
                source=source,
            ),
            Risk(
                kind="linkability",
                secret=secret,
                releases=point.releases,
                adversary=f"adversary who links the labels of two services, {panel} people each",
                rate=_of_all([each.linked for each in points], tries),
                control=point.chance,
                worst=max(links),
                named_often=sum(rate > 1 / 2 for rate in links) / len(links),
                people=people,
                source=source,
            ),
            Risk(
                kind="linkability",
                secret=secret,
                releases=point.releases,
                adversary="adversary who accepts a set as one person's, with 1 in 100 false alarms",
                rate=_of_people(_widest([(each.accepted,) * 3 for each in points]), people),
                control=_FALSE_ALARMS,
                people=people,
                source=source,
            ),
        ]
    return risks


def _of_all(rates: Sequence[Sequence[float]], tries: Sequence[Sequence[int]]) -> Estimate:
    """The mean over seeds of a rate of each person, with the widest of their intervals over people."""
    counts = [
        Hits(tuple(r * t for r, t in zip(*of_seed, strict=True)), tuple(map(float, of_seed[1])), seeds=1)
        for of_seed in zip(rates, tries, strict=True)
    ]
    return _widest([(hits.share, *hits.interval) for hits in counts])


def _widest(intervals: Sequence[tuple[float, float, float]]) -> Estimate:
    values, lows, highs = zip(*intervals, strict=True)
    return Estimate(statistics.fmean(values), min(lows), max(highs), len(values))


def _of_people(rate: Estimate, people: int | None) -> Estimate:
    """A rate with the interval of one trial a person, if it is wider: images of a person are alike."""
    low, high = wilson(rate.value * people, people) if people else (rate.low, rate.high)
    return replace(rate, low=min(rate.low, low), high=max(rate.high, high))


def _attacks(
    study: Study, records: Sequence[Record], spec: str, proof: proved.Result | None, mine: Sequence[Record]
) -> list[Risk]:
    """Naming and verification from one release, by every attack of the study."""
    risks, secret = [], study["task"].get("sensitive")
    for (protection, attack), risk in estimates.risks(study, records).items():
        if protection != spec:
            continue
        results = [
            record.result for record in mine if record.cell.attack == attack and record.kind == "attack"
        ]
        hits, source = risk.named.get(risk.classifier), _source(mine, "attack", attack)
        worst, over_half = _by_person(hits)
        risks.append(
            Risk(
                kind="singling out",
                secret=secret,
                releases=1,
                adversary=risk.adversary,
                rate=_widen(risk.top1, hits),
                control=risk.chance,
                worst=worst,
                named_often=over_half,
                proved=_bound(proof, risk.chance, 1),
                people=risk.identities,
                images=sum(result.probes or 0 for result in results) or None,
                source=source,
            )
        )
        rates = [rate for each in results if (rate := getattr(each, _ACCEPTED, None)) is not None]
        if len(rates) == len(results):
            risks.append(
                Risk(
                    kind="linkability",
                    secret=secret,
                    releases=1,
                    adversary=f"{ATTACKS[attack].words}, who accepts a photograph and a release as one "
                    "person's, with 1 in 100 false alarms",
                    rate=_of_people(_widest([(rate,) * 3 for rate in rates]), risk.identities),
                    control=_FALSE_ALARMS,
                    people=risk.identities,
                    source=source,
                )
            )
    return risks


def _widen(rate: Estimate, hits: Hits | None) -> Estimate:
    """A rate with the wider of its interval and that over people: a few seeds may be alike by luck."""
    low, high = hits.interval if hits else (rate.low, rate.high)
    return replace(rate, low=min(rate.low, low), high=max(rate.high, high))


def _by_person(hits: Hits | None) -> tuple[float | None, float | None]:
    """The largest share of one person, and the share of people above a half; None if people are not apart."""
    if hits is None or not hits.apart:
        return None, None
    rates = [right / probes for right, probes in zip(hits.hits, hits.probes, strict=True) if probes]
    return max(rates), sum(rate > 1 / 2 for rate in rates) / len(rates)


def _inferences(study: Study, records: Sequence[Record], spec: str, mine: Sequence[Record]) -> list[Risk]:
    """Attributes that the study wants hidden."""
    risks = []
    for (protection, secret), inferred in estimates.inferences(study, records).items():
        if protection == spec:
            hits = inferred.named.get(inferred.classifier)
            worst, over_half = _by_person(hits)
            risks.append(
                Risk(
                    kind="inference",
                    secret=secret,
                    releases=1,
                    adversary=inferred.adversary,
                    rate=_widen(inferred.top1, hits),
                    control=inferred.chance,
                    worst=worst,
                    named_often=over_half,
                    people=len(hits.probes) if hits and hits.apart else None,
                    source=_source(mine, "inference", secret),
                )
            )
    return risks


def _tells(study: Study, mine: Sequence[Record], people: int | None) -> list[Risk]:
    """Every other label of the data: the task's own is there on purpose, the secret has adversaries above."""
    labels: dict[str, list[Any]] = {}
    for record in mine:
        if record.kind == "tells":
            for label, result in record.result.labels.items():
                labels.setdefault(label, []).append(result)
    purpose = (study["task"]["target"], study["task"].get("sensitive"))
    return [
        Risk(
            kind="inference",
            secret=label,
            releases=1,
            adversary=f"textbook classifier ({results[0].adversary})",
            rate=_of_people(_widest([(each.accuracy, each.low, each.high) for each in results]), people),
            control=statistics.fmean(each.guessing for each in results),
            people=people,
            images=sum(each.images for each in results),
            source=_source(mine, "tells"),
        )
        for label, results in labels.items()
        if label not in purpose
    ]


def _roles(study: Study, spec: str, people: int | None) -> tuple[tuple[str, str], ...]:
    task, data = study["task"], study["data"]
    tested = f"{people} people" if people else "people who were not counted"
    return (
        ("Device", "Holds the original images, protects each and sends the release. Trusted."),
        ("Release", " ".join(what_leaves(spec)) or spec),
        ("Recipient", f"A service that learns {task['target']} from releases. It sees every release."),
        (
            "Intruder",
            "The recipient, or anybody who copies releases. They know the protection, its settings and "
            "files. They hold named photographs or releases of the people they look for, and of others to "
            "learn from. With several releases they know that these show one person.",
        ),
        (
            "Tested on",
            f"{tested} on {data['splits']['test']:,} test images, of {data['images']:,} images of "
            f"{data['shape'][2]} x {data['shape'][1]} pixels ({data['source']}). Adversaries learn "
            "from others.",
        ),
    )


def _condition(advice: Recommendation, spec: str) -> Iterable[tuple[str, str]]:
    """The condition on which the study recommends this setting, if there is one."""
    if advice.by_table and advice.setting and advice.setting.protection == spec:
        yield (
            "Condition",
            "The study recommends this release only if the device looks queries up in an answer table: then "
            "they never leave, and the figures hold for the few images that are enrolled. All figures here "
            "are for releases that are sent.",
        )


def _utility(study: Study, records: Sequence[Record], spec: str) -> tuple[tuple[str, str], ...]:
    """The accuracy of each learner, between clear images and guessing."""
    rates = estimates.accuracies(study, records)
    rows = [
        (f"{task_words}, {estimates.learner_in_words(learner)}", rate)
        for task_words, wanted in (
            (f"{study['task']['target']} from releases", spec),
            ("from clear images", "none"),
        )
        for (protection, learner), rate in rates.items()
        if protection == wanted
    ]
    shown = [(who, f"{percent(r.value)} ({100 * r.low:.1f} to {100 * r.high:.1f})") for who, r in rows]
    chance = estimates.guessing(study, records)
    return (*shown, *([("guessing", percent(chance))] if chance is not None and shown else []))


def _list_gaps(
    study: Study, records: Sequence[Record], spec: str, mine: Sequence[Record]
) -> Iterable[tuple[str, str]]:
    """The kinds of records, adversaries and cells that the study lacks, and why."""
    held = {record.kind for record in mine}
    yield from ((words, "no record in this study") for kind, words in _KINDS.items() if kind not in held)
    left_out = not_tried_on(study, spec)
    for name, attack in ATTACKS.items():
        if name not in {record.cell.attack for record in mine}:
            reason = "the study leaves it out" if name in left_out else "it cannot look at such a release"
            yield f"The {attack.words} ({name})", reason
    curve = estimates.curves(study, records).get(spec)
    if curve and curve.stopped:
        yield "More releases of one person", "not tried: fewer name too many already"
    elif curve:
        for releases in RELEASES:
            if curve.after(releases) is None:
                able = curve.enough.get(releases, 0)
                yield (
                    f"Naming from {releases} releases",
                    f"{able} of {curve.able} people have enough pictures",
                )
    names = [estimates.cell_name(entry) for entry in study["cells"] if entry["cell"]["protection"] == spec]
    absent = {*names} & {*estimates.missing(study, records)}
    yield from ((f"Record {name}", "missing: the run is not finished") for name in sorted(absent))
