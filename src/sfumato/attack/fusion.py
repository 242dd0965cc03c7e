"""An ensemble of adversaries: their similarities added up, with members chosen on other people.

Source: Caruana et al. 2004, "Ensemble selection from libraries of models": members are added one by one, each
time the one with which the sum names most probes, and a member may come again, which weighs it. Theirs are
chosen on a hold-out set; here each half of the people is named by the members that the other half chose.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_MOST = 10  # members, of which some may be the same


@dataclass(frozen=True)
class Fusion:
    """What an ensemble makes of every probe.

    Attributes:
        similarities: (m, I) float64.
        members: of which the sum is that names the first, third, ... person, and that of the others.
    """

    similarities: Tensor
    members: tuple[tuple[int, ...], tuple[int, ...]]


def standardised(similarities: Tensor) -> Tensor:
    """Those of each probe with mean 0 and standard deviation 1; 0 where all are equal. (m, I) -> (m, I)."""
    similarities = similarities.double()
    centred = similarities - similarities.mean(1, keepdim=True)
    # The largest first: squares of log-likelihood ratios may overflow, and of equal ones leave rounding.
    largest = similarities.abs().amax(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return torch.where(spread > 1e-9 * largest, centred / spread.clamp(min=1e-300), 0.0)


def fused(similarities: Tensor, identities: Tensor, truth: Tensor) -> Fusion:
    """Name each half of the people by the members with which most of the other half are named.

    Args:
        similarities: (k, m, I) of k members, on one scale; see `standardised`.
        identities: (I,) int64 code of each column, ascending.
        truth: (m,) int64, who is on each probe.
    """
    first = torch.isin(truth, truth.unique()[::2])
    right = torch.searchsorted(identities, truth)
    members, total = [], similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    for half in (first, ~first):
        # Where one half is nobody, nobody tells members apart.
        chosen = _chosen(similarities[:, ~half], right[~half]) if (~half).any() else (0,)
        total[half] = similarities[list(chosen)][:, half].double().mean(0)
        members.append(chosen)
    return Fusion(total, (members[0], members[1]))


def _chosen(similarities: Tensor, right: Tensor) -> tuple[int, ...]:
    """The members of (k, m, I) whose sum names most probes, of which column `right` is the right one."""
    chosen: list[int] = []
    best, total = (0.0, 0.0), similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    while len(chosen) < _MOST:
        merits = [_merit(total + member, right) for member in similarities]
        number = max(range(len(merits)), key=lambda each: merits[each])  # the first of equal ones
        if chosen and merits[number] <= best:
            break
        best = merits[number]
        total = total + similarities[number]
        chosen.append(number)
    return tuple(chosen)


def _merit(similarities: Tensor, right: Tensor) -> tuple[float, float]:
    """How many probes are named rightly; and the mean reciprocal rank of the right ones, where those tie."""
    own = similarities.gather(1, right[:, None])
    above, equal = (similarities > own).sum(1), (similarities == own).sum(1)
    ranks = above + (equal + 1).double() / 2
    return (ranks <= 1).double().mean().item(), (1 / ranks).mean().item()
