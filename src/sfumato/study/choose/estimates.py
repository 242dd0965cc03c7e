"""The joint results of a study's records: numbers over its seeds, each with its interval."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.base.proportions import wilson
from sfumato.study.hits import Hits, hits_of, join, over_half
from sfumato.study.measure.results import Proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import ATTACKS, IDENTIFIERS, INFERRERS, LEARNERS, classifiers, release_kind

OVER_PEOPLE = "95% interval over people"
Study = dict[str, Any]  # study.json, whose "cells" are those of `grid.cells`


@dataclass(frozen=True)
class Estimate:
    """A number and the interval to print with it.

    Of rates over people: their 95% interval over people. Of accuracies with one seed: the record's own 95%
    interval; with several: their mean, and the lowest and highest of them, since trainings differ more than
    episodes do.
    """

    value: float
    low: float
    high: float
    seeds: int

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two intervals share a number."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Risk:
    """How often one adversary, with their best classifier, names the right identity.

    Attributes:
        attack, classifier: the adversary.
        top1: the share of probes they name.
        chance: of the best guess without looking.
        identities: the number of people to choose from.
        named: classifier -> its hits; one at least.
        rising: their networks that still gained when training ended: the figures are lower bounds.
    """

    attack: str
    classifier: str
    top1: Estimate
    chance: float
    identities: int
    named: Mapping[str, Hits]
    rising: tuple[str, ...] = ()

    @property
    def adversary(self) -> str:
        """In words: "adaptive adversary, linear classifier"."""
        return f"{ATTACKS[self.attack].words}, {classifier_in_words(self.classifier)}"

    @property
    def crowd(self) -> str:
        """How many people are looked for, and among how many, in words."""
        return f"{len(self.strongest.probes):,} people among {self.identities:,}"

    @property
    def strongest(self) -> Hits:
        """The hits of their best classifier."""
        return self.named[self.classifier]

    def upper_end(self, error: float) -> float:
        """The bound their share exceeds with this probability at most."""
        return max(hits.upper_end(error) for hits in self.named.values())

    def of_half(self, number: int) -> "Risk":
        """The same for one half of the people, by the strongest classifier there."""
        halves = {name: hits.half(number) for name, hits in self.named.items()}
        strongest = max(halves, key=lambda name: halves[name].share)
        return replace(self, classifier=strongest, top1=estimate_of(halves[strongest]), named=halves)


@dataclass(frozen=True)
class Inference(Risk):
    """How often one adversary infers a further secret, by their best classifier; `attack` is its label."""

    @property
    def adversary(self) -> str:
        """In words: "classifiers of the values that travelled"."""
        return INFERRERS.get(self.classifier, self.classifier)


def accuracies(study: Study, records: Iterable[Record]) -> dict[tuple[str, str], Estimate]:
    """(protection, learner) -> accuracy, over the seeds of the study."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "accuracy"):
        results[record.cell.protection, record.cell.learner or ""].append(record.result)
    return {
        key: together(study, [interval_of(result) for result in made], [result.images for result in made])
        for key, made in results.items()
    }


def accuracy_halves(
    study: Study, records: Iterable[Record]
) -> dict[tuple[str, str], tuple[Estimate, Estimate]]:
    """(protection, learner) -> accuracy on two halves of the test images, if recorded for all seeds."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "accuracy"):
        results[record.cell.protection, record.cell.learner or ""].append(record.result)
    return {
        key: (_of_half(study, seeds, 0), _of_half(study, seeds, 1))
        for key, seeds in results.items()
        if all(result.halves for result in seeds)
    }


def _of_half(study: Study, results: Sequence[Any], number: int) -> Estimate:
    halves = [result.halves[number] for result in results]
    images = [None if result.images is None else (result.images + 1 - number) // 2 for result in results]
    return together(study, [(half.accuracy, half.low, half.high) for half in halves], images)


def interval_of(result: Any) -> tuple[float, float, float]:
    """Accuracy, and the ends of its interval: over test images, or over episodes."""
    value = result.accuracy
    if result.low is not None:
        return value, result.low, result.high
    return value, max(0.0, value - result.half_width), min(1.0, value + result.half_width)


def risks(study: Study, records: Iterable[Record]) -> dict[tuple[str, str], Risk]:
    """(protection, attack) -> the risk by that attack's strongest classifier, over the seeds of the study."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "attack"):
        results[record.cell.protection, record.cell.attack or ""].append(record.result)
    return {
        key: Risk(*_strongest_of(study, key[1], seeds), rising=_rising(seeds))
        for key, seeds in results.items()
    }


