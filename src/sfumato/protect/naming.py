"""What releases of any protection prove of naming the person on them: the least of all bounds that apply."""

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

PEOPLE = (1_000, 1_000_000)  # equally likely ones, among whom it is said what is proved of naming somebody

_RARE = 1e-290  # a prior so small that a bound is its factor times the prior


def information(protection: Any) -> naming.Information:
    """The most that one release of a protection tells of its image, in bits.

    What is counted is the logarithm of its `outputs`, where it has them. Its maximal leakage is the least of
    the factors by which its `bounds` multiply a small prior: each holds for every y and x, p(y|x) <= L·q(y),
    so that the factors of several releases multiply (see sfumato.dp.naming.compose). Of pixels nothing is
    counted.

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
        outputs: how many different releases it has; None for not that.
        proved: its differential privacy, for images of any shape; None for none.
    """

    outputs: int | None
    proved: Guarantee | None = None

    def guarantee(self, shape: tuple[int, int, int]) -> Guarantee | None:
        """See Protection.guarantee."""
        return self.proved

    def bounds(
        self, prior: naming.Prior, releases: int = 1, assuming: naming.Assumption = "none"
    ) -> list[naming.Bound]:
        """What is proved of naming somebody, by counting."""
        if self.outputs is None:
            return []
        return [naming.counting(prior, outputs=self.outputs, releases=releases, assuming=assuming)]


def named(
    protection: Any,
    shape: tuple[int, int, int],
    *,
    candidates: int | None = None,
    prior: naming.Prior | None = None,
    releases: int = 1,
    assuming: naming.Assumption = "none",
) -> naming.Naming:
    """The most that anybody's chance can be to name the person who is on the released images.

    On average over people and noise, whatever is known and computed. Of most protections, and of all that
    release pixels as papers have them, nothing is proved: then the chance is 1.

    Args:
        protection: see sfumato.protect.
        shape: (C, H, W) of the images.
        candidates: N equally likely people; or
        prior: the chance of the best guess beforehand, or the priors of all people.
        releases: n, of images of that person, each with fresh noise.
        assuming: what of them; see naming.ASSUMED.

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
    """The log-rank privacy that no adversary brings n releases below; 0 if nothing is proved.

    Args:
        protection, shape, releases, assuming: see `named`, also for the errors.
        people, largest: see naming.log_rank.
    """

    def bound(prior: float) -> naming.Bound:
        stated = named(protection, shape, prior=prior, releases=releases, assuming=assuming)
        return naming.Bound(stated.chance, stated.source)

    return naming.log_rank(bound, people=people, largest=largest)


def named_each(protection: Any, numbers: "Tensor", classes: "Tensor") -> NDArray[np.float64]:
    """How often each of some equally likely classes is named from one of its codes, exactly.

    By the best adversary, who has all these images and knows the noise; classes that are equally likely are
    named in turn, see naming.of_each. What is proved is above their mean; of the worst nothing is proved.

    Args:
        protection: a code of bits.
        numbers: (N, b), what its encoder makes of each image.
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
    """What is proved of who is on n released (C, H, W) images of one person, in a sentence.

    With what is assumed for it: nothing, and of several releases whatever proves more.

    Args:
        protection, shape, releases: see `named`, also for the errors.
        among: numbers of equally likely people.
    """

    def assuming(assumption: naming.Assumption) -> list[naming.Naming]:
        return [named(protection, shape, candidates=n, releases=releases, assuming=assumption) for n in among]

    return naming.sentences(assuming, releases=releases)


def guarantee_words(protection: Any, shape: tuple[int, int, int]) -> str:
    """What a release of a (C, H, W) image is proved to hide of its pixels, in words."""
    proved = protection.guarantee(shape)
    if proved is None and isinstance(protection, Region):
        return protection.unproved(shape)
    return str(proved or "nothing is proved about its pixels")
