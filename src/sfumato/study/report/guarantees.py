"""Promises, and how a study was made: the sections after those of measurements."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from sfumato.dp.guarantee import round_up
from sfumato.dp.naming import ASSUMED, BY_STRENGTH, Assumption
from sfumato.protect.naming import bound_naming, log_rank
from sfumato.study.choose.figures import Estimate, interval_of
from sfumato.study.choose.recommend import as_protection
from sfumato.study.choose.results import Results
from sfumato.study.measure.results import Proved
from sfumato.study.records import Record
from sfumato.study.report.tables import (
    Column,
    Section,
    Value,
    settings_table,
    show_estimate,
    tables,
    text_column,
)
from sfumato.study.vocabulary import GREY_IMAGES, LEARNERS, MEASURES

AMONG = 1_000  # equally likely people, for the proof about many releases
_ANY = (1, 1, 1)  # a shape, on which no recorded value depends

# Key in study.json -> the title of these settings.
_SETTINGS = {"training": "Training", "meta": "Meta-learning", "classifier": "Classifiers", "masks": "Masks"}
_SETTINGS |= {"features": "Features", "codes": "Codes"}

Entries = list[tuple[str, Any]]  # names and values
_Bound = Callable[[Assumption], float]


def guarantees(results: Results) -> Section | None:
    """The proofs for releases, a row for each protection with a recorded one."""
    proofs, releases = results.proofs, results.releases
    specs = [spec for spec in results.study["protections"] if spec in proofs]
    if not specs:
        return None
    named = results.of("proved")  # some kept records have a proof without them, and say nothing of naming
    many = {spec: _after_many(proofs[spec], releases) for spec in specs}
    ranks = {spec: _ranks(proofs[spec], releases) for spec in specs}
    assumed = {each: ASSUMED[each] for spec in specs for each in (*many[spec], *ranks[spec][1])}
    ranked = any(least for least, _ in ranks.values())

    def judge(of: str, spec: str) -> str:
        stated = proofs[spec].guarantee
        share = stated and success_of_judge(stated.definition, getattr(stated, of))
        return f"≤ {share}" if share else "nothing"

    def naming(candidates: int, spec: str) -> str:
        for each in proofs[spec].naming:
            if each.candidates == candidates and each.at_most < 1:
                return f"≤ {round_up(100 * each.at_most)}%"
        return "nothing" if candidates <= (proofs[spec].nothing_among or 0) else "–"

    def after(spec: str) -> str:
        return "; ".join(f"≤ {chance} ({each})" for each, chance in many[spec].items()) or "nothing"

    def rank(spec: str) -> str:
        least, of_many = ranks[spec]
        known = [f"after {releases} ≥ {rank} ({each})" for each, rank in of_many.items()]
        return "; ".join([f"≥ {least}" if least else "nothing", *known])

    columns = [
        text_column("what leaves of an image", lambda spec: _release(proofs[spec])),
        text_column("proved", lambda spec: _proof(proofs[spec]), wide=True),
    ]
    judges = {"value": "two images that differ in those pixels", "whole_image": "any two images"}
    judged = not named or any(judge(of, spec) != "nothing" for of in judges for spec in specs)
    if judged:
        columns += [Column(f"judge of {two}", partial(judge, of)) for of, two in judges.items()]
    counts = sorted({count for record in named for count in record.result.asked})
    columns += [Column(f"named among {count:,}", partial(naming, count)) for count in counts]
    bits = {spec: proofs[spec].bits for spec in specs}
    if any(each is not None for each in bits.values()):
        told = {spec: "nothing" if each is None else f"≤ {round_up(each)}" for spec, each in bits.items()}
        columns.append(Column("bits of identity", told.__getitem__))
    if assumed:
        columns.append(text_column(f"named among {AMONG:,} after {releases} releases", after, wide=True))
    if ranked:
        columns.append(Column("log-rank privacy", rank))
    table = settings_table("guarantees", specs, columns, style="guarantees")
    values = {"named": bool(named), "judged": judged, "assumed": assumed, "ranked": ranked, "table": table}
    return Section("guarantees", "What each setting guarantees", values, "Guarantees")


def _release(proof: Proved) -> Value:
    size, outputs = proof.bytes_per_image, proof.outputs
    sized = "" if size is None else f", {size:,} byte{'s' * (size != 1)}"
    return Value(f"{proof.release}{sized}", () if outputs is None else (f"{outputs:,} different ones",))


def _proof(proof: Proved) -> Value:
    text, source = "Nothing is proved", None
    if proof.guarantee:
        text, source = proof.guarantee.text, proof.guarantee.source
    elif any(naming.at_most < 1 for naming in proof.naming):
        text, source = "About naming only", proof.naming[0].source
    return Value(text[:1].upper() + text[1:], (source,) if source else ())


def _after_many(proof: Proved, many: int) -> dict[Assumption, str]:
    """How often one of AMONG people is named from that many releases, at most, by assumption."""

    def chance(each: Assumption) -> float:
        stated = bound_naming(as_protection(proof), _ANY, candidates=AMONG, releases=many, assuming=each)
        return stated.chance if stated.proves else 1.0

    return {each: f"{round_up(100 * most)}%" for each, most in _stronger(chance, many, nothing=1.0)}


def _ranks(proof: Proved, many: int) -> tuple[str, dict[Assumption, str]]:
    """The log-rank privacy that no adversary brings one release below, among the people of the test images.

    "" for nothing; and the same for many releases, by the assumption about them.
    """
    if proof.people is None or proof.people < 2:
        return "", {}
    rank = partial(log_rank, as_protection(proof), _ANY, people=proof.people)

    def below(releases: int, assuming: Assumption) -> float:
        return -math.floor(1000 * rank(releases=releases, assuming=assuming)) / 1000

    of_many = _stronger(partial(below, many), many, nothing=0.0)
    one = below(1, "none")
    return f"{-one:.3f}" if one else "", {each: f"{-value:.3f}" for each, value in of_many}


def _stronger(bound: _Bound, many: int, *, nothing: float) -> Iterator[tuple[Assumption, float]]:
    """The bounds of assumptions about many releases, each below the one before; `nothing` proves nothing."""
    for each in BY_STRENGTH if many > 1 else ():  # the other columns are for one
        if (value := bound(each)) < nothing:
            nothing = value
            yield each, value


def success_of_judge(definition: str | None, value: float | None) -> str | None:
    """How often the best possible judge, shown one release, says correctly which of two images it shows.

    Both images are equally likely beforehand, so that 50% is a coin. With ε-DP it is at most
    e^ε / (1 + e^ε) (Kairouz, Oh & Viswanath 2015), with μ-GDP at most Φ(μ / 2) (Dong, Roth & Su 2022,
    from the trade-off function). Rounded up: a guarantee may be understated, not overstated. None if
    that is 100%, which proves nothing.
    """
    if value is None or definition not in ("pure", "gaussian"):
        return None
    normal = statistics.NormalDist()
    share = 1 / (1 + math.exp(-value)) if definition == "pure" else normal.cdf(value / 2)
    rounded = math.ceil(1000 * share - 1e-9)
    return f"{rounded / 10:.1f}%" if rounded < 1000 else None


def training(results: Results) -> Section | None:
    """The promises of meta-learned models to their training images; models that promise the same together."""
    order = {spec: number for number, spec in enumerate(results.study["protections"])}
    models = [record for record in results.of("accuracy") if record.result.privacy]
    if not models:
        return None
    groups: dict[tuple[str, tuple[str, ...]], list[Record]] = defaultdict(list)
    spent: dict[int, list[tuple[float | None, float]]] = defaultdict(list)
    for record in sorted(models, key=lambda record: order[record.cell.protection]):
        promise = record.result.privacy
        if promise.unit is not None:
            groups[promise.unit, tuple(promise.not_covered)].append(record)
            spent[record.cell.seed].append((promise.epsilon, promise.delta))
    promising = [record for group in groups.values() for record in group]
    overlap = any("image_epsilon" in each.result.privacy.model_fields_set for each in promising)

    def bound(name: str, otherwise: str, record: Record) -> str:
        value = getattr(record.result.privacy, name)
        return otherwise if value is None else round_up(value)

    def epsilon(record: Record) -> Value:
        promise = record.result.privacy
        hypothetical = promise.epsilon_if_the_norm_were_public if promise.epsilon is None else None
        public = () if hypothetical is None else (f"{round_up(hypothetical)} if its norm were public",)
        return Value(bound("epsilon", "nothing is promised", record), public)

    def image(record: Record) -> str:
        has_one = "image_epsilon" in record.result.privacy.model_fields_set  # an infinite one is null
        return bound("image_epsilon", "no bound" if has_one else "–", record)

    def gdp(record: Record) -> str:
        value = record.result.privacy.gdp_approximation
        return "–" if value is None else f"{value:.3g}"

    columns = [
        *([Column("seed", lambda record: str(record.cell.seed))] * results.is_repeated),
        text_column("clipping", lambda record: record.result.privacy.clipping),
        Column("ε by PLD, the bound", epsilon),
        *([Column("ε of an image, a bound", image)] * overlap),
        Column("ε by RDP, a looser bound", partial(bound, "rdp", "–")),
        Column("ε by GDP, an approximation", gdp),
        Column("δ", partial(bound, "delta", "–")),
        Column("accuracy", lambda record: show_estimate(Estimate(*interval_of(record.result), seeds=1))),
    ]
    table = settings_table("training", promising, columns, setting=lambda record: record.cell.protection)
    values = {
        # (the unit, the exceptions, the cells of both), in the order of the study.
        "groups": [(*promise, [record.cell for record in alike]) for promise, alike in groups.items()],
        "table": table,
        "together": _sum(list(spent.values())),
    }
    return Section("training", "Privacy of training", values)


def _sum(spent: Sequence[Sequence[tuple[float | None, float]]]) -> tuple[str, ...] | None:
    """ε and δ of all models of one seed, which are trained on one pool, by basic composition."""
    several = any(len(models) > 1 for models in spent)
    if not several or any(epsilon is None for models in spent for epsilon, _ in models):
        return None
    sums = [[sum(each or 0 for each in values) for values in zip(*models, strict=True)] for models in spent]
    return tuple(round_up(max(values)) for values in zip(*sums, strict=True))


def full_tables(results: Results) -> Section:
    """Every table with a row."""
    return Section("tables", "Full tables", {"tables": tables(results)})


def describe_making(results: Results) -> Section:
    """The settings behind the numbers, the meaning of the words, and the limits."""
    measures = results.study.get("measures")
    data, order = results.study["data"], ["train", "validation", "test"]
    values = {
        "data": data,
        "folds": [
            [(name, of[name]) for name in sorted(of, key=[*order, *of].index)]
            for of in (fold["splits"] for fold in data.get("folds", [data]))
        ],
        "grey_images": GREY_IMAGES,
        "groups": _groups(results),
        "learners": [LEARNERS[name] for name in results.learners],
        "measures": [each for each in MEASURES.values() if measures is None or each.name in measures],
        "verified": any("verification_auc" in each.result.model_fields_set for each in results.of("attack")),
        "tells": bool(results.of("tells")),
    }
    return Section("made", "How this was made", values)


def _groups(results: Results) -> list[tuple[str, Entries]]:
    study = results.study
    versions: dict[str, set[str]] = defaultdict(set)
    for made_by in [study.get("versions") or {}, *(record.versions for record in results.records)]:
        for name, version in made_by.items():
            versions[name].add(str(version))
    spent: dict[str, float] = defaultdict(float)
    for record in results.records:
        spent[record.kind] += record.seconds
    spent["together"] = sum(spent.values())
    kinds = {key: title for key, title in _SETTINGS.items() if key != "training" or results.episodic}
    groups = [
        *((title, list((study.get(key) or {}).items())) for key, title in kinds.items()),
        ("Adversaries", [*(study.get("adversary") or {}).items()] if results.of("attack") else []),
        ("Versions", [(name, ", ".join(sorted(used))) for name, used in versions.items()]),
        ("Computing time", [(kind, _duration(seconds)) for kind, seconds in spent.items()]),
    ]
    return [(name, entries) for name, entries in groups if entries]


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