def inferences(study: Study, records: Iterable[Record]) -> dict[tuple[str, str], Inference]:
    """(protection, attribute) -> how often it is inferred, over the seeds of the study."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "inference"):
        results[record.cell.protection, record.cell.secret or ""].append(record.result)
    return {key: Inference(*_strongest_of(study, key[1], seeds)) for key, seeds in results.items()}


def _strongest_of(
    study: Study, attack: str, seeds: Sequence[Any]
) -> tuple[str, str, Estimate, float, int, Mapping[str, Hits]]:
    """The parts of a Risk from the results of one attack, one per seed."""
    named = hits_of(seeds, folds=in_folds(study))
    classifier = max(named, key=lambda name: named[name].share)  # the first of equals
    chance = statistics.fmean((result.chance for result in seeds), weights=[r.probes or 1 for r in seeds])
    identities = min(result.identities for result in seeds)
    return attack, classifier, estimate_of(named[classifier]), chance, identities, named


def _rising(seeds: Sequence[Any]) -> tuple[str, ...]:
    """The networks that still gained when their training ended."""
    return tuple(
        dict.fromkeys(
            f"{network.network} after {network.steps} steps"
            for result in seeds
            for network in result.trained
            if network.flat is False
        )
    )


@dataclass(frozen=True)
class Together:
    """The risk from n releases of one person, over the seeds.

    Attributes:
        releases: n.
        named: how often people are named, by adversaries that other people chose.
        hits: the same person by person; see `hits.Hits.upper_end`.
        chance: of a guess.
        worst: how often the most named person is named.
        over_half: the share of people who are named in more than half of the tries.
        accepted: the share of sets accepted as the right person's, at 1 in 100 false acceptances.
        linked: how often two services' labels are linked to one person.
    """

    releases: int
    named: Estimate
    hits: Hits
    chance: float
    worst: float
    over_half: float
    accepted: float
    linked: Estimate


@dataclass(frozen=True)
class Curve:
    """How naming grows with the number of releases.

    Attributes:
        points: by rising number, those that all seeds have.
        enough: number of releases -> how many of `able` people have enough pictures for it.
        able: how many people have two pictures.
        stopped: whether larger numbers were skipped, since smaller ones name too many.
    """

    points: tuple[Together, ...]
    enough: Mapping[int, int]
    able: int
    stopped: bool

    def after(self, releases: int) -> Together | None:
        """The risk from this many releases; None if it was not measured."""
        return next((point for point in self.points if point.releases == releases), None)


def curves(study: Study, records: Iterable[Record]) -> dict[str, Curve]:
    """Maps each protection to its curve, if one was recorded for all seeds."""
    results: dict[str, list[Any]] = defaultdict(list)
    for record in belonging(study, records, "many"):
        results[record.cell.protection].append(record.result)
    return {
        protection: _curve(study, made)
        for protection, made in results.items()
        if len(made) == len(study["seeds"]) and all(result.points for result in made)
    }


def _curve(study: Study, results: Sequence[Any]) -> Curve:
    first = results[0]
    sizes = [{point.releases: point for point in result.points} for result in results]
    shared = [size for size in sizes[0] if all(size in of_seed for of_seed in sizes)]
    chance = statistics.fmean(1 / result.panel for result in results)
    return Curve(
        tuple(_together(study, [of_seed[size] for of_seed in sizes], chance) for size in shared),
        first.enough,
        first.able,
        any(result.stopped for result in results),
    )


def _together(study: Study, points: Sequence[Any], chance: float) -> Together:
    named = [hits_of_rates(point.named, point.tries) for point in points]
    linked = [hits_of_rates(point.linked, point.tries) for point in points]
    rates = [rate for point in points for rate in point.named]
    hits = join(named, folds=in_folds(study))
    return Together(
        releases=points[0].releases,
        named=estimate_of(hits),
        hits=hits,
        chance=chance,
        worst=max(rates),
        over_half=over_half(rates),
        accepted=statistics.fmean(point.accepted for point in points),
        linked=estimate_of(join(linked, folds=in_folds(study))),
    )


def estimate_of(hits: Hits) -> Estimate:
    """Their share, with the interval over people."""
    return Estimate(hits.share, *hits.interval, seeds=1)


def hits_of_rates(rates: Sequence[float], tries: Sequence[int]) -> Hits:
    """For one seed, as the share and the number of each person's probes."""
    hits = tuple(rate * count for rate, count in zip(rates, tries, strict=True))
    return Hits(hits, tuple(map(float, tries)), seeds=1)


