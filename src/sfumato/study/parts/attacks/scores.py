"""What an attack is recorded as: how often each classifier names people, by one release and by several.

See kinds.attack for the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sfumato.assess import recognition
from sfumato.attack import groups
from sfumato.attack.reidentify import Guesses
from sfumato.study.hits import Hits

_PAIRS = 20_000_000  # at most so many pairs are verified: more would need gigabytes
_GROUP_PAIRS = 2_000_000  # of a group and a label, of each classifier


@dataclass(frozen=True)
class Probes:
    """Who is on the releases that are named.

    Attributes:
        truth: (m,) int64 codes.
        groups: how many of one person -> (G, k) rows of disjoint groups; of what two people at least have.
    """

    truth: Tensor
    groups: dict[int, Tensor]

    @classmethod
    def dealt(cls, truth: Tensor, *, seed: int) -> "Probes":
        """The probes of (m,) int64 people; the seed decides which are together."""
        dealt = {size: groups.split_into_groups(truth, size, seed=seed) for size in groups.SIZES}
        return cls(truth, {size: rows for size, rows in dealt.items() if len(truth[rows[:, 0]].unique()) > 1})

    @property
    def people(self) -> Tensor:
        """(P,) int64, ascending."""
        codes: Tensor = self.truth.unique()
        return codes


def score(guesses: Guesses, probes: Probes) -> dict[str, Any]:
    """How often a classifier is right; see kinds.attack.Score."""
    truth = probes.truth
    ranks = recognition.identification_ranks(guesses.similarities, guesses.identities, truth)
    identification = recognition.identification(guesses.similarities, guesses.identities, truth)
    return {
        "classifier": guesses.classifier,
        **asdict(identification),
        "hits": hits(ranks <= 1, truth),
        "groups": of_groups(lambda rows: (guesses.of_groups(rows), None), guesses.identities, probes),
    }


def hits(right: Tensor, who: Tensor, people: Tensor | None = None) -> list[float]:
    """How many of each person are named rightly; of `right` that are shares, their sums. -> (P,).

    Args:
        right: (m,) bool, or shares.
        who: (m,) int64 codes.
        people: (P,) ascending; None for those of `who`.
    """
    people = who.unique() if people is None else people
    rows = torch.searchsorted(people, who)
    counted: list[float] = torch.zeros(len(people)).double().index_add(0, rows, right.double()).tolist()
    return counted


def of_groups(
    judge: Callable[[Tensor], tuple[Tensor, Tensor | None]], identities: Tensor, probes: Probes
) -> dict[str, Any]:
    """How groups of every size are named, and known to be of the person of a label; see kinds.attack.Group.

    Args:
        judge: (G, k) rows of groups -> their similarities (G, I), and how often each is named rightly, (G,);
            None for whether the right person alone is the most similar.
        identities: (I,) int64, of the columns.
        probes: in groups.
    """
    made = {}
    for size, rows in probes.groups.items():
        who = probes.truth[rows[:, 0]]
        similarities, right = judge(rows)
        if right is None:
            right = recognition.identification_ranks(similarities, identities, who) <= 1
        step = -(-similarities.numel() // _GROUP_PAIRS)
        same = who[:, None] == identities
        made[str(size)] = {
            **named(hits(right, who, probes.people), hits(torch.ones(len(who)), who, probes.people)),
            **asdict(recognition.verification(similarities[::step].flatten(), same[::step].flatten())),
        }
    return made


def named(hits: Sequence[float], trials: Sequence[float]) -> dict[str, Any]:
    """The share of hits, with its 95% interval, in which trials of one person are not independent.

    Args:
        hits, trials: (P,) of each person; without trials they do not count.
    """
    asked = [number for number, count in enumerate(trials) if count]
    counted = Hits(
        tuple(hits[number] for number in asked), tuple(trials[number] for number in asked), seeds=1
    )
    low, high = counted.interval
    return {"top1": counted.share, "low": low, "high": high, "hits": list(hits)}


def verified(compare: Callable[[Tensor], Tensor], names: Tensor, truth: Tensor) -> dict[str, float]:
    """How well it is told whether one photograph of the gallery and one probe show the same person.

    Args:
        compare: (k,) rows of probes -> (k, n) similarities to the photographs of the gallery.
        names: (n,) int64.
        truth: (m,) int64.
    """
    rows = torch.arange(len(truth))[:: max(1, len(names) * len(truth) // _PAIRS)]
    same = truth[rows, None] == names
    judged = recognition.verification(compare(rows).flatten(), same.flatten())
    accepted = {f"tar_at_far_{rate}": share for rate, share in judged.tar_at_far.items()}
    return {"verification_auc": judged.auc, **accepted}


def linking(
    matches: dict[str, groups.Match], names: Tensor, truth: Tensor, *, seed: int
) -> list[dict[str, Any]]:
    """How often labels of two services are found to be of one person; see kinds.attack.Link.

    One has releases of the photographs of the gallery, and the other those of the probes.

    Args:
        matches: how they are compared -> of so many rows of the gallery and of the probes.
        names: (n,) int64, who is in the gallery.
        truth: (m,) int64, who the probes are.
        seed: decides which photographs are compared.
    """
    links = []
    for size in groups.SIZES:
        sides = groups.sides(names, truth, size, seed=seed)
        if len(sides.people) < 2:
            continue
        trials = [float(len(sides.first))] * len(sides.people)
        for classifier, match in matches.items():
            similarities = torch.stack(
                [match(first, second) for first, second in zip(sides.first, sides.second, strict=True)]
            )  # (T, P, P), a row a label of the second service
            ranks = recognition.identification_ranks(
                similarities.flatten(0, 1), sides.people, sides.people.repeat(len(similarities))
            )
            right = hits(ranks <= 1, sides.people.repeat(len(similarities)), sides.people)
            same = torch.eye(len(sides.people)).bool().expand_as(similarities)
            links.append(
                {
                    "classifier": classifier,
                    "releases": size,
                    "rounds": len(similarities),
                    **named(right, trials),
                    **asdict(recognition.verification(similarities.flatten(), same.flatten())),
                }
            )
    return links


def outcome(scores: list[dict[str, Any]], names: Tensor, probes: Probes, *, gallery: int) -> dict[str, Any]:
    """The result of an attack; see kinds.attack.Result.

    Args:
        scores: of `score`.
        names: codes of the people who are known.
        probes: who are named.
        gallery: how many photographs are known.
    """
    people, counts = probes.truth.unique(return_counts=True)
    return {
        "scores": scores,
        "chance": recognition.chance(probes.truth),
        "identities": len(names.unique()),
        "gallery": gallery,
        "probes": len(probes.truth),
        "people": counts.tolist(),
        "groups": {str(size): (counts // size).tolist() for size in probes.groups},
        "no_groups": {
            str(size): f"{int((counts >= size).sum())} of {len(people)} people have {size} probes; 2 must"
            for size in groups.SIZES
            if size not in probes.groups
        },
    }
