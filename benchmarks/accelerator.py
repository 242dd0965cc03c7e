"""Steps a second on the processor and on an accelerator: each training, each attack, a batch of the service.

    python benchmarks/accelerator.py [--only NAME ...] [--seconds SECONDS] [--out FILE]

A step is all of it: drawn, protected, learned. Both columns have the same settings; `precision: auto` is
bfloat16 where the hardware has it. The limit of the card is measured in the same run: products and
convolutions in float32 and bfloat16, copies within its memory, and copies to it from pinned memory. No
operation of a step can take less than its arithmetic, its bytes, or what it brings over, at these rates:
their sum is the bound of the step, and the last column the share of the step's time that it is. Hidden
synchronisations are those that `torch.cuda.set_sync_debug_mode` warns of.

Where there is no accelerator the processor's column is printed, and that there is none. Each job prints a
line to read and a line of JSON. A job that fails prints its error, and the others go on.
"""

import argparse
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from roofline import TYPES, Watched, bytes_of
from timing import record, short, write
from torch import Tensor

from sfumato.attack import reidentify, undo
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert
from sfumato.attack.victim import ThreatModel, share
from sfumato.base import memory
from sfumato.base.hardware import resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import adversarial_mask, classifier, code, few_shot, meta, private_feature
from sfumato.networks import LeNet
from sfumato.protect import parse

RUNS = Path("runs/accelerator.json")
SIDE, IMAGES, FOREVER = 64, 512, 10**6
WARM = 2  # steps that do not count

Done = Callable[..., None]
"""Called after each step."""


