"""The evidence of a study: the risks of one of its settings, from its records."""

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from sfumato.audits.evidence import RELEASES, THRESHOLD, Case
from sfumato.audits.findings import Risk, interval, worst_of
from sfumato.base.proportions import over_people
from sfumato.errors import ConfigError
from sfumato.protect.naming import bound_naming
from sfumato.study.choose.recommend import as_protection, describe_proof, what_leaves
from sfumato.study.choose.results import (
    Estimate,
    Results,
    cell_name,
    estimate_of,
    learner_in_words,
    percent,
)
from sfumato.study.hits import join
from sfumato.study.measure.results import Proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import ATTACKS

_FALSE_ALARMS, _ACCEPTED = 0.01, "tar_at_far_1e-2"  # at which pairs and sets are accepted as one person's
_ANY = (1, 1, 1)  # a shape, on which no recorded bound depends
_KINDS = {
    "attack": "Naming from one release",
    "many": "Naming and linking from many releases",
    "tells": "Inference of every label of the data",
    "inference": "Inference of attributes that must stay hidden",
    "reconstruction": "Reconstruction of the original image",
    "proved": "Proof",
}
_INTRUDER = (
    "The recipient, or anybody who copies releases. They know the protection, its settings and files. They "
    "hold named photographs or releases of the people they look for, and of others to learn from. With "
    "several releases they know that these show one person."
)
_BY_TABLE = (
    "The study recommends this release only if the device looks queries up in an answer table: then they "
    "never leave, and the figures hold for the few images that are enrolled. All figures here are for "
    "releases that are sent."
)


def read_case(
    results: Results,
    path: Path,
    *,
    protection: str | None,
    threshold: float = THRESHOLD,
) -> Case:
    """The evidence on one setting of a study, by its spec; None: the recommended one.

    `path` is of the folder or file that they were read from, `threshold` for the command of the report.

    Raises ConfigError: the study has no such setting, or recommends none.
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
    by_table = [("Condition", _BY_TABLE)] if advice.by_table and spec == recommended else []
    used = [record for record in mine if record.kind in (*_KINDS, "accuracy")]
    return Case(
        subject=f"Releases by {spec}, in the study “{study['title']}”",
        roles=(
            ("Device", "Holds the original images, protects each and sends the release. Trusted."),
            ("Release", " ".join(what_leaves(spec)) or spec),
            ("Recipient", f"A service that learns {study['task']['target']}. It sees every release."),
            ("Intruder", _INTRUDER),
            ("Tested on", tested),
            *by_table,
        ),
        risks=(
            *_of_many(results, mine, proof, spec),
            *_of_one(results, mine, proof, spec),
            *_of_labels(results, mine, people),
        ),
        proof=describe_proof(proof),
        utility=_utility(results, spec),
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
    """How the digests of the records of one figure begin, a seed each."""
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
    """Naming, linking two services and recognising, from several releases."""
    curve = results.curves.get(spec)
    every = [point for record in mine if record.kind == "many" for point in record.result.points]
    for n in RELEASES:
        point, points = curve and curve.after(n), [each for each in every if each.releases == n]
        if not point:
            continue
        panel, chance, secret = round(1 / point.chance), point.chance, results.study["task"]["sensitive"]
        chosen = " or ".join(dict.fromkeys(name for each in points for name in each.chosen))
        known: dict[str, Any] = {"people": len(point.hits.probes), "source": _source(mine, "many")}
        worst = worst_of([rate for each in points for rate in each.named])
        worst["proved"] = _bound(proof, chance, n)
        words = f"adversary who knows earlier releases of {panel} people at a time ({chosen})"
        yield Risk("singling out", secret, n, words, point.named, chance, **known, **worst)
        worst = worst_of([rate for each in points for rate in each.linked])
        words = f"adversary who links the labels of two services, {panel} people at a time"
        yield Risk("linkability", secret, n, words, point.linked, chance, **known, **worst)
        yield _accepts(secret, n, point.accepted, "adversary who accepts a set", **known)


def _of_one(results: Results, mine: Sequence[Record], proof: Proved | None, spec: str) -> Iterable[Risk]:
    """Naming and verification by every attack of the study, and the attributes that it wants hidden."""
    for (protection, name), risk in {**results.risks, **results.inferences}.items():
        if protection != spec:
            continue
        record, rates = "inference" if risk.infers else "attack", risk.strongest.rates
        known: dict[str, Any] = {"people": len(rates), "source": _source(mine, record, name)}
        known |= worst_of(rates)
        if risk.infers:
            yield Risk("inference", name, 1, risk.adversary, risk.top1, risk.chance, **known)
            continue
        secret, bound = results.study["task"]["sensitive"], _bound(proof, risk.chance, 1)
        yield Risk("singling out", secret, 1, risk.adversary, risk.top1, risk.chance, proved=bound, **known)
        found = [each.result for each in mine if each.kind == record and name in each.cell.which]
        accepted = [getattr(result, _ACCEPTED, None) for result in found]
        if None not in accepted:
            share = statistics.fmean(rate or 0.0 for rate in accepted)
            words = f"{ATTACKS[name].words}, who accepts a photograph and a release"
            yield _accepts(secret, 1, share, words, people=known["people"], source=known["source"])


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
    """The accuracy of each learner, between clear images and guessing."""
    sources = ((f"{results.study['task']['target']} from releases", spec), ("from clear images", "none"))
    rows = [
        (f"{words}, {learner_in_words(learner)}", interval(rate))
        for words, wanted in sources
        for (protection, learner), rate in results.accuracies.items()
        if protection == wanted
    ]
    chance = results.guessing
    return (*rows, *([("guessing", percent(chance))] if chance is not None and rows else []))


def _list_gaps(results: Results, mine: Sequence[Record], spec: str) -> Iterable[tuple[str, str]]:
    """The kinds of records, adversaries and cells that the study lacks, and why."""
    held = {record.kind for record in mine}
    yield from ((words, "no record in this study") for kind, words in _KINDS.items() if kind not in held)
    left_out = results.not_tried_on(spec)
    for name, attack in ATTACKS.items():
        if name not in {record.cell.attack for record in mine}:
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
