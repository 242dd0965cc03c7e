"""The proved bound on naming the person on releases of any protection: the least of all that apply."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.dp import naming
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ConfigError
from sfumato.protect.code import Code, signs, words_of
from sfumato.protect.region import Region

if TYPE_CHECKING:
    from torch import Tensor

PEOPLE = (1_000, 1_000_000)  # numbers of equally likely people in statements about naming

_RARE = 1e-290  # a prior so small that a bound is its factor times the prior


def information(protection: Any) -> naming.Information:
    """The most that one release of a protection reveals about its image, in bits.

    It counts the logarithm of its `outputs`, if it has them. Its maximal leakage is the least of the factors
    by which its `bounds` multiply a small prior: each holds for every y and x, p(y|x) <= L·q(y), so the
    factors of several releases multiply (see sfumato.dp.naming.compose). For pixels nothing is counted.

    Args:
        protection: see sfumato.protect.

    Raises:
        ArtefactError: the protection's artefact cannot be read.
    """
    outputs = getattr(protection, "outputs", None)
    counted = math.inf if outputs is None else math.log2(outputs)
    bounds = protection.bounds(_RARE) if hasattr(protection, "bounds") else []
    factors = [bound.chance / _RARE for bound in bounds if bound.chance < 1]
    return naming.Information(outputs=counted, leakage=min([counted, *map(math.log2, factors)]))


@dataclass(frozen=True)
class Counted:
    """A protection of which only this is known.

    Attributes:
        outputs: the number of different releases; None if unknown.
        proved: its differential privacy, for images of any shape; None if nothing is proved.
    """

    outputs: int | None
    proved: Guarantee | None = None

    def guarantee(self, shape: tuple[int, int, int]) -> Guarantee | None:
        """See Protection.guarantee."""
        return self.proved

    def bounds(
        self, prior: naming.Prior, releases: int = 1, assuming: naming.Assumption = "none"
    ) -> list[naming.Bound]:
        """The proved bounds on naming somebody, by counting."""
        if self.outputs is None:
            return []
        return [naming.counting(prior, outputs=self.outputs, releases=releases, assuming=assuming)]


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

    Args:
        protection: see sfumato.protect.
        shape: (C, H, W) of the images.
        candidates: N equally likely people; or
        prior: the chance of the best guess beforehand, or the priors of all people.
        releases: n, of images of that person, each with fresh noise.
        assuming: the assumption about them; see naming.ASSUMED.

    Raises:
        ConfigError: neither candidates nor prior, both, or a number out of range.
        ArtefactError: the protection's artefact cannot be read.
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

    Args:
        protection, shape, releases, assuming: see `bound_naming`, also for the errors.
        people, largest: see naming.log_rank.
    """

    def bound(prior: float) -> naming.Bound:
        stated = bound_naming(protection, shape, prior=prior, releases=releases, assuming=assuming)
        return naming.Bound(stated.chance, stated.source)

    return naming.log_rank(bound, people=people, largest=largest)


def chances_by_class(protection: Any, numbers: "Tensor", classes: "Tensor") -> NDArray[np.float64]:
    """How often each of some equally likely classes is named from one of its codes, exactly.

    By the best adversary, who has all these images and knows the noise; equally likely classes are
    named in turn, see naming.of_each. The proved bound is above their mean; it does not bound the worst.

    Args:
        protection: a code of bits.
        numbers: (N, b), the output of its encoder for each image.
        classes: (N,) int64, of each image.

    Returns:
        (S,) chances of the classes, in ascending order.

    Raises:
        ConfigError: it is not a code of bits, or has more than MOST_OUTPUTS outputs.
    """
    outputs = protection.outputs if isinstance(protection, Code) else None
    if outputs is None or outputs > naming.MOST_OUTPUTS:
        raise ConfigError(
            f"{protection.spec}: how often each class is named is known for codes of at most "
            f"{naming.MOST_OUTPUTS.bit_length() - 1} bits: use one of these"
        )
    assert isinstance(protection, Code)
    _, rows = np.unique(classes.numpy(), return_inverse=True)
    counts = np.zeros((rows.max() + 1, outputs))
    np.add.at(counts, (rows, words_of(signs(numbers)).numpy()), 1.0)
    laws = protection.laws(counts / counts.sum(1, keepdims=True))
    return naming.of_each([1 / len(laws)] * len(laws), laws)


def naming_words(
    protection: Any, shape: tuple[int, int, int], *, releases: int = 1, among: Iterable[int] = PEOPLE
) -> str:
    """The proved bounds on naming the person on n released (C, H, W) images, in a sentence.

    It states the assumptions: none, and for several releases those that prove more.

    Args:
        protection, shape, releases: see `bound_naming`, also for the errors.
        among: numbers of equally likely people.
    """

    def assuming(assumption: naming.Assumption) -> list[naming.Naming]:
        return [
            bound_naming(protection, shape, candidates=n, releases=releases, assuming=assumption)
            for n in among
        ]

    return naming.sentences(assuming, releases=releases)


def guarantee_words(protection: Any, shape: tuple[int, int, int]) -> str:
    """What a release of a (C, H, W) image provably hides of its pixels, in words."""
    proved = protection.guarantee(shape)
    if proved is None and isinstance(protection, Region):
        return protection.bound_in_words(shape)
    return str(proved or "nothing is proved about its pixels")
