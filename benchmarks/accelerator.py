"""Steps a second on the processor and on an accelerator: each training, each attack, a batch of the service.

    python benchmarks/accelerator.py [--only NAME ...] [--seconds SECONDS] [--out FILE]

A step is all of it: drawn, protected, learned. Both columns have the same settings; `precision: auto` is
bfloat16 where the hardware has it. Hidden synchronisations are those that `torch.cuda.set_sync_debug_mode`
warns of. Where there is no accelerator the processor's column is printed, and that there is none.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from timing import record, short, write
from torch import Tensor

from sfumato.attack import invert as invert_features
from sfumato.attack import reidentify
from sfumato.attack.gradient_inversion import INVERTING_GRADIENTS, invert
from sfumato.attack.victim import ThreatModel, share
from sfumato.base import memory
from sfumato.base.hardware import resolve
from sfumato.data.labelled import Label, LabelledImages
from sfumato.learn import adversarial_mask, classifier, code, few_shot, meta, private_feature
from sfumato.networks import LeNet
from sfumato.protect import parse

RUNS = Path("runs/accelerator.json")
SIDE, IMAGES, FOREVER = 64, 512, 10**6
WARM = 2  # steps that do not count

Done = Callable[..., None]
"""Called after each step."""


class EnoughError(Exception):
    """The time is over."""


def noise() -> LabelledImages:
    """Images of noise, of 32 classes and of persons with 4 images each."""
    images = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0))
    number = torch.arange(IMAGES)
    labels = {
        "class": Label(number % 32, tuple(map(str, range(32)))),
        "identity": Label(number // 4, tuple(map(str, range(IMAGES // 4)))),
    }
    return LabelledImages("noise", images.to(torch.uint8), labels)


def train_few_shot(device: torch.device, precision: str, done: Done) -> None:
    config = replace(few_shot.FS_PIC_CELEBA, episodes_per_epoch=2000, precision=precision)
    spec = parse("gaussian:sigma=40")
    few_shot.train(noise(), spec, config, validation=noise(), progress=done, device=device)


def train_classifier(device: torch.device, precision: str, done: Done) -> None:
    config = classifier.ClassifierConfig(epochs=FOREVER, precision=precision)
    spec = parse("pixelize:cell=4")
    classifier.train(noise(), spec, config, target="class", progress=done, device=device)


def train_mask(device: torch.device, precision: str, done: Done) -> None:
    config = adversarial_mask.MaskConfig(epochs=FOREVER, precision=precision)
    adversarial_mask.train(noise(), config, target="class", progress=done, device=device)


def train_feature(device: torch.device, precision: str, done: Done) -> None:
    """The last stage, whose loss is of pairs, after one epoch of each before it."""
    config = private_feature.FeatureConfig(
        attribute_epochs=1, simple_epochs=1, private_epochs=FOREVER, precision=precision
    )
    before = iter(range(2 * -(-IMAGES // config.batch)))

    def note(_: Tensor) -> None:
        if next(before, None) is None:
            done()

    data = noise()
    private_feature.train(data, config, targets=["class"], sensitive="identity", losses=note, device=device)


def train_code(device: torch.device, precision: str, done: Done) -> None:
    config = code.CodeConfig(bits=16, pretraining_epochs=0, episodes_per_epoch=FOREVER)
    code.train(noise(), config, target="class", progress=done, device=device)


def train_meta(device: torch.device, precision: str, done: Done) -> None:
    config = meta.MetaConfig(network="convolutional", steps=FOREVER, precision=precision)
    meta.train(noise(), parse("none"), config, progress=done, device=device)


def train_recogniser(device: torch.device, precision: str, done: Done) -> None:
    data, config = noise(), reidentify.AdversaryConfig(steps=FOREVER)
    codes = data.label("identity").codes
    reidentify.train_recogniser(lambda _: data.images, codes, config, progress=done, device=device)


def train_inverter(device: torch.device, precision: str, done: Done) -> None:
    features = torch.randn(IMAGES, 32, generator=torch.Generator().manual_seed(0))
    config = invert_features.InversionConfig(steps=FOREVER)
    invert_features.train_inverter(features, noise().images, config, progress=done, device=device)


def invert_gradients(device: torch.device, precision: str, done: Done) -> None:
    shape, labels = (3, 32, 32), torch.tensor([3])
    model, images = LeNet(shape, 10).to(device), torch.rand(1, *shape).to(device)
    config = replace(INVERTING_GRADIENTS, labels="known", restarts=16, steps=FOREVER)
    shared = share(model, images, labels.to(device))
    invert(model, shared, ThreatModel(shape=shape, labels=labels), config, progress=done)


def serve(device: torch.device, precision: str, done: Done) -> None:
    config = replace(few_shot.FS_PIC_CELEBA, cell=1, precision=precision)
    model = few_shot.make_untrained(3, config, parse("pixelize:cell=4")).to(device)
    batch = torch.randint(0, 256, (32, 3, 84, 84), dtype=torch.uint8)
    while True:
        model.encode(batch)
        done()


# Each goes on until `done` raises.
JOBS: dict[str, Callable[[torch.device, str, Done], None]] = {
    "few-shot": train_few_shot,
    "classifier": train_classifier,
    "mask": train_mask,
    "feature": train_feature,
    "code": train_code,
    "meta": train_meta,
    "recogniser": train_recogniser,
    "feature inversion": train_inverter,
    "gradient inversion": invert_gradients,
    "service, 32 queries": serve,
}


def run(name: str, device: torch.device, after: Callable[[int], bool]) -> None:
    """Follow a job until `after` says of the number of steps that they are enough."""
    steps = 0

    def done(*_: object) -> None:
        nonlocal steps
        steps += 1
        if after(steps):
            raise EnoughError

    with suppress(EnoughError), memory.keep_freed():
        JOBS[name](device, resolve("auto", device), done)


def rate(name: str, device: torch.device, seconds: float) -> float:
    """Steps a second after the first ones; the device is waited for before the first and after the last."""
    counted, start, taken = 0, 0.0, 0.0

    def after(steps: int) -> bool:
        nonlocal counted, start, taken
        if steps < WARM or (steps > WARM and time.perf_counter() - start <= seconds):
            return False
        if device.type != "cpu":
            torch.accelerator.synchronize()
        if steps == WARM:
            start = time.perf_counter()
            return False
        counted, taken = steps - WARM, time.perf_counter() - start
        return True

    run(name, device, after)
    return counted / taken


def waits(name: str, device: torch.device, steps: int = 5) -> float:
    """Hidden synchronisations a step on a CUDA device, of as many steps after the first."""
    before = 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")

        def after(done: int) -> bool:
            nonlocal before
            if done == WARM:
                before = len(told)
            return done == WARM + steps

        torch.cuda.set_sync_debug_mode("warn")
        try:
            run(name, device, after)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(each.message) for each in told[before:]) / steps


def main(given: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each job, on each of the two")
    parser.add_argument("--out", type=Path, default=RUNS, help="JSON")
    options = parser.parse_args(given)
    began, card = time.perf_counter(), torch.accelerator.current_accelerator(check_available=True)
    rows = []
    for name in options.only:
        rows.append({"name": name, "processor": rate(name, torch.device("cpu"), options.seconds)})
        line = f"{name:20s} {short(rows[-1]['processor']):>7s} steps a second on the processor"
        if card is not None:
            rows[-1] |= {"card": rate(name, card, options.seconds)}
            line += f", {short(rows[-1]['card']):>7s} on the card"
            if card.type == "cuda":
                rows[-1] |= {"waits": waits(name, card)}
                line += f", {rows[-1]['waits']:g} hidden synchronisations a step"
        print(line, flush=True)
    if card is None:
        print("no accelerator: only the processor was timed")
    write(options.out, record({"jobs": rows}, seconds=time.perf_counter() - began))
    print(f"kept as {options.out}")


if __name__ == "__main__":
    main()
