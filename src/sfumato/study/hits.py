"""How often people were named, person by person, and how sure that is.

The best of many settings may be a lucky one. So a setting is under a bound only if the upper end of its
interval is, with all settings of the study allowed for; and the figures that choose among settings come from
one half of the people, those that are stated from the other. See sfumato.study.choose.recommend.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfumato.base.proportions import wilson


@dataclass(frozen=True)
class Hits:
    """How often one classifier named people correctly, added up over seeds.

    Attributes:
        hits, probes: (P,) of each person, in the order of the study; in records of earlier versions, which
            do not separate them, of all people together.
        seeds: how many.
        folds: the number of groups of people, each searched separately; see `hits_of`.
    """

    hits: tuple[float, ...]
    probes: tuple[float, ...]
    seeds: int
    folds: int = 1

    @property
    def apart(self) -> bool:
        """Whether people are counted apart."""
        return len(self.probes) > 1

    @property
    def share(self) -> float:
        """The share of all probes."""
        return sum(self.hits) / sum(self.probes)

    @property
    def rates(self) -> tuple[float, ...]:
        """(P,) the share of each person's probes."""
        return tuple(hits / probes for hits, probes in zip(self.hits, self.probes, strict=True))

    def half(self, number: int) -> "Hits":
        """Every second person, from the first (0) or from the second (1); all if people are not apart."""
        if not self.apart:
            return self
        return replace(self, hits=self.hits[number::2], probes=self.probes[number::2])

    def of_more(self, times: int) -> "Hits":
        """The same for `times` as many people, if guessing and naming are that much rarer among them."""
        hits = tuple(count / times for count in self.hits)
        return replace(self, hits=hits * times, probes=self.probes * times)

    def by_counting(self, outputs: int) -> float:
        """The largest share of the probes that anybody can name from one of `outputs` outputs each.

        A guess on seeing an output is right for one person alone: at best for the M people with the most
        probes (Smith 2009, Thm. 1, for the priors that these people have). In each fold it is right for
        others.
        """
        return sum(sorted(self.probes, reverse=True)[: outputs * self.folds]) / sum(self.probes)

    @property
    def trials(self) -> float:
        """The number of independent trials that would be as certain.

        Photographs of one person are named together or not at all, and seeds ask for the same people: the
        variance is that between people (the ratio estimator of a cluster sample: Cochran 1977, Sec. 9.7), and
        a seed adds none. A person counts as one trial at least, a photograph as one at most.
        """
        most, people, share = sum(self.probes) / self.seeds, len(self.probes), self.share
        if not self.apart or not 0 < share < 1:
            return most
        pairs = zip(self.hits, self.probes, strict=True)
        spread = sum((hits - share * probes) ** 2 for hits, probes in pairs)
        variance = people / (people - 1) * spread / sum(self.probes) ** 2
        if variance <= share * (1 - share) / most:
            return most
        return max(share * (1 - share) / variance, float(min(people, most)))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share, by Wilson's formula for `trials`."""
        return wilson(self.share * self.trials, self.trials)

    def upper_end(self, error: float) -> float:
        """The bound that the true share exceeds with this probability at most: Clopper & Pearson 1934."""
        from scipy.special import betaincinv  # type: ignore[import-untyped]

        trials = self.trials
        hits = self.share * trials
        return 1.0 if hits >= trials else float(betaincinv(hits + 1, trials - hits, 1 - error))


def over_half(rates: Sequence[float]) -> float:
    """The share of people who are named in over half of their probes."""
    return sum(rate > 1 / 2 for rate in rates) / len(rates)


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
    """Classifier -> its hits over seeds; for those that all seeds have, with the number of probes.

    Folds have their own people, whose hits are appended: nobody is counted twice. Trainings of two folds
    share some people, which the interval, over people, does not know.

    Args:
        results: of one attack on one protection, one a seed; see study.parts.kinds.attack.Result.
        folds: whether the seeds are folds.
    """
    scores = [{score.classifier: score for score in result.scores} for result in results]
    if not all(result.probes for result in results):
        return {}
    named = {}
    for classifier in scores[0]:
        own = [seed[classifier] for seed in scores if classifier in seed]
        if len(own) < len(results):
            continue
        if folds and all(result.people for result in results) and all(score.hits for score in own):
            people = tuple(float(count) for result in results for count in result.people or ())
            right = tuple(float(count) for score in own for count in score.hits or ())
            named[classifier] = Hits(right, people, seeds=1, folds=len(results))
            continue
        pairs = list(zip(own, results, strict=True))
        apart = len({result.people for result in results}) == 1 and all(score.hits for score in own)
        hits = [score.hits if apart else (score.top1 * result.probes,) for score, result in pairs]
        probes = [result.people if apart else (result.probes,) for result in results]
        named[classifier] = Hits(sum_over_seeds(hits), sum_over_seeds(probes), len(results))
    return named


def sum_over_seeds(counts: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The sums over seeds, person by person."""
    return tuple(float(sum(of_one)) for of_one in zip(*counts, strict=True))
