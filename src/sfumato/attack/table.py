"""The exact adversary against releases with few outputs: a table of the person whom each output names.

With p(s), the frequency of each person s, and p(y|s), that of output y in their releases, an adversary is
right at best with Σ_y max_s p(s)·p(y|s): by naming, for each y, the person who maximises it (Issa, Wagner &
Kamath 2020, Sec. II). No network finds more. NumPy computes it; tensors are read as arrays.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from sfumato.dp.naming import MOST_OUTPUTS
from sfumato.errors import DataError


@dataclass(frozen=True)
class Table:
    """The success of a gallery's table."""

    people: np.ndarray  # (I,) int64 codes, ascending
    right: np.ndarray  # (m,) float64 from 0 to 1, how often each probe is named correctly over its releases
    in_sample: float  # how often the table is right on its own releases
    log_posteriors: np.ndarray  # (Q, m, I) ln p(s|y) for the output y of each release of each probe, and
    log_prior: np.ndarray  # (I,) ln p(s), both up to a constant over people

    def success(self, similarities: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Return how often the likeliest person is right; equal ones are named in turn. (..., I) -> (...)."""
        best = similarities == similarities.max(-1, keepdims=True)
        column = np.searchsorted(self.people, truth)
        right: np.ndarray = best[..., np.arange(len(truth)), column] / best.sum(-1)
        return right

    @property
    def top1(self) -> float:
        """How often the table names photographs correctly that are not in it.

        On average this is at most Σ_y max_s p(s)·p(y|s), the bound of every rule; `in_sample` is at least
        that bound, since the maximum of estimated shares is biased upwards. With more photographs both meet.
        """
        return float(self.right.mean())


def by_table(
    gallery: ArrayLike, identities: ArrayLike, probes: ArrayLike, truth: ArrayLike, *, prior: float = 1.0
) -> Table:
    """Count how often each person's releases give each output, and name the probes by these counts.

    Each output names the person with the highest count, so that p(s) is their share of the gallery. People
    with equal counts are named in turn; so are those with most photographs, for an output without a count.
    (R, n, D) of R releases of each known photograph, drawn independently, and (n,) int64, who is on it; and
    (Q, m, D) and (m,) of the photographs to name. `prior`: the releases that the common distribution weighs,
    next to those of a person, in posteriors. Raises DataError for more than 2^12 different outputs.
    """
    gallery, probes = np.asarray(gallery), np.asarray(probes)
    draws, photographs, width = gallery.shape
    seen = np.concatenate([gallery.reshape(-1, width), probes.reshape(-1, width)])
    outputs, numbers = np.unique(seen, axis=0, return_inverse=True)
    if len(outputs) > MOST_OUTPUTS:
        raise DataError(f"{len(outputs)} different outputs: a table is for {MOST_OUTPUTS} at most")
    people, rows, held = np.unique(identities, return_inverse=True, return_counts=True)
    counted, asked = np.split(numbers.ravel(), [draws * photographs])
    cells = counted * len(people) + np.tile(rows, draws)
    counts = np.bincount(cells, minlength=len(outputs) * len(people)).reshape(-1, len(people)).astype(float)
    in_sample = float(counts.max(1).sum() / len(counted))
    counts[counts.sum(1) == 0] = held
    # Extra releases a person, with everybody's outputs, keep probabilities above 0. An output without a count
    # distinguishes nobody.
    everybody = counts.sum(1, keepdims=True) / len(counted)  # (outputs, 1), p(y)
    logs = np.log((counts + prior * everybody) / everybody)
    posteriors = logs[asked].reshape(len(probes), -1, len(people))
    table = Table(people, np.empty(0), in_sample, posteriors, np.log(held * draws + prior))
    return replace(table, right=table.success(posteriors, np.asarray(truth)).mean(0))
