"""Whether metrics of reconstructions agree with those who look at them: proxies here, not people (paper: SemSim).

    python studies/unpack.py DATA ../shared/data runs/data/DATA    # cifar10, caltech101, lfw, fer, omniglot
    python studies/reconstruction.py              # all parts below, in order: some two hours on one core; stopped, it goes on
    python studies/reconstruction.py cifar10      # one data set: proxies, victims, attacks, campaigns, metrics
    python studies/reconstruction.py semsim       # SemSim on each data set, trained on the others
    python studies/reconstruction.py ablations    # what it owes to annotations, backbone and loss (Fig. 7)
    python studies/reconstruction.py tables       # correlations (Tables 1 and 2, Fig. 3) and pictures
    python studies/reconstruction.py --small      # settings too small to mean anything, to try it out

Five data sets at 32x32 pixels; 14 victims each, two networks by seven settings; two attacks on 20 test images.
Gradient noise and pruning are done to what the victim without a policy shares: those three are one network. With a
policy the client shares the gradient of a TRANSFORMED image; it is the original that must not be recognised.
Nobody looks: the annotators are five recognisers, named as proxies wherever a figure of theirs stands. Attacked are
images that most of them recognise before the attack, as people would: of others nothing could leak to them.

Records are studies/results/reconstruction/*.json; images, models and campaigns lie under runs/reconstruction.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from inversion import NARROW
from matplotlib.figure import Figure
from torch import Tensor, nn

import sfumato
from sfumato import data, images, protect
from sfumato.annotate import campaign, proxies, results
from sfumato.annotate.campaign import CampaignConfig, Pair
from sfumato.annotate.store import Store, create
from sfumato.assess import agreement, similarity
from sfumato.assess.frechet import frechet_distance
from sfumato.assess.perceptual import Perceptual
from sfumato.assess.semsim import SemSim
from sfumato.attack.gradient_inversion import (
    IDLG,
    INVERTING_GRADIENTS,
    InversionConfig,
    ThreatModel,
    invert,
    invert_all,
    share,
)
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.errors import DataError
from sfumato.learn import classifier, semsim
from sfumato.learn.augmentation import apply
from sfumato.learn.classifier import ClassifierConfig, ClassifierModel
from sfumato.learn.semsim import SemSimConfig
from sfumato.protect.gradients import add_gaussian, prune
from sfumato.study.records import write_json

RECORDS = Path(__file__).parent / "results" / "reconstruction"
RUNS = Path("runs/reconstruction")
PICTURES = Path(__file__).parents[1] / "docs" / "images"
WEIGHTS = Path("../shared/data/weights/squeezenet1_0_imagenet_deepcomp.npz")
SIZE = 32
CLASSES = 20  # those with most images
SEED = 0
PROXY = "proxy annotators"

SETTINGS = ("none", "crop-flip", "ats-3-1-7", "ats-43-18-18", "ats", "gaussian", "pruning")
DEFENCES = ("gaussian", "pruning")  # of what is shared; the others are policies of training
NOISE = 1.0  # times the root mean square of the gradient
PRUNED = 0.9
ATTACKS = ("inverting-gradients", "idlg")  # the second on LeNet alone: L-BFGS fails behind ReLUs

# Metric -> 1 where it rises as more leaks.
SIGNS = {"psnr": 1, "mse": -1, "ssim": 1, "squeezenet": -1, "frechet": -1, "semsim": -1}
HAND_MADE = tuple(SIGNS)[:-1]
TEST_SET = "cifar10"  # of ablations


@dataclass(frozen=True)
class Scale:
    """How long and how much."""

    images: int
    victim_steps: dict[str, int]  # of training, of 64 images
    proxy_steps: int  # of 32 images
    sure: float  # the least softmax of a proxy's answer; else it cannot tell
    steps: dict[str, int]  # of inverting gradients
    iterations: int  # of iDLG
    semsim: SemSimConfig
    deep: SemSimConfig
    seeds: tuple[int, ...]
    numbers: tuple[int, ...]  # of originals with judgements, in the ablation


FULL = Scale(
    20,
    {"lenet": 300, NARROW: 50},
    1000,
    0.5,
    {"lenet": 1000, NARROW: 300},
    300,
    SemSimConfig(network="lenet", epochs=100, learning_rate=0.05, momentum=0.9),
    SemSimConfig(network="resnet18", epochs=20, learning_rate=0.05, momentum=0.9),
    (0, 1, 2),
    (5, 10, 20, 40),
)
SMALL = Scale(
    3,
    {"lenet": 4, NARROW: 2},
    30,
    0.0,
    {"lenet": 8, NARROW: 2},
    20,
    SemSimConfig(network="lenet", epochs=2, learning_rate=0.05, momentum=0.9),
    SemSimConfig(network="resnet18", epochs=1, learning_rate=0.05, momentum=0.9),
    (0,),
    (5,),
)
# Weights of total variation, chosen on a few other images of CIFAR-10 at these numbers of steps: behind a LeNet of
# 12 epochs 0.001, 0.01 and 0.1 give 13.8, 16.6 and 16.1 dB; behind a ConvNet8 of 2 epochs the first two 14.4 and
# 15.9. After 15 epochs it gives 12 dB at most, which shows nothing to anyone: victims are trained for less.
VARIATION = {"lenet": 1e-2, NARROW: 1e-2}


# Data sets


@dataclass(frozen=True)
class Source:
    """Where images come from.

    Attributes:
        load: all of them.
        label: what a victim classifies.
        parts: splits that are trained on and tested on; None: the last images of each class are tested.
        task: what annotators are asked.
        flips: whether a mirrored image is of the same class.
    """

    load: Callable[[], LabelledImages]
    label: str = "class"
    parts: tuple[str, str] | None = None
    task: str = campaign.CHOOSE
    flips: bool = True


SOURCES = {
    "cifar10": Source(
        lambda: data.load("table:runs/data/cifar10/table.csv", size=SIZE), parts=("train", "test")
    ),
    "caltech101": Source(lambda: data.load("table:runs/data/caltech101/table.csv", size=SIZE)),
    "lfw": Source(
        lambda: data.load("table:runs/data/lfw/table.csv", size=SIZE), label="identity", task=campaign.SAME
    ),
    "fer": Source(
        lambda: data.load("table:runs/data/fer/table.csv", size=SIZE),
        label="emotion",
        parts=("train", "test"),
    ),
    "omniglot": Source(
        lambda: data.load("omniglot:runs/data/omniglot", size=SIZE, rotations=False), flips=False
    ),
}


@cache
def parts(name: str) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images of the classes that are told apart, with the label "class"."""
    source = SOURCES[name]
    loaded = source.load()
    label = loaded.label(source.label)
    counts = label.codes.bincount(minlength=len(label.names))
    chosen = counts.argsort(descending=True, stable=True)[:CLASSES]
    generator = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(loaded), generator=generator)
    if source.parts is None:
        known, asked = [], []
        for code in chosen:
            mine = order[label.codes[order] == code]
            asked.append(mine[: len(mine) // 4])
            known.append(mine[len(mine) // 4 :])
        rows = (torch.cat(known), torch.cat(asked))
    else:
        usable = order[torch.isin(label.codes[order], chosen)]
        rows = tuple(usable[torch.isin(usable, loaded.splits[part])] for part in source.parts)  # type: ignore[assignment]
    return tuple(  # type: ignore[return-value]
        LabelledImages(
            name, loaded.images[each], {"class": label_of([label.names[code] for code in label.codes[each]])}
        )
        for each in rows
    )


# Victims and proxies

# name -> network, and how images are released to it: annotators differ in what they have seen.
PROXIES = {
    "conv4": ("conv4", "none"),
    "convnet8": (NARROW, "none"),
    "predictor": ("predictor", "none"),
    "conv4-noisy": ("conv4", "gaussian:sigma=20"),
    "convnet8-blurred": (NARROW, "blur:radius=1"),
}
FALSE_ALARMS = 0.05  # of a proxy that compares: pairs of different classes that it calls the same


def victims() -> list[tuple[str, str]]:
    """Network and setting of each."""
    return list(itertools.product(("lenet", NARROW), SETTINGS))


class Study:
    """One data set. State: its files under runs, and its records."""

    def __init__(self, name: str, scale: Scale, records: Path, runs: Path) -> None:
        self._name, self._scale, self._records, self._runs = name, scale, records, runs / name
        self._source = SOURCES[name]
        self._runs.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """All that is missing."""
        record = self._records / f"{self._name}.json"
        if not record.exists():
            _write(record, self._prepare)
        chosen = json.loads(record.read_text())["originals"]
        _, test = parts(self._name)
        originals = test.rows(torch.tensor(chosen))
        for place, image in enumerate(originals.images):
            file = self._original(place)
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                images.write(file, image)
        for attack in ATTACKS:
            record = self._records / f"{self._name}-{attack}.json"
            if not record.exists():
                _write(record, partial(self._attack, attack, originals))

    # Before the attacks

    def _prepare(self) -> dict[str, Any]:
        """Train everyone, and choose the originals."""
        train, test = parts(self._name)
        found = {}
        right = torch.zeros(len(test))
        for name in PROXIES:
            model = self._proxy(name)
            codes = self._codes(model, test)
            answers = model.classify(test.images)  # as they are, whatever it was trained on
            right += answers == codes
            found[name] = {"accuracy": (answers == codes).double().mean().item(), "spec": PROXIES[name][1]}
        policies = [one for one in victims() if one[1] not in DEFENCES]
        accuracies = {
            f"{network}-{policy}": classifier.evaluate(
                self._victim(network, policy), test, target="class"
            ).mean
            for network, policy in policies
        }
        return {
            "annotators": PROXY,
            "data": {"training": len(train), "test": len(test), "digests": [train.digest, test.digest]},
            "classes": list(test.label("class").names),
            "proxies": found,
            "victims": accuracies,
            "originals": self._choose(test, right > len(PROXIES) / 2),
            "recognised_before": (right > len(PROXIES) / 2).double().mean().item(),
        }

    def _choose(self, test: LabelledImages, recognised: Tensor) -> list[int]:
        """Rows of test images, a class in turn, that most proxies recognise; where these run out, others.

        No class has more than twice its share: proxies may recognise one alone.
        """
        codes, classes = test.label("class").codes, len(test.label("class").names)
        most = 2 * math.ceil(self._scale.images / classes)
        places = torch.zeros(len(codes), dtype=torch.int64)  # how many of the class come before
        order = torch.cat([recognised.nonzero().flatten(), (~recognised).nonzero().flatten()])
        for code in codes.unique():
            mine = order[codes[order] == code]
            places[mine] = torch.arange(len(mine))
        last = ~recognised | (places >= most)
        keys = (last * len(codes) + places) * classes + codes
        return [int(row) for row in keys.argsort(stable=True)[: self._scale.images]]

    def _train(self, name: str, config: ClassifierConfig, *, spec: str, seed: int) -> ClassifierModel:
        """A model, from its file where it was trained before."""
        path = self._runs / "models" / f"{name}.safetensors"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            train, _ = parts(self._name)
            classifier.train(train, protect.parse(spec), config, target="class", seed=seed).save(path)
        return classifier.load(path).eval()

    def _epochs(self, steps: int, batch: int) -> int:
        """Epochs of about so many steps."""
        return max(1, round(steps / math.ceil(len(parts(self._name)[0]) / batch)))

    def _proxy(self, name: str) -> ClassifierModel:
        network, spec = PROXIES[name]
        config = ClassifierConfig(
            network=network,
            epochs=self._epochs(self._scale.proxy_steps, 32),
            batch=32,
            flips=self._source.flips,
            shifts=2,
        )
        return self._train(f"proxy-{name}", config, spec=spec, seed=SEED + 1)

    def _victim(self, network: str, setting: str) -> ClassifierModel:
        policy = "none" if setting in DEFENCES else setting
        config = ClassifierConfig(
            network=network, epochs=self._epochs(self._scale.victim_steps[network], 64), policy=policy
        )
        return self._train(f"victim-{network}-{policy}", config, spec="none", seed=SEED)

    def _codes(self, model: ClassifierModel, of: LabelledImages) -> Tensor:
        """Places of the true classes among those of a model."""
        label = of.label("class")
        place = {name: i for i, name in enumerate(model.classes)}
        return torch.tensor([place[label.names[code]] for code in label.codes.tolist()])

    # Attacks

    def _attack(self, attack: str, originals: LabelledImages) -> dict[str, Any]:
        attacked = [one for one in victims() if attack == ATTACKS[0] or one[0] == "lenet"]
        costs = {
            f"{network}-{setting}": self._rebuild(attack, network, setting, originals)
            for network, setting in attacked
        }
        shares, alpha, recognised = self._annotate(attack, list(costs), originals)
        measured = {name: self._measure(attack, name, len(originals)) for name in costs}
        return {
            "annotators": PROXY,
            "attack": attack,
            "krippendorff_alpha": alpha,
            "victims": {
                name: {**costs[name], **measured[name], **shares[name], "who": recognised[name]}
                for name in costs
            },
        }

    def _original(self, place: int) -> Path:
        return self._runs / "originals" / f"{place:02d}.png"

    def _reconstruction(self, attack: str, name: str, place: int) -> Path:
        return self._runs / attack / name / f"{place:02d}.png"

    def _rebuild(self, attack: str, network: str, setting: str, originals: LabelledImages) -> dict[str, Any]:
        """Attack one victim; its reconstructions become files, and what is known of them a small one beside."""
        name = f"{network}-{setting}"
        done = self._runs / attack / f"{name}.json"
        if done.exists():
            return dict(json.loads(done.read_text()))
        started = time.process_time()
        model = self._victim(network, setting)
        shared = self._shared(model, setting, originals)
        knows = ThreatModel(shape=tuple(originals.images.shape[1:]))  # type: ignore[arg-type]
        config = self._config(attack, network)
        failed = 0
        if attack == "idlg":
            rebuilt = []
            for number, gradient in enumerate(shared):
                try:
                    rebuilt.append(invert(model.network, gradient, knows, config, seed=SEED + number).images)
                except DataError:  # no start stayed finite: the adversary has nothing to show
                    rebuilt.append(torch.full((1, *knows.shape), 0.5))
                    failed += 1
        else:
            many = len(shared) if network == "lenet" else 1  # deep networks are no faster in batches
            found = invert_all(model.network, shared, [knows] * len(shared), config, at_once=many, seed=SEED)
            rebuilt = [each.images for each in found]
        for place, picture in enumerate(images.to_uint8(torch.cat(rebuilt))):
            file = self._reconstruction(attack, name, place)
            file.parent.mkdir(parents=True, exist_ok=True)
            images.write(file, picture)
        facts = {
            "failed": failed,
            "seconds_of_attack": round(time.process_time() - started, 1),
            "config": asdict(config),
        }
        write_json(done, facts)
        return facts

    def _config(self, attack: str, network: str) -> InversionConfig:
        if attack == "idlg":
            return replace(IDLG, steps=self._scale.iterations)
        return replace(
            INVERTING_GRADIENTS,
            steps=self._scale.steps[network],
            total_variation=VARIATION[network],
        )

    def _shared(
        self, model: ClassifierModel, setting: str, originals: LabelledImages
    ) -> list[dict[str, Tensor]]:
        """What the client shares of each original."""
        network: nn.Module = model.network
        generator = torch.Generator().manual_seed(SEED)
        policy = "none" if setting in DEFENCES else setting
        shown = images.to_float(apply(originals.images, policy, generator))
        codes = self._codes(model, originals)
        shared = [share(network, *each) for each in zip(shown.split(1), codes.split(1), strict=True)]
        if setting == "pruning":
            return [prune(each, share=PRUNED) for each in shared]
        if setting == "gaussian":
            return [add_gaussian(each, scale=NOISE * _size(each), generator=generator) for each in shared]
        return shared

    # Annotators

    def _annotate(
        self, attack: str, names: Sequence[str], originals: LabelledImages
    ) -> tuple[dict[str, dict[str, Any]], float | None, dict[str, list[bool]]]:
        """Let the proxies answer a campaign. -> share recognised by victim, their agreement, and which images."""
        label = originals.label("class")
        pairs = [
            Pair(
                original=self._original(place).absolute(),
                reconstruction=self._reconstruction(attack, name, place).absolute(),
                true_class=label.names[code],
                model=name,
                source=self._name,
            )
            for name in names
            for place, code in enumerate(label.codes.tolist())
        ]
        path = self._runs / f"{attack}.campaign"
        path.unlink(missing_ok=True)  # one that was not filled
        config = CampaignConfig(task=self._source.task, annotators=len(PROXIES), options=CLASSES, seed=SEED)
        create(path, pairs, config)
        with Store(path) as store:
            if self._source.task == campaign.CHOOSE:
                proxies.fill(
                    store,
                    [proxies.by_classifier(self._path(name), threshold=self._scale.sure) for name in PROXIES],
                )
            else:
                proxies.fill(store, [self._comparer(name) for name in PROXIES])
            found = results.results(store)
            results.export(store, "semsim", self._runs / f"{attack}.csv")
            alpha = results.agreement(store)
        shares = {
            one.model: {"recognised": one.recognised, "items": one.items, "low": one.low, "high": one.high}
            for one in results.shares(found)
        }
        by_model: dict[str, list[bool]] = {name: [] for name in names}
        for one in found:
            if one.recognised is not None:
                by_model[one.model].append(one.recognised)
        return shares, alpha, by_model

    def _path(self, name: str) -> Path:
        return self._runs / "models" / f"proxy-{name}.safetensors"

    def _comparer(self, name: str) -> proxies.PairProxy:
        """Compares logits. From which cosine on images are the same is such that few different people are."""
        model = self._proxy(name)

        @torch.no_grad()
        def embed(pixels: Tensor) -> Tensor:
            logits = torch.cat([model(part) for part in pixels.split(256)])
            return logits - logits.mean(1, keepdim=True)

        _, test = parts(self._name)
        vectors = nn.functional.normalize(embed(test.images))
        codes = test.label("class").codes
        apart = (vectors @ vectors.T)[codes[:, None] != codes]
        threshold = apart.quantile(1 - FALSE_ALARMS).item()
        return proxies.by_embedding(name, embed, threshold=threshold)

    # Metrics

    def _measure(self, attack: str, name: str, count: int) -> dict[str, Any]:
        """Every metric but SemSim, image by image, and the mean; of sets the Fréchet distance."""
        originals, others = read_pairs(self._runs, attack, name, count)
        compared = perceptual().compare(originals, others)
        each = {
            # At most 100 dB, which stands for images that are equal.
            "psnr": similarity.psnr(originals, others).clamp(max=100),
            "mse": similarity.mse(originals, others),
            "ssim": similarity.ssim(originals, others),
            "squeezenet": compared.distances,
        }
        apart = frechet_distance(compared.originals, compared.others)
        return {
            "scores": {metric: values.mean().item() for metric, values in each.items()}
            | {"frechet": apart.distance},
            "images": {
                metric: [round(value, 5) for value in values.tolist()] for metric, values in each.items()
            },
        }


@cache
def perceptual() -> Perceptual:
    """The distance of SqueezeNet features, which is not LPIPS."""
    return Perceptual.of_squeezenet(WEIGHTS)


def read_pairs(runs: Path, attack: str, name: str, count: int) -> tuple[Tensor, Tensor]:
    """Originals and reconstructions of a victim, (N, C, H, W) float."""
    both = [
        torch.stack([images.read(folder / f"{place:02d}.png", channels=None) for place in range(count)])
        for folder in (runs / "originals", runs / attack / name)
    ]
    return images.to_float(both[0]), images.to_float(both[1])


def _size(gradient: dict[str, Tensor]) -> float:
    """The root mean square of the entries of a gradient."""
    total = sum(each.square().sum().item() for each in gradient.values())
    return math.sqrt(total / sum(each.numel() for each in gradient.values()))


# SemSim


def judgements(runs: Path, name: str, attack: str) -> semsim.Judgements:
    """What proxies recognised of one data set."""
    (found,) = semsim.read(runs / name / f"{attack}.csv", size=SIZE).values()
    return found


def scores_of(
    model: SemSim, runs: Path, name: str, attack: str, record: dict[str, Any]
) -> dict[str, list[float]]:
    """Victim -> the distance of each of its reconstructions."""
    return {
        one: [
            round(value, 5)
            for value in model.distance(*read_pairs(runs / name, attack, one, len(found["who"]))).tolist()
        ]
        for one, found in record["victims"].items()
    }


def attacked(records: Path, name: str, attack: str) -> dict[str, Any]:
    """The record of an attack on a data set."""
    return dict(json.loads((records / f"{name}-{attack}.json").read_text()))


def train_semsim(scale: Scale, records: Path, runs: Path) -> None:
    """For each data set and seed, SemSim of the others, by the first attack; tested by both (Tables 1 and 2)."""
    for seed, name in itertools.product(scale.seeds, SOURCES):
        record = records / f"semsim-{name}-{seed}.json"
        if not record.exists():
            known = all_but(name, runs)
            _write(record, partial(judge_semsim, known, scale.semsim, name, seed, records, runs))


def all_but(name: str, runs: Path) -> semsim.Judgements:
    """What proxies recognised of all data sets but one, by the first attack."""
    return semsim.combine(
        [judgements(runs, other, ATTACKS[0]) for other in SOURCES if other != name], size=SIZE
    )


def judge_semsim(
    known: semsim.Judgements, config: SemSimConfig, name: str, seed: int, records: Path, runs: Path
) -> dict[str, Any]:
    """Train on judgements, and measure all victims of a data set that is not among them."""
    trained = semsim.train(known, config, seed=seed)
    model = SemSim(trained.embedding, card=trained.card)
    return {
        "annotators": PROXY,
        "data": name,
        "seed": seed,
        "card": trained.card,
        "images": {
            attack: scores_of(model, runs, name, attack, attacked(records, name, attack))
            for attack in ATTACKS
        },
    }


def ablate(scale: Scale, records: Path, runs: Path) -> None:
    """Fewer annotations, another backbone, another loss: one seed, one data set to test on (Fig. 7)."""
    whole = all_but(TEST_SET, runs)
    generator = torch.Generator().manual_seed(SEED)
    variants = {
        f"originals-{count}": (semsim.sample(whole, count, generator), scale.semsim)
        for count in scale.numbers
    }
    variants["loss-contrastive"] = (whole, replace(scale.semsim, loss="contrastive"))
    variants["backbone-resnet18"] = (whole, scale.deep)
    for variant, (known, config) in variants.items():
        record = records / f"ablation-{variant}.json"
        if not record.exists():
            _write(record, partial(judge_semsim, known, config, TEST_SET, SEED, records, runs))


# Agreement


def correlate(scores: list[float], shares: list[float], metric: str) -> dict[str, Any] | None:
    """How far a metric ranks victims as proxies do, turned so that 1 is full agreement; None where all are tied."""
    try:
        found = agreement.rank_correlations(scores, shares, generator=torch.Generator().manual_seed(SEED))
    except DataError:  # everything, or nothing, was recognised of every victim
        return None
    turned = {
        name: value if SIGNS[metric] > 0 else -value
        for name, value in (("spearman", found.spearman), ("kendall", found.kendall))
    }
    return {name: asdict(value) for name, value in turned.items()} | {"victims": found.models}


def mean(values: Sequence[float]) -> float:
    """Of one number or more."""
    return sum(values) / len(values)


def correlations(records: Path, scale: Scale) -> dict[str, Any]:
    """Tables 1 and 2, Fig. 3 and 7, from the records of the other parts."""
    found: dict[str, Any] = {"annotators": PROXY, "tables": {}, "ablations": {}, "matrices": {}}
    for attack in ATTACKS:
        for name in SOURCES:
            record = attacked(records, name, attack)
            shares = [one["recognised"] / one["items"] for one in record["victims"].values()]
            columns = {
                metric: [one["scores"][metric] for one in record["victims"].values()] for metric in HAND_MADE
            }
            row: dict[str, Any] = {
                metric: correlate(values, shares, metric) for metric, values in columns.items()
            }
            by_seed = [
                [mean(one) for one in trained["images"][attack].values()]
                for seed in scale.seeds
                for trained in [json.loads((records / f"semsim-{name}-{seed}.json").read_text())]
            ]
            row["semsim"] = [correlate(values, shares, "semsim") for values in by_seed]
            found["tables"].setdefault(attack, {})[name] = row
            if attack == ATTACKS[0]:
                columns["semsim"] = by_seed[0]
                # Turned alike, so that two metrics that rank alike have 1.
                turned = {
                    metric: [SIGNS[metric] * value for value in values] for metric, values in columns.items()
                }
                matrix = agreement.metric_matrix(turned)
                found["matrices"][name] = {
                    "names": list(matrix.names),
                    "kendall": matrix.kendall.tolist(),
                }
    record = attacked(records, TEST_SET, ATTACKS[0])
    shares = [one["recognised"] / one["items"] for one in record["victims"].values()]
    for path in sorted(records.glob("ablation-*.json")):
        trained = json.loads(path.read_text())
        values = [mean(one) for one in trained["images"][ATTACKS[0]].values()]
        found["ablations"][path.stem.removeprefix("ablation-")] = correlate(values, shares, "semsim")
    return found


# Pictures


def draw(records: Path, runs: Path, folder: Path) -> None:
    """Reconstructions sorted by each metric, and metrics against the share that proxies recognise."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        draw_sorted(name, records, runs, folder / f"reconstruction-{name}.png")
    draw_scatter(records, folder / "reconstruction-metrics.png")


def draw_sorted(name: str, records: Path, runs: Path, path: Path) -> None:
    """One original, and its reconstructions from what leaks most to what leaks least, by each metric (Fig. 6).

    The original is the first of those of which about half of the reconstructions are recognised.
    """
    record = attacked(records, name, ATTACKS[0])
    learned = json.loads((records / f"semsim-{name}-0.json").read_text())["images"][ATTACKS[0]]
    names = list(record["victims"])
    who = torch.tensor([record["victims"][one]["who"] for one in names])  # (victims, images)
    place = int((who.double().mean(0) - 0.5).abs().argmin())
    shown = [
        images.to_float(images.read(runs / name / folder / f"{place:02d}.png", channels=3)[None])[0]
        for folder in ("originals", *(f"{ATTACKS[0]}/{one}" for one in names))
    ]
    metrics = [metric for metric in SIGNS if metric not in ("mse", "frechet")]  # mse sorts as psnr does
    figure = Figure(figsize=(1 + 0.6 * len(shown), 0.75 * len(metrics)), dpi=64, layout="constrained")
    grid = figure.subplots(len(metrics), len(shown))
    for row, metric in zip(grid, metrics, strict=True):
        values = [
            (learned[one] if metric == "semsim" else record["victims"][one]["images"][metric])[place]
            for one in names
        ]
        order = sorted(range(len(names)), key=lambda at: -SIGNS[metric] * values[at])
        for column, axes in enumerate(row):
            at = order[column - 1] if column else None
            axes.imshow(shown[0 if at is None else at + 1].permute(1, 2, 0).numpy())
            axes.set_xticks([])
            axes.set_yticks([])
            colour = "black" if at is None else "tab:green" if who[at, place] else "tab:red"
            for side in axes.spines.values():
                side.set(color=colour, linewidth=2)
        row[0].set_ylabel(LABELS[metric], rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(path, metadata={"Software": None})


LABELS = {
    "psnr": "PSNR",
    "mse": "MSE",
    "ssim": "SSIM",
    "squeezenet": "SqueezeNet\ndistance",
    "frechet": "Fréchet distance",
    "semsim": "SemSim",
}


def draw_scatter(records: Path, path: Path) -> None:
    """A row a data set, a column a metric, a dot a victim."""
    figure = Figure(figsize=(11, 9), dpi=80, layout="constrained")
    grid = figure.subplots(len(SOURCES), len(SIGNS), sharey=True)
    for row, name in zip(grid, SOURCES, strict=True):
        record = attacked(records, name, ATTACKS[0])
        learned = json.loads((records / f"semsim-{name}-0.json").read_text())["images"][ATTACKS[0]]
        for axes, metric in zip(row, SIGNS, strict=True):
            for marker, network in (("o", "lenet"), ("^", NARROW)):
                points = [
                    (
                        mean(learned[one]) if metric == "semsim" else found["scores"][metric],
                        found["recognised"] / found["items"],
                    )
                    for one, found in record["victims"].items()
                    if one.startswith(network)
                ]
                axes.plot(*zip(*points, strict=True), marker, markersize=5, alpha=0.7, label=network)
            axes.tick_params(labelsize=7)
            if name == next(iter(SOURCES)):
                axes.set_title(LABELS[metric].replace("\n", " "), fontsize=9)
        row[0].set_ylabel(f"{name}\nrecognised by proxies", fontsize=8)
    grid[0][0].legend(fontsize=7, frameon=False)
    figure.savefig(path, metadata={"Software": None})


# Parts


def _write(record: Path, measure: Callable[[], dict[str, Any]]) -> None:
    """Make one record, with what it cost."""
    wall, processor = time.perf_counter(), time.process_time()
    found = measure()
    seconds = {
        "wall": round(time.perf_counter() - wall, 1),
        "processor": round(time.process_time() - processor, 1),
    }
    versions = {"sfumato": sfumato.__version__, "torch": torch.__version__}
    write_json(
        record,
        {"seconds": seconds, "threads": torch.get_num_threads(), "versions": versions, "seed": SEED, **found},
    )
    print(f"{record.name}: {seconds['wall']:.0f} s", flush=True)


def main() -> None:
    """Do the parts that are asked for."""
    names = [*SOURCES, "semsim", "ablations", "tables"]
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; none for all")
    asked.add_argument("--small", action="store_true", help="settings too small to mean anything")
    options = asked.parse_args()
    unknown = sorted(set(options.parts) - set(names))
    if unknown:
        asked.error(f"no part is called {unknown[0]!r}: {', '.join(names)}")
    scale, records, runs, pictures = FULL, RECORDS, RUNS, PICTURES
    if options.small:
        scale, runs = SMALL, RUNS / "small"
        records, pictures = runs / "records", runs / "pictures"
    records.mkdir(parents=True, exist_ok=True)
    for name in options.parts or names:
        if name in SOURCES:
            Study(name, scale, records, runs).run()
        elif name == "semsim":
            train_semsim(scale, records, runs)
        elif name == "ablations":
            ablate(scale, records, runs)
        else:
            _write(records / "agreement.json", partial(correlations, records, scale))
            draw(records, runs, pictures)


if __name__ == "__main__":
    main()