def noise() -> LabelledImages:
    """Images of noise, of 32 classes and of persons with 4 images each."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), generator=generator).to(torch.uint8)
    number = torch.arange(IMAGES)
    labels = {
        "class": Label(number % 32, tuple(map(str, range(32)))),
        "identity": Label(number // 4, tuple(map(str, range(IMAGES // 4)))),
    }
    return LabelledImages("noise", images, labels)


# The jobs: each goes on until `done` raises.


def few_shot_steps(device: torch.device, precision: str, done: Done) -> None:
    config = replace(few_shot.FS_PIC_CELEBA, episodes_per_epoch=2000, precision=precision)
    few_shot.train(
        noise(),
        parse("gaussian:sigma=40"),
        config,
        validation=noise(),
        progress=done,
        device=device,
    )


def classifier_steps(device: torch.device, precision: str, done: Done) -> None:
    config = classifier.ClassifierConfig(epochs=FOREVER, precision=precision)
    protection = parse("pixelize:cell=4")
    classifier.train(noise(), protection, config, target="class", progress=done, device=device)


def mask_steps(device: torch.device, precision: str, done: Done) -> None:
    config = adversarial_mask.MaskConfig(epochs=FOREVER, precision=precision)
    adversarial_mask.train(noise(), config, target="class", progress=done, device=device)


def feature_steps(device: torch.device, precision: str, done: Done) -> None:
    # The last stage, whose loss is of pairs, after one epoch of each before it.
    config = private_feature.FeatureConfig(
        attribute_epochs=1, simple_epochs=1, private_epochs=FOREVER, precision=precision
    )
    seen = 0

    def note(_: Tensor) -> None:
        nonlocal seen
        seen += 1
        if seen > 2 * -(-IMAGES // config.batch):
            done()

    private_feature.train(
        noise(), config, targets=["class"], sensitive="identity", losses=note, device=device
    )


def code_steps(device: torch.device, precision: str, done: Done) -> None:  # in float32 always
    config = code.CodeConfig(bits=16, pretraining_epochs=0, episodes_per_epoch=FOREVER)
    code.train(noise(), config, target="class", progress=done, device=device)


def meta_steps(device: torch.device, precision: str, done: Done) -> None:
    config = meta.MetaConfig(network="convolutional", steps=FOREVER, precision=precision)
    meta.train(noise(), parse("none"), config, progress=done, device=device)


def recogniser_steps(device: torch.device, precision: str, done: Done) -> None:
    data = noise()
    config = reidentify.AdversaryConfig(steps=FOREVER)
    codes = data.label("identity").codes
    reidentify.train_recogniser(lambda _: data.images, codes, config, progress=done, device=device)


def restorer_steps(device: torch.device, precision: str, done: Done) -> None:
    def seen(images: Tensor, step: int) -> Tensor:
        return parse("dp-pix:cell=4,epsilon=3").release(images, seeded_noise(step)).images()

    config = undo.RestorationConfig(steps=FOREVER)
    undo.train_restorer(noise().images, seen, config, progress=done, device=device)


def feature_inversion_steps(device: torch.device, precision: str, done: Done) -> None:
    features = torch.randn(IMAGES, 32, generator=torch.Generator().manual_seed(0))
    config = undo.InversionConfig(steps=FOREVER)
    undo.train_inverter(features, noise().images, config, progress=done, device=device)


def gradient_inversion_steps(device: torch.device, precision: str, done: Done) -> None:
    shape = (3, 32, 32)
    model = LeNet(shape, 10).to(device)
    labels = torch.tensor([3])
    images = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    shared = share(model, images.to(device), labels.to(device))
    config = replace(INVERTING_GRADIENTS, labels="known", restarts=16, steps=FOREVER)
    invert(model, shared, ThreatModel(shape=shape, labels=labels), config, progress=done)


def service_batches(device: torch.device, precision: str, done: Done) -> None:
    protection = parse("pixelize:cell=4")
    config = replace(few_shot.FS_PIC_CELEBA, cell=1, precision=precision)
    model = few_shot.make_untrained(3, config, protection).to(device)
    batch = torch.randint(0, 256, (32, 3, 84, 84), dtype=torch.uint8)
    while True:
        model.embed(batch)
        done()


JOBS: dict[str, Callable[[torch.device, str, Done], None]] = {
    "few-shot": few_shot_steps,
    "classifier": classifier_steps,
    "mask": mask_steps,
    "feature": feature_steps,
    "code": code_steps,
    "meta": meta_steps,
    "recogniser": recogniser_steps,
    "restorer": restorer_steps,
    "feature inversion": feature_inversion_steps,
    "gradient inversion": gradient_inversion_steps,
    "service, 32 queries": service_batches,
}


# What a card can do


@dataclass(frozen=True)
class Card:
    """Rates a second: operations of products and convolutions by type, and bytes read and written."""

    products: dict[str, float]
    convolutions: dict[str, float]
    copies: float
    brought: float  # from pinned memory

    def bound(self, kind: torch.dtype, *, flops: float, convolves: bool, moved: float) -> float:
        """The least seconds of an operation."""
        rates = self.convolutions if convolves else self.products
        return max(flops / rates.get(TYPES.get(kind, ""), rates["float32"]), moved / self.copies)


def best(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    """The least seconds of a call, waited for."""
    taken: list[float] = []
    work()
    while len(taken) < 3 or sum(taken) < seconds:
        wait_for(device)
        start = time.perf_counter()
        work()
        wait_for(device)
        taken.append(time.perf_counter() - start)
    return min(taken)


def wait_for(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def measure(device: torch.device, *, size: int, seconds: float) -> Card:
    """`size`: the side of the matrices; images have an eighth as many channels."""
    kinds = {name: kind for kind, name in TYPES.items() if kind != torch.float64}

    def product(kind: torch.dtype) -> float:
        first, second = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
        return 2 * size**3 / best(lambda: first @ second, device, seconds)

    def convolution(kind: torch.dtype) -> float:
        channels, side = max(1, size // 32), 32
        images = torch.randn(64, channels, side, side, device=device, dtype=kind)
        images = images.contiguous(memory_format=torch.channels_last)
        filters = torch.randn(channels, channels, 3, 3, device=device, dtype=kind)
        flops = 2 * images.numel() * 9 * channels
        return flops / best(lambda: torch.conv2d(images, filters, padding=1), device, seconds)

    count = size * size * 4
    here = torch.ones(count, pin_memory=device.type == "cuda")
    there, target = torch.ones(count, device=device), torch.empty(count, device=device)
    return Card(
        products={name: product(kind) for name, kind in kinds.items()},
        convolutions={name: convolution(kind) for name, kind in kinds.items()},
        copies=8 * count / best(lambda: target.copy_(there), device, seconds),
        brought=4 * count / best(lambda: target.copy_(here, non_blocking=True), device, seconds),
    )


class Counted(Watched):
    """The bound of all that is done on a device within, by what its card can do. State: this, which grows."""

    def __init__(self, card: Card, device: torch.device) -> None:
        super().__init__()
        self._card, self._device = card, device
        self.seconds = 0.0

    def count(
        self, func: Any, read: Sequence[Tensor], made: Sequence[Tensor], *, flops: float, moved: float
    ) -> None:
        if made[0].device.type != self._device.type:
            return
        if any(each.device.type != self._device.type and each.ndim for each in read):
            self.seconds += sum(map(bytes_of, made)) / self._card.brought
        else:
            convolves = "convolution" in str(func)
            self.seconds += self._card.bound(made[0].dtype, flops=flops, convolves=convolves, moved=moved)


# A job, measured


class EnoughError(Exception):
    """The time is over."""


@dataclass(frozen=True)
class Rate:
    """Steps a second of a job, hidden synchronisations a step, and the bound's share of the time."""

    steps: float
    waits: float | None = None
    share: float | None = None