def proofs(study: Study, records: Iterable[Record]) -> dict[str, Proved]:
    """Protection -> the proof for its release, for protections with a recorded one.

    Earlier versions record it with the similarity of releases to the original.
    """
    results: dict[str, Proved] = {}
    for record in belonging(study, records, "proved"):
        results.setdefault(record.cell.protection, record.result)
    for record in belonging(study, records, "similarity"):
        protection = record.cell.protection
        if record.cell.view == "released" and protection not in results:
            results[protection] = Proved(
                release=release_kind(protection),
                bytes_per_image=record.result.bytes_per_image,
                guarantee=record.result.guarantee,
            )
    return results


def over_seeds(intervals: Sequence[tuple[float, float, float]]) -> Estimate:
    """For one seed its own interval; for several their mean, with the lowest and the highest of them."""
    if len(intervals) == 1:
        return Estimate(*intervals[0], seeds=1)
    middles = [value for value, _, _ in intervals]
    # Not fmean, whose rounding may take the mean of equal numbers out of their interval.
    return Estimate(statistics.mean(middles), min(middles), max(middles), len(middles))


def in_folds(study: Study) -> bool:
    """Whether people take turns as test people: the seeds of the study are then folds."""
    return bool(study["task"].get("folds", 1) > 1)


def together(
    study: Study, intervals: Sequence[tuple[float, float, float]], trials: Sequence[int | None]
) -> Estimate:
    """Joins the seeds of a study: see `over_seeds`; folds, each with other images, are one share.

    Args:
        study: whose seeds they are.
        intervals: of each seed.
        trials: the images that each is a share of; none for means.
    """
    if not in_folds(study):
        return over_seeds(intervals)
    counts = [count for count in trials if count is not None]
    if len(counts) == len(intervals):
        right = sum(value * count for (value, _, _), count in zip(intervals, counts, strict=True))
        return Estimate(right / sum(counts), *wilson(right, sum(counts)), seeds=1)
    mean = statistics.fmean(value for value, _, _ in intervals)
    half = math.hypot(*(max(high - value, value - low) for value, low, high in intervals)) / len(intervals)
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half), seeds=1)


def bounds_of_attributes(study: Study) -> dict[str, float]:
    """Attribute -> how often it may be inferred; none in studies of earlier versions."""
    bounds: dict[str, float] = (study.get("recommend") or {}).get("inference_at_most") or {}
    return bounds


def episodic(study: Study) -> bool:
    """Whether there are episodes: not if all learners are ordinary classifiers."""
    return not study["learners"] or not set(study["learners"]) <= set(classifiers())


