"""Whether what came in was protected as a model demands: a guard against mistakes, so that one is no leak.

A device that sends clean images under the right name, or of the wrong size, or pixels in place of cells, is
told so before anything is computed or kept of them. It is no guard against a liar: whoever wants to send a
clean image can add what is looked for here.

Nothing here refuses a release that is what its spec says, but for noise: there an image has a chance of at
most FALSE_ALARM to be refused, whatever it shows. studies/guard.py measures it.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.errors import ArtefactError, DataError
from sfumato.images import read, stored_size
from sfumato.protect import Protection
from sfumato.protect.block import Block, centre
from sfumato.protect.blur import Blur, CentreBlur
from sfumato.protect.dp_pix import DPPix, DPPixGaussian
from sfumato.protect.feature import FeatureRelease
from sfumato.protect.gaussian import Gaussian
from sfumato.protect.mask import Mask, load_masker, pixels_shown
from sfumato.protect.parameters import artefact_digest
from sfumato.protect.pixelize import cell_areas, spread
from sfumato.protect.release import Release
from sfumato.serve.models import Demand, Served
from sfumato.wire import FeatureHeader, Header

FALSE_ALARM = 1e-6  # of one image, by all tests of its noise together

_PNG = b"\x89PNG\r\n\x1a\n"
_GRID = 0.5  # steps of a clean value, in grey levels, that the noise is checked about
_MANY = 200.0  # steps in a standard deviation, from which on whole numbers are as good as real ones
_LEVELS = (0.02, 0.1, 0.3, 0.6)  # of the probabilities of values so near, at which shares are looked at

_PASSED = 0.03  # of the amplitude of a pattern, by a blur: finer ones are looked for
_ROUNDING = 1.0  # in grey levels, of blurring in whole numbers

Floats = NDArray[np.float64]


class NotProtectedError(DataError):
    """What came in is evidently not what the model demands: nothing of it was kept."""


def demand_of(served: Served, header: Header) -> Demand:
    """The protection of a model under which a release came.

    Raises:
        NotProtectedError: none of them, or of another artefact, or of another size.
    """
    demand = demand_named(served, header.spec)
    if demand.made_of is not None and header.made_of != demand.made_of:
        raise NotProtectedError(
            f"{header.spec} was released by another artefact than the model was made for: use the one whose "
            f"SHA-256 begins with {demand.made_of[:16]}"
        )
    if isinstance(header, FeatureHeader) != (demand.protection is None):
        raise NotProtectedError(f"the model takes releases of {demand.spec}, and this is of {header.kind}")
    if isinstance(header, FeatureHeader):
        if header.dimension != served.dimension:
            raise NotProtectedError(
                f"a feature of {header.dimension} numbers, and the model's have {served.dimension}: use the "
                "extractor of the model"
            )
    elif (header.channels, *header.size) != served.shape:
        found, wanted = ("x".join(map(str, each)) for each in ((header.channels, *header.size), served.shape))
        raise NotProtectedError(f"images of {found}, and the model's are {wanted}: resize before protecting")
    return demand


def demand_named(served: Served, spec: str) -> Demand:
    """The protection of a model that a spec names. Raises NotProtectedError where none is."""
    for demand in served.demands:
        # Of a private feature, the noise is the device's choice.
        if spec == demand.spec or (demand.protection is None and spec.startswith("feature:")):
            return demand
    demanded = ", ".join(each.spec for each in served.demands)
    raise NotProtectedError(
        f"the model {served.name} takes releases of {demanded}: protect so, and name it so"
    )


def read_png(data: bytes, served: Served, demand: Demand) -> Release:
    """The release that a PNG shows, for people with curl: cells are written as squares of equal pixels.

    Raises:
        NotProtectedError: an image of another size, or that is not constant in its cells.
        DataError: no PNG, a damaged one, or a protection whose releases are no plain image.
    """
    protection = demand.protection
    if protection is None or isinstance(protection, Mask):
        raise DataError(f"a release of {demand.spec} is no plain image: send it in the release format")
    if data[:8] != _PNG:
        raise DataError("the body is no PNG: send a PNG, or the release format")
    channels, height, width = served.shape
    size = stored_size(data)  # before anything is decoded, and the decoder is held to it
    if size != (height, width):
        raise NotProtectedError(
            f"a PNG of {size[0]}x{size[1]} pixels, and the model's images are {height}x{width}: resize "
            "before protecting"
        )
    image = read(data, channels=channels)[None]
    if image.shape[2:] != (height, width):
        raise NotProtectedError("a PNG that is turned by its metadata: write it upright")
    cell = protection.cell
    found = Release(image[:, :, ::cell, ::cell].contiguous(), demand.spec, (height, width), cell)
    if cell > 1 and not (found.images() == image).all():
        raise NotProtectedError(
            f"an image that is not constant in cells of {cell}x{cell} pixels is no release of {demand.spec}: "
            "protect it before it leaves the device"
        )
    return found


def check(release: Release | FeatureRelease, demand: Demand) -> None:
    """Refuse what evidently was not protected as demanded, of a release that `demand_of` let through.

    Raises:
        NotProtectedError: it says what gives it away, and of which image.
    """
    protection = demand.protection
    if protection is None or isinstance(release, FeatureRelease):
        return  # any numbers may be a feature
    if release.cell != protection.cell:
        raise _refused(
            demand, f"it has a value for each {_square(release.cell)}, and not {_square(protection.cell)}"
        )
    if (release.shown is not None) != isinstance(protection, Mask):
        raise _refused(demand, "it is masked" if release.shown is not None else "it has no mask")
    if isinstance(protection, Mask):
        _check_mask(release, protection, demand)
        return
    if isinstance(protection, DPPix | DPPixGaussian | Gaussian):
        rows, columns = (side // protection.cell for side in release.size)
        whole = release.values[:, :, :rows, :columns].numpy()  # border cells have more noise, and are few
        law = law_of(protection, whole.shape[1], release.size)
        if (number := without_noise(whole, law)) is not None:
            raise _refused(demand, f"image {number + 1} has less noise than that has")
    for number, values in enumerate(release.values.numpy()):
        reason = _gives_away(values, protection)
        if reason is not None:
            raise _refused(demand, f"image {number + 1} {reason}")


def _refused(demand: Demand, reason: str) -> NotProtectedError:
    return NotProtectedError(
        f"this is no release of {demand.spec}: {reason}; protect images before they leave the device"
    )


def _square(cell: int) -> str:
    return "pixel" if cell == 1 else f"{cell}x{cell} pixels"


def _gives_away(values: NDArray[np.uint8], protection: Protection) -> str | None:
    """What shows, noise apart, that (C, h, w) values are no release; None where nothing does."""
    if isinstance(protection, Blur):
        return None if blurred(values, protection.radius) else "is sharper than that leaves any"
    if isinstance(protection, CentreBlur | Block):
        inside = values[:, *centre(torch.from_numpy(values)[None], protection.share)]
        if isinstance(protection, Block):
            return "shows something in its centre" if inside.any() else None
        sharp = not blurred(inside, protection.radius, cut_out=True)
        return "is sharper in its centre than that leaves any" if sharp else None
    return None  # cells of any values may be means, and a clear image is what `none` demands


def _check_mask(release: Release, protection: Mask, demand: Demand) -> None:
    assert release.shown is not None
    if protection.values == "shape" and not torch.equal(release.values, release.shapes()):
        raise _refused(demand, "its pixels have values, and not 255 each")
    keep = _keep_of(protection.artefact, demand.made_of) if protection.keep is None else protection.keep
    if keep is None:
        return
    wanted = pixels_shown(keep, release.size)
    for number, shown in enumerate(release.shown.flatten(1).sum(1).tolist()):
        if shown != wanted:
            raise _refused(demand, f"image {number + 1} shows {shown} pixels, and not {wanted}")


@lru_cache(maxsize=16)
def _keep_of(artefact: str, made_of: str | None) -> float | None:
    """The share that a masker shows; None where it is not here, or another under its name."""
    try:
        if made_of is not None and artefact_digest(artefact) != made_of:
            return None
        return load_masker(artefact).keep
    except ArtefactError:
        return None


@dataclass(frozen=True)
class Law:
    """The law of the noise on a released value, in grey levels, before it is rounded and clamped.

    Attributes:
        kind: "laplace" or "normal".
        scale: of Laplace noise, or the standard deviation.
        steps: noise is a whole number of such parts of a grey level, as where it is drawn for the sum of so
            many pixels; None for real numbers.
    """

    kind: Literal["laplace", "normal"]
    scale: float
    steps: int | None = None

    def below(self, values: Floats) -> Floats:
        """The probability of noise below each of some numbers."""
        if self.steps is None:
            return self._real(values)
        # Noise of k steps is below v where k <= most.
        most = np.ceil(values * self.steps) - 1
        scale = self.scale * self.steps
        if self.kind == "laplace":  # P(k) ~ exp(-|k| / scale)
            ratio = math.exp(-1 / scale)
            below_zero = np.exp(np.minimum(most, 0) / scale) / (1 + ratio)
            above_zero = 1 - np.exp(-(np.maximum(most, 0) + 1) / scale) / (1 + ratio)
            laplace: Floats = np.where(most < 0, below_zero, above_zero)
            return laplace
        if scale > _MANY:  # the sum over whole numbers is the integral, but for 1 / (24 scale^2)
            return self._real((most + 0.5) / self.steps)
        reach = math.ceil(12 * scale) + 1
        whole = np.arange(-reach, reach + 1)
        weights = np.exp(-((whole / scale) ** 2) / 2)
        shares = np.concatenate([[0.0], weights.cumsum() / weights.sum()])
        found: Floats = shares[np.clip(most + reach + 1, 0, len(whole)).astype(np.int64)]
        return found

    def _real(self, values: Floats) -> Floats:
        if self.kind == "normal":
            found: Floats = torch.special.ndtr(torch.from_numpy(values / self.scale)).numpy()
            return found
        tail = np.exp(-np.abs(values) / self.scale) / 2
        return np.where(values < 0, tail, 1 - tail)


def law_of(protection: DPPix | DPPixGaussian | Gaussian, channels: int, size: tuple[int, int]) -> Law:
    """The noise on the values of whole cells, or of pixels, of images of so many channels and (H, W)."""
    if isinstance(protection, Gaussian):
        return Law("normal", protection.sigma)
    area, pixels = protection.cell**2, protection.pixels
    if isinstance(protection, DPPixGaussian):
        areas = cell_areas(*size, protection.cell)
        squares = int((spread(min(pixels, int(areas.sum())), areas, largest_first=True) ** 2).sum())
        return Law("normal", 255 * math.sqrt(squares * channels / (2 * protection.rho)) / area, area)
    each = channels if protection.variant == "sound" else 1
    return Law("laplace", 255 * pixels * each / (protection.epsilon * area), area)


def without_noise(values: NDArray[np.uint8], law: Law) -> int | None:
    """Which of (N, C, h, w) released images evidently lacks the noise of a law; None where none does.

    An image by itself, or all together, where a few small ones say more than each does. See chances.
    """
    alone, together = chances(values, law)
    if min(together, alone.min(initial=1.0)) <= FALSE_ALARM / 2:
        return int(alone.argmin())
    return None


def chances(values: NDArray[np.uint8], law: Law) -> tuple[Floats, float]:
    """How probable it is at most that what has the noise of a law looks so much like what has none.

    Source: ours. Every other value, as on a chessboard, is predicted from its four neighbours, and in a
    further channel also from how far the channels before it are from theirs. Whatever the image shows, the
    noise on a value is independent of its prediction, so that it comes so near with a probability of at most
    u, the largest over all clean values; and of n values, one after another, so large a share has u <= p with
    a probability of at most exp(-n·KL(share || p)) (Chernoff 1952, Hoeffding 1963). Two kinds are counted:
    all values, and those that no end of the range has clamped; each at a few levels of p. The smallest of
    these probabilities counts, times their number (Bonferroni). An honest release thus has a chance of at
    most x, whatever it shows, to be given one of x or less.

    Args:
        values: (N, C, h, w), of whole cells.
        law: of the noise.

    Returns:
        of each image, and of all images taken as one; 1 where there is nothing to predict from.
    """
    evidence, together = np.zeros(len(values)), 0.0
    if min(values.shape[2:]) >= 2:
        odd = np.indices(values.shape[2:]).sum(0) % 2 == 1
        found, others = values[:, :, odd], _predictions(values)[:, :, odd]  # (N, C, n)
        apart = np.abs(found.astype(np.int16) - others)
        free = (found > 0) & (found < 255)
        for near, counted in (
            (_nearness(law, clamped=True)[others, apart], np.ones_like(free)),
            (_nearness(law, clamped=False)[others, apart], free),
        ):
            for level in _LEVELS:
                close = ((near <= level) & counted).sum((1, 2))
                of = counted.sum((1, 2))
                alone = [_evidence(*each, level) for each in zip(close.tolist(), of.tolist(), strict=True)]
                evidence = np.maximum(evidence, alone)
                together = max(together, _evidence(int(close.sum()), int(of.sum()), level))
    tests = 2 * len(_LEVELS)
    return np.minimum(1.0, tests * np.exp(-evidence)), min(1.0, tests * math.exp(-together))


def _predictions(values: NDArray[np.uint8]) -> NDArray[np.int16]:
    """What each of (N, C, h, w) values is expected to be: see without_noise."""
    edged = np.pad(values.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    around = edged[:, :, :-2, 1:-1] + edged[:, :, 2:, 1:-1] + edged[:, :, 1:-1, :-2] + edged[:, :, 1:-1, 2:]
    around /= 4
    beyond = values - around
    for channel in range(1, values.shape[1]):
        around[:, channel] += beyond[:, :channel].mean(1)
    return around.round().clip(0, 255).astype(np.int16)


def _evidence(close: int, count: int, level: float) -> float:
    """n·KL(share || p), in nats, where the share is above p; else 0."""
    share = close / max(count, 1)
    if share <= level:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - level)) if share < 1 else 0.0
    return count * (share * math.log(share / level) + rest)


@lru_cache(maxsize=16)
def _nearness(law: Law, *, clamped: bool) -> Floats:
    """(256, 256): the largest probability of a released value within so much (column) of a number (row).

    Args:
        law: of the noise.
        clamped: of all values; otherwise among those between 1 and 254.
    """
    clean = np.arange(0, 255 + _GRID, _GRID)[:, None]
    edges = law.below(np.arange(255) + 0.5 - clean)  # below 0.5, ..., below 254.5
    levels = np.diff(edges, axis=1, prepend=0, append=1)  # (x, 256): the probability of each released value
    if not clamped:
        levels[:, [0, 255]] = 0
        levels /= levels.sum(1, keepdims=True).clip(1e-300)
    below = np.pad(levels.cumsum(1), ((0, 0), (256, 255)), mode="edge")
    below[:, :256] = 0
    numbers = np.arange(256)
    # Column 256 + k of `below` has the values up to k.
    return np.stack(
        [(below[:, numbers + 256 + d] - below[:, numbers + 255 - d]).max(0) for d in range(256)], axis=1
    )


def blurred(values: NDArray[np.uint8], radius: float, *, cut_out: bool = False) -> bool:
    """Whether (C, H, W) values may come from a Gaussian blur; False says that they cannot.

    Source: ours. A blur of standard deviation r leaves exp(-2·π²·f²·r²) of the amplitude of a pattern of
    frequency f. Of the patterns of which it leaves less than PASSED, an image of any contrast keeps a root
    mean square of at most PASSED·127.5 grey levels; ROUNDING comes to that. Of blurs below 0.85 pixels all
    patterns keep more: they are not looked at.

    Patterns are those of the values mirrored at their edges. A blur that went on beyond the edges has slopes
    there, of at most 255 / (r·√2π) a pixel, which the mirror turns into kinks: see _kinks. Without room for
    them, 2 of 200 photographs of 32x32 pixels were refused at centre-blur:radius=10 (studies/guard.py).

    Args:
        values: of the blurred part.
        radius: r.
        cut_out: of a larger image, all of which was blurred.
    """
    cut = math.sqrt(-math.log(_PASSED) / 2) / (math.pi * radius)
    if cut >= 0.5 or (cut_out and min(values.shape[1:]) < 2):
        return True
    height, width = values.shape[1:]
    spectrum = _cosines(height) @ values.astype(np.float64) @ _cosines(width).T  # (C, H, W)
    rows, columns = np.arange(height) / (2 * height) > cut, np.arange(width) / (2 * width) > cut
    fine = spectrum[:, rows[:, None] | columns]
    most = 127.5 * _PASSED + _ROUNDING
    if cut_out:
        floats = values.astype(np.float64)
        most += math.hypot(_kinks(floats, radius, cut), _kinks(floats.swapaxes(1, 2), radius, cut))
    return bool(math.sqrt((fine**2).sum() / values.size) <= most)


def _kinks(values: Floats, radius: float, cut: float) -> float:
    """What mirroring lines at their ends adds to patterns finer than `cut`: its root mean square.

    A line of n pixels with the slope s at both ends has cosines of amplitude (2n·s/π²)·√2·2/k² at the
    frequencies k/2n, odd k alone where the slopes are equal, and even k alone where they are opposite.

    Args:
        values: (..., n), the lines. Their slopes count as far as a blur of that radius leaves any.
        radius, cut: see blurred.
    """
    size = values.shape[-1]
    most = 255 / (radius * math.sqrt(2 * math.pi))
    ends = np.abs(np.diff(values, axis=-1)[..., [0, -1]]) + _ROUNDING
    slope = math.sqrt((np.minimum(ends, most) ** 2).mean())
    waves = np.arange(1, 4 * size)
    power = np.where(waves / (2 * size) > cut, 1.0 / waves.astype(np.float64) ** 4, 0.0)
    return float(slope * size * math.sqrt(8 * max(power[::2].sum(), power[1::2].sum())) / math.pi**2)


@lru_cache(maxsize=16)
def _cosines(size: int) -> Floats:
    """The orthonormal DCT-II, (size, size): an image goes on beyond its edges about as a blur makes it."""
    places, waves = np.arange(size) + 0.5, np.arange(size)[:, None]
    found: Floats = np.cos(np.pi * waves * places / size) * math.sqrt(2 / size)
    found[0] /= math.sqrt(2)
    return found
