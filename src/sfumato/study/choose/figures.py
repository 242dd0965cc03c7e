"""The figures of a study's records, over its seeds, with their intervals."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sfumato.assess.hits import Hits, Means, hits_of, join
from sfumato.assess.identity import mean_over_people, precision
from sfumato.base.proportions import wilson
from sfumato.study.measure.results import RESULTS, Proved
from sfumato.study.records import Record
from sfumato.study.vocabulary import (
    ATTACKS,
    IDENTIFIERS,
    INFERRERS,
    LEARNERS,
    SHAPE,
    has_shape,
    release_kind,
)

Study = dict[str, Any]  # study.json, whose "cells" are those of `grid.cells`
Pair = tuple[str, str]  # a protection, and its learner, attack or attribute


@dataclass(frozen=True)
class Estimate:
    """A number and the interval to print with it.

    Rates over people have 95% over people; accuracies of one seed have the record's own 95%, and those of
    several the lowest and the highest of them, since trainings differ more than episodes do.
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
    """How often one adversary, with their best classifier, names people or infers an attribute."""

    attack: str  # or the label of an attribute that is inferred
    chance: float  # of the best guess without looking
    identities: int  # to choose from
    named: Mapping[str, Hits]  # by each of their classifiers; one at least
    rising: tuple[str, ...] = ()  # networks that still gained when training ended: these are lower bounds
    had: Means | None = None  # of re-identification alone
    bits: Estimate | None = None  # of identity, of a release; None if not recorded, as the next
    surest: Estimate | None = None  # how many of the surest hundredth of namings are right

    @cached_property
    def classifier(self) -> str:
        """Their best, the first of equals."""
        return max(self.named, key=lambda name: self.named[name].share)

    @cached_property
    def top1(self) -> Estimate:
        """The share of probes that they name."""
        return estimate_of(self.strongest)

    @property
    def infers(self) -> bool:
        """Whether it is of an attribute."""
        return self.attack not in ATTACKS

    @property
    def adversary(self) -> str:
        """In words: "adaptive adversary, linear classifier"."""
        if self.infers:
            return INFERRERS.get(self.classifier, self.classifier)
        return f"{ATTACKS[self.attack].words}, {classifier_in_words(self.classifier)}"

    @property
    def crowd(self) -> str:
        """How many people are looked for, and what the adversary had, in words."""
        return f"{len(self.strongest.probes):,} looked for among {self.had or f'{self.identities:,}'}"

    @property
    def strongest(self) -> Hits:
        """The hits of their best classifier."""
        return self.named[self.classifier]

    def upper_end(self, error: float) -> float:
        """The bound their share exceeds with this probability at most."""
        return max(hits.upper_end(error) for hits in self.named.values())

    def of_half(self, number: int) -> "Risk":
        """The same for one half of the people, by the strongest classifier there."""
        return replace(self, named={name: hits.half(number) for name, hits in self.named.items()})


@dataclass(frozen=True)
class Together:
    """The risk from several releases of one person, over the seeds."""

    releases: int
    named: Estimate  # how often people are named, by adversaries that other people chose
    hits: Hits  # the same person by person
    chance: float
    accepted: float  # the share of sets accepted as the right person's, at 1 in 100 false acceptances
    linked: Estimate  # how often two services' labels are linked to one person
    had: Means
    bits: Estimate | None  # as of Risk
    surest: Estimate | None  # likewise


@dataclass(frozen=True)
class Curve:
    """How naming grows with the number of releases."""

    points: tuple[Together, ...]  # by rising number, those that all seeds have
    enough: Mapping[int, int]  # number of releases -> how many of `able` people have enough pictures for it
    able: int  # how many people have two pictures
    stopped: bool  # whether larger numbers were skipped, since smaller ones name too many

    def after(self, releases: int) -> Together | None:
        """The risk from this many releases; None if it was not measured."""
        return next((point for point in self.points if point.releases == releases), None)


