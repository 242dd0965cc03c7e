"""Batch protection of 84x84 colour images against a loop of the usual Pillow and NumPy calls.

    python benchmarks/protect.py

Each ratio is from one run: theirs / ours for pixelize, gaussian and blur (higher is better), and
dp-pix / its noise alone (lower is better). The noise alone is drawn three ways: by the same sampler, by the
textbook's exact one (Canonne, Kamath & Steinke 2020, Algorithm 2, vectorised here), and by NumPy's
floating-point Laplace, which is no private release.
"""

import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from PIL import Image, ImageFilter

from sfumato.dp.mechanisms import fresh_noise
from sfumato.protect import parse

IMAGES = 512
SIDE = 84
REPEATS = 15


def best(function: Callable[[], object]) -> float:
    """Microseconds an image, the best of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) / IMAGES * 1e6


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


def main() -> None:
    rng = np.random.default_rng(0)
    batch = torch.from_numpy(rng.integers(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=np.uint8))
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in batch]
    noise = fresh_noise()
    print(
        f"{IMAGES} images of {SIDE}x{SIDE}x3, {torch.get_num_threads()} threads, "
        f"best of {REPEATS}, us an image"
    )

    def compare(spec: str, loop: Callable[[], object], wanted: float) -> None:
        protection = parse(spec)
        ours, theirs = best(lambda: protection.release(batch, noise)), best(loop)
        verdict = "kept" if theirs / ours >= wanted else "NOT kept"
        print(
            f"{spec:18s} ours {ours:7.1f}  loop {theirs:7.1f}  {theirs / ours:5.2f}x "
            f"(at least {wanted}: {verdict})"
        )

    for cell in (2, 4, 8):
        compare(
            f"pixelize:cell={cell}",
            lambda cell=cell: [np.asarray(Image.fromarray(a).reduce(cell)) for a in arrays],
            1.5,
        )
    compare(
        "gaussian:sigma=80",
        lambda: [np.clip(np.rint(a + rng.normal(0, 80, a.shape)), 0, 255).astype(np.uint8) for a in arrays],
        1.5,
    )
    for radius in (1, 3, 5):
        blur = ImageFilter.GaussianBlur(radius)
        compare(
            f"blur:radius={radius}",
            lambda blur=blur: [np.asarray(Image.fromarray(a).filter(blur)) for a in arrays],
            1.0,
        )
    blurred = parse("blur:radius=3").release(batch, noise).images()
    apart = max(
        int(
            np.abs(
                np.asarray(Image.fromarray(a).filter(ImageFilter.GaussianBlur(3)), int)
                - b.permute(1, 2, 0).numpy()
            ).max()
        )
        for a, b in zip(arrays, blurred, strict=True)
    )
    print(f"blur:radius=3 against Pillow: at most {apart} grey levels apart (at most 1)")

    for cell in (2, 4, 8):
        protection = parse(f"dp-pix:cell={cell},epsilon=3")
        count = IMAGES * 3 * (-(-SIDE // cell)) ** 2
        whole = best(lambda protection=protection: protection.release(batch, noise))
        alone = best(lambda count=count: noise.laplace((count,), scale=Fraction(255)))
        textbook = best(lambda count=count: textbook_laplace(count, 255, rng))
        inexact = best(lambda count=count: rng.laplace(scale=255, size=count))
        print(
            f"{protection.spec:24s} whole {whole:6.1f}  its noise alone {alone:6.1f}: {whole / alone:4.2f}  "
            f"textbook exact {textbook:6.1f}: {whole / textbook:4.2f}  "
            f"NumPy float {inexact:6.1f}: {whole / inexact:4.2f} (at most 1.25)"
        )


if __name__ == "__main__":
    main()
