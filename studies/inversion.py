"""What gradient inversion rebuilds of real photographs, and what defences are worth against it (paper: SemSim).

    python studies/unpack.py cifar10 ../shared/data runs/data/cifar10
    python studies/inversion.py                 # some two hours on one core; stopped, it goes on
    python studies/inversion.py dlg lenet-1     # these parts alone
    python studies/inversion.py --small         # settings too small to succeed, to try it out: two minutes

All images are of CIFAR-10, as far as shared/data has it; attacked are test images. What an adversary has to
choose, the weight of total variation, is chosen on OTHER test images. Trained victims have seen 1,500 images for
a few epochs. Everything is in evaluation mode, one image behind a gradient, and seed 0. Records of CAFE, of labels, of batches
and of how a search goes on by its steps are of commit 2f64c651.

Records are studies/results/inversion.jsonl; trained victims runs/inversion/NAME.safetensors.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from gradient_defences import add_gaussian, add_laplacian, clip_and_noise, dp_sgd_epsilon, prune
from rows import RESULTS, Rows, make
from torch import Tensor, nn
from torch.nn import functional

from sfumato import data, images, protect
from sfumato.assess import similarity
from sfumato.attack import exact
from sfumato.attack import gradient_inversion as searches
from sfumato.attack.gradient_inversion import DLG, IDLG, INVERTING_GRADIENTS, Inversion, InversionConfig
from sfumato.attack.victim import ThreatModel, share
from sfumato.data import LabelledImages
from sfumato.errors import DataError
from sfumato.learn import classifier
from sfumato.learn.augmentation import mixup
from sfumato.learn.classifier import ClassifierConfig
from sfumato.networks import ConvNet8
from sfumato.networks.classifiers import CLASSIFIERS

RECORDS = Rows(RESULTS / "inversion.jsonl")
RUNS = Path("runs/inversion")
SEED = 0
SHAPE = (3, 32, 32)
NARROW = "convnet8-16"  # of 64 filters it takes 20 minutes an image
CLASSIFIERS[NARROW] = partial(ConvNet8, width=16)
VICTIMS = {
    "lenet": ClassifierConfig(network="lenet", epochs=20),
    NARROW: ClassifierConfig(network=NARROW, epochs=15, flips=True, shifts=2),
    "resnet20": ClassifierConfig(network="resnet20", epochs=15, flips=True, shifts=2),
}
WEIGHTS = (1e-3, 1e-2, 1e-1)  # of total variation, that are tried
STATES = ("untrained", "trained")
KNOWN = 6  # other images, on which a weight is chosen

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Scale:
    """How long and how much is attacked: all of it, or settings too small to succeed."""

    attacked: int = 20  # images
    restarted: int = 10  # of them with 16 restarts
    deep: int = 3  # of them behind deep networks
    chosen_on: int = 2  # other images, of deep networks
    lbfgs: int = 3000  # steps of each method
    lenet: int = 2000
    defended: int = 1000
    deep_steps: int = 4800
    choosing_steps: int = 800
    epochs: int | None = None  # of victims; None for those of VICTIMS


SMALL = Scale(2, 1, 1, 1, 20, 10, 4, 2, 2, 1)


# Images and victims


@cache
def cifar() -> LabelledImages:
    """All that there is."""
    return data.load("table:runs/data/cifar10/table.csv", size=32)


@cache
def rows() -> tuple[Tensor, Tensor]:
    """Test images that are attacked, two a class in turn, and others, on which settings are chosen."""
    loaded = cifar()
    order = loaded.splits["test"]
    order = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(SEED))]
    codes = loaded.label("class").codes[order]
    first = torch.stack([order[codes == code][:2] for code in codes.unique()])  # (classes, 2)
    attacked = first.T.flatten()
    return attacked, order[~torch.isin(order, attacked)]


def pixels(count: int, *, others: bool = False) -> tuple[Tensor, Tensor]:
    """The first of the images that are attacked, (N, 3, 32, 32) float, and (N,) labels; or of the others."""
    at = rows()[others][:count]
    return images.to_float(cifar().images[at]), cifar().label("class").codes[at]


def victim(network: str, state: str, scale: Scale) -> tuple[nn.Module, dict[str, Any]]:
    """A network in evaluation mode, and what is to be known of it."""
    config = VICTIMS[network]
    if state == "untrained":
        card = {"shape": list(SHAPE), "classes": list(cifar().label("class").names)}
        return classifier.make_untrained(card, config, seed=SEED).network.eval(), {"network": network}
    config = replace(config, epochs=scale.epochs or config.epochs)
    path = RUNS / f"{network}-{config.epochs}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        seen = cifar().split("train")
        classifier.train(seen, protect.parse("none"), config, target="class", seed=SEED).save(path)
    model = classifier.load(path)
    accuracy = classifier.evaluate(model, cifar().split("test"), target="class")
    facts = {"network": network, "config": asdict(config), "accuracy": accuracy.mean}
    return model.network.eval(), facts


# Attacks


def one_by_one(model: nn.Module, pictures: Tensor, labels: Tensor) -> list[Gradients]:
    """The gradient of each image."""
    return [share(model, *each) for each in zip(pictures.split(1), labels.split(1), strict=True)]


def rebuild(
    model: nn.Module, shared: list[Gradients], config: InversionConfig, *, at_once: int = 20, **knows: Any
) -> list[Inversion]:
    """Invert gradients of one image each."""
    threat = ThreatModel(shape=SHAPE, **knows)
    return searches.invert_all(model, shared, [threat] * len(shared), config, at_once=at_once, seed=SEED)


def near(originals: Tensor, rebuilt: Tensor) -> dict[str, Any]:
    """How near images are. PSNR is at most 200, which stands for images that are equal: JSON has no infinity."""
    psnr = similarity.psnr(originals, rebuilt).clamp(max=200)
    means = {"median_psnr": psnr.median(), "mean_psnr": psnr.mean(), "least_psnr": psnr.min()}
    middle = {name: value.item() for name, value in means.items()}
    return {"images": len(originals), "psnr": psnr.tolist(), **middle}


def judged(originals: Tensor, found: list[Inversion], labels: Tensor) -> dict[str, Any]:
    """How near reconstructions are, what they cost, and how many labels are right."""
    rebuilt = torch.cat([each.images for each in found])
    right = int((torch.cat([each.labels for each in found]) == labels).sum())
    like = {**near(originals, rebuilt), "ssim": similarity.ssim(originals, rebuilt).tolist()}
    return {**like, "costs": [each.cost for each in found], "labels_right": right}


def choose(
    model: nn.Module, config: InversionConfig, *, count: int, at_once: int
) -> tuple[InversionConfig, dict[str, Any]]:
    """The weight of total variation that is best on other images, by their mean PSNR, and all that were tried."""
    pictures, labels = pixels(count, others=True)
    shared = one_by_one(model, pictures, labels)
    tried = {}
    for weight in WEIGHTS:
        found = rebuild(model, shared, replace(config, total_variation=weight), at_once=at_once)
        tried[weight] = judged(pictures, found, labels)["mean_psnr"]
    best = max(tried, key=lambda each: tried[each])
    facts = {"total_variation": best, "tried": {str(k): v for k, v in tried.items()}}
    return replace(config, total_variation=best), facts | {"on_other_images": count, "steps": config.steps}


@cache
def choose_on_lenet(scale: Scale) -> tuple[InversionConfig, dict[str, Any]]:
    """The attack of all parts on an untrained LeNet."""
    model, _ = victim("lenet", "untrained", scale)
    return choose(model, replace(INVERTING_GRADIENTS, steps=scale.lenet), count=KNOWN, at_once=KNOWN)


# Parts, each of which makes one record


def by_lbfgs(config: InversionConfig, scale: Scale) -> dict[str, Any]:
    """DLG or iDLG on LeNet. An image on which no start stays finite is counted, and judged by no figure."""
    model, facts = victim("lenet", "untrained", scale)
    config = replace(config, steps=scale.lbfgs)
    pictures, labels = pixels(scale.attacked)
    found, kept = [], []
    for number, shared in enumerate(one_by_one(model, pictures, labels)):
        try:
            found.append(searches.invert(model, shared, ThreatModel(shape=SHAPE), config, seed=SEED + number))
        except DataError:
            continue
        kept.append(number)
    about = {"victim": facts, "config": asdict(config), "attempted": len(pictures), "finite": len(kept)}
    return {**about, **judged(pictures[kept], found, labels[kept])}


def searched(network: str, state: str, restarts: int, scale: Scale) -> dict[str, Any]:
    """Inverting gradients; with restarts on the first of the same images. Deep networks are no faster in batches."""
    model, facts = victim(network, state, scale)
    if network == "lenet":
        config, chosen = choose_on_lenet(scale)
        own, count, at_once = {}, scale.restarted if restarts > 1 else scale.attacked, scale.attacked
    else:
        config = replace(INVERTING_GRADIENTS, steps=scale.choosing_steps)
        config, chosen = choose(model, config, count=scale.chosen_on, at_once=1)
        own, count, at_once = {"state": state}, scale.deep, 1
        config = replace(config, steps=scale.deep_steps)
    config, (pictures, labels) = replace(config, restarts=restarts), pixels(count)
    found = rebuild(model, one_by_one(model, pictures, labels), config, at_once=at_once)
    about = {"victim": facts, **own, "config": asdict(config), "chosen": chosen}
    return {**about, **judged(pictures, found, labels)}


def inverted_first_layer(scale: Scale) -> dict[str, Any]:
    """What the first layer of a plain network of linear layers gives away, without any search."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        layers = [nn.Flatten(), nn.Linear(math.prod(SHAPE), 256), nn.ReLU(), nn.Linear(256, 10)]
    model = nn.Sequential(*layers).eval()
    pictures, labels = pixels(scale.attacked)
    shared = one_by_one(model, pictures, labels)
    rebuilt = torch.cat([exact.recover_one(model, each, SHAPE) for each in shared])
    return near(pictures, rebuilt.clamp(0, 1))


