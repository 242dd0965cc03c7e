"""Private features of photographs: what they keep, and whom they tell of (paper: DPFE, Fig. 6, 8 and 10).

    python studies/features.py lfw-small      # gender at 32 pixels, six seeds; log-rank privacy as a loss, too: 20 minutes
    python studies/features.py lfw-paper --device cuda   # gender with the paper's widths, six seeds: ten minutes of an accelerator
    python studies/features.py cmu            # pose and sunglasses of 20 people, each alone and both: 10 minutes
    python studies/features.py celeba         # the paper's attributes, where runs/data/celeba has its files
    python studies/features.py cmu --small    # settings too small to learn, to try it out: a minute

For each seed and set of attributes a network is trained once, and embedded ("simple"); this is fine-tuned for privacy ("dpfe").
How much privacy weighs (beta) is chosen on validation images: the largest of a list that costs no more than half a point of accuracy
there, or the one that costs least. Noise of a growing share of the feature's variance gives a curve from one model (Procedure 2).
Records of `faces`, `lfw` and `lfw-both`, of earlier cuts, of decoders and of an adversary in training are of commit 2f64c651.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows
from torch import Tensor

from sfumato import data
from sfumato.assess import log_rank
from sfumato.attack import reidentify
from sfumato.data import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import seed_of
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureConfig, FeatureModel
from sfumato.networks.encoders.small import DARKNET_WIDTHS
from sfumato.protect.feature import clip_and_noise, guarantee_of_clipped, noisy

RECORDS = Rows(RESULTS / "features.jsonl")
RUNS = Path("runs/features")
SEEDS = (0, 1, 2, 3, 4, 5)
LAST = "conv7"
RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
NORM, VARIANCES = 3.0, (1.0, 4.0, 9.0, 36.0)  # of clipped features, and of their noise, with a proof
AMONG = (100, 10_000)  # equally likely people, of whom it is said what is proved of naming one
BETAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ALLOWED = 0.005  # of validation accuracy that privacy may cost
COPIES = 3  # of the noisy features of known photographs
DENSE = 4  # photographs of a person who is known


@dataclass(frozen=True)
class World:
    """Where images come from."""

    load: Callable[[], LabelledImages]
    sets: dict[str, tuple[str, ...]]  # of attributes, under the name that tables give them
    # Attribute -> the classes that count. Images of other classes are in no training and no accuracy, and
    # adversaries look for those who are on them all the same.
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variants: tuple[str, ...] = ("simple", "dpfe")  # that are compared
    widths: tuple[int, ...] | None = None  # of the attribute network, if not those of FULL


def _lfw(size: int, widths: tuple[int, ...] | None = None) -> World:
    return World(
        lambda: data.load("table:runs/data/lfw/attributes.csv", size=size),
        {"G": ("gender",)},
        {"gender": ("female", "male")},
        ("simple", "dpfe", "log-rank"),
        widths,
    )


WORLDS = {
    "lfw-small": _lfw(32),
    "lfw-paper": _lfw(64, DARKNET_WIDTHS),
    "cmu": World(
        lambda: data.load("table:runs/data/cmu/table.csv", size=32),
        {"P": ("pose",), "S": ("sunglasses",), "PS": ("pose", "sunglasses")},
    ),
    "celeba": World(
        lambda: data.load("celeba:runs/data/celeba", size=64),
        {
            "G": ("male",),
            "GA": ("male", "young"),
            "GAS": ("male", "young", "smiling"),
            "GASL": ("male", "young", "smiling", "big_lips"),
            "GASLN": ("male", "young", "smiling", "big_lips", "big_nose"),
        },
    ),
}
FULL = FeatureConfig(attribute_epochs=16, simple_epochs=4, private_epochs=8)
SMALL = FeatureConfig(widths=(2, 2, 8, 8, 8, 8, 16), attribute_epochs=1, simple_epochs=1, private_epochs=1)


class Study:
    """One world and one seed. State: the models that were trained."""

    def __init__(
        self, name: str, scale: FeatureConfig, seed: int, records: Rows, device: torch.device
    ) -> None:
        self.world = WORLDS[name]
        self._name, self._scale, self._seed, self._records, self._device = name, scale, seed, records, device
        loaded = self.world.load()
        self.train, self.validation = (self.labelled(loaded.split(each)) for each in ("train", "validation"))
        self._test = loaded.split("test")
        codes = self._test.label("identity").codes
        self._known, self._asked = reidentify.split_gallery(codes, known=10, probes=10, seed=seed)
        # A density needs several photographs of a person.
        several = codes[self._known].bincount(minlength=int(codes.max()) + 1) >= DENSE
        self._known, self._asked = (rows[several[codes[rows]]] for rows in (self._known, self._asked))
        self._models: dict[tuple[str, str, float], FeatureModel] = {}

    def labelled(self, images: LabelledImages) -> LabelledImages:
        """Those whose attributes are all known."""
        return images.rows(self._rows(images))

    def _rows(self, images: LabelledImages) -> Tensor:
        known = torch.ones(len(images), dtype=torch.bool)
        for target, classes in self.world.known.items():
            label = images.label(target)
            known &= torch.tensor([label.names[code] in classes for code in label.codes.tolist()])
        return known.nonzero().flatten()

    def run(self) -> None:
        """Measure what has no record yet."""
        for attributes, variant in product(self.world.sets, self.world.variants):
            row = f"{self._name}-{self._seed}-{attributes}-{LAST}-{variant}"
            if row in self._records:
                continue
            betas = self.betas(attributes)
            started = time.perf_counter()
            model = self.model(attributes, variant, betas.get(variant, 0.0))
            part = {"attributes": attributes, "cut": LAST, "variant": variant}
            about = {"world": self._name, "seed": self._seed, "part": part, "beta": betas.get(variant)}
            self._records[row] = {
                **about,
                "network": private_feature.evaluate(self.network(attributes), self.labelled(self._test)),
                "seconds": {"training": round(time.perf_counter() - started, 1)},
                "threads": torch.get_num_threads(),
                "config": model.card["config"],
                "data": self.train.digest,
                **self.measure(model),
            }
            print(f"{row}: {time.perf_counter() - started:.0f} s", flush=True)

    # Models

    def network(self, attributes: str) -> FeatureModel:
        """The attribute network that others begin with."""
        return self._once(attributes, "network", 0.0, lambda: None)

    def model(self, attributes: str, variant: str, beta: float = 0.0) -> FeatureModel:
        """A model, begun from the one before it."""
        if variant == "simple":
            return self._once(attributes, variant, 0.0, lambda: self.network(attributes))
        return self._once(attributes, variant, beta, lambda: self.model(attributes, "simple"))

    def _once(
        self, attributes: str, variant: str, beta: float, begin: Callable[[], FeatureModel | None]
    ) -> FeatureModel:
        key = attributes, variant, beta
        if key not in self._models:
            config = replace(self._scale, cut=LAST, variant=variant, beta=beta)
            if self.world.widths and self._scale is FULL:
                config = replace(config, widths=self.world.widths)
            self._models[key] = private_feature.train(
                self.train,
                config,
                targets=self.world.sets[attributes],
                sensitive="identity",
                validation=self.validation,
                begin=begin(),
                seed=self._seed,
                device=self._device,
            ).cpu()
        return self._models[key]

    def betas(self, attributes: str) -> dict[str, float]:
        """Variant -> how much privacy weighs: chosen on validation images by this seed."""
        row = f"{self._name}-{self._seed}-{attributes}-betas"
        if row not in self._records:
            simple = _mean(self.model(attributes, "simple").card["accuracies"])
            tried, chosen = {}, {}
            for variant in [each for each in self.world.variants if each != "simple"]:
                models = {beta: self.model(attributes, variant, beta) for beta in BETAS}
                found = {beta: _mean(model.card["accuracies"]) for beta, model in models.items()}
                tried[variant] = {str(beta): accuracy for beta, accuracy in found.items()}
                chosen[variant] = choose_beta(found, simple)
            self._records[row] = {"seed": self._seed, "simple": simple, "tried": tried, "chosen": chosen}
        return dict(self._records[row]["chosen"])

    # Measures

    def measure(self, model: FeatureModel) -> dict[str, Any]:
        """The curve of accuracy and privacy on test people, and the same of clipped features with a proof."""
        people = len(self._test.label("identity").codes[self._known].unique())
        features = model.features(self._test.images)
        curve, bounded = [], []
        for ratio in RATIOS:
            drawn = [seeded_noise(seed_of(self._seed, copy, round(1000 * ratio))) for copy in range(COPIES)]
            copies = drawn if ratio else drawn[:1]  # without noise they would be the same
            released = [noisy(features, model.device.covariance, noise, ratio=ratio) for noise in copies]
            curve.append({"ratio": ratio, **self._judged(model, torch.stack(released))})
        for variance in () if "log-rank" in self.world.variants else VARIANCES:
            draws = seeded_noise(seed_of(self._seed, round(1000 * variance)))
            released = [clip_and_noise(features, draws, norm=NORM, variance=variance) for _ in range(COPIES)]
            proved = guarantee_of_clipped(norm=NORM, variance=variance, pixels=1)
            chances = {str(n): proved.naming(candidates=n).chance for n in (people, *AMONG)}
            about = {"norm": NORM, "noise": variance, "rho": proved.value, "proved": chances}
            bounded.append({**about, **self._judged(model, torch.stack(released))})
        counts = {
            "labelled": len(self._rows(self._test)),
            "known": len(self._known),
            "asked": len(self._asked),
        }
        return {"curve": curve, "bounded": bounded, "people": people, **counts}

    def _judged(self, model: FeatureModel, released: Tensor) -> dict[str, Any]:
        """What (R, N, d) releases of the test images keep, and what each adversary makes of them."""
        codes = self._test.label("identity").codes
        copies, asked = len(released), codes[self._asked]
        known = codes[self._known].repeat(copies)
        labelled = self._rows(self._test)
        everyone = self._test.rows(labelled.repeat(copies))
        ours, theirs = released[:, self._known].flatten(0, 1), released[0, self._asked]
        columns = torch.searchsorted(known.unique(), asked)
        adversaries = {"density": log_rank.judge_features(ours, known, theirs, asked)}
        for name in reidentify.FEATURE_ADVERSARIES:
            guesses = reidentify.log_posteriors(ours, known, theirs, adversary=name, seed=self._seed)
            adversaries[name] = log_rank.judge(guesses, columns)
        return {
            "accuracies": private_feature.evaluate(model, everyone, released[:, labelled].flatten(0, 1)),
            "strongest": min(adversaries, key=lambda each: adversaries[each].lrp),
            "adversaries": {name: asdict(found) for name, found in adversaries.items()},
        }


def choose_beta(accuracies: dict[float, float], simple: float) -> float:
    """The largest that costs no more than ALLOWED of the accuracy without privacy; else the one that costs least."""
    good = [beta for beta, found in accuracies.items() if found >= simple - ALLOWED]
    return max(good) if good else max(accuracies, key=lambda beta: (accuracies[beta], beta))


def _mean(accuracies: dict[str, float]) -> float:
    return sum(accuracies.values()) / len(accuracies)


def main() -> None:
    """Measure all seeds of a world."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("world", choices=list(WORLDS))
    asked.add_argument("--seed", type=int, choices=SEEDS, help="this seed alone")
    asked.add_argument("--device", default="cpu", help="a device of PyTorch, which trains")
    asked.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    options = asked.parse_args()
    scale, records = (SMALL, Rows(RUNS / "small.jsonl")) if options.small else (FULL, RECORDS)
    seeds = SEEDS[:1] if options.small else SEEDS
    for seed in seeds if options.seed is None else (options.seed,):
        Study(options.world, scale, seed, records, torch.device(options.device)).run()


if __name__ == "__main__":
    main()
