"""DPFE with the papers' own network, three seeds.

    studies/accelerator/run.sh OUT --only dpfe

A tiny-darknet of the paper's widths on LFW at 64 pixels, for gender: plain, by DPFE and by log-rank privacy, at each weight
of privacy (validation people decide). Who is recognised is measured by the paper's adversary, a kernel density.
"""

from typing import Any

import torch
import unpack
from pool import Options, Task, card, options, run

from sfumato import data
from sfumato.assess import log_rank
from sfumato.attack.reidentify import split_gallery
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureConfig, FeatureModel
from sfumato.networks.encoders.tiny_darknet import DARKNET_WIDTHS
from sfumato.protect.feature import noisy

SEEDS = (0, 1, 2)
WEIGHTS = {"dpfe": (0.003, 0.01, 0.03, 0.1, 0.3), "log-rank": (0.1, 0.3, 1.0, 3.0, 10.0)}
RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
DENSE = 4  # photographs of a person who is known


def tasks() -> list[Task]:
    """A seed each."""
    return [Task(f"features, seed {seed}", {"seed": seed}) for seed in SEEDS]


def work(task: Task, given: Options) -> dict[str, Any]:
    """All features of one seed."""
    return features(task.settings["seed"], given)


def features(seed: int, given: Options) -> dict[str, Any]:
    """Curves of accuracy and privacy (Procedure 2) of the plain feature, and of each weight of privacy."""
    loaded = data.load(f"table:{given.out / 'data' / 'lfw' / 'attributes.csv'}", size=64)
    parts = {split: loaded.split(split) for split in ("train", "validation", "test")}
    epochs = {"attribute_epochs": 16, "simple_epochs": 4, "private_epochs": 8}
    if given.scale < 1:
        parts = {split: part.rows(torch.arange(300)) for split, part in parts.items()}
        epochs = dict.fromkeys(epochs, 1)

    def train(variant: str, beta: float, begin: FeatureModel | None) -> FeatureModel:
        widths = DARKNET_WIDTHS if given.scale == 1 else (2, 2, 8, 8, 8, 8, 16)
        config = FeatureConfig(widths=widths, variant=variant, beta=beta, **epochs)
        return private_feature.train(
            parts["train"],
            config,
            targets=["gender"],
            sensitive="identity",
            validation=parts["validation"],
            begin=begin,
            seed=seed,
            device=card(),
        )

    simple = train("simple", 0.0, None)
    found = {"simple": curve(simple, parts["test"], seed)}
    for variant, weights in WEIGHTS.items():
        for beta in weights if given.scale == 1 else weights[:1]:
            found[f"{variant} {beta}"] = curve(train(variant, beta, simple), parts["test"], seed)
    return found


def curve(model: FeatureModel, asked: LabelledImages, seed: int) -> dict[str, Any]:
    """Accuracy and log-rank privacy of each amount of noise."""
    codes = asked.label("identity").codes
    known, probes = split_gallery(codes, gallery=10, probes=10, seed=seed)
    several = codes[known].bincount(minlength=int(codes.max()) + 1) >= DENSE
    known, probes = (rows[several[codes[rows]]] for rows in (known, probes))
    model = model.cpu()
    clear = model.features(asked.images)
    points = []
    for ratio in RATIOS:
        released = noisy(clear, model.covariance, seeded_noise(seed, round(1000 * ratio)), ratio=ratio)
        ranked = log_rank.judge_features(released[known], codes[known], released[probes], codes[probes])
        kept = private_feature.evaluate(model, asked, released)
        points.append({"ratio": ratio, "accuracy": kept["gender"], "lrp": ranked.lrp, "high": ranked.high})
    return {"validation": model.card["accuracies"], "points": points}


def main() -> int:
    """Unpack the images, and do what there is time for."""
    given = options(__doc__)
    unpack.UNPACKERS["lfw"](given.data, given.out / "data" / "lfw")
    return run("dpfe", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
