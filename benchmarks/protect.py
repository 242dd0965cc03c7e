"""Batch protection of 84x84 colour images against a loop of the usual Pillow and NumPy calls, and kornia.

    python benchmarks/protect.py

Wanted against the loop: 1.5 times as fast, and for blur no slower. DP-Pix is compared with its noise alone,
at most 1.25 times as long. The noise alone is drawn three ways: by the same sampler, by the textbook's exact
one (Canonne, Kamath & Steinke 2020, Algorithm 2, vectorised here), and by NumPy's floating-point Laplace,
which is no private release. Kornia, where it is installed, works on all images as one float32 batch, uint8
images in and out as for everybody: its blur is the Gaussian itself, where Pillow and ours are box filters.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib.util import find_spec

import numpy as np
import torch
from PIL import Image, ImageFilter
from timing import Line, in_turn, show
from torch import Tensor

from sfumato.dp.mechanisms import fresh_noise
from sfumato.images import to_float, to_uint8
from sfumato.protect import parse

IMAGES = 512
SIDE = 84
SIGMA = 80
DP_PIX_AT_MOST = 1.25
# Spec -> how many times as fast as the loop is wanted.
WANTED = {
    "pixelize:cell=4": 1.5,
    "pixelize:cell=2": 1.5,
    "pixelize:cell=8": 1.5,
    f"gaussian:sigma={SIGMA}": 1.5,
    "blur:radius=3": 1.0,
    "blur:radius=1": 1.0,
    "blur:radius=5": 1.0,
}
SHORT = ("pixelize:cell=4", f"gaussian:sigma={SIGMA}", "blur:radius=3")
KORNIA = find_spec("kornia") is not None


def bernoulli_exp(numerator: np.ndarray, denominator: int, rng: np.random.Generator) -> np.ndarray:
    """CKS Algorithm 1 for gamma = numerator / denominator in [0, 1], on arrays of integers."""
    alive = np.arange(len(numerator))
    k = np.ones(len(numerator), np.int64)
    while len(alive):
        success = rng.integers(0, denominator * k[alive]) < numerator[alive]
        k[alive[success]] += 1
        alive = alive[success]
    return k % 2 == 1


def textbook_laplace(count: int, t: int, rng: np.random.Generator) -> np.ndarray:
    """CKS Algorithm 2 with s = 1: discrete Laplace of an integer scale t."""
    out = np.empty(0, np.int64)
    while len(out) < count:
        n = int((count - len(out)) * 1.8) + 16
        u = rng.integers(0, t, n)
        u = u[bernoulli_exp(u, t, rng)]
        v = np.zeros(len(u), np.int64)
        alive = np.arange(len(u))
        while len(alive):
            more = bernoulli_exp(np.ones(len(alive), np.int64), 1, rng)
            alive = alive[more]
            v[alive] += 1
        x = u + t * v
        negative = rng.integers(0, 2, len(x)).astype(bool)
        keep = ~(negative & (x == 0))
        out = np.concatenate([out, np.where(negative, -x, x)[keep]])
    return out[:count]


def loops(arrays: list[np.ndarray], rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    """Spec -> an image at a time, as one would write it; pixelized ones as cells."""

    def noisy() -> object:
        return [np.clip(np.rint(a + rng.normal(0, SIGMA, a.shape)), 0, 255).astype(np.uint8) for a in arrays]

    def reduced(cell: int) -> Callable[[], object]:
        return lambda: [np.asarray(Image.fromarray(a).reduce(cell)) for a in arrays]

    def blurred(radius: int) -> Callable[[], object]:
        blur = ImageFilter.GaussianBlur(radius)
        return lambda: [np.asarray(Image.fromarray(a).filter(blur)) for a in arrays]

    return (
        {f"pixelize:cell={cell}": reduced(cell) for cell in (2, 4, 8)}
        | {f"gaussian:sigma={SIGMA}": noisy}
        | {f"blur:radius={radius}": blurred(radius) for radius in (1, 3, 5)}
    )


def of_kornia(batch: Tensor) -> dict[str, Callable[[], object]]:
    """Spec -> the whole batch by kornia, as floats."""
    from kornia.augmentation import RandomGaussianNoise
    from kornia.filters import gaussian_blur2d
    from kornia.geometry import resize

    add = RandomGaussianNoise(mean=0.0, std=SIGMA / 255, p=1.0)

    def through(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: to_uint8(function(to_float(batch)))

    def blur(radius: int) -> Callable[[], object]:
        side = 2 * 3 * radius + 1  # out to three standard deviations
        return through(lambda images: gaussian_blur2d(images, (side, side), (float(radius),) * 2))

    def pixelize(cell: int) -> Callable[[], object]:
        side = -(-SIDE // cell)
        return through(lambda images: resize(images, (side, side), interpolation="area"))

    return (
        {f"pixelize:cell={cell}": pixelize(cell) for cell in (2, 4, 8)}
        | {f"gaussian:sigma={SIGMA}": through(add)}
        | {f"blur:radius={radius}": blur(radius) for radius in (1, 3, 5)}
    )


def lines(short: bool) -> Iterator[Line]:
    rng = np.random.default_rng(0)
    batch = torch.from_numpy(rng.integers(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=np.uint8))
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in batch]
    noise = fresh_noise()
    seconds = 1.5 if short else 6
    plain, kornia = loops(arrays, rng), of_kornia(batch) if KORNIA else {}
    for spec in SHORT if short else WANTED:
        protection = parse(spec)
        others = [plain[spec], *([kornia[spec]] if KORNIA else [])]
        turns = in_turn(lambda one=protection: one.release(batch, noise), *others, seconds=seconds)
        each = {"count": IMAGES, "unit": "images a second"}
        yield turns.rates(spec, against="a loop of Pillow or NumPy", bound=WANTED[spec], **each)
        if KORNIA:
            yield turns.rates(f"{spec}, kornia", against="kornia", other=2, **each)
    for cell in (4, 8) if short else (2, 4, 8):
        protection = parse(f"dp-pix:cell={cell},epsilon=3")
        count = IMAGES * 3 * (-(-SIDE // cell)) ** 2
        others = [
            lambda count=count: noise.laplace((count,), scale=Fraction(255)),
            lambda count=count: textbook_laplace(count, 255, rng),
            lambda count=count: rng.laplace(scale=255, size=count),
        ]
        turns = in_turn(lambda one=protection: one.release(batch, noise), *others, seconds=seconds)
        each = {"unit": "us an image", "scale": 1e6 / IMAGES, "bound": DP_PIX_AT_MOST}
        yield turns.costs(protection.spec, against="its noise alone", **each)
        yield turns.costs(
            f"{protection.spec}, textbook", against="the textbook's exact noise", other=2, **each
        )
        if not short:
            each.pop("bound")
            yield turns.costs(f"{protection.spec}, float", against="NumPy's floats", other=3, **each)


def main() -> None:
    show(lines(short=False), f"{IMAGES} images of {SIDE}x{SIDE}x3")
    if not KORNIA:
        print("left out: kornia is not installed")


if __name__ == "__main__":
    main()
