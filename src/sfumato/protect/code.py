"""Codes: a few bits, or a few numbers, of an encoder leave the device instead of an image.

The encoder is trained by sfumato.learn.code, in episodes, on other classes of the same family of tasks. Its
output does not contain what the task does not need. A few bits, or a few numbers drowned by noise, prove how
rarely anybody can name the person (sfumato.dp.naming).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from sfumato import artefacts
from sfumato.dp import naming
from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.errors import SpecError
from sfumato.protect.parameters import check_bounds, check_path, check_pixels
from sfumato.protect.release import Encoding, FilePath, load_network
from sfumato.protect.vectors import (
    GRID,
    MOST_BITS,
    BitsRelease,
    FeatureRelease,
    clip_and_noise,
    guarantee_of_clipped,
)

# Only the encoder needs PyTorch: a service compares codes without it.
if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.networks.code import CodeNetwork

KIND = "code"  # of the artefact
SIGNS, MEANS = "signs", "means"  # what bits are: signs of numbers, or the number of the nearest word
MOST_WORD = 16  # bits of a word, for a codebook and for one randomised response
_MOST_NUMBERS = 1 << 12


def signs(numbers: "Tensor") -> "Tensor":
    """(N, b) numbers -> (N, b) bool: which are above 0. An encoder hardly ever gives 0 itself."""
    return numbers > 0


def words_of(bits: "Tensor") -> "Tensor":
    """(N, b) bool, b at most 16 -> (N,) int64: the first bit is the highest."""
    import torch

    return (bits.long() << torch.arange(bits.shape[1] - 1, -1, -1)).sum(1)


class Lengths(BaseModel):
    """The length of codes, and the meaning of bits, on the card of their encoder."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    bits: Annotated[int, Field(ge=1, le=MOST_BITS)] | None = None
    numbers: Annotated[int, Field(ge=1, le=_MOST_NUMBERS)] | None = None
    codebook: Literal["signs", "means"] = "signs"
    directions: Annotated[int, Field(ge=1, le=_MOST_NUMBERS)] | None = None  # the numbers of a word

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> "Lengths":
        if (self.bits is None) == (self.numbers is None):
            raise ValueError("either bits or numbers")
        if self.codebook == MEANS and ((self.bits or MOST_BITS) > MOST_WORD or self.directions is None):
            raise ValueError(f"codebook: of at most {MOST_WORD} bits, with directions")
        return self


class _Settings(Lengths):
    encoder: str
    side: Annotated[int, Field(ge=1, le=artefacts.MOST_SIDE)] | None = None

    @model_validator(mode="after")
    def _has_an_encoder_that_is_known(self) -> "_Settings":
        from sfumato.networks.classifiers import ENCODERS, check_network
        from sfumato.networks.encoders.pretrained import check_card

        check_network(check_card(self.encoder), ENCODERS, what="encoder")
        return self


@pydantic.dataclasses.dataclass(frozen=True, config={"strict": True, "extra": "forbid"})
class Common:
    """The card of an encoder without rare codes; see dp.naming.period.share_codes."""

    codes: Annotated[int, Field(ge=1)]  # that leave
    share: Annotated[float, Field(ge=0, le=1)]  # β
    people: Annotated[int, Field(ge=1)]  # m, of the reference
    delta: Annotated[float, Field(gt=0, lt=1)]  # δ


class CodeCard(artefacts.Card):
    """The keys of a code's card that a device reads."""

    config: _Settings
    shape: artefacts.ImageShape
    common: Common | None = None


@dataclass(frozen=True)
class Encoder:
    """A trained encoder of codes."""

    network: "CodeNetwork"  # in evaluation mode
    shape: tuple[int, int, int]  # (C, H, W) of the images that it was trained on
    bits: int | None  # b, of a code of bits; None for numbers
    common: Common | None = None  # the proof of codes that are not rare

    @property
    def dimension(self) -> int:
        """The number of bits or numbers of a code."""
        return self.network.dimension


def load_encoder(path: str) -> Encoder:
    """Loads the encoder of an artefact of learn.code. Raises ArtefactError as load_network does."""
    from sfumato.networks.code import make_code_network

    def make(card: dict[str, Any]) -> "CodeNetwork":
        config, shape = card["config"], tuple(card["shape"])
        sizes = {"dimension": config.get("bits") or config.get("numbers"), "side": config.get("side")}
        sizes |= {"mirrored": config.get("mirrored", False), "common": card.get("common") is not None}
        sizes["directions"] = config["directions"] if config.get("codebook") == MEANS else None
        return make_code_network(config["encoder"], shape, **sizes)

    network, card, _ = load_network(
        path, make, kind=KIND, schema=CodeCard, prefix="network.", what="an encoder"
    )
    channels, height, width = card["shape"]
    common = Common(**card["common"]) if card.get("common") else None
    return Encoder(network, (channels, height, width), card["config"].get("bits"), common)


