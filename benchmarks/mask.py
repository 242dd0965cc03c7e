"""A learned mask on 64x64 colour images: what a device pays, and a training step against the bare passes.

    OMP_NUM_THREADS=1 python benchmarks/mask.py

The bare pass runs the same networks on the same tensors, ready made: masker and predictor forward and
backward, without selection, loss and Adam. Images go through the masker one by one, so that a mask does not
depend on the batch; the last figure of a line is what all of a batch at once would be.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

import torch

from sfumato.data.labelled import Label, LabelledImages
from sfumato.images import to_float
from sfumato.learn import adversarial_mask
from sfumato.learn.adversarial_mask import MaskConfig, MaskModel
from sfumato.precision import autocast, resolve
from sfumato.protect.mask import pixel_scores, pixels_shown, reveal

SIDE = 64
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


def device(model: MaskModel, images: torch.Tensor) -> None:
    """Images a second through the mask."""
    masker = model.masker.eval()
    ready = to_float(images).contiguous(memory_format=torch.channels_last)
    count = pixels_shown(model.keep, (SIDE, SIDE))

    @torch.no_grad()
    def at_once() -> None:
        masker(ready).sigmoid()

    whole, together = medians(lambda: reveal(images, pixel_scores(masker, images), count=count), at_once)
    print(
        f"masker of width {model.card['config']['masker_width']}: {IMAGES / whole:5.0f} images a second, "
        f"scored in one batch {IMAGES / together:5.0f}"
    )


def training(config: MaskConfig, data: LabelledImages) -> None:
    """Milliseconds of the two kinds of steps, and of the bare passes."""
    run = adversarial_mask.Training(model_of(config, data), config)
    run.start_epoch()
    codes = data.label("class").codes
    ready = to_float(data.images).contiguous(memory_format=torch.channels_last)

    def bare() -> None:
        with autocast(resolve(config.precision), ready.device):
            scores = run.model.masker(ready)
            logits = run.model.predictor(scores * ready)
        logits.float().sum().backward()
        run.model.zero_grad(set_to_none=True)

    main, adversarial, passes = medians(
        lambda: run.predictor_step(data.images, codes), lambda: run.obfuscator_step(data.images), bare
    )
    print(
        f"batch of {IMAGES}, width {config.masker_width}, {resolve(config.precision)}, {config.selection}: "
        f"main step {1e3 * main:5.0f} ms ({main / passes:4.2f} of the bare passes), "
        f"adversarial {1e3 * adversarial:5.0f} ms ({adversarial / passes:4.2f}), bare {1e3 * passes:5.0f} ms"
    )


def model_of(config: MaskConfig, data: LabelledImages) -> MaskModel:
    """A model as `train` begins with."""
    card = {
        "config": asdict(config),
        "shape": list(data.images.shape[1:]),
        "classes": list(data.label("class").names),
        "precision": resolve(config.precision),
    }
    return adversarial_mask.untrained(card, config, seed=0)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), generator=generator).to(torch.uint8)
    data = LabelledImages("noise", images, {"class": Label(torch.arange(IMAGES) % 5, tuple("abcde"))})
    print(f"{torch.get_num_threads()} threads, {SIDE}x{SIDE} colour images")
    for width in (8, 16):
        device(model_of(MaskConfig(masker_width=width), data), images)
    for width in (8, 16):
        for precision in ("float32", "auto"):
            training(MaskConfig(masker_width=width, precision=precision), data)
    training(MaskConfig(selection="straight-through"), data)


if __name__ == "__main__":
    main()
