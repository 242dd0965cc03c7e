"""Accuracy and naming by group of people, as by gender, with the largest gap between two groups."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from statistics import NormalDist

from sfumato.assess.hits import Hits, join
from sfumato.base.proportions import over_people
from sfumato.study.choose.figures import Estimate, Figures, estimate_of, interval, percent

FEWEST = 5  # people of a group that is compared with others
PARTS = ("tested", "looked for")  # people whose groups a study lists
GROUPED = ("setting", "figure", "each group, with its interval over people", "largest gap")


@dataclass(frozen=True)
class ByGroup:
    """How often one protection's learner, or its strongest adversary, is right about each group of people."""

    label: str  # such as gender
    protection: str
    named: bool  # whether it is of naming; otherwise of accuracy
    groups: Mapping[str, Hits]  # people of each, by their names

    @cached_property
    def gap(self) -> tuple[str, str, Estimate] | None:
        """The group with more, the one with less, and the difference of the two furthest apart.

        Its 95% interval holds for all pairs of groups together (Bonferroni), so that the choice of the pair
        is allowed for. Source: Newcombe 1998, method 10, of Wilson's intervals over people. None for fewer
        than two groups of FEWEST people.
        """
        compared = {name: hits for name, hits in self.groups.items() if len(hits.hits) >= FEWEST}
        pairs = [sorted(pair, key=lambda name: -compared[name].share) for pair in combinations(compared, 2)]
        if not pairs:
            return None
        most, least = max(pairs, key=lambda pair: compared[pair[0]].share - compared[pair[1]].share)
        z = NormalDist().inv_cdf(1 - 0.025 / len(pairs))
        ends = [(of.share, *over_people(*of.of_a_seed, z=z)) for of in (compared[most], compared[least])]
        (more, low, high), (less, lowest, highest) = ends
        gap = more - less
        below, above = math.hypot(more - low, highest - less), math.hypot(high - more, less - lowest)
        return most, least, Estimate(gap, max(-1.0, gap - below), min(1.0, gap + above), seeds=1)

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The cells of GROUPED."""
        shares = "; ".join(f"{name} {interval(estimate_of(hits))}" for name, hits in self.groups.items())
        figure = f"{'named' if self.named else 'right'}, by {self.label}"
        return self.protection, figure, shares, interval(self.gap[2], " points") if self.gap else "–"

    def __str__(self) -> str:
        """ "gender: male is named most, 12.0%; more than female by 6.1 points (2.2 to 10.1)"."""
        if self.gap is None:
            return f"{self.label}: fewer than two groups have {FEWEST} people"
        most, least, gap = self.gap
        first, words, other = (most, "named most", least) if self.named else (least, "served worst", most)
        than = f"{'more' if self.named else 'less'} than {other} by {interval(gap, ' points')}"
        return f"{self.label}: {first} is {words}, {percent(self.groups[first].share)}; {than}"


def by_group(results: Figures) -> Iterator[ByGroup]:
    """Accuracy by the best learner, and naming by the strongest adversary, of each setting and label."""
    for label, folds in (results.study.get("groups") or {}).items():
        tested, sought = ([name for fold in folds for name in fold.get(part, ())] for part in PARTS)
        for each in results.settings:
            made = results.group("accuracy").get((each.protection, each.learner or ""), [])
            counts = [Hits(result.hits, result.probes, seeds=1) for result in made if result.probes]
            known = [(False, join(counts, folds=results.folds), tested)] if counts else []
            known += [(True, each.risk.strongest, sought)] if each.risk else []
            for named, hits, names in known:
                if len(hits.hits) == len(names):  # not in records from before there were groups
                    yield ByGroup(label, each.protection, named, _divide(hits, names))


def _divide(people: Hits, groups: Sequence[str]) -> dict[str, Hits]:
    """The hits of each group of people, of those who were asked; `groups` has the group of each."""
    made, counts = {}, list(zip(people.hits, people.probes, groups, strict=True))
    for name in sorted(set(groups)):
        own = [(hits, probes) for hits, probes, group in counts if group == name and probes]
        if own:
            hits, probes = zip(*own, strict=True)
            made[name] = replace(people, hits=hits, probes=probes)
    return made
