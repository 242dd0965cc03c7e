"""The exact adversary of releases with few outputs: a table that says whom each output names.

Whoever knows p(s), how often each person s is asked about, and p(y|s), how often releases of theirs are the
output y, is right with Σ_y max_s p(s)·p(y|s) at best: by naming, for each y, the person who makes it largest
(Issa, Wagner & Kamath 2020, Sec. II). No network finds more.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.errors import DataError


@dataclass(frozen=True)
class Table:
    """How often the table of a gallery is right.

    Attributes:
        people: (I,) int64 codes, ascending.
        right: (m,) float64 from 0 to 1, how often each probe is named rightly over its releases.
        in_sample: how often the table is right on the releases that it was made of.
        log_posteriors: (Q, m, I) float64, ln p(s|y) of the output y of each release of each probe, but for
            what is equal for everybody.
        log_prior: (I,) float64, ln p(s), but for such a number.
    """

    people: Tensor
    right: Tensor
    in_sample: float
    log_posteriors: Tensor
    log_prior: Tensor

    def of_groups(self, rows: Tensor) -> Tensor:
        """ln p(s|y, y', ...) but for what is equal for everybody: (G, k) rows of probes -> (Q, G, I).

        Of a probe alone the likeliest person is the one whom the table names, or those in turn.
        """
        posteriors = self.log_posteriors[:, rows[:, 0]]
        for column in rows.T[1:]:
            posteriors = posteriors + self.log_posteriors[:, column] - self.log_prior
        return posteriors

    def named(self, similarities: Tensor, truth: Tensor) -> Tensor:
        """How often who is likeliest is the right one, where some are named in turn. (..., I) -> (...)."""
        best = (similarities == similarities.amax(-1, keepdim=True)).double()
        column = torch.searchsorted(self.people, truth).expand(best.shape[:-1])
        return (best / best.sum(-1, keepdim=True)).gather(-1, column[..., None])[..., 0]

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
    # As if each person had one release more, with the outputs of everybody: no probability is 0. An output
    # that was never counted tells nobody apart.
    everybody = counts.sum(1, keepdim=True) / len(counted)  # (outputs, 1), p(y)
    logs = ((counts + everybody) / everybody).log()
    posteriors = logs[asked].reshape(len(probes), -1, len(people))
    table = Table(people, torch.empty(0), in_sample, posteriors, (rows.bincount() * draws + 1).double().log())
    return replace(table, right=table.named(posteriors, truth).mean(0))
