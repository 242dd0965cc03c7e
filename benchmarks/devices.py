"""Steps a second of one process and of two, each with one thread, for the trainings that can be shared.

    python benchmarks/devices.py [SECONDS]

The batch is the same: two processes have half of it each. Every process makes all draws, and protects all
images of a step, so that two are less than twice as fast, the less so the smaller the networks are.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from accelerator import EnoughError, noise

from sfumato.learn import adversarial_mask, few_shot, private_feature
from sfumato.learn.devices import Devices, launch
from sfumato.protect import parse


def few_shot_steps(**more: object) -> None:
    config = replace(few_shot.FS_PIC_CELEBA, episodes_per_step=2)
    few_shot.train(noise(), parse("gaussian:sigma=40"), config, validation=noise(), **more)


def mask_steps(**more: object) -> None:
    adversarial_mask.train(noise(), adversarial_mask.MaskConfig(), target="class", **more)


def feature_steps(**more: object) -> None:
    # The last stage from the start, whose loss is of pairs.
    config = private_feature.FeatureConfig(attribute_epochs=1, simple_epochs=1, private_epochs=100)
    private_feature.train(noise(), config, targets=["class"], sensitive="identity", **more)


TRAININGS: dict[str, Callable[..., None]] = {
    "few-shot, two episodes": few_shot_steps,
    "mask": mask_steps,
    "feature": feature_steps,
}


def measure(devices: Devices, name: str, seconds: float, out: Path) -> None:
    """Write the steps a second after the first two."""
    torch.set_num_threads(1)
    times: list[float] = []

    def note(_: torch.Tensor) -> None:
        times.append(time.perf_counter())
        # All stop at the same step: that where the first one has had its time.
        if len(times) > 3 and devices.of_first(lambda: float(times[-1] - times[1] > seconds)):
            raise EnoughError

    with suppress(EnoughError):
        TRAININGS[name](losses=note, devices=devices)
    if devices.first:
        out.write_text(str((len(times) - 2) / (times[-1] - times[1])))


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rate"
        for name in TRAININGS:
            rates = []
            for processes in (1, 2):
                launch(measure, processes=processes, accelerator="cpu", name=name, seconds=seconds, out=out)
                rates.append(float(out.read_text()))
            one, two = rates
            print(f"{name}: {one:.2f} steps a second, by two processes {two:.2f} ({two / one:.2f} times)")


if __name__ == "__main__":
    main()
