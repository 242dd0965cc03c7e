"""Meta-Clip and DPFE with the papers' own networks, three seeds.

    studies/accelerator/run.sh OUT --only theirs

Meta-Clip as it was published, in one regime: a task is learned in as many steps in use as in training, and noise is what
the paper's accounting states for all noisy steps, three for Reptile. C is fixed at 0.1, 1 and 10 and at the median of the
first gradients, or learned from each, as the paper does and in its logarithm, at each rate (accuracy on validation
characters decides between rates afterwards); with the paper's four fully connected layers, and with the small network of
studies/meta_clip.py. DPFE with a tiny-darknet of the paper's widths on LFW at 64 pixels, for gender: plain, by DPFE and by
log-rank privacy, at each weight of privacy (validation people decide). Who is recognised is measured by the paper's
adversary, a kernel density.
"""

from functools import cache
from itertools import product
from typing import Any

import torch
import unpack
from meta import BUDGETS, DELTA, INNER, _of_gdp
from pool import Options, Task, card, options, run

from sfumato import data
from sfumato.assess import log_rank
from sfumato.attack.reidentify import split_gallery
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import meta, private_feature
from sfumato.learn.meta import InnerNoise, MetaConfig
from sfumato.learn.private_feature import FeatureConfig, FeatureModel
from sfumato.networks.encoders.tiny_darknet import DARKNET_WIDTHS
from sfumato.protect import parse
from sfumato.protect.feature import noisy

SEEDS = (0, 1, 2)
NETWORKS: dict[str, dict[str, Any]] = {
    "4 layers fully connected": {"meta_rate": 1e-3},
    "a small convolutional one": {"network": "strided", "width": 16, "meta_rate": 1e-2},
}
STEPS, TASKS, POOL = 1000, 16, 10_000
STARTS: dict[str, dict[str, float]] = {"the median": {}} | {
    f"{at:g}": {"start": at} for at in (0.1, 1.0, 10.0)
}
POLICIES: dict[str, tuple[str, dict[str, float]]] = {
    **{f"fixed at {at:g}": ("fixed", {"clipping_norm": at}) for at in (0.1, 1.0, 10.0)},
    "fixed at the median": ("quantile", {"learning_rate": 1e-12}),  # which begins there, and stays
    "adaclip": ("adaclip", {"largest": 1e-4}),
    **{
        f"{name} from {start}, rate {rate:g}": ("meta-clip", {"learning_rate": rate, "logarithm": log, **at})
        for (name, log), (start, at), rate in product(
            {"meta-clip": 0.0, "in the logarithm": 1.0}.items(), STARTS.items(), (0.05, 0.2, 1.0, 5.0)
        )
    },
}
WEIGHTS = {"dpfe": (0.003, 0.01, 0.03, 0.1, 0.3), "log-rank": (0.1, 0.3, 1.0, 3.0, 10.0)}
RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
DENSE = 4  # photographs of a person who is known


def tasks() -> list[Task]:
    """Features, then MAML with one example at the first epsilon, then the rest."""
    found = [Task(f"features, seed {seed}", {"seed": seed}) for seed in SEEDS]
    for shot, epsilon, algorithm, network in product((1, 5), BUDGETS, INNER, NETWORKS):
        for seed, policy in product(SEEDS, POLICIES):
            first = (shot, epsilon, seed) == (1, BUDGETS[0], 0)  # where rates are compared
            if first or "rate" not in policy or policy.endswith("rate 1"):
                settings = {
                    "algorithm": algorithm, "shot": shot, "epsilon": epsilon, "network": network, "policy": policy,
                    "seed": seed,
                }  # fmt: skip
                found.append(Task(", ".join(map(str, settings.values())), settings))
    return found


def work(task: Task, given: Options) -> dict[str, Any]:
    """Meta-train with one policy, or all features of one seed."""
    return (
        features(task.settings["seed"], given) if len(task.settings) == 1 else adapted(task.settings, given)
    )


# Meta-Clip


@cache
def _drawings(given: Options) -> LabelledImages:
    return data.omniglot(given.out / "data" / "omniglot", size=14)


def adapted(settings: dict[str, Any], given: Options) -> dict[str, Any]:
    """One training, tested on classes that nothing was trained on."""
    drawings, small = _drawings(given), given.scale < 1
    inner, seed = INNER[settings["algorithm"]], settings["seed"]
    learned_in = inner.get("inner_steps", 1)
    clipping, norms_of = POLICIES[settings["policy"]]
    noise = InnerNoise(
        noise_multiplier=_of_gdp(settings["epsilon"], TASKS / POOL, STEPS * learned_in),
        clipping=clipping,
        settings=norms_of,
        pool_tasks=100 if small else POOL,
        delta=DELTA,
    )
    config = MetaConfig(
        algorithm=settings["algorithm"],
        shot=settings["shot"],
        queries=5,
        steps=2 if small else STEPS,
        tasks=TASKS,
        test_steps=learned_in,
        inner_noise=noise,
        **inner,
        **NETWORKS[settings["network"]],
    )
    norms: list[float] = []
    model = meta.train(
        drawings.split("train"),
        parse("none"),
        config,
        seed=seed,
        observe=lambda _, norm: norms.append(norm or 0.0),
        device=card(),
    )
    result: dict[str, Any] = {"norms": [round(norm, 5) for norm in norms[:: max(1, len(norms) // 50)]]}
    for split in ("validation", "test"):
        right = meta.evaluate(
            model, drawings.split(split), queries=15, episodes=5 if small else 600, seed=seed
        )
        result[split] = [round(right.mean, 5), round(right.half_width, 5)]
    return result | {"noise": model.card["inner_noise"]}


# DPFE


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
    for name in ("lfw", "omniglot"):
        unpack.UNPACKERS[name](given.data, given.out / "data" / name)
    return run("theirs", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
