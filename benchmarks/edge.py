"""Exported masks, private features and codes of 64x64 colour images, against PyTorch's releases, on one core.

    OMP_NUM_THREADS=1 python benchmarks/edge.py

Both release one image at a time. Wanted: 200 images a second through the mask of the default width, or more.
A code of 16 bits, exported, is timed as it leaves, with its signs packed, beside dp-pix and that mask, and
the bytes that each of them sends of an image are counted.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from timing import Line, in_turn, show

from sfumato import artefacts
from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.export.card import session
from sfumato.export.export import export
from sfumato.learn import private_feature
from sfumato.learn.adversarial_mask import MaskConfig
from sfumato.learn.private_feature import FeatureConfig
from sfumato.networks.code import make_code_network
from sfumato.protect import code as codes
from sfumato.protect import mask as masks
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature
from sfumato.protect.mask import Mask

SHAPE = (3, 64, 64)
IMAGES = 64
LEAST = 200  # images a second, through the mask of the default width
CODE = "code of 16 bits"
DP_PIX = "dp-pix:cell=8,epsilon=0.5"


def noise_images() -> torch.Tensor:
    """(IMAGES, C, H, W) uint8."""
    images = torch.randint(0, 256, (IMAGES, *SHAPE), generator=torch.Generator().manual_seed(0))
    return images.to(torch.uint8)


def compare(
    words: str, artefact: Path, protection: Mask | Feature | Code, *, seconds: float, limit: float | None
) -> Iterator[Line]:
    """An exported artefact beside PyTorch's release."""
    images = noise_images()
    exact = export(artefact, artefact.with_suffix(".onnx"), check=images[:8])
    rows = [{"images": image.numpy()} for image in images.split(1)]

    def runs(path: Path) -> Callable[[], object]:
        opened = session(path)
        return lambda: [opened.run(None, row) for row in rows]

    noise = seeded_noise(0)
    turns = in_turn(runs(exact.path), lambda: protection.release(images, noise), seconds=seconds)
    each = {"against": "PyTorch's release", "count": IMAGES, "unit": "images a second"}
    yield turns.rates(f"{words}, exported", limit=limit, **each)


def beside(code: Path, mask: Path, *, seconds: float) -> Iterator[Line]:
    """An exported code beside dp-pix and an exported mask: images a second, and what travels of one."""
    images = noise_images()
    rows = [{"images": image.numpy()} for image in images.split(1)]
    encoder, masker = (session(path.with_suffix(".onnx")) for path in (code, mask))
    dp_pix, noise = parse(DP_PIX), fresh_noise()
    turns = in_turn(
        lambda: [np.packbits(encoder.run(None, row)[0] > 0).tobytes() for row in rows],
        lambda: [dp_pix.release(image, noise).pack() for image in images.split(1)],
        lambda: [masker.run(None, row) for row in rows],
        seconds=seconds,
    )
    sent = [
        len(protection.release(images[:1], noise).pack()[0])
        for protection in (Code(str(code)), dp_pix, Mask(str(mask)))
    ]
    for other, against in ((1, DP_PIX), (2, f"{mask.stem}, exported")):
        yield turns.rates(
            f"{CODE} beside {against}", against=against, other=other, count=IMAGES, unit="images a second"
        )
        sizes = {"ours": sent[0], "other": sent[other], "ratio": sent[0] / sent[other]}
        yield Line(name=f"{CODE} beside {against}, sent", **sizes, unit="bytes", against=against, lower=True)


def write_code(path: Path, **size: int) -> None:
    """An untrained encoder of bits=16, say, or numbers=64."""
    network = make_code_network("conv4", SHAPE, dimension=sum(size.values()), seed=0)
    card = {"kind": codes.KIND, "shape": list(SHAPE), "config": {"encoder": "conv4", **size}}
    artefacts.save(path, {f"network.{name}": each for name, each in network.state_dict().items()}, card)


def write_mask(path: Path, *, width: int) -> None:
    """An untrained masker."""
    config = MaskConfig(masker_width=width)
    masker = masks.make_masker(SHAPE[0], width=width, levels=config.levels)
    card = {"kind": masks.KIND, "shape": list(SHAPE), "config": asdict(config)}
    artefacts.save(path, {f"masker.{name}": each for name, each in masker.state_dict().items()}, card)


def write_feature(path: Path, *, cut: str) -> None:
    """An untrained model."""
    config = FeatureConfig(cut=cut)
    card = {"shape": list(SHAPE), "classes": {"light": ["dark", "bright"]}}
    card["config"] = {**asdict(config), "widths": list(config.widths)}
    private_feature.make_untrained(card, seed=0).save(path)


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
        artefact = Path(folder) / "code.safetensors"
        write_code(artefact, bits=16)
        yield from compare(CODE, artefact, Code(str(artefact)), seconds=seconds, limit=None)
        if not short:  # each of the two has a line already
            yield from beside(artefact, Path(folder) / "mask16.safetensors", seconds=seconds)


def main() -> None:
    show(lines(short=False), "one thread of onnxruntime, 64x64 colour images")


if __name__ == "__main__":
    main()
