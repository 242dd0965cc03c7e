"""The exact adversary of releases with few outputs: a table that says whom each output names.

Whoever knows p(s), how often each person s is asked about, and p(y|s), how often releases of theirs are the
output y, is right with Σ_y max_s p(s)·p(y|s) at best: by naming, for each y, the person who makes it largest
(Issa, Wagner & Kamath 2020, Sec. II). No network finds more.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError

MOST_OUTPUTS = 2**12


@dataclass(frozen=True)
class Table:
    """How often the table of a gallery is right.

    Attributes:
        right: (m,) float64 from 0 to 1, how often each probe is named rightly over its releases.
        in_sample: how often the table is right on the releases that it was made of.
    """

    right: Tensor
    in_sample: float

    @property
    def top1(self) -> float:
        """How often the table names photographs rightly that it was not made of.

        On average over galleries and probes this is at most Σ_y max_s p(s)·p(y|s), which no rule exceeds; and
        `in_sample` is at least that, since the largest of several shares that are counted is too large. So
        the best that anybody does lies between; with more photographs and releases the two meet.
        """
        return self.right.mean().item()


def by_table(gallery: Tensor, identities: Tensor, probes: Tensor, truth: Tensor) -> Table:
    """Count how often each person's releases give each output, and name the probes by that.

    Each output names the person of whom it was counted most often, so that p(s) is their share of the
    gallery. People of whom it was counted as often are named in turn; so are those with most photographs,
    where an output was never counted.

    Args:
        gallery: (R, n, D) of R releases of each known photograph, drawn anew: without noise R = 1 says all.
        identities: (n,) int64.
        probes: (Q, m, D) of Q releases of each photograph to name.
        truth: (m,) int64, who they are.

    Raises:
        DataError: more than 2^12 different outputs were seen: nothing is known of most of them.
    """
    draws, photographs = gallery.shape[:2]
    seen = torch.cat([gallery.flatten(0, 1), probes.flatten(0, 1)])
    outputs, numbers = seen.unique(dim=0, return_inverse=True)
    if len(outputs) > MOST_OUTPUTS:
        raise DataError(f"{len(outputs)} different outputs: a table is for {MOST_OUTPUTS} at most")
    people, rows = identities.unique(return_inverse=True)
    counted, asked = numbers[: draws * photographs], numbers[draws * photographs :]
    counts = torch.zeros(len(outputs), len(people), dtype=torch.float64)
    counts.index_put_((counted, rows.repeat(draws)), torch.ones(len(counted)).double(), accumulate=True)
    in_sample = counts.amax(1).sum().item() / len(counted)
    counts[counts.sum(1) == 0] = rows.bincount().double()
    named = (counts == counts.amax(1, keepdim=True)).double()
    shares = named / named.sum(1, keepdim=True)  # (outputs, I)
    column = torch.searchsorted(people, truth).repeat(len(probes))
    right = shares[asked, column].reshape(len(probes), -1).mean(0)
    return Table(right, in_sample)
