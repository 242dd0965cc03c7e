"""Exported masks and private features of 64x64 colour images, against PyTorch's own releases, on one core.

    OMP_NUM_THREADS=1 python benchmarks/edge.py

Both release one image at a time. Wanted: 200 images a second through the mask of the default width, or more.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch

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
ROUNDS = 7  # of which the first two warm up


def medians(*functions: Callable[[], object]) -> list[float]:
    """Seconds of functions run in turn: the medians over all rounds."""
    rounds = []
    for _ in range(ROUNDS):
        times = []
        for function in functions:
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        rounds.append(times)
    return [median(times) for times in zip(*rounds[2:], strict=True)]


def compare(words: str, artefact: Path, protection: Mask | Feature, images: torch.Tensor) -> None:
    """Images a second of an exported artefact, in float32 and in 8 bits, and of PyTorch's release."""
    exact = export(artefact, artefact.with_suffix(".onnx"), check=images[:8])
    small = export(
        artefact, artefact.with_suffix(".8.onnx"), check=images[:8], int8=True, calibration=images[8:]
    )
    rows = [{"images": image.numpy()} for image in images.split(1)]

    def runs(path: Path) -> Callable[[], object]:
        opened = session(path)
        return lambda: [opened.run(None, row) for row in rows]

    noise = seeded_noise(0)
    times = medians(runs(exact.path), runs(small.path), lambda: protection.release(images, noise))
    exported, int8, pytorch = (IMAGES / each for each in times)
    print(
        f"{words}: {exported:5.0f} images a second, int8 {int8:5.0f}, PyTorch's release {pytorch:5.0f}; "
        f"{exact.bytes / 1000:4.0f} kB, int8 {small.bytes / 1000:4.0f}"
    )


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


def main() -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, *SHAPE)).to(torch.uint8)
    print(f"{torch.get_num_threads()} threads of PyTorch, one of onnxruntime, 64x64 colour images")
    with tempfile.TemporaryDirectory() as folder:
        for width in (8, 16):
            artefact = Path(folder) / f"mask{width}.safetensors"
            write_mask(artefact, width=width)
            compare(f"mask of width {width:2}", artefact, Mask(str(artefact)), images)
        for cut in ("conv4_2", "conv7"):
            artefact = Path(folder) / f"{cut}.safetensors"
            write_feature(artefact, cut=cut)
            compare(f"feature, cut at {cut:7}", artefact, Feature(str(artefact), noise=0.0), images)


if __name__ == "__main__":
    main()
