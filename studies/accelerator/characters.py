"""Omniglot, 20-way 1-shot, by a ResNet-12 of the paper's width on drawings that are turned, scaled and sheared.

    studies/accelerator/run.sh OUT --only characters

As studies/omniglot-ways-resnet12.yaml, whose network has a quarter of the width; Conv-4 beside it. Drawings are those of
the packed 28x28 file, the conversion of prototypical networks.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, options, run

from sfumato.data.labelled import Label, LabelledImages
from sfumato.learn import few_shot
from sfumato.protect import parse

SEEDS = (0, 1, 2)
ENCODERS: dict[str, dict[str, Any]] = {
    "ResNet-12": {"encoder": "resnet12", "widths": (64, 128, 256, 512), "shifts": 1, "warps": 0.1},
    "ResNet-12, half the width": {
        "encoder": "resnet12",
        "widths": (32, 64, 128, 256),
        "shifts": 1,
        "warps": 0.1,
    },
}


def tasks() -> list[Task]:
    """Both networks, seed by seed."""
    return [
        Task(f"{name}, seed {seed}", {"network": name, "seed": seed})
        for name, seed in product(ENCODERS, SEEDS)
    ]


@cache
def _load(given: Options) -> dict[str, LabelledImages]:
    """Vinyals' split, each character turned by 0, 90, 180 and 270 degrees as four classes."""
    packed = np.load(given.data / "omniglot_28.npz")
    images, characters = packed["images"], [str(each) for each in packed["characters"]]
    found = {}
    for split, file in {"train": "train", "validation": "val", "test": "test"}.items():
        names = (given.data / "splits" / f"omniglot_vinyals_{file}.txt").read_text().split()
        chosen = images[[characters.index(name) for name in names]]  # (C, 20, 28, 28)
        turned = np.concatenate([np.rot90(chosen, turns, axes=(2, 3)) for turns in range(4)])
        codes = torch.arange(len(turned)).repeat_interleave(turned.shape[1])
        found[split] = LabelledImages(
            "omniglot",
            torch.from_numpy(turned.reshape(-1, 1, 28, 28).copy()),
            {"class": Label(codes, tuple(map(str, range(len(turned)))))},
        )
    return found


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train one network until its rate has fallen, and test it."""
    parts, seed = _load(given), task.settings["seed"]
    small = given.scale < 1
    config = few_shot.FewShotConfig(
        start="random",
        cell=1,
        denoiser_depth=None,
        way=60,
        shot=1,
        queries=5,
        epochs=max(1, round(40 * given.scale)),
        episodes_per_epoch=2 if small else 100,
        patience=40,
        halve_every=8,
        validation_way=20,
        validation_shot=1,
        validation_episodes=4 if small else 200,
        **(ENCODERS[task.settings["network"]] | ({"widths": (8, 8, 8, 8)} if small else {})),
    )
    model = few_shot.train(
        parts["train"],
        parse("none"),
        config,
        validation=parts["validation"],
        seed=seed,
        device=card(),
    )
    result: dict[str, Any] = {"curve": [round(each, 4) for each in model.card["curve"]]}
    for way, shot in product((20, 5), (1, 5)):
        right = few_shot.evaluate(
            model, parts["test"], way=way, shot=shot, queries=15, episodes=10 if small else 1000, seed=seed
        )
        result[f"{way}-way {shot}-shot"] = [round(right.mean, 5), round(right.half_width, 5)]
    return result


if __name__ == "__main__":
    raise SystemExit(run("characters", tasks(), work, options(__doc__)))
