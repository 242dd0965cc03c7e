"""An ensemble of adversaries: a sum of their similarities, with members chosen on other people.

Source: Caruana et al. 2004, "Ensemble selection from libraries of models": members are added one by one, each
time the member whose addition names most probes; a member may be added again, which increases its weight.
They choose on a hold-out set; here each half of the people is named by members chosen on the other half.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MOST = 10  # members, with repetitions


@dataclass(frozen=True)
class Fusion:
    """The similarities of an ensemble."""

    similarities: Tensor  # (m, I) float64
    members: tuple[tuple[int, ...], tuple[int, ...]]  # for the first, third, ... person, and for the others


def standardise(similarities: Tensor) -> Tensor:
    """Scale each probe's similarities to mean 0 and deviation 1; 0 if all are equal. (m, I) -> (m, I)."""
    similarities = similarities.double()
    centred = similarities - similarities.mean(1, keepdim=True)
    # Relative to the largest: equal log-likelihood ratios leave rounding.
    largest = similarities.abs().amax(1, keepdim=True)
    spread = centred.square().mean(1, keepdim=True).sqrt()
    return torch.where(spread > 1e-9 * largest, centred / spread.clamp(min=1e-300), 0.0)


def fuse(similarities: Tensor, identities: Tensor, truth: Tensor, *, most: int = MOST) -> Fusion:
    """Name each half of the people by at most `most` of (k, m, I) members, chosen on the other half."""
    first = torch.isin(truth, truth.unique()[::2])
    right = torch.searchsorted(identities, truth)
    members, total = [], similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    for half in (first, ~first):
        # Without a second half, members cannot be compared.
        chosen = _choose(similarities[:, ~half], right[~half], most) if (~half).any() else (0,)
        total[half] = similarities[list(chosen)][:, half].double().mean(0)
        members.append(chosen)
    return Fusion(total, (members[0], members[1]))


def _choose(similarities: Tensor, right: Tensor, most: int) -> tuple[int, ...]:
    """Choose the members of (k, m, I) whose sum names most probes; `right` is the true column."""
    chosen: list[int] = []
    best, total = (0.0, 0.0), similarities.new_zeros(similarities.shape[1:], dtype=torch.float64)
    while len(chosen) < most:
        merits = [_merit(total + member, right) for member in similarities]
        number = max(range(len(merits)), key=lambda each: merits[each])  # the first of equal ones
        if chosen and merits[number] <= best:
            break
        best = merits[number]
        total = total + similarities[number]
        chosen.append(number)
    return tuple(chosen)


def _merit(similarities: Tensor, right: Tensor) -> tuple[float, float]:
    """Return the share of probes named correctly, and the mean reciprocal rank to break ties."""
    own = similarities.gather(1, right[:, None])
    above, equal = (similarities > own).sum(1), (similarities == own).sum(1)
    ranks = above + (equal + 1).double() / 2
    return (ranks <= 1).double().mean().item(), (1 / ranks).mean().item()
