"""How surely people are named on releases of any protection: the least of all proved bounds, and by cells."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sfumato.dp import naming
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import SpecError
from sfumato.protect.parameters import cell_in_pixels
from sfumato.protect.region import Region
from sfumato.protect.release import Protection, cell_of

PEOPLE = (1_000, 1_000_000)  # numbers of equally likely people in statements about naming

_RARE = 1e-290  # a prior so small that a bound is its factor times the prior

# Among 341 people of LFW whose faces fill 84x84 pixels a recogniser with clean photographs names 24.9% by 21
# means along a side, and guesses by 10.5 (docs/results/protections.md, "Re-identification on LFW by seven
# adversaries"). Whoever trains on releases names 42.6% there: coarser cells give no anonymity.
MOST_CELLS = 12  # cells along the shorter side; with more, faces that fill the image are recognised

_NOISE = 10.0  # grey levels of 12 means a side; 21 of dp-pix:cell=4,epsilon=3, with 13 there, name 1.3%


def information(protection: Any) -> naming.Information:
    """The most that one release of a protection reveals about its image, in bits.

    It counts the logarithm of its `outputs`, if it has them. Its maximal leakage is the least of the factors
    by which its `bounds` multiply a small prior: each holds for every y and x, p(y|x) <= L·q(y), so the
    factors of several releases multiply (see sfumato.dp.naming.compose). For pixels nothing is counted.
    Raises ArtefactError if the protection's artefact cannot be read.
    """
    outputs = getattr(protection, "outputs", None)
    counted = math.inf if outputs is None else math.log2(outputs)
    bounds = protection.bounds(_RARE) if hasattr(protection, "bounds") else []
    factors = [bound.chance / _RARE for bound in bounds if bound.chance < 1]
    return naming.Information(outputs=counted, leakage=min([counted, *map(math.log2, factors)]))


@dataclass(frozen=True)
class Counted:
    """A protection of which only this is known."""

    outputs: int | None  # the number of different releases; None if unknown
    proved: Guarantee | None = None  # its differential privacy, for images of any shape

    def guarantee(self, shape: tuple[int, int, int]) -> Guarantee | None:
        """See Protection.guarantee."""
        return self.proved

    bounds = Protection.bounds  # by counting


def bound_naming(
    protection: Any,
    shape: tuple[int, int, int],
    *,
    candidates: int | None = None,
    prior: naming.Prior | None = None,
    releases: int = 1,
    assuming: naming.Assumption = "none",
) -> naming.Naming:
    """An upper bound on anybody's chance to name the person on the released images.

    On average over people and noise, for an adversary with any knowledge and computing power. Most
    protections, and all that release pixels as in papers, prove nothing: then the chance is 1.

    `candidates`: N equally likely people; or `prior`, see Protection.bounds, also for the others. Raises
    ConfigError for neither or both, or a number out of range, and ArtefactError as the artefact's loader.
    """
    beforehand = naming.prior_of(candidates, prior)
    bounds = [naming.Bound(1.0, "nothing is proved")]
    if hasattr(protection, "bounds"):
        bounds += protection.bounds(beforehand, releases, assuming)
    guarantee = protection.guarantee(shape)
    if guarantee is not None:
        stated = guarantee.naming(candidates=candidates, prior=prior, releases=releases)
        bounds.append(naming.Bound(stated.chance, stated.source))
    return naming.make_statement(
        naming.least(*bounds), candidates=candidates, prior=prior, releases=releases, assuming=assuming
    )


def log_rank(
    protection: Any,
    shape: tuple[int, int, int],
    *,
    people: int,
    largest: float | None = None,
    releases: int = 1,
    assuming: naming.Assumption = "none",
) -> float:
    """The log-rank privacy that n releases keep against any adversary; 0 if nothing is proved.

    See `bound_naming`, also for the errors, and naming.log_rank.
    """

    def bound(prior: float) -> naming.Bound:
        stated = bound_naming(protection, shape, prior=prior, releases=releases, assuming=assuming)
        return naming.Bound(stated.chance, stated.source)

    return naming.log_rank(bound, people=people, largest=largest)


def naming_words(
    protection: Any, shape: tuple[int, int, int], *, releases: int = 1, among: Iterable[int] = PEOPLE
) -> str:
    """The proved bounds on naming the person on n released (C, H, W) images, in a sentence.

    It states the assumptions: none, and for several releases those that prove more. See `bound_naming`;
    `among`: numbers of equally likely people.
    """

    def assuming(assumption: naming.Assumption) -> list[naming.Naming]:
        return [
            bound_naming(protection, shape, candidates=n, releases=releases, assuming=assumption)
            for n in among
        ]

    words = naming.sentences(assuming, releases=releases)
    common = getattr(protection, "common", None)
    if common is None or releases > 1:
        return words
    sure = [
        f"{naming.percent(naming.bound_posterior(n, common.share))} sure of anybody among {n:,}"
        for n in among
    ]
    return (
        f"{words}; each of the {common.codes:,} codes that leave is that of β = {common.share:.2%} of people "
        f"or more, so nobody, whatever they know, is more than {', or '.join(sure)} equally likely people "
        f"(1 / Nβ; assumed: the reference of {common.people:,} people is a random sample of these N; β is "
        f"too high with a chance of δ = {common.delta:.0%} or less)"
    )


def guarantee_words(protection: Any, shape: tuple[int, int, int]) -> str:
    """What a release of a (C, H, W) image provably hides of its pixels, in words."""
    proved = protection.guarantee(shape)
    if proved is None and isinstance(protection, Region):
        return protection.bound_in_words(shape)
    return str(proved or "nothing is proved about its pixels")


def recognisable(protection: Any, shape: tuple[int, int, int]) -> str:
    """Says that people remain recognisable on (C, H, W) images by the size of cells; "" if that is not known.

    Noise counts as far as it is left when cells are averaged to MOST_CELLS along the shorter side. A face is
    assumed to fill the image: a smaller one has fewer cells.
    """
    _, height, width = shape
    shorter = min(height, width)
    law = protection.law(shape) if hasattr(protection, "law") else None
    if cell_of(protection) == 1 or (protection.draws_noise and law is None):
        return ""
    try:
        cell = cell_in_pixels(protection, height, width)
    except SpecError:
        return ""  # so small an image is not released
    if shorter <= MOST_CELLS * cell:
        return ""
    if law is not None:
        deviation = law.scale * (math.sqrt(2) if law.kind == "laplace" else 1.0)
        if deviation * MOST_CELLS * cell / shorter > _NOISE:
            return ""
    return (
        f"people remain recognisable if a face fills the image: a cell of {cell}x{cell} "
        f"pixels is 1/{shorter / cell:.0f} of the shorter side, and faces are recognised at cells of less "
        f"than 1/{MOST_CELLS} of it: choose a share of the image, such as cell=1/8"
    )
