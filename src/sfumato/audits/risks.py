"""The risks of a release in a regulator's three terms, as typed values without PyTorch; see `evidence`."""

from dataclasses import dataclass
from typing import Literal

from sfumato.study.choose.estimates import Estimate

Kind = Literal["singling out", "linkability", "inference"]
"""The three risks of WP29 Opinion 05/2014, Sec. 3: to find a person, to join records, to learn a value."""


@dataclass(frozen=True, kw_only=True)
class Risk:
    """How often one adversary succeeds, with the control and the proof to compare it with.

    All figures are shares, from 0 to 1.

    Attributes:
        kind: see Kind.
        secret: the thing that comes out, such as "identity" or "gender".
        releases: how many releases of one person the adversary has.
        adversary: in words.
        rate: how often they are right, with its interval; None if there is a proof alone.
        control: how often a guess, or the control attack, is right.
        beyond: whether the threshold applies to the share beyond the control, as for a value that many
            people have, and not to the rate; inference is always judged so.
        worst: the rate for the person at the greatest risk; None if it was not measured.
        named_often: the share of people for whom they are right in over half of the tries; None likewise.
        proved: the most that any adversary can reach; None if nothing is proved.
        people: how many were tested; None if they were not counted.
        images: how many releases were tested; None likewise.
        source: the origin of the figure: the digest of its record, or a command.
    """

    kind: Kind
    secret: str
    releases: int
    adversary: str
    rate: Estimate | None
    control: float
    beyond: bool = False
    worst: float | None = None
    named_often: float | None = None
    proved: float | None = None
    people: int | None = None
    images: int | None = None
    source: str

    @property
    def judged(self) -> Estimate | None:
        """The share that a threshold applies to: the rate, or its excess over the control.

        Source of the excess: Giomi et al. 2023 (Anonymeter): (rate - control) / (1 - control).
        """
        if self.rate is None or not (self.beyond or self.kind == "inference"):
            return self.rate
        ends = (self.rate.value, self.rate.low, self.rate.high)
        value, low, high = (max(0.0, (end - self.control) / max(1e-12, 1 - self.control)) for end in ends)
        return Estimate(value, low, high, self.rate.seeds)
