"""Releases, and the base of every protection."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from sfumato import artefacts
from sfumato.base.files import open_regular
from sfumato.dp import naming
from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError, SpecError
from sfumato.images import Images, Pixels, as_tensor, check_batch

if TYPE_CHECKING:
    from torch import Tensor, nn

# The kinds of releases: values of pixels; the pixels that a mask would show; the numbers of a feature; the
# bits of a code; and the name of a class.
KINDS = ("pixels", "shape", "numbers", "bits", "answer")
IMAGES = ("pixels", "shape")  # those that people can look at

# A parameter that is the path of a file on this device. Every such parameter has this type: it decides which
# part of a spec travels, how a ledger calls it, and whether a service may demand it (see spec.with_files).
FilePath = Annotated[str, "the path of a file on this device"]


@dataclass(frozen=True)
class Released:
    """A release: a row for each image."""

    array: np.ndarray  # the rows; a tensor becomes the array of its memory
    spec: str  # the protection that made them

    def __post_init__(self) -> None:
        array: Any = self.array
        if not isinstance(array, np.ndarray):
            object.__setattr__(self, "array", array.detach().numpy())

    @property
    def values(self) -> "Tensor":
        """The array as a tensor, in the same memory."""
        return as_tensor(self.array)

    def numbers(self) -> np.ndarray:
        """The release as numbers: (N, d) float32."""
        raise NotImplementedError

    def vectors(self) -> "Tensor":
        """See `numbers`; the same as a tensor."""
        return as_tensor(self.numbers())

    def rows(self, rows: list[int]) -> Self:
        """The release of some of the images."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return replace(self, **{name: each[rows] for name, each in own.items() if hasattr(each, "ndim")})

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image, before any compression; see pack."""
        return int(np.prod(self.array.shape[1:])) * self.array.itemsize

    def pack(self) -> list[bytes]:
        """The bytes of each image, little-endian."""
        array = self.array.astype(self.array.dtype.newbyteorder("<"), copy=False)
        return [row.tobytes() for row in array]


@dataclass(frozen=True)
class Release(Released):
    """Protected images that leave a device: `array` is (N, C, h, w) uint8.

    Pixelized images travel as one value a cell, all that they hold; otherwise h and w are the images'.
    """

    size: tuple[int, int]  # (H, W) of the original images
    cell: int = 1  # side of the square of pixels for each value; 1 without cells
    # (N, 1, H, W) bool, the shown pixels, as many in each image: `values` are 0 elsewhere. None: all of them.
    shown: "Tensor | None" = None

    def images(self) -> "Tensor":
        """The images that a receiver sees: (N, C, H, W) uint8, cells enlarged, hidden pixels 0."""
        return as_tensor(self.pictures())

    def pictures(self) -> Pixels:
        """See `images`; the same as an array."""
        return _enlarge(self.array, cell=self.cell, size=self.size)

    def shapes(self) -> "Tensor":
        """The shapes of masks alone: (N, C, H, W) uint8, 255 for shown pixels and 0 for hidden ones.

        Raises DataError if all pixels are shown: there is no shape.
        """
        if self.shown is None:
            raise DataError(f"{self.spec} shows all pixels: its releases have no shape; use a mask")
        return self.shown.expand(-1, self.array.shape[1], -1, -1).byte() * 255

    def vectors(self) -> "Tensor":
        """The release as numbers: (N, C·h·w) float32, values from 0 to 1, and hidden ones 0.

        With a mask, each pixel has one more number: whether it is shown.
        """
        import torch

        values = self.values.flatten(1).float() / 255
        return values if self.shown is None else torch.cat([values, self.shown.flatten(1).float()], 1)

    @property
    def bytes_per_image(self) -> int:
        """See Released.bytes_per_image. Raises DataError for an empty mask."""
        if self.shown is None:
            return super().bytes_per_image
        if not len(self.shown):
            raise DataError(f"{self.spec}: a release of no image does not say how many pixels a mask shows")
        bits = self.shown[0].numel()
        return -(-bits // 8) + int(self.shown[0].sum()) * int(self.array.shape[1])

    def pack(self) -> list[bytes]:
        """The bytes of each image: its values; with a mask, the mask's bits and the shown values.

        Bits are row by row, eight a byte, the first the highest, 1 for a shown pixel. The values of
        the shown pixels follow, channel by channel. Hidden pixels have no bytes.
        """
        if self.shown is None:
            return super().pack()
        return [
            np.packbits(shown).tobytes() + values[:, shown[0]].tobytes()
            for values, shown in zip(self.array, self.shown.numpy(), strict=True)
        ]


def unpack(packets: Sequence[bytes], *, spec: str, shape: tuple[int, int, int]) -> Release:
    """Reads the packets of `Release.pack`, of masked (C, H, W) images. Raises DataError for other lengths."""
    channels, height, width = shape
    values = np.zeros((len(packets), *shape), np.uint8)
    shown = np.zeros((len(packets), 1, height, width), bool)
    head = -(-height * width // 8)
    for i, packet in enumerate(packets):
        flags = np.unpackbits(np.frombuffer(packet, np.uint8, min(head, len(packet))))[: height * width]
        if len(packet) != head + channels * int(flags.sum()):
            raise DataError(
                f"a packet of {len(packet)} bytes does not hold a masked {channels}x{height}x{width} image: "
                "pass the shape that was released, and whole packets"
            )
        shown[i, 0] = flags.reshape(height, width)
        revealed = np.frombuffer(packet, np.uint8, offset=head).reshape(channels, -1)
        values[i][:, shown[i, 0]] = revealed
    return Release(values, spec, (height, width), shown=as_tensor(shown))


class Protection:
    """A way to protect images on the device: a base of frozen dataclasses, whose fields are its parameters.

    A protection has a name and `release`; all else has a default. It may have further parts: `cell`, a field
    or a number, the side of the square of pixels for each released value, see cell_of; `digest`, see Trained;
    and `encode`, see Encoding.
    """

    name: ClassVar[str]  # with which its specs begin
    kind: ClassVar[str] = "pixels"  # of KINDS, of its releases

    @property
    def draws_noise(self) -> bool:
        """Whether two releases of one image differ: then the first is kept, and noise never drawn again."""
        return False

    @property
    def has_shape(self) -> bool:
        """Whether releases are masked: see Release.shown."""
        return False

    @property
    def outputs(self) -> int | None:
        """How many different releases there are, which bounds naming; None if it is not known."""
        return None

    @property
    def spec(self) -> str:
        """The canonical string, such as "dp-pix:cell=4,epsilon=3"; parse(spec) gives this protection."""
        return canonical(self.name, self)

    def release(self, images: Images, noise: Noise) -> Release:
        """Protects (N, C, H, W) uint8 images, with fresh noise for every image in the batch.

        `noise`: `fresh_noise()` when the result leaves the device; a seeded one only for copies that stay, as
        in training and studies. Raises SpecError if a parameter does not fit images of this size.
        """
        raise NotImplementedError

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """What a release of a (C, H, W) image provably hides; None if nothing is proved.

        `pixels`: how many may differ between neighbours, from 1 up; None for the spec's number, or 1.
        """
        return None

    def bounds(
        self, prior: naming.Prior, releases: int = 1, assuming: naming.Assumption = "none"
    ) -> list[naming.Bound]:
        """The proved bounds on naming somebody besides the guarantee; see protect.naming.

        From the chance of the best guess beforehand, or the priors of all people, and the number of images of
        that person, each with fresh noise. `assuming`: the assumption about them; see naming.ASSUMED. By
        default those by counting `outputs`, if they are known.
        """
        if self.outputs is None:
            return []
        return [naming.counting(prior, outputs=self.outputs, releases=releases, assuming=assuming)]

    def suspicious(self, release: Release, *, false_alarm: float) -> str | None:
        """Why a release, with the cell of this protection, cannot come from it, in words; or None if it can.

        A guard against mistakes, not against people: anybody can add the missing noise to a clear image.
        `false_alarm`: the largest chance that an image is suspected for its noise, whatever it shows.
        """
        return None

    def __getstate__(self) -> dict[str, Any]:
        """The parameters alone: another process reads the files itself."""
        own: Any = self  # a dataclass
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(own)}


class TrainedProtection(Protection):
    """A protection by a trained file, `artefact`, which is read when first needed."""

    artefact: FilePath
    _what: ClassVar[str]  # what the file is, in words, such as "a mask"
    _load: ClassVar[Any]  # path -> the trained network with its `shape`; raises ArtefactError

    @cached_property
    def _trained(self) -> Any:
        return self._load(self.artefact)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images that it takes. Raises ArtefactError as `check` does."""
        shape: tuple[int, int, int] = self._trained.shape
        return shape

    def check(self) -> None:
        """Reads the artefact now, not at the first release. Raises ArtefactError."""
        _ = self._trained

    def check_images(self, images: Images) -> None:
        """Raises as `check` does, and SpecError unless images have the (C, H, W) of the training."""
        self.check()
        check_batch(images)
        if tuple(images.shape[1:]) != self.shape:
            size, wanted = ("x".join(map(str, sides)) for sides in (images.shape[1:], self.shape))
            raise SpecError(
                f"{self.name}: {self.artefact} was trained on {wanted} images, and these are {size}: resize "
                f"them, or train {self._what} on images like these"
            )

    def digest(self) -> str:
        """See Trained."""
        return artefact_digest(self.artefact)


