"""Private features on drawn and on real faces: what they keep, and whom they tell of (paper: DPFE, Fig. 6 to 10).

    python studies/features.py faces          # about an hour on one core; stopped, it goes on
    python studies/features.py lfw            # the same on photographs, for gender
    python studies/features.py lfw-both       # gender and smile, each alone and both: sets of real attributes (Fig. 8)
    python studies/features.py lfw-small      # gender at 32 pixels, six seeds; log-rank privacy as a loss, too: 20 minutes
    python studies/features.py lfw-paper --device cuda   # gender with the paper's widths, six seeds: ten minutes of an accelerator
    python studies/features.py cmu            # the same of pose and sunglasses, of 20 people, six seeds: 10 minutes
    python studies/features.py celeba         # the paper's attributes, where runs/data/celeba has its files
    python studies/features.py faces --small  # settings too small to learn, to try it out: a minute

For each seed an attribute network is trained once, cut at four layers, and embedded ("simple"); each of these is
fine-tuned for privacy ("dpfe"); at one cut also by an adversary, and for larger
sets of attributes. How much privacy weighs (beta) is chosen on validation images of the first seed, on small images of
each, for each set: the largest of a list that costs no more than half a point of accuracy there, or the one that costs least. Test people are in no training image.
Some of their photographs are known to the adversaries, who protect them as the device does; others they are to name.
Noise of a growing share of the feature's variance gives a curve of accuracy and privacy from one model (Procedure 2).

Records are studies/results/features.jsonl, pictures of what a decoder restores runs/features/WORLD-SEED/*.png; those of
the first seed make docs/images/features-WORLD-restored.png.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from device_cost import profile
from rows import RESULTS, Rows
from torch import Tensor

from sfumato import data, images
from sfumato.assess import log_rank, similarity
from sfumato.attack import reidentify, undo
from sfumato.attack.reidentify import AdversaryConfig, FaceFinder
from sfumato.attack.undo import InversionConfig
from sfumato.base.proportions import over_people
from sfumato.data import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import seed_of
from sfumato.export.card import session
from sfumato.export.export import export
from sfumato.export.sides import SIDES
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureConfig, FeatureModel
from sfumato.networks import MTCNN, align
from sfumato.networks.encoders.small import DARKNET_WIDTHS
from sfumato.protect.feature import clip_and_noise, guarantee_of_clipped, noisy
from sfumato.study.parts.attacks.scores import hits

RECORDS = Rows(RESULTS / "features.jsonl")
RUNS = Path("runs/features")
PICTURES = Path(__file__).parents[1] / "docs" / "images"
SEEDS = (0, 1, 2)
CUTS = ("conv4_2", "conv5_1", "conv6_1", "conv7")  # the paper's
LAST = "conv7"
RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
NORM, VARIANCES = (
    3.0,
    (1.0, 4.0, 9.0, 36.0),
)  # of clipped features, and of the noise of each number, with a proof
AMONG = (100, 10_000)  # equally likely people, of whom it is said what is proved of naming one
BETAS = {
    "dpfe": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "log-rank": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "adversarial": (0.3, 1.0, 3.0, 10.0),
}
ALLOWED = 0.005  # of validation accuracy that privacy may cost
COPIES = 3  # of the noisy features of known photographs
DENSE = 4  # photographs of a person who is known
SHOWN = 8  # people in the pictures
WEIGHTS = Path("../shared/data/weights")


@dataclass(frozen=True)
class World:
    """Where images come from.

    Attributes:
        load: all of them.
        sets: of attributes, under the name that tables give them; the first is that of the cuts.
        faces: whether a public network recognises these people; else one is trained on other drawn ones.
        known: attribute -> the classes that count. Images of other classes are in no training and no accuracy, and
            adversaries look for those who are on them all the same.
        in_full: whether cuts and variants are compared, images restored and costs measured; else there are
            `variants` of each set alone.
        seeds: of the trainings.
        own_betas: whether each seed chooses beta for itself, for each set; else the first does for all.
        widths: of the attribute network, if not those of FULL.
    """

    load: Callable[[], LabelledImages]
    sets: dict[str, tuple[str, ...]]
    faces: bool
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    in_full: bool = True
    variants: tuple[str, ...] = ("simple", "dpfe")
    seeds: tuple[int, ...] = SEEDS
    own_betas: bool = False
    widths: tuple[int, ...] | None = None


LFW_SMALL = World(
    lambda: data.load("table:runs/data/lfw/attributes.csv", size=32),
    {"G": ("gender",)},
    faces=True,
    known={"gender": ("female", "male")},
    in_full=False,
    variants=("simple", "dpfe", "log-rank"),
    seeds=(0, 1, 2, 3, 4, 5),
    own_betas=True,
)
WORLDS = {
    "faces": World(
        lambda: data.load("faces", identities=600, images_per_identity=8, headwear=150, size=64),
        {
            "G": ("gender",),
            "GE": ("gender", "expression"),
            "GEH": ("gender", "expression", "hair_color"),
        },
        faces=False,
    ),
    "lfw": World(
        lambda: data.load("table:runs/data/lfw/attributes.csv", size=64),
        {"G": ("gender",)},
        faces=True,
    ),
    "lfw-both": World(
        lambda: data.load("table:runs/data/lfw/attributes.csv", size=64),
        {"G": ("gender",), "S": ("smile",), "GS": ("gender", "smile")},
        faces=True,
        known={"gender": ("female", "male"), "smile": ("no", "yes")},
        in_full=False,
    ),
    "lfw-small": LFW_SMALL,
    "lfw-paper": replace(
        LFW_SMALL,
        load=lambda: data.load("table:runs/data/lfw/attributes.csv", size=64),
        widths=DARKNET_WIDTHS,
    ),
    "cmu": World(
        lambda: data.load("table:runs/data/cmu/table.csv", size=32),
        {"P": ("pose",), "S": ("sunglasses",), "PS": ("pose", "sunglasses")},
        faces=True,
        in_full=False,
        seeds=(0, 1, 2, 3, 4, 5),
        own_betas=True,
    ),
    # The paper's, for whoever has the files under runs/data/celeba.
    "celeba": World(
        lambda: data.load("celeba:runs/data/celeba", size=64),
        {
            "G": ("male",),
            "GA": ("male", "young"),
            "GAS": ("male", "young", "smiling"),
            "GASL": ("male", "young", "smiling", "big_lips"),
            "GASLN": ("male", "young", "smiling", "big_lips", "big_nose"),
        },
        faces=True,
    ),
}


@dataclass(frozen=True)
class Scale:
    """How long everything is trained."""

    feature: FeatureConfig
    inversion: InversionConfig
    recogniser: AdversaryConfig


FULL = Scale(
    FeatureConfig(attribute_epochs=16, simple_epochs=4, private_epochs=8),
    InversionConfig(steps=600, width=16),
    AdversaryConfig(start="random", steps=400),
)
SMALL = Scale(
    FeatureConfig(widths=(2, 2, 8, 8, 8, 8, 16), attribute_epochs=1, simple_epochs=1, private_epochs=1),
    InversionConfig(steps=2, width=2),
    AdversaryConfig(start="random", steps=2, batch=8),
)


@dataclass(frozen=True)
class Part:
    """One model that is measured."""

    attributes: str
    cut: str
    variant: str

    @property
    def name(self) -> str:
        """Of its record."""
        return f"{self.attributes}-{self.cut}-{self.variant}"


def parts(world: World) -> list[Part]:
    """All models of one seed."""
    first, *larger = world.sets
    if not world.in_full:
        return [Part(name, LAST, variant) for name in world.sets for variant in world.variants]
    return [
        *(Part(first, cut, variant) for cut in CUTS for variant in ("simple", "dpfe")),
        Part(first, LAST, "adversarial"),
        *(Part(name, LAST, variant) for name in larger for variant in ("simple", "dpfe")),
    ]


class Study:
    """One world and one seed. State: the models that were trained."""

    def __init__(self, name: str, scale: Scale, seed: int, records: Rows, device: torch.device) -> None:
        self.world = WORLDS[name]
        self._name, self._scale, self._seed, self._records, self._device = name, scale, seed, records, device
        loaded = _loaded(name)
        self.train, self.validation, self._test = (
            loaded.split(split) for split in ("train", "validation", "test")
        )
        self.train, self.validation = (self.labelled(split) for split in (self.train, self.validation))
        codes = self._test.label("identity").codes
        self._known, self._asked = reidentify.split_gallery(codes, gallery=10, probes=10, seed=seed)
        # A density needs several photographs of a person.
        several = codes[self._known].bincount(minlength=int(codes.max()) + 1) >= DENSE
        self._known, self._asked = (rows[several[codes[rows]]] for rows in (self._known, self._asked))
        self._models: dict[tuple[str, str, str, float], FeatureModel] = {}

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
        for part in parts(self.world):
            row = f"{self._name}-{self._seed}-{part.name}"
            if row in self._records:
                continue
            betas = self.betas(part.attributes)
            started = time.perf_counter()
            model = self.model(part, betas.get(part.variant, 0.0))
            trained = time.perf_counter()
            found = self.measure(model)
            if self.world.in_full and part.attributes == next(iter(self.world.sets)):
                found |= {"inversion": self.invert(model, part), "device": self.device_side(model, part)}
            self._records[row] = {
                "world": self._name,
                "seed": self._seed,
                "part": asdict(part),
                "beta": betas.get(part.variant),
                "network": private_feature.evaluate(self.network(part.attributes), self.labelled(self._test)),
                "seconds": {
                    "training": round(trained - started, 1),
                    "measuring": round(time.perf_counter() - trained, 1),
                },
                "threads": torch.get_num_threads(),
                "config": model.card["config"],
                "data": self.train.digest,
                **found,
            }
            print(f"{row}: {time.perf_counter() - started:.0f} s", flush=True)

    # Models

    def network(self, attributes: str) -> FeatureModel:
        """The attribute network that all cuts are made in."""
        return self._once(Part(attributes, LAST, "network"), 0.0, lambda: None)

    def model(self, part: Part, beta: float) -> FeatureModel:
        """A model, begun from the one before it."""
        if part.variant == "simple":
            return self._once(part, 0.0, lambda: self.network(part.attributes))
        return self._once(part, beta, lambda: self.model(replace(part, variant="simple"), 0.0))

    def _once(self, part: Part, beta: float, begin: Callable[[], FeatureModel | None]) -> FeatureModel:
        key = (part.attributes, part.cut, part.variant, beta)
        if key not in self._models:
            config = replace(self._scale.feature, cut=part.cut, variant=part.variant, beta=beta)
            if self.world.widths and self._scale is FULL:
                config = replace(config, widths=self.world.widths)
            self._models[key] = private_feature.train(
                self.train,
                config,
                targets=self.world.sets[part.attributes],
                sensitive="identity",
                validation=self.validation,
                begin=begin(),
                seed=self._seed,
                device=self._device,
            ).cpu()
        return self._models[key]

    def betas(self, attributes: str) -> dict[str, float]:
        """Variant -> how much privacy weighs: chosen on validation images by the first seed, for all."""
        own = self.world.own_betas
        row = f"{self._name}-{self._seed}-{attributes}-betas" if own else f"{self._name}-betas"
        if row not in self._records:
            first = attributes if own else next(iter(self.world.sets))
            simple = _mean(self.model(Part(first, LAST, "simple"), 0.0).card["accuracies"])
            tried, chosen = {}, {}
            for variant, betas in BETAS.items():
                if variant not in {each.variant for each in parts(self.world)}:
                    continue
                accuracies = [
                    _mean(self.model(Part(first, LAST, variant), beta).card["accuracies"]) for beta in betas
                ]
                tried[variant] = dict(zip(map(str, betas), accuracies, strict=True))
                chosen[variant] = choose_beta(dict(zip(betas, accuracies, strict=True)), simple)
            record = {"seed": self._seed, "simple": simple, "tried": tried, "chosen": chosen}
            self._records[row] = record
        return dict(self._records[row]["chosen"])

    # Measures

    def measure(self, model: FeatureModel) -> dict[str, Any]:
        """The curve of accuracy and privacy on test people, and the same of clipped features with a proof."""
        people = len(self._test.label("identity").codes[self._known].unique())
        features = model.features(self._test.images)
        curve, bounded = [], []
        for ratio in RATIOS:
            copies = COPIES if ratio else 1  # without noise they would be the same
            released = torch.stack([self._noisy(model, features, ratio, copy) for copy in range(copies)])
            curve.append({"ratio": ratio, **self._judged(model, released)})
        for variance in () if "log-rank" in self.world.variants else VARIANCES:
            draws = seeded_noise(seed_of(self._seed, round(1000 * variance)))
            released = torch.stack(
                [clip_and_noise(features, draws, norm=NORM, variance=variance) for _ in range(COPIES)]
            )
            proved = guarantee_of_clipped(norm=NORM, variance=variance, pixels=1)
            bounded.append(
                {
                    "norm": NORM,
                    "noise": variance,
                    "rho": proved.value,
                    "proved": {str(n): proved.naming(candidates=n).chance for n in (people, *AMONG)},
                    **self._judged(model, released),
                }
            )
        return {
            "curve": curve,
            "bounded": bounded,
            "people": people,
            "labelled": len(self._rows(self._test)),
            "known": len(self._known),
            "asked": len(self._asked),
        }

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
        for adversary in reidentify.FEATURE_ADVERSARIES:
            guesses = reidentify.log_posteriors(ours, known, theirs, adversary=adversary, seed=self._seed)
            adversaries[adversary] = log_rank.judge(guesses, columns)
        return {
            "accuracies": private_feature.evaluate(model, everyone, released[:, labelled].flatten(0, 1)),
            "strongest": min(adversaries, key=lambda each: adversaries[each].lrp),
            "adversaries": {name: asdict(found) for name, found in adversaries.items()},
        }

    def _noisy(self, model: FeatureModel, features: Tensor, ratio: float, copy: int) -> Tensor:
        draws = seeded_noise(seed_of(self._seed, copy, round(1000 * ratio)))
        return noisy(features, model.covariance, draws, ratio=ratio)

    def invert(self, model: FeatureModel, part: Part) -> dict[str, Any]:
        """What a decoder, trained on the training people, restores of the test people's features."""
        decoder = undo.train_inverter(
            model.features(self.train.images), self.train.images, self._scale.inversion, seed=self._seed
        )
        restored = decoder.restore(model.features(self._test.images))
        self._picture(restored, part)
        alike = {
            "ssim": similarity.ssim(*map(images.to_float, (self._test.images, restored))).mean().item(),
            "psnr": similarity.psnr(*map(images.to_float, (self._test.images, restored))).mean().item(),
        }
        codes = self._test.label("identity").codes
        network, cut = self._recogniser()
        embedded, clean = network.embed(cut(restored)), network.embed(cut(self._test.images))
        scores = {}
        for name, gallery in (("static", clean), ("adaptive", embedded)):
            truth = codes[self._asked]
            guesses = reidentify.reidentify(gallery[self._known], codes[self._known], embedded[self._asked])
            named = [hits(each.identities[each.similarities.argmax(1)] == truth, truth) for each in guesses]
            best, probes = max(named, key=sum), truth.unique(return_counts=True)[1].tolist()
            low, high = over_people(best, probes)
            scores[name] = {"top1": sum(best) / len(truth), "low": low, "high": high}
        chance = codes[self._asked].bincount().max().item() / len(self._asked)
        return {**alike, "chance": chance, **scores}

    def device_side(self, model: FeatureModel, part: Part) -> dict[str, Any]:
        """What the device side costs beside the whole model, and whether both halves decide as PyTorch does."""
        path = RUNS / f"{self._name}-{self._seed}" / f"{part.name}.safetensors"
        model.save(path)
        pixels = self._test.images
        halves = {side: path.with_name(f"{path.stem}-{side}.onnx") for side in SIDES}
        exported = {side: export(path, file, side=side, check=pixels) for side, file in halves.items()}
        device, cloud = session(halves["device"]), session(halves["cloud"])
        numbers = [device.run(None, {"images": image.numpy()})[0] for image in pixels.split(1)]
        logits = cloud.run(
            [f"logits.{target}" for target in model.classes], {"feature": np.concatenate(numbers)}
        )
        expected = model.classify(pixels).values()
        same = [
            torch.from_numpy(ours).argmax(1) == theirs.argmax(1)
            for ours, theirs in zip(logits, expected, strict=True)
        ]
        return {
            "difference": exported["device"].difference.largest,
            "same_decisions": torch.stack(same).double().mean().item(),
            "images": len(pixels),
            "bytes_of_file": exported["device"].bytes,
            "costs": {cost.part.partition(",")[0]: asdict(cost) for cost in profile([path])},
        }

    def _recogniser(self) -> tuple[reidentify.Recogniser, Callable[[Tensor], Tensor]]:
        """Who recognises people on restored images, and what of an image he is shown."""
        if self.world.faces:
            return _public(self._name)
        return _trained(self._name, self._scale, self._seed), lambda whole: whole

    def _picture(self, restored: Tensor, part: Part) -> None:
        """The first photograph of some people, and what was restored of it."""
        codes = self._test.label("identity").codes[self._asked]
        rows = [int((codes == code).nonzero()[0]) for code in codes.unique()[:SHOWN]]
        for name, of in (("original", self._test.images), (part.name, restored)):
            strip = torch.cat(list(of[self._asked[rows]]), dim=2)
            images.write(_strip(self._name, self._seed, name), strip)


