"""The training losses of SemSim: triplets, or pairs, of originals and reconstructions."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfumato.errors import DataError

if TYPE_CHECKING:
    from sfumato.learn.semsim.judgements import Judgements


@dataclass(frozen=True)
class Judged:
    """The input of triplets, as Judgements without images: N `originals`, (M,) of, and (M,) recognised."""

    of: Tensor
    recognised: Tensor
    originals: Sized
    source: str


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """The mean of max(0, |a - p| - |a - n| + margin) over (B, D) embeddings (Sec. 4.3)."""
    near, far = (anchors - positives).norm(dim=1), (anchors - negatives).norm(dim=1)
    loss: Tensor = (near - far + margin).clamp(min=0).mean()
    return loss


def contrastive_loss(originals: Tensor, others: Tensor, recognised: Tensor, *, margin: float) -> Tensor:
    """The mean of d^2 over recognised pairs, and of max(0, margin - d)^2 over the others, d = |o - r|.

    Source: Hadsell, Chopra & LeCun 2006, Eq. (4), without its factor of 1/2. Over (B, D) embeddings.
    """
    distances = (originals - others).norm(dim=1)
    hinged = torch.where(recognised, distances, (margin - distances).clamp(min=0))  # (B,)
    return hinged.square().mean()


def triplets(judgements: "Judged | Judgements", generator: torch.Generator) -> Tensor:
    """A triplet for each reconstruction, see the module.

    Returns:
        (M, 3) int64: anchor, positive and negative, as indices of the originals followed by the
        reconstructions.

    Raises:
        DataError: no reconstruction was recognised, or all were.
    """
    of, first = judgements.of, len(judgements.originals)
    positives = torch.arange(len(of)) + first
    negatives = positives.clone()
    recognised = judgements.recognised.nonzero().flatten()
    unrecognised = (~judgements.recognised).nonzero().flatten()
    drawn, own = _partners(judgements, unrecognised, among=recognised, generator=generator)
    positives[unrecognised] = torch.where(own, drawn + first, of[unrecognised])
    drawn, _ = _partners(judgements, recognised, among=unrecognised, generator=generator)
    negatives[recognised] = drawn + first
    return torch.stack([of, positives, negatives], dim=1)


def pairs(judgements: "Judged | Judgements") -> Tensor:
    """Pairs each reconstruction with its original. -> (M, 2) int64, indices as in triplets."""
    rows = torch.arange(len(judgements.of)) + len(judgements.originals)
    return torch.stack([judgements.of, rows], dim=1)


def _partners(
    judgements: "Judged | Judgements", rows: Tensor, *, among: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """For each of (n,) rows one of the (m,) others: of the same original, if it has one, or of any.

    -> the (n,) partners, and (n,) bool: whether each is of the same original.
    """
    of = judgements.of
    if not len(among):
        recognised, wanted = ("all", "harder") if judgements.recognised.any() else ("none", "easier")
        raise DataError(
            f"{judgements.source}: people recognised {recognised} of the {len(of)} reconstructions, which "
            f"gives nothing to learn from: add judgements of reconstructions that are {wanted} to recognise"
        )
    among = among[of[among].argsort(stable=True)]  # those of an original side by side
    counts = of[among].bincount(minlength=len(judgements.originals))
    starts = counts.cumsum(0) - counts
    own = counts[of[rows]] > 0
    start, count = starts[of[rows]].where(own, 0), counts[of[rows]].where(own, len(among))
    share = torch.rand(len(rows), generator=generator, dtype=torch.float64)
    return among[start + (share * count).long()], own