@dataclass(frozen=True)
class Setting:
    """A protection with its best learner and its strongest adversary; None for what is not recorded."""

    protection: str
    learner: str | None
    accuracy: Estimate | None
    halves: tuple[Estimate, Estimate] | None  # of the test images; None if they are not apart
    risk: Risk | None  # the strongest of `risks`
    risks: tuple[Risk, ...]  # of all attacks that ran
    inferred: tuple[Risk, ...]  # how often each attribute that must stay hidden is inferred
    untried: tuple[str, ...]  # adversaries that must be tried on it, and that the study leaves out
    complete: bool  # whether all attacks and inferences ran, with all seeds; else the risks are too low
    on_frontier: bool = False  # no other complete setting is as good in both and better in one

    @property
    def bits(self) -> Estimate | None:
        """The most bits of identity that any adversary finds in a release."""
        return max((risk.bits for risk in self.risks if risk.bits), key=lambda bits: bits.value, default=None)

    @property
    def until_one_in_a_million(self) -> str:
        """How many releases have the bits that tell a person from so many, if bits add up, in words."""
        if self.bits is None:
            return "–"
        ends = [f"{math.log2(1e6) / end:,.0f}" if end > 0 else "∞" for end in (self.bits.high, self.bits.low)]
        return " to ".join(dict.fromkeys(ends))

    def upper_end(self, error: float) -> float:
        """A bound on every adversary's share, but for this probability; 1 if nobody looked.

        The strongest exceeds its own with this probability at most: their number needs no correction.
        """
        return max((risk.upper_end(error) for risk in self.risks), default=1.0)

    def on(self, half: int) -> tuple[Estimate, Risk]:
        """The accuracy and strongest adversary, if it has both, on a half of images (if apart) and people."""
        accuracy = self.halves[half] if self.halves else self.accuracy
        risk = _strongest(risk.of_half(half) for risk in self.risks)
        assert accuracy is not None
        assert risk is not None
        return accuracy, risk


