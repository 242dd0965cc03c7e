"""When a query is of none of the enrolled classes. A service asks this without PyTorch."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

ACCEPTED = 0.95  # share of queries of enrolled classes that a refusal lets through
LEAST_REFUSED = 0.1  # share of queries of other classes that a refusal keeps out, or it is none


@dataclass(frozen=True)
class Rate:
    """How a refusal does among so many enrolled classes of so many examples: see Refusal."""

    classes: int
    shot: int
    accepted: float
    refused: float


@dataclass(frozen=True)
class Refusal:
    """When a query is of none of the enrolled classes: it is too far from each of them.

    Source: ours. With errors of variance v about the middle of its class, a query is v·(1 + 1/K) from the
    mean of K others, in expectation of the squared distance; from a posterior mean v·(1 + 1/(K + k)), the
    prior being worth k examples. Divided by that, one threshold serves any number of examples.

    The threshold is that of the distance from the query's OWN class, so that as many are accepted at least,
    however many classes are enrolled and however few the bits are. Measured by the nearest class, among five,
    it refused up to 19% of queries among two (drawn codes of 2 bits).

    Attributes:
        threshold: the largest squared distance, divided by 1 + 1/K, that is accepted; K is the number of
            examples behind the prototype, and those that a prior is worth.
        accepted: the share of queries of enrolled classes that were, where it was measured.
        refused: the share of queries of other classes that were refused there. It is lower where more
            classes are enrolled, see `rates`.
        classes, shot: how many were enrolled there, of how many examples each.
        rates: the same among other numbers of classes and examples, as far as there were images.
    """

    threshold: float
    accepted: float
    refused: float
    classes: int
    shot: int
    rates: tuple[Rate, ...] = ()

    @classmethod
    def of_card(cls, card: Mapping[str, Any] | None) -> "Refusal | None":
        """As a card has it; None where it has none."""
        if card is None:
            return None
        return cls(**{**card, "rates": tuple(Rate(**rate) for rate in card["rates"])})

    def card(self) -> dict[str, Any]:
        """As cards have it."""
        fields = asdict(self)
        return {**fields, "rates": list(fields["rates"])}

    def accepts(self, squared_distances: np.ndarray, shots: np.ndarray | float) -> np.ndarray:
        """Which classes accept a query so far from their prototypes of so many examples."""
        accepted: np.ndarray = squared_distances <= self.threshold * (1 + 1 / np.asarray(shots, np.float64))
        return accepted


class _RateCard(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    classes: Count
    shot: Count
    accepted: Share
    refused: Share


class RefusalCard(BaseModel):
    """A Refusal as cards have it."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    threshold: Annotated[float, Field(ge=0)]
    accepted: Share
    refused: Share
    classes: Count
    shot: Count
    rates: Annotated[list[_RateCard], Field(max_length=100)]


def threshold_of(own: np.ndarray) -> float:
    """The threshold that accepts 95% of queries by their scaled distances from their own class.

    Half-way to the next larger distance: codes of a few bits have few distances, and rounding must not decide
    which of them are accepted.
    """
    own = np.sort(own)
    largest = own[math.ceil(ACCEPTED * len(own)) - 1]
    above = own[own > largest * (1 + 1e-5) + 1e-9]
    return float((largest + above[0]) / 2 if len(above) else largest * (1 + 1e-5) + 1e-9)


def is_useful(accepted: float, refused: float) -> bool:
    """Whether a refusal says something.

    It keeps out a tenth of queries of other classes, and twice as large a share of them as of others.
    """
    return refused >= max(LEAST_REFUSED, 2 * (1 - accepted))
