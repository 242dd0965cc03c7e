"""FS-PIC on photographs at the paper's epsilon: three models that see every pixel, a denoiser of 64 filters, three seeds.

    studies/accelerator/run.sh OUT --only photographs

LFW and Caltech-101 of 84x84, in CelebA's and MiniImageNet's place. DP-Pix with the paper's scale of noise
(`variant=published`), cells of 2 to 10 pixels; then Gaussian noise, pixelization and blur at the paper's values. Episodes
and epochs are those of studies/lfw-models.yaml and studies/caltech101-models.yaml. SSIM is of the release, and, as in the
paper's Fig. 4, of the denoised image, to the original.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
import unpack
from pool import Options, Task, card, mean_and_half_width, options, run

from sfumato import data
from sfumato.assess import similarity
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.images import to_float
from sfumato.learn import few_shot
from sfumato.protect import parse

SEEDS = (0, 1, 2)
EPISODES = 600
COMPARED = 200  # images whose SSIM is measured
TARGETS = {"lfw": ("identity", 5), "caltech101": ("class", 15)}  # and queries of a test episode
CELLS = (2, 4, 6, 8, 10)
SPECS = (
    *(f"dp-pix:cell={cell},epsilon=3,variant=published" for cell in CELLS),
    *(f"gaussian:sigma={sigma}" for sigma in (40, 80, 120, 160, 200)),
    *(f"pixelize:cell={cell}" for cell in CELLS),
    *(f"blur:radius={radius}" for radius in (1, 2, 3, 4, 5)),
)
FIRST = len(CELLS)  # that are done on both data sets, with all seeds, before the others


def tasks() -> list[Task]:
    """Clean-trained models, tested under everything, then the others."""
    every = [("none", "clean", name, seed) for seed, name in product(SEEDS, TARGETS)]
    for specs in (SPECS[:FIRST], SPECS[FIRST:]):
        every += [
            (spec, learner, name, seed)
            for seed, name, spec, learner in product(SEEDS, TARGETS, specs, ("denoised", "protected"))
        ]
    return [task_of(*each) for each in every]


def task_of(spec: str, learner: str, name: str, seed: int) -> Task:
    """One training."""
    return Task(
        f"{name}, {learner}, {spec}, seed {seed}",
        {"data": name, "learner": learner, "protection": spec, "seed": seed},
    )


@cache
def _load(name: str, given: Options) -> LabelledImages:
    return data.load(f"table:{given.out / 'data' / name / 'table.csv'}")


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train one model, and test it; the clean-trained one under every protection."""
    settings = task.settings
    name, spec, seed = settings["data"], settings["protection"], settings["seed"]
    loaded, (target, queries) = _load(name, given), TARGETS[name]
    longer = settings.get("longer", 1)  # times as many epochs
    config = few_shot.FewShotConfig(
        start="random",
        cell=1,
        way=20,
        shot=2,
        queries=2,
        flips=True,
        epochs=max(1, round(12 * longer * given.scale)),
        episodes_per_epoch=max(2, round(50 * given.scale**0.5)) if given.scale < 1 else 50,
        patience=12 * longer,
        halve_every=4 * longer,
        validation_shot=5,
        validation_queries=queries,
        validation_episodes=100,
        denoiser_depth=8 if settings["learner"] == "denoised" else None,
        denoiser_width=64 if given.scale == 1 else 8,
    )
    model = few_shot.train(
        loaded.split("train"),
        parse(spec),
        config,
        target=target,
        validation=loaded.split("validation"),
        seed=seed,
        device=card(),
    )
    asked = loaded.split("test")
    result = {"curve": [round(each, 4) for each in model.card["curve"]], "precision": model.card["precision"]}
    for tested in ("none", *SPECS) if settings["learner"] == "clean" else (spec,):
        result[tested] = _tested(
            model, asked, tested, target, queries, seed, episodes=EPISODES if given.scale == 1 else 20
        )
    return result


def _tested(
    model: few_shot.FewShotModel,
    asked: LabelledImages,
    spec: str,
    target: str,
    queries: int,
    seed: int,
    *,
    episodes: int,
) -> dict[str, Any]:
    protection = parse(spec)
    found: dict[str, Any] = {}
    for shot in (5, 1):
        right = few_shot.evaluate(
            model,
            asked,
            way=5,
            shot=shot,
            queries=queries,
            episodes=episodes,
            target=target,
            protection=protection,
            seed=seed,
        )
        found[f"5-way {shot}-shot"] = [round(right.mean, 5), round(right.half_width, 5)]
    rows = torch.randperm(len(asked), generator=torch.Generator().manual_seed(0))[:COMPARED]
    clean = asked.images[rows]
    released = protection.release(clean, seeded_noise(seed, 1)).images()
    views = {"released": released}
    if model.denoiser is not None:
        views["denoised"] = model.denoise(released)
    for view, images in views.items():
        ssim = similarity.ssim(to_float(clean), to_float(images))
        found[f"SSIM {view}"] = list(mean_and_half_width(np.asarray(ssim)))
    return found


def main() -> int:
    """Unpack the photographs, and do what there is time for."""
    given = options(__doc__)
    for name in TARGETS:
        unpack_data(name, given)
    return run("photographs", tasks(), work, given)


def unpack_data(name: str, given: Options) -> None:
    """Unpack one data set that is not there yet."""
    root = given.out / "data" / name
    if not (root / "table.csv").exists():
        unpack.UNPACKERS[name](given.data, root)


if __name__ == "__main__":
    raise SystemExit(main())
