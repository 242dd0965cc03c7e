"""Several releases of one person: grouped, or compared with those of another service.

An operator who gets several releases under one label, by enrolment, names the person by all of them together.
Two operators with releases of the same people, under labels of their own, find out which labels belong
together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SIZES = (1, 5, 10)  # releases of one person

Match = Callable[[Tensor, Tensor], Tensor]  # (P, k) rows of one service and of another -> (P, P) similarities


def split_into_groups(codes: Tensor, size: int, *, seed: int) -> Tensor:
    """Split photographs into disjoint groups of one person each. -> (G, size) int64 rows, person by person.

    People with fewer photographs have no group, and leftover photographs are in none.

    Args:
        codes: (m,) int64, who is on each photograph.
        size: at least 1.
        seed: decides the groups.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for code in codes.unique():
        rows = (codes == code).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        groups.append(rows[: len(rows) // size * size].reshape(-1, size))
    return torch.cat(groups)


@dataclass(frozen=True)
class Sides:
    """The photographs of the same people at two services.

    Attributes:
        people: (P,) int64 codes, ascending, of people with enough photographs at both.
        first, second: (T, P, k) int64 rows of the photographs of each, in T disjoint rounds.
    """

    people: Tensor
    first: Tensor
    second: Tensor


_ROUNDS_PAIRS = 2_000_000  # pairs of labels compared in all rounds together


def sides(first: Tensor, second: Tensor, size: int, *, seed: int) -> Sides:
    """Assign photographs of each person to two services, in rounds.

    Args:
        first, second: (n,) and (m,) int64, the person on each photograph available to either.
        size: photographs of a person in a round, at least 1.
        seed: decides the photographs.
    """
    dealt_to = [
        split_into_groups(codes, size, seed=seed + side) for side, codes in enumerate((first, second))
    ]
    owners = [codes[rows[:, 0]] for codes, rows in zip((first, second), dealt_to, strict=True)]
    people = owners[0][torch.isin(owners[0], owners[1])].unique()
    if not len(people):
        nobody = torch.empty(0, 0, size, dtype=torch.int64)
        return Sides(people, nobody, nobody)
    rounds = min(int((owner == code).sum()) for owner in owners for code in people)
    rounds = min(rounds, max(1, _ROUNDS_PAIRS // len(people) ** 2))
    parts = [
        torch.stack([rows[owner == code][:rounds] for code in people], 1)
        for rows, owner in zip(dealt_to, owners, strict=True)
    ]
    return Sides(people, *parts)


def by_cosine(first: Tensor, second: Tensor) -> Match:
    """Return a function that compares by the cosine of mean vectors, of (n, D) and (m, D)."""

    def match(of_first: Tensor, of_second: Tensor) -> Tensor:
        means = (vectors[rows].mean(1) for vectors, rows in ((first, of_first), (second, of_second)))
        known, asked = (functional.normalize(mean.double(), dim=1) for mean in means)
        return asked @ known.T

    return match