def clean_learner(study: Study) -> str:
    """The learner whose accuracy on clear images stands for no protection."""
    return "clean" if episodic(study) else "classifier-clean"


def guessing(study: Study, records: Iterable[Record]) -> float | None:
    """How often guessing the class is right; None if no record tells."""
    if episodic(study):
        return float(1 / study["task"]["way"])
    chances = [record.result.chance for record in belonging(study, records, "accuracy")]
    chances = [chance for chance in chances if chance is not None]
    return statistics.fmean(chances) if chances else None


def attacks_on(study: Study, protection: str) -> list[str]:
    """The attacks that a study makes on a protection."""
    attacks = dict.fromkeys(entry["cell"]["attack"] for entry in cells_of(study, "attack", protection))
    return [attack for attack in attacks if attack in ATTACKS]


def learners_of(study: Study, protection: str) -> list[str]:
    """The learners that a study trains for a protection."""
    entries = cells_of(study, "accuracy", protection)
    return list(dict.fromkeys(entry["cell"]["learner"] for entry in entries))


def learners_in_study(study: Study) -> list[str]:
    """The learners that a study names, and those that its protections bring with them, as an answer does."""
    trained = [name for spec in study["protections"] if spec != "none" for name in learners_of(study, spec)]
    return [name for name in dict.fromkeys([*study["learners"], *trained]) if name in LEARNERS]


def cells(study: Study) -> list[str]:
    """The cells of the finished study, each by its name, such as "accuracy blur:radius=1 denoised 0"."""
    return [cell_name(entry) for entry in study["cells"]]


def cell_name(entry: Mapping[str, Any]) -> str:
    """The name of a cell that study.json lists; that of a record is `record.name`."""
    cell = entry["cell"]  # a kind unknown to this version may hold anything
    which = [cell[key] for key in sorted(cell) if key not in ("protection", "seed")]
    parts = (entry["kind"], cell.get("protection"), *which, cell.get("seed"))
    return " ".join(str(part) for part in parts if part is not None)


def cells_of(study: Study, kind: str, protection: str) -> list[dict[str, Any]]:
    """The cells of one kind and protection that study.json lists."""
    return [
        entry
        for entry in study["cells"]
        if entry["kind"] == kind and entry["cell"]["protection"] == protection
    ]


def missing(study: Study, records: Iterable[Record]) -> list[str]:
    """The study's cells without a record."""
    ran = {record.name for record in records}
    return [name for name in cells(study) if name not in ran]


def belonging(study: Study, records: Iterable[Record], kind: str | None = None) -> list[Record]:
    """The records that belong to cells of the study, in the order of its cells; of one kind, or of all."""
    order = {name: number for number, name in enumerate(cells(study))}
    kept = [
        record
        for record in records
        if record.name in order
        and kind in (None, record.kind)
        and (record.kind != "attack" or record.cell.attack in ATTACKS)
    ]
    return sorted(kept, key=lambda record: order[record.name])


def classifier_in_words(name: str) -> str:
    """ "svm, trained further" -> "SVM classifier, recogniser trained further"."""
    kind, _, how = name.partition(", ")
    how = f"recogniser {how}" if how == "trained further" else how
    return f"{IDENTIFIERS.get(kind, kind)} classifier" + (f", {how}" if how else "")


def learner_in_words(name: str) -> str:
    """ "clean" -> "trained on clean images"; a learner of another version by its name."""
    return LEARNERS[name].words if name in LEARNERS else name


def percent(value: float) -> str:
    """0.0614 -> "6.1%"."""
    return f"{100 * value:.1f}%"


def is_repeated(study: Study) -> bool:
    """Whether figures are over several seeds; folds, which have their own people, count as one."""
    return len(study["seeds"]) > 1 and not in_folds(study)


def interval_in_words(study: Study) -> str:
    """The words for the interval of an accuracy."""
    return f"lowest and highest of {len(study['seeds'])} seeds" if is_repeated(study) else "95% interval"
