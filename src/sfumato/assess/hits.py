"""How often people were named, person by person, and how sure that is.

The best of many settings may be a lucky one. So a setting is under a bound only if the upper end of its
interval is, with all settings of the study allowed for. See sfumato.study.choose.recommend.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sfumato.base.proportions import over_people, upper_end_over_people


@dataclass(frozen=True)
class Hits:
    """How often one classifier named people correctly, added up over seeds."""

    hits: tuple[float, ...]  # of each person, in the order of the study
    probes: tuple[float, ...]  # the same
    seeds: int
    folds: int = 1  # groups of people, each searched separately; see `hits_of`

    @property
    def share(self) -> float:
        """The share of all probes."""
        return math.fsum(self.hits) / math.fsum(self.probes)

    @property
    def rates(self) -> tuple[float, ...]:
        """(P,) the share of each person's probes."""
        return tuple(hits / probes for hits, probes in zip(self.hits, self.probes, strict=True))

    def half(self, number: int) -> "Hits":
        """Every second person, from the first (0) or from the second (1)."""
        return replace(self, hits=self.hits[number::2], probes=self.probes[number::2])

    def of_more(self, times: int) -> "Hits":
        """The same for `times` as many people, if guessing and naming are that much rarer among them."""
        hits = tuple(count / times for count in self.hits)
        return replace(self, hits=hits * times, probes=self.probes * times)

    def is_above(self, other: "Hits") -> bool:
        """Whether more of the same probes are named: the 95% interval of the gap, over people, is above 0."""
        gaps = [own - its for own, its in zip(self.hits, other.hits, strict=True)]
        gap, people = sum(gaps) / sum(self.probes), len(gaps)
        pairs = zip(gaps, self.probes, strict=True)
        spread = people / max(1, people - 1) * sum((more - gap * probes) ** 2 for more, probes in pairs)
        return gap * sum(self.probes) > 1.959964 * math.sqrt(spread)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share, over people."""
        return over_people(*self.of_a_seed)

    def upper_end(self, error: float) -> float:
        """The bound that the true share exceeds with this probability at most, over people."""
        return upper_end_over_people(*self.of_a_seed, error=error)

    @property
    def of_a_seed(self) -> tuple[list[float], list[float]]:
        """The means over seeds, which ask for the same people and so add no trials."""
        return [count / self.seeds for count in self.hits], [count / self.seeds for count in self.probes]


@dataclass(frozen=True)
class Means:
    """What an adversary had: naming depends on all four numbers."""

    people: int  # to choose from
    known: float | None  # photographs of each, on average; None in older records, as the next
    others: int | None  # people to learn from
    releases: int = 1  # of one person

    def __str__(self) -> str:
        known = "" if self.known is None else f", {self.known:.3g} known photographs of each"
        others = "" if self.others is None else f", {self.others:,} others to learn from"
        return f"{self.people:,} people{known}{others}, {self.releases} release{'s' * (self.releases > 1)}"


def fewest(keeps: Callable[[int], bool], *, most: int) -> int | None:
    """The smallest number from 2 to `most` with a property that all above it share; None if there is none."""
    low, high = 1, 2
    while not keeps(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def whole_percents(share: float) -> float:
    """A share rounded up to whole percents: a bound that is no lower."""
    return min(1.0, math.ceil(100 * share - 1e-6) / 100)


def hits_of(results: Sequence[Any], *, folds: bool = False) -> dict[str, Hits]:
    """Classifier -> its hits over the seeds, or folds, that have it.

    The results are of one attack on one protection, one a seed. A record that does not say who was named
    counts each person as one probe.
    """
    named = defaultdict(list)
    for result in results:
        people = getattr(result, "people", None) or (1.0,) * result.identities
        for score in result.scores:
            hits = score.hits or [score.top1 * probes for probes in people]
            named[score.classifier].append(Hits(tuple(map(float, hits)), tuple(map(float, people)), seeds=1))
    return {classifier: join(of_seeds, folds=folds) for classifier, of_seeds in named.items()}


def join(of_seeds: Sequence[Hits], *, folds: bool = False) -> Hits:
    """Adds up hits on the same people; appends those on other people, as in folds.

    Nobody of a fold is in another. Trainings of two folds share some people, which the interval, over people,
    does not know.
    """
    hits, probes = [each.hits for each in of_seeds], [each.probes for each in of_seeds]
    if folds or len({len(people) for people in probes}) > 1:
        return Hits(tuple(chain(*hits)), tuple(chain(*probes)), seeds=1, folds=len(of_seeds))
    right, asked = (tuple(map(math.fsum, zip(*counts, strict=True))) for counts in (hits, probes))
    return Hits(right, asked, seeds=len(of_seeds))
