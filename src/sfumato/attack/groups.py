"""Several releases of one person: dealt in groups, and compared with those of another service.

Who gets several releases under one label, as the operator of a service does by enrolment, names the person
by all of them together; and two operators who have releases of the same people under labels of their own
find out which labels belong together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

SIZES = (1, 5, 10)  # releases of one person

Match = Callable[[Tensor, Tensor], Tensor]  # (P, k) rows of one service and of another -> (P, P) similarities


def dealt(codes: Tensor, size: int, *, seed: int) -> Tensor:
    """Disjoint groups of so many photographs of one person. -> (G, size) int64 rows, person by person.

    Those with fewer photographs have no group, and what is left over of a person is in none.

    Args:
        codes: (m,) int64, who is on each photograph.
        size: at least 1.
        seed: decides which are together.
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
    """What two services have of the same people.

    Attributes:
        people: (P,) int64 codes, ascending; those of whom both have enough.
        first, second: (T, P, k) int64 rows of the photographs of each, in T disjoint rounds.
    """

    people: Tensor
    first: Tensor
    second: Tensor


_ROUNDS_PAIRS = 2_000_000  # pairs of labels that are compared in all rounds together


def sides(first: Tensor, second: Tensor, size: int, *, seed: int) -> Sides:
    """Deal so many photographs of each person to each of two services.

    Args:
        first, second: (n,) and (m,) int64, who is on the photographs that either may have.
        size: photographs of a person in a round, at least 1.
        seed: decides which.
    """
    dealt_to = [dealt(codes, size, seed=seed + side) for side, codes in enumerate((first, second))]
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
    """Compare by the cosine of mean vectors: those of (n, D) and (m, D)."""

    def match(of_first: Tensor, of_second: Tensor) -> Tensor:
        means = (vectors[rows].mean(1) for vectors, rows in ((first, of_first), (second, of_second)))
        known, asked = (functional.normalize(mean.double(), dim=1) for mean in means)
        return asked @ known.T

    return match
