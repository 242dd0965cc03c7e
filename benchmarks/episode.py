"""A training episode against the bare passes and against a plain loop; what precision and layout gain.

    python benchmarks/episode.py

An episode draws classes and images, protects them, moves them to the networks, computes the joint loss,
and takes a step of Adam. The bare pass runs the same networks forward and backward on the same tensors, ready
made: at most 1.10. The plain loop is one as most write it: every image of every episode is opened by Pillow,
protected by NumPy, and goes through the same Conv-4 as contiguous float32.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timing import Line, in_turn, show
from torch.nn import functional

from sfumato import data
from sfumato.base import memory
from sfumato.base.hardware import autocast, resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler
from sfumato.learn import few_shot
from sfumato.networks import Conv4
from sfumato.protect import parse

LIMIT = 1.10
SIGMA = 80
SPECS = ("none", "blur:radius=2", "pixelize:cell=4", "gaussian:sigma=80", "dp-pix:cell=4,epsilon=3")


def whole(images: LabelledImages, spec: str, depth: int | None, way: int) -> tuple[Callable[[], None], ...]:
    """An episode of ours, and the bare passes of its networks."""
    config = replace(few_shot.FS_PIC_OMNIGLOT, way=way, denoiser_depth=depth)
    protection = parse(spec)
    model = few_shot.make_untrained(images.images.shape[1], config, protection)
    _, step = few_shot.make_step(model, config)
    sampler = Sampler(images.label("class"), config.episode)
    order, noise = torch.Generator().manual_seed(0), seeded_noise(0)

    def episode() -> None:
        drawn = images.images[sampler.draw(1, order).flatten()]
        step([(drawn, protection.release(drawn, noise).images(), None)])

    seen = model.prepare(images.images[sampler.draw(1, order).flatten()])

    def bare() -> None:
        denoised, embeddings = model(seen)
        (embeddings.sum() + denoised.sum()).backward()
        model.zero_grad(set_to_none=True)

    return episode, bare


def against_bare(glyphs: LabelledImages, spec: str, depth: int | None, way: int, seconds: float) -> Line:
    networks = "Conv-4" if depth is None else f"DnCNN-{depth} + Conv-4"
    turns = in_turn(*whole(glyphs, spec, depth, way), seconds=seconds)
    return turns.costs(
        f"episode, {spec}, {networks}, {way}-way", against="the bare passes", unit="ms", bound=LIMIT
    )


def plain(folder: Path, images: LabelledImages, suffix: str, way: int) -> Callable[[], None]:
    """An episode of the plain loop, over files that are written here."""
    by_class: list[list[Path]] = [[] for _ in images.label("class").names]
    for number, (image, code) in enumerate(zip(images.images, images.label("class").codes, strict=True)):
        path = folder / f"{number}{suffix}"
        Image.fromarray(image.permute(1, 2, 0).squeeze().numpy()).save(path)
        by_class[code].append(path)
    config = few_shot.FS_PIC_OMNIGLOT
    each, channels = config.shot + config.queries, images.images.shape[1]
    rng = np.random.default_rng(0)
    network = Conv4(channels).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    labels = torch.arange(way).repeat_interleave(config.queries)

    def read(path: Path) -> torch.Tensor:
        with Image.open(path) as opened:
            pixels = np.asarray(opened.convert("L" if channels == 1 else "RGB"), np.float32)
        pixels = np.clip(np.rint(pixels + rng.normal(0, SIGMA, pixels.shape)), 0, 255).astype(np.float32)
        return torch.from_numpy(pixels / 255).reshape(*images.images.shape[2:], channels).permute(2, 0, 1)

    def episode() -> None:
        paths = [
            by_class[code][place]
            for code in rng.choice(len(by_class), way, replace=False)
            for place in rng.choice(len(by_class[code]), each, replace=False)
        ]
        embeddings = network(torch.stack([read(path) for path in paths])).unflatten(0, (way, each))
        means = embeddings[:, : config.shot].mean(1)
        distances = torch.cdist(embeddings[:, config.shot :].flatten(0, 1), means).square()
        loss = functional.cross_entropy(-distances, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return episode


def against_plain(images: LabelledImages, suffix: str, way: int, seconds: float) -> Line:
    side = images.images.shape[-1]
    with tempfile.TemporaryDirectory() as folder:
        ours, _ = whole(images, f"gaussian:sigma={SIGMA}", None, way)
        turns = in_turn(ours, plain(Path(folder), images, suffix, way), seconds=seconds)
    return turns.rates(
        f"episodes, {side}x{side}{suffix}, {way}-way",
        against="a plain PyTorch loop, Pillow loading",
        count=1,
        unit="episodes a second",
    )


def photographs() -> LabelledImages:
    """Smooth colour pictures of 84x84, 20 classes of 20."""
    coarse = torch.rand(400, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images = (255 * functional.interpolate(coarse, 84, mode="bicubic").clamp(0, 1)).to(torch.uint8)
    names = tuple(f"class {number}" for number in range(20))
    return LabelledImages("pictures", images, {"class": Label(torch.arange(400) % 20, names)})


def precision(layout: torch.memory_format, seconds: float) -> Line:
    """One forward and backward pass of Conv-4 on 600 images, both ways."""
    images = torch.rand(600, 1, 28, 28).contiguous(memory_format=layout)
    network = Conv4(1).to(memory_format=layout)

    def one_pass(kind: str) -> None:
        with autocast(kind, images.device):
            embeddings = network(images)
        embeddings.float().sum().backward()

    turns = in_turn(lambda: one_pass("bfloat16"), lambda: one_pass("float32"), seconds=seconds)
    return turns.rates(
        f"Conv-4 in bfloat16, {str(layout).removeprefix('torch.')}",
        against="in float32",
        count=1,
        unit="passes a second",
    )


def lines(short: bool) -> Iterator[Line]:
    with memory.keep_freed():  # as trainings do, for both sides
        yield from _lines(short)


def _lines(short: bool) -> Iterator[Line]:
    glyphs = data.load("glyphs", classes=100)
    seconds = 3 if short else 10
    for spec in SPECS[3:] if short else SPECS:
        yield against_bare(glyphs, spec, None, 60, seconds)
    yield against_bare(glyphs, "gaussian:sigma=80", 8, 20, seconds)
    yield against_plain(glyphs, ".png", 20, seconds)
    yield against_plain(photographs(), ".jpg", 5, seconds)
    if resolve("auto") == "bfloat16":
        for layout in (torch.channels_last,) if short else (torch.contiguous_format, torch.channels_last):
            yield precision(layout, seconds)


def main() -> None:
    show(lines(short=False), f"precision {resolve('auto')}")


if __name__ == "__main__":
    main()