def load_network(
    path: str,
    make: Callable[[dict[str, Any]], "nn.Module"],
    *,
    kind: str,
    schema: type[artefacts.Card],
    prefix: str,
    what: str,
) -> tuple[Any, dict[str, Any], dict[str, "Tensor"]]:
    """Loads the network of an artefact in evaluation mode, with the card and all tensors.

    `make` makes the network of a card; `prefix` begins the names of its weights; `what` it is, in words.
    Raises ArtefactError for a file that is damaged, foreign, or of another kind.
    """
    from sfumato.networks.weights import initial_weights, no_larger_than, take_weights

    tensors, card = artefacts.load(path, kind=kind, schema=schema)
    own = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    try:
        with initial_weights(), no_larger_than(tensors):
            network = make(card)
    except (ValueError, AttributeError, RuntimeError) as error:
        raise ArtefactError(f"{path}: damaged: its card does not describe {what}: {error}") from error
    take_weights(network, own, path)
    return network.eval(), card, tensors


@runtime_checkable
class Trained(Protocol):
    """A protection whose spec names a file, but not its content."""

    def digest(self) -> str:
        """The digest of that file. Raises ArtefactError if it cannot be read."""


class Encoding(TrainedProtection):
    """A protection that releases in two steps: numbers of an image, always the same, and noise."""

    def encode(self, images: Images) -> "Tensor":
        """The network's output for each image, (N, d), which stays on the device. Raises as `release` does.

        Each image goes through the network by itself: a batch would round it differently, and its numbers
        would depend on the others, which no guarantee covers.
        """
        import torch

        from sfumato.networks.one_by_one import each_by_itself

        self.check_images(images)
        trained = self._trained
        with torch.no_grad():
            rows = each_by_itself(trained.network, as_tensor(images))
        return torch.cat(rows) if rows else torch.empty(0, trained.dimension)

    def release_of(self, numbers: "Tensor", noise: Noise) -> Any:
        """Releases (N, d) numbers of `encode`."""
        raise NotImplementedError

    def release(self, images: Images, noise: Noise) -> Any:
        """See Protection.release. Raises as `check` does, and SpecError for images of another size."""
        return self.release_of(self.encode(images), noise)