class Figures:
    """A study and the records of its cells; each figure is made once. State: none that changes."""

    def __init__(self, study: Study, records: Iterable[Record]) -> None:
        # Without cells of a kind or attack that this version does not know, as of a package that is missing.
        self.study: Study = {**study, "cells": [entry for entry in study["cells"] if is_known(entry)]}
        attacks = (entry["cell"].get("attack") for entry in study["cells"] if not is_known(entry))
        self.unknown = list(dict.fromkeys(filter(None, attacks)))
        by_name = {record.name: record for record in records}
        names = dict.fromkeys(map(cell_name, self.study["cells"]))
        self.records = [by_name[name] for name in names if name in by_name]
        self.missing = [name for name in names if name not in by_name]  # "accuracy blur:radius=1 clean 0"
        self.folds = study["task"].get("folds", 1) > 1  # people take turns as test people, a seed each
        # Not if all learners are ordinary classifiers.
        known = {name for name, learner in LEARNERS.items() if learner.knows_classes}
        self.episodic = not study["learners"] or not known.issuperset(study["learners"])
        asked = study.get("recommend") or {}
        self.bound: float | None = asked.get("reidentification_at_most")
        self.bounds: dict[str, float] = asked.get("inference_at_most") or {}  # of attributes
        self.releases = int(asked.get("releases", 1))  # of one person, from which the bound is to be kept

    def of(self, kind: str) -> list[Record]:
        """The records of one kind, in the order of the cells."""
        return [record for record in self.records if record.kind == kind]

    def group(self, kind: str) -> dict[Pair, list[Any]]:
        """The results of one kind, one a seed, by protection and its learner, attack or view, if any."""
        groups: dict[Pair, list[Any]] = defaultdict(list)
        for record in self.of(kind):
            groups[record.cell.protection, "".join(record.cell.which)].append(record.result)
        return dict(groups)

    def cells_of(self, kind: str, protection: str) -> list[dict[str, Any]]:
        """The cells of one kind and protection that study.json lists."""
        return [
            entry
            for entry in self.study["cells"]
            if entry["kind"] == kind and entry["cell"]["protection"] == protection
        ]

    def names_of(self, kind: str, protection: str) -> list[str]:
        """The learners or attacks of these cells."""
        which = {"accuracy": "learner", "attack": "attack"}[kind]
        return list(dict.fromkeys(entry["cell"][which] for entry in self.cells_of(kind, protection)))

    @property
    def learners(self) -> list[str]:
        """Those that the study names, and those that its protections bring with them, as an answer does."""
        specs = [spec for spec in self.study["protections"] if spec != "none"]
        trained = [name for spec in specs for name in self.names_of("accuracy", spec)]
        return [name for name in dict.fromkeys([*self.study["learners"], *trained]) if name in LEARNERS]

    @property
    def is_repeated(self) -> bool:
        """Whether figures are over several seeds; folds, which have their own people, count as one."""
        return len(self.study["seeds"]) > 1 and not self.folds

    @property
    def spread(self) -> str:
        """The words for the interval of an accuracy."""
        seeds = len(self.study["seeds"])
        return f"lowest and highest of {seeds} seeds" if self.is_repeated else "95% interval"

    @cached_property
    def accuracies(self) -> dict[Pair, Estimate]:
        """(protection, learner) -> accuracy."""
        return {
            key: self.together([interval_of(result) for result in made], [result.images for result in made])
            for key, made in self.group("accuracy").items()
        }

    @cached_property
    def halves(self) -> dict[Pair, tuple[Estimate, Estimate]]:
        """(protection, learner) -> accuracy on two halves of the test images, if all seeds have them."""

        def of_half(seeds: Sequence[Any], number: int) -> Estimate:
            counts = (result.images for result in seeds)
            images = [None if count is None else (count + 1 - number) // 2 for count in counts]
            return self.together([interval_of(result.halves[number]) for result in seeds], images)

        made = self.group("accuracy").items()
        whole = {key: seeds for key, seeds in made if all(result.halves for result in seeds)}
        return {key: (of_half(seeds, 0), of_half(seeds, 1)) for key, seeds in whole.items()}

    @property
    def clean(self) -> Estimate | None:
        """The accuracy on clear images, which stands for no protection."""
        return self.accuracies.get(("none", "clean" if self.episodic else "classifier-clean"))

    @cached_property
    def guessing(self) -> float | None:
        """How often guessing the class is right; None if no record tells."""
        if self.episodic:
            return float(1 / self.study["task"]["way"])
        made = [record.result.chance for record in self.of("accuracy")]
        chances = [chance for chance in made if chance is not None]
        return statistics.fmean(chances) if chances else None

    @cached_property
    def risks(self) -> dict[Pair, Risk]:
        """(protection, attack) -> the risk by that attack's strongest classifier."""
        return self._risks("attack")

    @cached_property
    def inferences(self) -> dict[Pair, Risk]:
        """(protection, attribute) -> how often it is inferred."""
        return self._risks("inference")

    def _risks(self, kind: str) -> dict[Pair, Risk]:
        made = {}
        for (spec, name), seeds in self.group(kind).items():
            weights = [each.probes or 1 for each in seeds]
            rising = (
                f"{network.network} after {network.steps} steps"
                for result in seeds
                for network in getattr(result, "trained", ())
                if network.flat is False
            )
            made[spec, name] = Risk(
                name,
                statistics.fmean((each.chance for each in seeds), weights=weights),
                min(result.identities for result in seeds),
                hits_of(seeds, folds=self.folds),
                tuple(dict.fromkeys(rising)),
                None if kind == "inference" else seeds[0].had,
                *self._believed([(each, each.people) for each in seeds]),
            )
        return made

    @cached_property
    def ranks(self) -> dict[str, tuple[Estimate, str]]:
        """Protection -> its log-rank privacy against the strongest adversary of each seed, and who that is.

        Every classifier of every attack is one, and those of the cells of log-rank privacy are.
        """
        made: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for record in self.records:
            of_seed = made[record.cell.protection][record.cell.seed]
            if record.kind == "log-rank":
                one = record.result
                of_seed.append((one.lrp, one.low, one.high, one.strongest))
            for score in record.result.scores if record.kind == "attack" else ():
                name = ATTACKS[record.cell.attack or ""].short
                words = f"{name}: {classifier_in_words(score.classifier)}"
                of_seed += [(*score.log_rank, words)] if score.log_rank else []
        least = {spec: [min(each) for each in seeds.values() if each] for spec, seeds in made.items()}
        return {
            spec: (
                self.together([each[:3] for each in seeds], [None]),
                ", ".join(dict.fromkeys(each[3] for each in seeds)),
            )
            for spec, seeds in least.items()
            if seeds
        }

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Maps each protection to its curve, if one was recorded for all seeds."""
        return {
            protection: self._curve(made)
            for (protection, _), made in self.group("many").items()
            if len(made) == len(self.study["seeds"]) and all(result.points for result in made)
        }

    def _curve(self, results: Sequence[Any]) -> Curve:
        sizes = [{point.releases: point for point in result.points} for result in results]
        first, made = results[0], []
        for size in sizes[0]:
            points = [of_seed[size] for of_seed in sizes if size in of_seed]
            if len(points) < len(sizes):
                continue
            hits, linked = (
                join([hits_of_rates(getattr(point, name), point.tries) for point in points], folds=self.folds)
                for name in ("named", "linked")
            )
            panels = [point.panel or of.panel for point, of in zip(points, results, strict=True)]
            chance = statistics.fmean(1 / panel for panel in panels)
            accepted = statistics.fmean(point.accepted for point in points)
            named = estimate_of(hits), hits, chance, accepted, estimate_of(linked)
            believed = self._believed([(point, point.tries) for point in points])
            had = Means(panels[0], points[0].known or first.known, first.others, size)
            made.append(Together(size, *named, had, *believed))
        stopped = any(result.stopped for result in results)
        return Curve(tuple(made), first.enough, first.able, stopped)

    def _believed(
        self, seeds: Sequence[tuple[Any, Sequence[int] | None]]
    ) -> tuple[Estimate | None, Estimate | None]:
        """The bits of identity, and how sure namings are, with 95% intervals over people."""
        if not all(result.bits for result, _ in seeds):
            return None, None
        bits = join([hits_of_rates(each.bits, of) for each, of in seeds if of], folds=self.folds)
        surest = join([Hits(each.surest, each.surest_of, seeds=1) for each, _ in seeds], folds=self.folds)
        made = mean_over_people(bits.rates, bits.probes), precision(*surest.of_a_seed)
        return Estimate(*made[0], seeds=1), Estimate(*made[1], seeds=1)

    @cached_property
    def proofs(self) -> dict[str, Proved]:
        """Protection -> the proof for its release; some kept records have it beside the similarity."""
        found: dict[str, Proved] = {}
        beside = (record for record in self.of("similarity") if record.cell.view == "released")
        for record in [*self.of("proved"), *beside]:
            spec, result = record.cell.protection, record.result
            if record.kind == "similarity":
                stated = {"bytes_per_image": result.bytes_per_image, "guarantee": result.guarantee}
                result = Proved(release=release_kind(spec), **stated)
            found.setdefault(spec, result)
        return found

    @cached_property
    def settings(self) -> list[Setting]:
        """Every protection of the study, in its order, with its best learner and its strongest adversary."""
        settings = [self._setting(spec) for spec in self.study["protections"]]
        points = {
            each.protection: (each.accuracy.value, -each.risk.top1.value)
            for each in settings
            if each.complete and each.accuracy and each.risk
        }

        def is_beaten(own: tuple[float, float]) -> bool:
            return any(of != own and of[0] >= own[0] and of[1] >= own[1] for of in points.values())

        best = [spec for spec, own in points.items() if not is_beaten(own)]
        return [replace(setting, on_frontier=setting.protection in best) for setting in settings]

    def _setting(self, protection: str) -> Setting:
        # Ordinary classifiers count if there are no others; those of shapes never: they are not a service.
        learners = [
            name
            for name in self.names_of("accuracy", protection)
            if (protection, name) in self.accuracies
            and ((words := LEARNERS.get(name)) is None or words.of_service)
            and not (self.episodic and words and words.knows_classes)
        ]
        learner = max(learners, key=lambda name: self.accuracies[protection, name].value, default="")
        tried = self.names_of("attack", protection)
        planned = [*self.cells_of("attack", protection), *self.cells_of("inference", protection)]
        made = tuple(self.risks[protection, name] for name in tried if (protection, name) in self.risks)
        return Setting(
            protection=protection,
            learner=learner or None,
            accuracy=self.accuracies.get((protection, learner)),
            halves=self.halves.get((protection, learner)),
            risk=_strongest(made),
            risks=made,
            inferred=tuple(each for (spec, _), each in self.inferences.items() if spec == protection),
            untried=tuple(name for name in mandatory_attacks(protection) if name not in tried),
            complete=bool(planned) and set(self.missing).isdisjoint(map(cell_name, planned)),
        )

    def not_tried_on(self, protection: str) -> list[str]:
        """The adversaries that can look at a protection's releases, and that the study leaves out."""
        kind, tried = release_kind(protection), self.names_of("attack", protection)
        denoised = "denoised" in self.study["learners"]
        views = {"shape": kind == SHAPE or has_shape(protection), "denoised": denoised}
        able = [name for name, attack in ATTACKS.items() if kind in attack.releases and protection != "none"]
        return [name for name in able if views.get(ATTACKS[name].view, True) and name not in tried]

    def together(
        self, intervals: Sequence[tuple[float, float, float]], trials: Sequence[int | None]
    ) -> Estimate:
        """For one seed its own interval; for several their mean, with the lowest and the highest of them.

        Folds are one share of all images, which `trials` counts; or the mean of what is independent, if it
        has None for one of them.
        """
        shares = [value for value, _, _ in intervals]
        if not self.folds:
            # Not fmean, whose rounding may take the mean of equal numbers out of their interval.
            several = Estimate(statistics.mean(shares), min(shares), max(shares), len(shares))
            return several if len(shares) > 1 else Estimate(*intervals[0], seeds=1)
        counts = [count for count in trials if count is not None]
        if len(counts) == len(intervals):
            right = sum(value * count for value, count in zip(shares, counts, strict=True))
            return Estimate(right / sum(counts), *wilson(right, sum(counts)), seeds=1)
        mean, ends = statistics.fmean(shares), (max(high - of, of - low) for of, low, high in intervals)
        half = math.hypot(*ends) / len(shares)
        return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half), seeds=1)


