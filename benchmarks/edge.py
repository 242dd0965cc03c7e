"""Exported masks and private features of 64x64 colour images, against PyTorch's own releases, on one core.

    OMP_NUM_THREADS=1 python benchmarks/edge.py

Both release one image at a time. Wanted: 200 images a second through the mask of the default width, or more.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from timing import Line, in_turn, show

from sfumato import artefacts
from sfumato.dp.mechanisms import seeded_noise
from sfumato.edge.export import export
from sfumato.edge.runtime import session
from sfumato.learn import private_feature
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.protect import mask as masks
from sfumato.protect.feature import Feature
from sfumato.protect.mask import Mask

SHAPE = (3, 64, 64)
IMAGES = 64
LEAST = 200  # images a second, through the mask of the default width


def compare(
    words: str, artefact: Path, protection: Mask | Feature, *, seconds: float, limit: float | None
) -> Iterator[Line]:
    """An exported artefact, in float32 and in 8 bits, beside PyTorch's release; and the bytes of both."""
    images = torch.randint(0, 256, (IMAGES, *SHAPE), generator=torch.Generator().manual_seed(0))
    images = images.to(torch.uint8)
    exact = export(artefact, artefact.with_suffix(".onnx"), check=images[:8])
    small = export(
        artefact, artefact.with_suffix(".8.onnx"), check=images[:8], int8=True, calibration=images[8:]
    )
    rows = [{"images": image.numpy()} for image in images.split(1)]

    def runs(path: Path) -> Callable[[], object]:
        opened = session(path)
        return lambda: [opened.run(None, row) for row in rows]

    noise = seeded_noise(0)
    turns = in_turn(
        runs(exact.path), runs(small.path), lambda: protection.release(images, noise), seconds=seconds
    )
    each = {"against": "PyTorch's release", "other": 2, "count": IMAGES, "unit": "images a second"}
    yield turns.rates(f"{words}, exported", limit=limit, **each)
    yield turns.rates(f"{words}, exported, int8", one=1, **each)
    sizes = {"ours": small.bytes / 1000, "other": exact.bytes / 1000, "ratio": small.bytes / exact.bytes}
    yield Line(name=f"{words}, file, int8", **sizes, unit="kB", against="float32", lower=True)


def write_mask(path: Path, *, width: int) -> None:
    """An untrained masker."""
    config = MaskConfig(masker_width=width)
    masker = masks.untrained_masker(SHAPE[0], width=width, levels=config.levels)
    card = {"kind": masks.KIND, "shape": list(SHAPE), "config": asdict(config)}
    artefacts.save(path, {f"masker.{name}": each for name, each in masker.state_dict().items()}, card)


def write_feature(path: Path, *, cut: str) -> None:
    """An untrained model."""
    config = FeatureConfig(cut=cut)
    card = {"shape": list(SHAPE), "classes": {"light": ["dark", "bright"]}}
    card["config"] = {**asdict(config), "widths": list(config.widths)}
    private_feature.untrained(card, seed=0).save(path)


def lines(short: bool) -> Iterator[Line]:
    seconds = 2 if short else 8
    with tempfile.TemporaryDirectory() as folder:
        for width in (16,) if short else (8, 16):
            artefact = Path(folder) / f"mask{width}.safetensors"
            write_mask(artefact, width=width)
            limit = LEAST if width == 16 else None
            words = f"mask of width {width}"
            yield from compare(words, artefact, Mask(str(artefact)), seconds=seconds, limit=limit)
        for cut in ("conv7",) if short else ("conv4_2", "conv7"):
            artefact = Path(folder) / f"{cut}.safetensors"
            write_feature(artefact, cut=cut)
            feature = Feature(str(artefact), noise=0.0)
            yield from compare(f"feature, cut at {cut}", artefact, feature, seconds=seconds, limit=None)


def main() -> None:
    show(lines(short=False), "one thread of onnxruntime, 64x64 colour images")


if __name__ == "__main__":
    main()
