"""Measures of face recognition: verification of pairs, and identification against a gallery.

All take similarities or embeddings from any recogniser; higher is more similar.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.base.proportions import over_people
from sfumato.errors import DataError

FALSE_ACCEPT_RATES = {"1e-2": 1e-2, "1e-3": 1e-3}


@dataclass(frozen=True)
class Verification:
    """The success at verifying whether two images show one person.

    Attributes:
        auc: the area under the ROC curve.
        tar_at_far: maps names of FALSE_ACCEPT_RATES to the share of one-person pairs accepted there.
    """

    auc: float
    tar_at_far: dict[str, float]


def verification(scores: Tensor, same: Tensor) -> Verification:
    """Judge all pairs by one threshold; those of equal scores count half in the area.

    Args:
        scores: (P,) similarity of each pair.
        same: (P,) bool, whether a pair shows one person.
    """
    sides = _sides(scores, same)
    return Verification(
        _area(*sides), {name: _accept(*sides, rate) for name, rate in FALSE_ACCEPT_RATES.items()}
    )


@dataclass(frozen=True)
class Identification:
    """One adversary's success at naming the right identity among all known ones (closed set).

    Attributes:
        top1: with their first guess.
        low, high: its 95% interval, over people.
        top5, top10: with one of their first five or ten.
    """

    top1: float
    low: float
    high: float
    top5: float
    top10: float


def identification(similarities: Tensor, identities: Tensor, truth: Tensor) -> Identification:
    """Judge the guesses at who is on each probe.

    Args:
        similarities: (m, I) similarity of each probe to each identity; higher is more likely.
        identities: (I,) int64 code of each column, ascending.
        truth: (m,) int64, the identity of each probe, one of `identities`.
    """
    ranks = identification_ranks(similarities, identities, truth)
    people, rows, probes = truth.unique(return_inverse=True, return_counts=True)
    hits = torch.zeros(len(people)).index_add_(0, rows, (ranks <= 1).float())
    low, high = over_people(hits.tolist(), probes.tolist())
    top1, top5, top10 = (cumulative_match(ranks, k) for k in (1, 5, 10))
    return Identification(top1, low, high, top5, top10)


def identification_ranks(similarities: Tensor, identities: Tensor, truth: Tensor) -> Tensor:
    """Compute the rank of the right identity among all, 1 for the first guess. -> (m,) float64.

    Equally similar identities share the mean of their ranks, so that an encoder that distinguishes nobody
    does not come out first. Arguments: see identification.
    """
    if not torch.isin(truth, identities).all():
        raise DataError("closed-set identification: some probes show people who are not in the gallery")
    if similarities.isnan().any():
        raise DataError("some similarities are not numbers: the recogniser embeds images as NaN")
    right = similarities.gather(1, torch.searchsorted(identities, truth)[:, None])  # (m, 1)
    above, equal = (similarities > right).sum(1), (similarities == right).sum(1)
    return above + (equal + 1).double() / 2


def chance(truth: Tensor) -> float:
    """Return how often the most frequent identity is right if it is always named."""
    _, counts = truth.unique(return_counts=True)
    return int(counts.max()) / len(truth)


def cumulative_match(ranks: Tensor, k: int) -> float:
    """Return how often the right identity is among the first k (CMC)."""
    return (ranks <= k).double().mean().item()


def _area(genuine: Tensor, impostors: Tensor) -> float:
    below = torch.searchsorted(impostors, genuine, side="left")
    up_to = torch.searchsorted(impostors, genuine, side="right")
    return ((below + up_to).double().mean() / (2 * len(impostors))).item()


def _accept(genuine: Tensor, impostors: Tensor, false_accept_rate: float) -> float:
    threshold = impostors[len(impostors) - 1 - int(false_accept_rate * len(impostors))]
    return (genuine > threshold).double().mean().item()


def _sides(scores: Tensor, same: Tensor) -> tuple[Tensor, Tensor]:
    genuine, impostors = scores[same], scores[~same].sort().values
    if not len(genuine) or not len(impostors):
        raise DataError("verification needs pairs of one person and pairs of two")
    return genuine, impostors
