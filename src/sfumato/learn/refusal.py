"""The refusal of queries that belong to no enrolled class. A service uses it without PyTorch."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

OF_CARD = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)  # of records that cards hold


@dataclass(frozen=True, config=OF_CARD)
class Interval:
    """A share, and its 95% interval over classes: they differ, and few of them were measured."""

    share: Share
    low: Share
    high: Share

    def __str__(self) -> str:
        return f"{self.share:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, config=OF_CARD)
class Refusal:
    """Decides that a query belongs to no enrolled class: it is too far from each of them.

    Source: ours. With errors of variance v about the middle of its class, a query is v·(1 + 1/K) from the
    mean of K others, in expectation of the squared distance; from a posterior mean v·(1 + 1/(K + k)), if the
    prior is worth k examples. Divided by that, one threshold serves any number of examples.

    The threshold is that of the distance from the query's OWN class, so at least that share is accepted, for
    any number of enrolled classes and of bits. Measured by the nearest class, among five, it refused up to
    19% of queries among two (drawn codes of 2 bits).
    """

    threshold: Annotated[float, Field(ge=0)]  # the largest squared distance, divided by that, of the accepted
    measured: Count  # classes of the measurement
    classes: Count  # how many were enrolled at a time; among more it refuses fewer
    shot: Count  # examples of each
    accepted: Interval  # the share of queries of enrolled classes
    refused: Interval  # of others

    def __str__(self) -> str:
        return (
            f"among {self.classes} classes of {self.shot} examples each, {self.accepted} of the images of "
            f"these are accepted and {self.refused} of those of other classes refused (95% intervals by "
            f"{self.measured} classes of validation, each by the threshold of the others; they also chose "
            "the epoch; more of them narrow these)"
        )

    def accepts(self, squared_distances: np.ndarray, shots: np.ndarray | float) -> np.ndarray:
        """Which classes accept a query, by its distances from their prototypes of K, or K + k, examples."""
        return np.asarray(squared_distances <= self.threshold * (1 + 1 / np.asarray(shots, np.float64)))

    @classmethod
    def of_card(cls, card: Mapping[str, Any] | None) -> "Refusal | None":
        """The refusal of a card, or None."""
        if card is None:
            return None
        return cls(**{**card, **{name: Interval(**card[name]) for name in ("accepted", "refused")}})

    def card(self) -> dict[str, Any]:
        """The entries of a card."""
        return asdict(self)
