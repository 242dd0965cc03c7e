"""What a device does, against a bare loop of the same work: releases, noise, folders, measures."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from timing import Line, in_turn
from torch import Tensor

from sfumato import images
from sfumato.base.engines import EngineConfig
from sfumato.device.jobs.folder import FolderConfig, protect_folder
from sfumato.dp.mechanisms import fresh_noise
from sfumato.protect import parse

IMAGES, SIDE, SIGMA = 512, 84, 80


def loops(
    arrays: list[np.ndarray], rng: np.random.Generator
) -> dict[str, tuple[Callable[[], object], float]]:
    """Spec -> an image at a time, as one would write it, and how many times as fast ours is to be."""

    def noisy() -> object:
        return [np.clip(np.rint(a + rng.normal(0, SIGMA, a.shape)), 0, 255).astype(np.uint8) for a in arrays]

    blur = ImageFilter.GaussianBlur(3)
    return {
        "pixelize:cell=4": (lambda: [np.asarray(Image.fromarray(a).reduce(4)) for a in arrays], 1.5),
        f"gaussian:sigma={SIGMA}": (noisy, 1.5),
        "blur:radius=3": (lambda: [np.asarray(Image.fromarray(a).filter(blur)) for a in arrays], 1.0),
    }


def releases() -> Iterator[Line]:
    """Of images of 84x84, against a loop of Pillow and NumPy; of DP-Pix against its noise alone."""
    rng = np.random.default_rng(0)
    batch = torch.from_numpy(rng.integers(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=np.uint8))
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in batch]
    noise = fresh_noise()
    for spec, (loop, least) in loops(arrays, rng).items():
        protection = parse(spec)
        turns = in_turn(lambda one=protection: one.release(batch, noise), loop, seconds=1.5)
        yield turns.rates(
            spec, against="a loop of Pillow or NumPy", count=IMAGES, unit="images a second", bound=least
        )
    for cell in (4, 8):
        protection, count = parse(f"dp-pix:cell={cell},epsilon=3"), IMAGES * 3 * (-(-SIDE // cell)) ** 2
        turns = in_turn(
            lambda one=protection: one.release(batch, noise),
            lambda count=count: noise.laplace((count,), scale=Fraction(255)),
            seconds=1.5,
        )
        yield turns.costs(
            protection.spec, against="its noise alone", unit="us an image", scale=1e6 / IMAGES, bound=1.25
        )


def noise() -> Iterator[Line]:
    """Exact noise of the system's entropy, against OpenDP's samplers: a million draws a second."""
    import opendp.prelude as opendp

    torch.set_num_threads(1)
    opendp.enable_features("contrib")
    integers, scale, ours, theirs = opendp.vector_domain(opendp.atom_domain(T=int)), 85, 10**6, 20_000
    fresh = fresh_noise()
    for name, draw, measure in (
        (
            "Laplace",
            lambda: fresh.laplace((ours,), scale=Fraction(scale)),
            opendp.m.make_laplace(integers, opendp.l1_distance(T=int), scale=float(scale)),
        ),
        (
            "Gaussian",
            lambda: fresh.discrete_gaussian((ours,), variance=Fraction(scale) ** 2),
            opendp.m.make_gaussian(integers, opendp.l2_distance(T=float), scale=float(scale)),
        ),
    ):
        turns = in_turn(draw, lambda measure=measure: measure([0] * theirs), seconds=2)
        yield turns.rates(
            f"discrete {name}, scale {scale}",
            against="OpenDP",
            count=ours / 1e6,
            other_count=theirs / 1e6,
            unit="million draws a second",
            limit=1.0,
        )


# Whole jobs, with the start of their processes.


def write_photographs(folder: Path, count: int, side: int) -> None:
    """`count` JPEGs in one folder, cut at random from one smooth picture with a little grain."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    coarse = rng.normal(128, 50, (9, 9, 3)).clip(0, 255).astype(np.uint8)
    smooth = np.asarray(
        Image.fromarray(coarse).resize((4 * side, 4 * side), Image.Resampling.BICUBIC), np.int16
    )
    picture = (smooth + rng.normal(0, 4, (4 * side, 4 * side, 3))).clip(0, 255).astype(np.uint8)
    for number in range(count):
        y, x = rng.integers(0, 3 * side, 2)
        Image.fromarray(picture[y : y + side, x : x + side]).save(folder / f"{number:06d}.jpg", quality=90)