# Defences: of a network, images and labels the gradients that a client shares, and the scale of the noise where there is one.


def pruned(model: nn.Module, pictures: Tensor, labels: Tensor, *, of: float) -> tuple[list[Gradients], float]:
    """Without the least entries."""
    return [prune(each, share=of) for each in one_by_one(model, pictures, labels)], 0.0


def norms_of_others(model: nn.Module) -> tuple[Tensor, int]:
    """The norms of gradients of other images, and how many entries a gradient has."""
    shared = one_by_one(model, *pixels(KNOWN, others=True))
    flat = [torch.cat([tensor.flatten() for tensor in each.values()]) for each in shared]
    return torch.stack([each.norm() for each in flat]).double(), flat[0].numel()


def noisy(
    model: nn.Module, pictures: Tensor, labels: Tensor, *, add: Callable[..., Gradients], times: float
) -> tuple[list[Gradients], float]:
    """With noise of so many times the root mean square of the entries of other gradients."""
    norms, entries = norms_of_others(model)
    scale = times * math.sqrt(norms.square().mean().item() / entries)
    generator = torch.Generator().manual_seed(SEED)
    shared = one_by_one(model, pictures, labels)
    return [add(each, scale=scale, generator=generator) for each in shared], scale


def private(
    model: nn.Module, pictures: Tensor, labels: Tensor, *, multiplier: float
) -> tuple[list[Gradients], float]:
    """Clipped to the median norm of other gradients, with noise: DP-SGD with one image in the batch."""
    norm, generator = norms_of_others(model)[0].median().item(), torch.Generator().manual_seed(SEED)
    noise: dict[str, Any] = {"noise_multiplier": multiplier, "generator": generator}
    shared = [
        clip_and_noise({name: tensor[None] for name, tensor in each.items()}, clipping_norm=norm, **noise)
        for each in one_by_one(model, pictures, labels)
    ]
    return shared, multiplier * norm


