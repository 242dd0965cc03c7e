"""A learned mask on 64x64 colour images: what a device pays, and a training step against the bare passes.

    OMP_NUM_THREADS=1 python benchmarks/mask.py

The bare pass runs the same networks on the same tensors, ready made: masker and predictor forward and
backward, without selection, loss and Adam. Images go through the masker one by one, so that a mask does not
depend on the batch; the last figure of a line is what all of a batch at once would be.
"""

from collections.abc import Iterator
from dataclasses import asdict

import torch
from timing import Line, in_turn, show

from sfumato.base.hardware import autocast, resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.images import to_float
from sfumato.learn import adversarial_mask
from sfumato.learn.adversarial_mask import MaskConfig, MaskModel
from sfumato.protect.mask import pixel_scores, pixels_shown, reveal

SIDE = 64
IMAGES = 64


def device(width: int, data: LabelledImages, seconds: float) -> Line:
    """Images a second through the mask."""
    model = model_of(MaskConfig(masker_width=width), data)
    masker, images = model.masker.eval(), data.images
    ready = to_float(images).contiguous(memory_format=torch.channels_last)
    count = pixels_shown(model.keep, (SIDE, SIDE))

    @torch.no_grad()
    def at_once() -> None:
        masker(ready).sigmoid()

    turns = in_turn(
        lambda: reveal(images, pixel_scores(masker, images), count=count), at_once, seconds=seconds
    )
    return turns.rates(
        f"mask of width {width}", against="scores in one batch", count=IMAGES, unit="images a second"
    )


def training(config: MaskConfig, data: LabelledImages, seconds: float) -> Iterator[Line]:
    """The two kinds of steps against the bare passes."""
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

    turns = in_turn(
        lambda: run.predictor_step(data.images, codes),
        lambda: run.obfuscator_step(data.images),
        bare,
        seconds=seconds,
    )
    kind = f"{resolve(config.precision)}, {config.selection}"
    for number, step in enumerate(("main", "adversarial")):
        yield turns.costs(
            f"mask training, {step}, width {config.masker_width}, {kind}",
            against="the bare passes",
            unit="ms a step",
            one=number,
            other=2,
        )


def model_of(config: MaskConfig, data: LabelledImages) -> MaskModel:
    """A model as `train` begins with."""
    card = {
        "config": asdict(config),
        "shape": list(data.images.shape[1:]),
        "classes": list(data.label("class").names),
        "precision": resolve(config.precision),
    }
    return adversarial_mask.make_untrained(card, config, seed=0)


def lines(short: bool) -> Iterator[Line]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), generator=generator).to(torch.uint8)
    data = LabelledImages("noise", images, {"class": Label(torch.arange(IMAGES) % 5, tuple("abcde"))})
    seconds = 4 if short else 10
    for width in (8,) if short else (8, 16):
        yield device(width, data, seconds / 2)
    if short:
        yield from training(MaskConfig(masker_width=8), data, seconds)
        return
    for width in (8, 16):
        for precision in ("float32", "auto"):
            yield from training(MaskConfig(masker_width=width, precision=precision), data, seconds)
    yield from training(MaskConfig(selection="soft"), data, seconds)


def main() -> None:
    show(lines(short=False), f"batches of {IMAGES}, {SIDE}x{SIDE} colour images")


if __name__ == "__main__":
    main()