def run(name: str, device: torch.device, done: Done) -> None:
    """Follow a job until `done` raises EnoughError."""
    with suppress(EnoughError), memory.keep_freed():
        JOBS[name](device, resolve("auto", device), done)


def rate(name: str, device: torch.device, seconds: float) -> float:
    """Steps a second after the first ones; the device is waited for before the first and after the last."""
    steps, start, taken = 0, 0.0, 0.0

    def done(*_: object) -> None:
        nonlocal steps, start, taken
        steps += 1
        if steps == WARM:
            wait_for(device)
            start = time.perf_counter()
        elif steps > WARM and time.perf_counter() - start > seconds:
            wait_for(device)
            taken = time.perf_counter() - start
            raise EnoughError

    run(name, device, done)
    return (steps - WARM) / taken


def bound(name: str, device: torch.device, card: Card) -> float:
    """The least seconds of the step after the first ones."""
    counted, seen = Counted(card, device), 0
    before = 0.0

    def done(*_: object) -> None:
        nonlocal seen, before
        seen += 1
        if seen == WARM + 1:
            raise EnoughError
        before = counted.seconds

    with counted:
        run(name, device, done)
    return counted.seconds - before


def waits(name: str, device: torch.device, steps: int = 5) -> float | None:
    """Hidden synchronisations a step, of as many steps after the first; None where nothing tells them."""
    if device.type != "cuda":
        return None
    seen, before = 0, 0

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")

        def done(*_: object) -> None:
            nonlocal seen, before
            seen += 1
            if seen == WARM:
                before = len(told)
            if seen == WARM + steps:
                raise EnoughError

        torch.cuda.set_sync_debug_mode("warn")
        try:
            run(name, device, done)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(each.message) for each in told[before:]) / steps


def on_card(name: str, device: torch.device, card: Card, seconds: float) -> Rate:
    steps = rate(name, device, seconds)
    return Rate(steps, waits(name, device), bound(name, device, card) * steps)


def told(name: str, ours: Rate, theirs: Rate | None) -> str:
    line = f"{name:20s} {short(ours.steps):>7s} steps a second on the processor"
    if theirs is None:
        return line
    hidden = "not told" if theirs.waits is None else f"{theirs.waits:g}"
    return (
        f"{line}, {short(theirs.steps):>7s} on the card: {theirs.steps / ours.steps:.1f} times; "
        f"{theirs.share or 0:.0%} of its limit, {hidden} hidden synchronisations a step"
    )


def main(given: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each job, on each of the two")
    parser.add_argument("--out", type=Path, default=RUNS, help="JSON")
    options = parser.parse_args(given)
    began = time.perf_counter()
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    print(f"processor: {torch.get_num_threads()} threads, precision {resolve('auto')}")
    card = None
    if accelerator is not None:
        card = measure(accelerator, size=8192, seconds=1.0)
        name = torch.cuda.get_device_name() if accelerator.type == "cuda" else accelerator.type
        print(f"{name}: precision {resolve('auto', accelerator)}")
        print("TFLOP/s of products and of convolutions:")
        for kind, flops in card.products.items():
            print(f"  {kind:10s} {short(flops / 1e12):>7s} {short(card.convolutions[kind] / 1e12):>7s}")
        print(f"GB/s read and written {short(card.copies / 1e9)}, brought {short(card.brought / 1e9)}")
        print(json.dumps({"card": name, **asdict(card)}), flush=True)
    jobs, failed = [], []
    for name in options.only:
        try:
            ours = Rate(rate(name, torch.device("cpu"), options.seconds))
            theirs = None
            if accelerator is not None and card is not None:
                theirs = on_card(name, accelerator, card, options.seconds)
        except Exception:  # the other jobs are to be timed
            traceback.print_exc()
            failed.append(name)
            continue
        print(told(name, ours, theirs))
        jobs.append({"name": name, "processor": asdict(ours), "card": theirs and asdict(theirs)})
        print(json.dumps(jobs[-1]), flush=True)
    if accelerator is None:
        print("no accelerator: only the processor was timed")
    content = {"measured": card and asdict(card), "jobs": jobs}
    write(options.out, record(content, seconds=time.perf_counter() - began))
    print(f"kept as {options.out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