def mixed(model: nn.Module, pictures: Tensor, labels: Tensor) -> tuple[list[Gradients], float]:
    """Each image mixed with three of the others, and so its label."""
    generator = torch.Generator().manual_seed(SEED)
    whole = functional.one_hot(labels, 10).float()
    blends, shares = mixup(pictures, whole, generator)
    return one_by_one(model, blends, shares), 0.0


# Name -> what is shared, and what the adversary who knows of it is told beside the scale of the noise.
DEFENCES: dict[str, tuple[Callable[..., tuple[list[Gradients], float]], str]] = {
    "none": (lambda *of: (one_by_one(*of), 0.0), ""),
    **{f"pruning {share:g}": (partial(pruned, of=share), "pruned") for share in (0.9, 0.99)},
    **{
        f"{name} {times:g}": (partial(noisy, add=add, times=times), "noise")
        for name, add in (("gaussian", add_gaussian), ("laplacian", add_laplacian))
        for times in (0.1, 1.0, 10.0)
    },
    **{f"dp-sgd {noise:g}": (partial(private, multiplier=noise), "noise") for noise in (0.1, 1.0)},
    "mixup": (mixed, "labels"),
}
ACCOUNTED = {"rate": 0.01, "steps": 1000, "delta": 1e-5}


def defended(name: str, scale: Scale) -> dict[str, Any]:
    """One defence on LeNet, against adversaries with and without knowledge of it; the strongest counts.

    Each is also tried with ten times the weight of total variation: what is noise in a gradient is noise in the
    image, and an adversary would smooth more.
    """
    model, facts = victim("lenet", "untrained", scale)
    config, chosen = choose_on_lenet(scale)
    config = replace(config, steps=scale.defended)
    pictures, labels = pixels(max(4, scale.attacked * 4 // 5))
    defence, knows = DEFENCES[name]
    shared, noise = defence(model, pictures, labels)
    knowledge: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {"knows nothing of them": ({}, {})}
    if knows == "labels":
        knowledge["knows that labels are mixed"] = ({"labels": "optimised"}, {})
    elif knows:
        knowledge["knows of it"] = ({}, {"pruned": True} if knows == "pruned" else {"noise": noise})
    attacks = []
    for adversary, (settings, told) in knowledge.items():
        for times in (1, 10):
            weight = times * config.total_variation
            found = rebuild(model, shared, replace(config, total_variation=weight, **settings), **told)
            said = judged(pictures, found, labels)
            attacks.append({"adversary": adversary, "total_variation": weight, **said})
    kind, _, strength = name.partition(" ")
    accounted: dict[str, Any] = {}
    if kind == "dp-sgd":
        accounted = {"epsilon": dp_sgd_epsilon(noise_multiplier=float(strength), **ACCOUNTED), **ACCOUNTED}  # type: ignore[arg-type]
    about = {"victim": facts, "defence": name, "kind": kind, "config": asdict(config), "chosen": chosen}
    strongest = max(range(len(attacks)), key=lambda place: attacks[place]["mean_psnr"])
    return {**about, "noise": noise, "attacks": attacks, "strongest": strongest, **accounted}


PARTS: dict[str, Callable[[Scale], dict[str, Any]]] = {
    "first-layer": inverted_first_layer,
    "lenet-1": partial(searched, "lenet", "untrained", 1),
    **{f"defence-{name.replace(' ', '-')}": partial(defended, name) for name in DEFENCES},
    "dlg": partial(by_lbfgs, DLG),
    "idlg": partial(by_lbfgs, IDLG),
    "lenet-16": partial(searched, "lenet", "untrained", 16),
    **{
        f"{net}-{state}": partial(searched, net, state, 1) for net in (NARROW, "resnet20") for state in STATES
    },
}


def main() -> None:
    """Make the records that are missing."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; none for all")
    asked.add_argument("--small", action="store_true", help="settings too small to succeed, to try it out")
    options = asked.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        asked.error(f"no part is called {unknown[0]!r}: {', '.join(PARTS)}")
    scale, records = (SMALL, Rows(RUNS / "small.jsonl")) if options.small else (Scale(), RECORDS)
    for name in options.parts or PARTS:
        make(records, name, lambda name=name: {"part": name, "data": cifar().digest, **PARTS[name](scale)})  # type: ignore[misc]


if __name__ == "__main__":
    main()