def draw(name: str) -> None:
    """Put what was restored for the first seed into one picture: originals, then cut by cut simple and dpfe."""
    first = next(iter(WORLDS[name].sets))
    restored = [Part(first, cut, variant).name for cut in CUTS for variant in ("simple", "dpfe")]
    strips = [_strip(name, SEEDS[0], each) for each in ("original", *restored)]
    if all(strip.exists() for strip in strips):
        sheet = torch.cat([images.read(strip) for strip in strips], dim=1)
        images.write(PICTURES / f"features-{name}-restored.png", sheet)


def _strip(name: str, seed: int, part: str) -> Path:
    return RUNS / f"{name}-{seed}" / f"{part}.png"


@cache
def _loaded(name: str) -> LabelledImages:
    return WORLDS[name].load()


@cache
def _trained(name: str, scale: Scale, seed: int) -> reidentify.Recogniser:
    others = _loaded(name).split("train")
    return reidentify.train_recogniser(
        lambda _: others.images, others.label("identity").codes, scale.recogniser, seed=seed
    )


@cache
def _public(name: str) -> tuple[reidentify.Recogniser, Callable[[Tensor], Tensor]]:
    kind, size = reidentify.FACE_NETWORKS["mobile-face-net"]
    network = reidentify.Recogniser(kind.load(WEIGHTS / "mobilefacenet_casia_112x96.safetensors"))
    finder = FaceFinder(MTCNN.load(WEIGHTS / "mtcnn.safetensors"), _loaded(name).split("train").images[:200])
    return network, lambda photographs: align(photographs, finder.find(photographs).landmarks, size)


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
    asked.add_argument(
        "--seed", type=int, choices=range(6), help="this seed alone; of a world, seed 0 comes first"
    )
    asked.add_argument("--device", default="cpu", help="a device of PyTorch, which trains")
    asked.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    options = asked.parse_args()
    scale, records = (SMALL, Rows(RUNS / "small.jsonl")) if options.small else (FULL, RECORDS)
    seeds = SEEDS[:1] if options.small else WORLDS[options.world].seeds
    for seed in seeds if options.seed is None else (options.seed,):
        Study(options.world, scale, seed, records, torch.device(options.device)).run()
    if not options.small and WORLDS[options.world].in_full:
        draw(options.world)


if __name__ == "__main__":
    main()