def canonical(name: str, protection: Any, *, but: Collection[str] = ()) -> str:
    """`name:key=value,...` by the fields of a dataclass, but for some and for those at their default."""
    parts = [
        f"{field.name}={number(value)}"
        for field in dataclasses.fields(protection)
        if field.name not in but and (value := getattr(protection, field.name)) != field.default
    ]
    return f"{name}:{','.join(parts)}" if parts else name


def number(value: float | Fraction | str) -> str:
    """A number as a spec writes it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def cell_of(protection: Any) -> int | Fraction:
    """The side of the square of pixels for each released value of a protection; 1 without cells.

    A fraction is of the shorter side of the image: see parameters.cell_in_pixels.
    """
    cell: int | Fraction = getattr(protection, "cell", 1)
    return cell


def kind_of(protection: Any) -> str:
    """The kind of a protection's releases, of KINDS."""
    kind: str = getattr(protection, "kind", "pixels")
    return kind


def artefact_digest(path: str) -> str:
    """The SHA-256 of a file that a spec only names; see file_digest_of. Raises ArtefactError."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read ({error.strerror})") from error


def file_digest_of(protection: Any) -> str | None:
    """The digest of the trained artefact of a protection; None for most.

    Keep it with any result that is kept under a spec: the artefact may be trained again at the same path.
    """
    return protection.digest() if isinstance(protection, Trained) else None


def artefact_of(protection: Any) -> str | None:
    """The part of `file_digest_of` that travels: the digest of an artefact, which others have too; else None.

    A table of boxes or an index belongs to the device: a digest would let others check guesses of its
    content.
    """
    return file_digest_of(protection) if hasattr(protection, "artefact") else None


def enlarge(values: "Tensor", *, cell: int, size: tuple[int, int]) -> "Tensor":
    """Repeats every cell over its pixels: (N, C, h, w) -> (N, C, H, W). Border cells are cut to the image."""
    return values if cell == 1 else as_tensor(_enlarge(values.numpy(), cell=cell, size=size))


def _enlarge(values: Pixels, *, cell: int, size: tuple[int, int]) -> Pixels:
    # Not by indices, in torch: 40 times slower.
    if cell == 1:
        return values
    wide = values.repeat(cell, axis=3)[..., : size[1]]
    return wide.repeat(cell, axis=2)[:, :, : size[0]]
