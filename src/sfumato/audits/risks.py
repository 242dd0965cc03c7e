"""The risks of a release in a regulator's three terms, as typed values without PyTorch; see `evidence`."""

from dataclasses import dataclass
from typing import Literal

from sfumato.study.choose.estimates import Estimate

Kind = Literal["singling out", "linkability", "inference"]
"""The three risks of WP29 Opinion 05/2014, Sec. 2.2: naming one person, joining records, learning a value."""


@dataclass(frozen=True, kw_only=True)
class Risk:
    """How often one adversary succeeds, with the control and the proof to compare it with.

    All figures are shares, from 0 to 1.

    Attributes:
        kind: see Kind.
        secret: the thing that comes out, such as "identity" or "gender".
        releases: how many releases of one person the adversary has.
        adversary: in words.
        rate: how often they are right, with its interval.
        control: how often a guess, or the control attack, is right.
        worst: the rate for the person at the greatest risk; None if it was not measured.
        named_often: the share of people who are named in more than half of the tries; None likewise.
        proved: the most that any adversary can reach; None if nothing is proved.
        people: how many were tested.
        images: how many releases were tested; None if they were not counted.
        source: the origin of the figure: the digest of its record, or a command.
    """

    kind: Kind
    secret: str
    releases: int
    adversary: str
    rate: Estimate
    control: float
    worst: float | None = None
    named_often: float | None = None
    proved: float | None = None
    people: int
    images: int | None = None
    source: str