def is_known(entry: Mapping[str, Any]) -> bool:
    """Whether this version knows the kind of a cell or record, and its attack."""
    kind, cell = entry.get("kind"), entry.get("cell")
    attack = cell.get("attack") if isinstance(cell, Mapping) else None
    return kind in RESULTS and (kind != "attack" or attack is None or attack in ATTACKS)


def cell_name(entry: Mapping[str, Any]) -> str:
    """The name of a cell that study.json lists; that of a record is `record.name`."""
    cell = entry["cell"]
    which = [cell[key] for key in sorted(cell) if key not in ("protection", "seed")]
    return " ".join(map(str, (entry["kind"], cell["protection"], *which, cell["seed"])))


def interval_of(result: Any) -> tuple[float, float, float]:
    """Accuracy, and the ends of its interval: over test images, or over episodes."""
    value = result.accuracy
    if result.low is not None:
        return value, result.low, result.high
    return value, max(0.0, value - result.half_width), min(1.0, value + result.half_width)


def estimate_of(hits: Hits) -> Estimate:
    """Their share, with the interval over people."""
    return Estimate(hits.share, *hits.interval, seeds=1)


def hits_of_rates(rates: Sequence[float], tries: Sequence[int]) -> Hits:
    """For one seed, as the share and the number of each person's probes."""
    hits = tuple(rate * count for rate, count in zip(rates, tries, strict=True))
    return Hits(hits, tuple(map(float, tries)), seeds=1)


def mandatory_attacks(protection: str) -> list[str]:
    """The adversaries without whom a protection is never recommended."""
    kind = release_kind(protection)
    return [name for name, attack in ATTACKS.items() if kind in attack.needed and protection != "none"]


def _strongest(risks: Iterable[Risk]) -> Risk | None:
    return max(risks, key=lambda risk: risk.top1.value, default=None)


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


def interval(share: Estimate, unit: str = "%") -> str:
    """A share with its 95% interval, in percent or in points."""
    return f"{100 * share.value:.1f}{unit} ({100 * share.low:.1f} to {100 * share.high:.1f})"