def transcode(source: Path, target: Path) -> None:
    """Decode and encode, as plainly as it can be done, with the same library and settings."""
    with Image.open(BytesIO(source.read_bytes())) as opened:
        picture = torch.from_numpy(np.array(opened.convert("RGB")).transpose(2, 0, 1))
    target.with_suffix(".part").write_bytes(images.encode(picture, "PNG"))
    target.with_suffix(".part").rename(target)


def folder() -> Iterator[Line]:
    """Photographs of 1024x1024 by two workers, against decoding and encoding alone, and by one worker."""
    spec, count = "dp-pix:cell=8,epsilon=3", 80
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        write_photographs(source, count, 1024)

        def protected(workers: int) -> None:
            with tempfile.TemporaryDirectory() as own:
                protect_folder(
                    source,
                    Path(own) / "out",
                    parse(spec),
                    Path(own) / "ledger" / "ledger.db",
                    FolderConfig(format_name="PNG"),
                    engine=EngineConfig(workers=workers),
                )

        def bare() -> None:
            paths = sorted(source.iterdir())
            context, one = get_context("forkserver"), torch.set_num_threads
            with (
                tempfile.TemporaryDirectory() as own,
                ProcessPoolExecutor(2, context, initializer=one, initargs=(1,)) as pool,
            ):
                list(
                    pool.map(
                        transcode, paths, [Path(own) / f"{path.stem}.out" for path in paths], chunksize=8
                    )
                )

        turns = in_turn(lambda: protected(2), bare, lambda: protected(1), seconds=12, waits=True)
    each = {"count": count, "unit": "images a second"}
    yield turns.rates(f"folder, {spec}, PNG", against="decoding and encoding", bound=0.85, **each)
    yield turns.rates("folder, 2 workers", against="1 worker", other=2, **each)


def start() -> Iterator[Line]:
    """How long the command line takes to answer --help: no longer than 0.3 s."""

    def runs(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    command = str(Path(sys.executable).with_name("sfumato"))
    turns = in_turn(
        lambda: runs(command, "--help"),
        lambda: runs(sys.executable, "-c", "import typer"),
        seconds=2,
        waits=True,
    )
    yield turns.costs("sfumato --help", against="python -c 'import typer'", limit=300)


# Measures of pairs and sets


def frechet_by_square_root(first: Tensor, second: Tensor) -> float:
    from scipy.linalg import sqrtm

    (m1, s1), (m2, s2) = ((x.mean(0), np.cov(x, rowvar=False)) for x in (first.numpy(), second.numpy()))
    return float(np.square(m1 - m2).sum() + np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real))


def metrics() -> Iterator[Line]:
    """The Fréchet distance within a second; SSIM and PSNR of colour images beside two libraries."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity
    from torchmetrics.functional import image as torchmetrics

    from sfumato.assess.frechet import frechet_distance
    from sfumato.assess.similarity import psnr, ssim

    draw, count, size = torch.Generator().manual_seed(0), 300, 512
    mix = torch.randn(size, size, generator=draw) / size**0.5
    first, second = (torch.randn(count, size, generator=draw) @ mix for _ in range(2))
    turns = in_turn(
        lambda: frechet_distance(first, second),
        lambda: frechet_by_square_root(first.double(), second.double()),
        seconds=4,
    )
    yield turns.costs(
        f"Fréchet distance, {count} x {size}", against="a matrix square root", unit="s", scale=1, limit=1
    )
    originals = torch.rand(64, 3, SIDE, SIDE, generator=draw)
    others = (originals + 0.1 * torch.randn(originals.shape, generator=draw)).clamp(0, 1)
    gaussian = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "channel_axis": 0}
    theirs = {"data_range": 1.0, "reduction": "none"}

    def one_by_one(measure: Callable[..., float], **settings: object) -> None:
        for original, other in zip(originals.numpy(), others.numpy(), strict=True):
            measure(original, other, data_range=1.0, **settings)

    for name, functions in {
        "SSIM": (
            lambda: ssim(originals, others),
            lambda: torchmetrics.structural_similarity_index_measure(others, originals, sigma=1.5, **theirs),
            lambda: one_by_one(structural_similarity, **gaussian),
        ),
        "PSNR": (
            lambda: psnr(originals, others),
            lambda: torchmetrics.peak_signal_noise_ratio(others, originals, dim=(1, 2, 3), **theirs),
            lambda: one_by_one(peak_signal_noise_ratio),
        ),
    }.items():
        turns = in_turn(*functions, seconds=3)
        for number, library in enumerate(("torchmetrics", "scikit-image"), 1):
            yield turns.rates(
                f"{name}, {library}", against=library, other=number, count=64, unit="pairs a second"
            )