@dataclass(frozen=True)
class Code(Encoding):
    """The code of the encoder of an artefact: bits, or numbers, with or without exact noise.

    Without noise it has no differential privacy. But b bits have 2^b values: by counting, one release names
    nobody among N equally likely people with a chance above 2^b / N, on average over people; a rare code may
    name its own. For noise see `bounds` and `guarantee`.

    Attributes:
        artefact: path of the trained encoder.
        bits, numbers: the length of a code, for readers of the spec; None to leave it out.
        flip: for bits: the probability with which each is flipped, above 0 and below 0.5; or None.
        epsilon: for at most 16 bits: randomised response over all their words at that ε; or None.
        norm: for numbers: c, the L2 norm that they are clipped to; or None, and then without noise.
        noise: for numbers: s, the variance of the Gaussian noise on each.
    """

    artefact: FilePath
    bits: int | None = None
    numbers: int | None = None
    flip: float | None = None
    epsilon: float | None = None
    norm: float | None = None
    noise: float | None = None

    name = "code"
    _what, _load = "an encoder", staticmethod(load_encoder)

    def __post_init__(self) -> None:
        check_path("code", "artefact", self.artefact)
        check_noise(flip=self.flip, epsilon=self.epsilon, norm=self.norm, noise=self.noise)

    @property
    def kind(self) -> str:  # type: ignore[override]
        """ "bits" or "numbers". Raises ArtefactError as load_encoder does."""
        return "numbers" if self._trained.bits is None else "bits"

    @property
    def draws_noise(self) -> bool:
        """Whether two releases of one image differ."""
        return any(value is not None for value in (self.flip, self.epsilon, self.noise))

    @property
    def outputs(self) -> int | None:
        """The number of different releases; None for numbers, which are too many to count."""
        bits = self._trained.bits
        return None if bits is None else self.common.codes if self.common else 2**bits

    @property
    def common(self) -> Common | None:
        """The proof of codes that are not rare; None if rare codes leave, too."""
        return self._trained.common  # type: ignore[no-any-return]

    def check(self) -> None:
        """See TrainedProtection.check. Raises SpecError for noise of bits on numbers, or vice versa."""
        encoder: Encoder = self._trained
        if encoder.common and self.draws_noise:
            raise SpecError(
                f"{self.spec}: noise would send rare codes, which its encoder never does: leave it out"
            )
        self.check_makes(bits=encoder.bits, numbers=None if encoder.bits is not None else encoder.dimension)

    def check_makes(self, *, bits: int | None, numbers: int | None) -> None:
        """Raises SpecError, as `check` does, unless an encoder of this length may be meant."""
        made = {"bits": bits, "numbers": numbers}
        for name, count in made.items():
            stated = getattr(self, name)
            if stated is not None and stated != count:
                others = next(f"{value} {key}" for key, value in made.items() if value is not None)
                raise SpecError(f"code: {name}={stated}, and {self.artefact} makes {others}: write these")
        if bits is None and (self.flip is not None or self.epsilon is not None):
            raise SpecError(
                f"code: {self.artefact} makes numbers, which have norm= and noise=, not flip= or epsilon="
            )
        if bits is not None and self.norm is not None:
            raise SpecError(
                f"code: {self.artefact} makes bits, which have flip= or epsilon=, not norm= and noise="
            )
        if self.epsilon is not None and bits is not None and bits > MOST_WORD:
            raise SpecError(
                f"code: epsilon={self.epsilon:g} on {bits} bits: one response is over words of "
                f"at most {MOST_WORD} bits: write flip=, which is for each bit"
            )

    def release_of(self, numbers: "Tensor", noise: Noise) -> BitsRelease | FeatureRelease:
        """Releases the (N, d) numbers of `encode`: their signs or themselves, with noise."""
        if self._trained.bits is not None:
            return BitsRelease(self._answer(signs(numbers), noise).numpy(), self.spec)
        if self.norm is not None and self.noise is not None:
            numbers = clip_and_noise(numbers, noise, norm=self.norm, variance=self.noise)
        return FeatureRelease(numbers.numpy(), self.spec)

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """ε-DP for bits with noise, ρ-zCDP for clipped noisy numbers, between any two images; else None.

        For any shape and number of pixels: every bit may change, and numbers may move from one end of the
        ball to the other.
        """
        count = 1 if pixels is None else check_pixels("code", pixels)
        if self.noise is not None and self.norm is not None:
            return guarantee_of_clipped(norm=self.norm, variance=self.noise, pixels=count)
        if self.flip is None and self.epsilon is None:
            return None
        epsilon = self.epsilon
        if self.flip is not None:
            epsilon = self._trained.dimension * float(np.log1p(-self.flip) - np.log(self.flip)) * (1 + 1e-12)
        assert epsilon is not None
        source = "randomised response: Warner 1965; Kairouz, Oh & Viswanath 2016"
        values: dict[str, Any] = {"value": epsilon, "whole_image": epsilon, "pixels": count}
        return Guarantee(definition="pure", **values, source=source)

    def bounds(
        self, prior: naming.Prior, releases: int = 1, assuming: naming.Assumption = "none"
    ) -> list[naming.Bound]:
        """See Protection.bounds. An assumption does not help for numbers."""
        encoder: Encoder = self._trained
        bits, n = encoder.bits, releases
        if bits is not None:
            proved, more = super().bounds(prior, n, assuming), dict[str, Any](releases=n, assuming=assuming)
            if self.flip is not None:
                proved.append(naming.flipped_bits(prior, bits=bits, flip=self.flip, **more))
            if self.epsilon is not None:
                words = 2**bits
                proved.append(naming.randomised_response(prior, outputs=words, epsilon=self.epsilon, **more))
            return proved
        if self.norm is None or self.noise is None:
            return []
        deviation, d = self.noise**0.5, encoder.dimension
        ball = naming.gaussian_ball(prior, dimensions=d, ratio=self.norm / deviation, releases=n)
        return [naming.discrete(ball, dimensions=d, step=1 / (GRID * deviation), releases=n)]

    def laws(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """How often each word leaves, if (S, 2^b) shares of the images of S classes have it without noise."""
        if self.flip is not None:
            bits, flip = self._trained.dimension, self.flip
            laws = counts.reshape(-1, *[2] * bits)
            for axis in range(1, bits + 1):
                laws = (1 - flip) * laws + flip * np.flip(laws, axis)
            mixed: NDArray[np.float64] = laws.reshape(counts.shape)
            return mixed
        if self.epsilon is not None:
            others: int = counts.shape[1] - 1
            truth = 1 / (1 + others * float(np.exp(-self.epsilon)))
            lie = (1 - truth) / others
            return counts * (truth - lie) + lie
        return counts

    def _answer(self, bits: "Tensor", noise: Noise) -> "Tensor":
        """The bits to send: as they are, each flipped by chance, or as a word that may be a lie."""
        import torch

        if self.flip is not None:
            flips = noise.flips(bits.shape, probability=Fraction(str(self.flip)))
            return bits ^ torch.from_numpy(flips)
        if self.epsilon is not None:
            count = bits.shape[1]
            words, epsilon = words_of(bits).numpy(), Fraction(str(self.epsilon))
            told = noise.other_words(words, outputs=2**count, epsilon=epsilon)
            return (torch.from_numpy(told)[:, None] >> torch.arange(count - 1, -1, -1) & 1).bool()
        return bits


def check_noise(
    *, flip: float | None, epsilon: float | None, norm: float | None, noise: float | None
) -> None:
    """Raises SpecError for noise that is zero, or too much, or for a norm without noise."""
    if flip is not None and not 0 < flip < 0.5:
        raise SpecError(
            f"code: flip={flip:g}: a bit is flipped with a probability above 0 and below 0.5, which would "
            "erase it: choose for example 0.1, or leave it out"
        )
    if flip is not None and epsilon is not None:
        raise SpecError("code: flip and epsilon: bits are flipped one by one, or all at once: leave one out")
    if epsilon is not None:
        check_bounds("code", "epsilon", epsilon, "choose for example 2")
    if (norm is None) != (noise is None):
        raise SpecError("code: norm and noise belong together: numbers are clipped for the noise: write both")
    if norm is not None and noise is not None:
        check_bounds("code", "norm", norm, "choose for example 1")
        check_bounds("code", "noise", noise, "choose for example 0.06")
