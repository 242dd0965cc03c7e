"""When a query is of none of the enrolled classes. A service asks this without PyTorch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Refusal:
    """When a query is of none of the enrolled classes: its nearest prototype is too far: prototypes.refusal.

    Attributes:
        threshold: the largest squared distance, divided by 1 + 1/K, that is accepted; K is the number of
            support images behind the prototype, and those that a prior is worth.
        accepted: the share of queries of enrolled classes that were, where it was measured.
        refused: the share of queries of other classes that were refused there. It is lower where more
            classes are enrolled.
    """

    threshold: float
    accepted: float
    refused: float

    def refuses(self, squared_distance: float, shots: float) -> bool:
        """Whether a query so far from the prototype of so many support images is of no enrolled class."""
        return squared_distance / (1 + 1 / shots) > self.threshold


class RefusalCard(BaseModel):
    """A Refusal as cards have it."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    threshold: Annotated[float, Field(ge=0)]
    accepted: Share
    refused: Share
