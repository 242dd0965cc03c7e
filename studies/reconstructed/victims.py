"""Victims that leak differently, and what each attack rebuilds of them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from gradient_defences import add_gaussian, prune
from torch import Tensor, nn
from torch.nn import functional

from reconstructed.sources import NARROW, SEED, SOURCES, parts
from sfumato import images, protect
from sfumato.attack.exact import nearest
from sfumato.attack.gradient_inversion import IDLG, INVERTING_GRADIENTS, invert, invert_all
from sfumato.attack.victim import ThreatModel, share
from sfumato.data import LabelledImages
from sfumato.errors import DataError
from sfumato.learn import classifier
from sfumato.learn.augmentation import apply
from sfumato.learn.classifier import ClassifierConfig, ClassifierModel

READ, SEARCHED = "closed-form", "search"
ATTACKS = (READ, SEARCHED)
HIDDEN = 256  # units of the plain network of linear layers
HELD, SEEN = 100, 400  # training images that say when training stops, and that a victim learns from at most
BATCH = 64
# Weight of total variation, chosen on other images of CIFAR-10: behind a trained LeNet and ConvNet8 0.001, 0.01 and
# 0.1 give 13.8, 16.6 and 16.1 dB, and 12.7, 14.9 and 16.9.
VARIATION = 1e-2
# Network -> how long it is trained at most, and after how many epochs in which nothing rose it stops.
EPOCHS = {"lenet": (150, 25), NARROW: (20, 6)}


@dataclass(frozen=True, kw_only=True)
class Victim:
    """Whose gradients are attacked, and by whom.

    Attributes:
        network: "lenet", "convnet8-16", "resnet20", or "linear": layers that are read in closed form.
        trained: until flat, or not at all.
        policy: of images that are trained on and shared.
        noise: Gaussian, on what is shared, in units of the root mean square of its entries.
        pruned: share of the entries of each tensor that are not shared.
        levels: steps of each sign to which entries are rounded, of each tensor's largest; 0 for none.
        batch: images behind one gradient.
        pooled: side in pixels of cells whose mean is all that the first layer sees.
        idlg: iterations of iDLG.
        steps: of inverting gradients, where it is not iDLG.
    """

    network: str
    trained: bool = False
    policy: str = "none"
    noise: float = 0.0
    pruned: float = 0.0
    levels: int = 0
    batch: int = 1
    pooled: int = 1
    idlg: int = 0
    steps: int = 0

    @property
    def attack(self) -> str:
        """Of ATTACKS."""
        return READ if self.network == "linear" else SEARCHED

    @property
    def name(self) -> str:
        """As "lenet-trained-noise-0.1"."""
        words = [self.network, "trained" if self.trained else "untrained"]
        for word, value, plain in (
            ("", self.policy, "none"), ("noise", self.noise, 0), ("pruned", self.pruned, 0),
            ("levels", self.levels, 0), ("of", self.batch, 1), ("pooled", self.pooled, 1),
            ("idlg", self.idlg, 0), ("steps", self.steps, 0),
        ):  # fmt: skip
            if value != plain:
                words += [word, f"{value:g}" if isinstance(value, float | int) else value]
        return "-".join(filter(None, words))


VICTIMS = {
    READ: tuple(
        Victim(network="linear", **settings)  # type: ignore[arg-type]
        for settings in (
            *({"noise": noise} for noise in (0.5, 1.0, 1.5, 2.0, 4.0)),
            *({"pruned": pruned} for pruned in (0.8, 0.95, 0.99)),
            *({"levels": levels} for levels in (1, 3)),
            *({"batch": batch} for batch in (2, 4, 8)),
            *({"pooled": cell} for cell in (2, 4, 8)),
            *({"policy": policy} for policy in ("crop-flip", "ats-3-1-7", "ats-43-18-18")),
            {"batch": 2, "noise": 1.0},
            {"pooled": 2, "noise": 1.0},
            {"pooled": 2, "batch": 2},
        )
    ),
    SEARCHED: (
        Victim(network="lenet", steps=500),
        Victim(network="lenet", trained=True, steps=500),
        Victim(network="lenet", idlg=60),
        Victim(network="lenet", idlg=150),
        Victim(network="lenet", trained=True, idlg=150),
        Victim(network="lenet", noise=0.03, idlg=150),
        Victim(network="lenet", policy="ats-43-18-18", idlg=150),
    ),
}
# Deep networks, of which minutes show nothing: attacked on one data set.
DEEP = {
    "lfw": (
        Victim(network=NARROW, steps=30),
        Victim(network=NARROW, trained=True, steps=30),
        Victim(network="resnet20", steps=30),
    )
}


def attacked(name: str, attack: str) -> tuple[Victim, ...]:
    """The victims of a data set."""
    return VICTIMS[attack] + (DEEP.get(name, ()) if attack == SEARCHED else ())


def model_of(name: str, victim: Victim, runs: Path) -> tuple[nn.Module, ClassifierModel | None]:
    """The network in evaluation mode, trained where it is and was not yet. -> also the classifier around it."""
    train, _ = parts(name)
    shape, classes = tuple(train.images.shape[1:]), train.label("class").names
    if victim.network == "linear":
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            seen = math.prod(_pooled(shape, victim))
            layers = [nn.Linear(seen, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(classes))]
        return nn.Sequential(nn.AvgPool2d(victim.pooled), nn.Flatten(), *layers).eval(), None
    if not victim.trained:
        card = {"shape": list(shape), "classes": list(classes)}
        model = classifier.make_untrained(card, ClassifierConfig(network=victim.network), seed=SEED)
        return model.network.eval(), model
    path = runs / name / "models" / f"victim-{victim.network}-{victim.policy}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _train(name, victim, path)
    model = classifier.load(path).eval()
    return model.network.eval(), model


def _pooled(shape: tuple[int, ...], victim: Victim) -> tuple[int, int, int]:
    """What the first layer sees of images of a shape."""
    channels, height, width = shape
    return channels, height // victim.pooled, width // victim.pooled


def _train(name: str, victim: Victim, path: Path) -> None:
    """Until the accuracy on held-out training images has not risen for some epochs; the best epoch is kept."""
    train, _ = parts(name)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(SEED))
    held = min(HELD, len(train) // 5)
    epochs, patience = EPOCHS[victim.network]
    config = ClassifierConfig(
        network=victim.network, epochs=epochs, patience=patience, batch=BATCH, policy=victim.policy,
        flips=SOURCES[name].flips, shifts=2 if victim.network != "lenet" else 0,
    )  # fmt: skip
    classifier.train(
        train.rows(order[held : held + SEEN]),
        protect.parse("none"),
        config,
        target="class",
        validation=train.rows(order[:held]),
        seed=SEED,
    ).save(path)


def accuracy(name: str, victim: Victim, runs: Path) -> float:
    """On clean test images."""
    _, test = parts(name)
    _, model = model_of(name, victim, runs)
    return 0.0 if model is None else classifier.evaluate(model, test, target="class").mean


def shared_of(
    network: nn.Module, model: ClassifierModel | None, victim: Victim, originals: LabelledImages
) -> list[dict[str, Tensor]]:
    """What the client shares, of each batch of originals in turn. With a policy it shows TRANSFORMED images."""
    generator = torch.Generator().manual_seed(SEED)
    label = originals.label("class")
    classes = label.names if model is None else tuple(model.card["classes"])
    codes = torch.tensor([classes.index(label.names[code]) for code in label.codes.tolist()])
    shown = images.to_float(apply(originals.images, victim.policy, generator))
    batches = zip(shown.split(victim.batch), codes.split(victim.batch), strict=True)
    shared = [share(network, *each) for each in batches]
    if victim.pruned:
        shared = [prune(each, share=victim.pruned) for each in shared]
    if victim.levels:
        shared = [rounded(each, victim.levels) for each in shared]
    if victim.noise:
        shared = [add_gaussian(each, scale=victim.noise * size(each), generator=generator) for each in shared]
    return shared


def rounded(gradient: dict[str, Tensor], levels: int) -> dict[str, Tensor]:
    """Each tensor's entries as whole multiples of its largest magnitude over `levels`: a client that compresses."""
    steps = {name: each.abs().max().clamp(min=1e-30) / levels for name, each in gradient.items()}
    return {name: (each / steps[name]).round() * steps[name] for name, each in gradient.items()}


def size(gradient: dict[str, Tensor]) -> float:
    """The root mean square of the entries of a gradient."""
    total = sum(each.square().sum().item() for each in gradient.values())
    return math.sqrt(total / sum(each.numel() for each in gradient.values()))


def rebuild(
    name: str, victim: Victim, originals: LabelledImages, runs: Path
) -> tuple[Tensor, dict[str, Any]]:
    """Attack one victim. -> (N, C, H, W) uint8, and what is to be known of it."""
    network, model = model_of(name, victim, runs)
    shared = shared_of(network, model, victim, originals)
    shape = tuple(originals.images.shape[1:])
    if victim.network == "linear":
        seen = _pooled(shape, victim)
        found = [nearest(network, each, seen)[0].expand(victim.batch, -1, -1, -1) for each in shared]
        rebuilt = functional.interpolate(torch.cat(found)[: len(originals)], scale_factor=victim.pooled)
        return images.to_uint8(rebuilt.clamp(0, 1)), {"failed": 0}
    knows = ThreatModel(shape=shape)  # type: ignore[arg-type]
    if victim.idlg:
        rebuilt, failed = _idlg(network, shared, knows, victim.idlg)
        return images.to_uint8(rebuilt), {"failed": failed}
    config = replace(INVERTING_GRADIENTS, steps=victim.steps, total_variation=VARIATION)
    many = len(shared) if victim.network == "lenet" else 1  # deep networks are no faster in batches
    inverted = invert_all(network, shared, [knows] * len(shared), config, at_once=many, seed=SEED)
    return images.to_uint8(torch.cat([each.images for each in inverted])), {
        "failed": 0,
        "config": asdict(config),
    }


def _idlg(
    network: nn.Module, shared: Sequence[dict[str, Tensor]], knows: ThreatModel, steps: int
) -> tuple[Tensor, int]:
    """Grey where no start stayed finite: the adversary has nothing to show. -> images, and how many are grey."""
    rebuilt, failed = [], 0
    for number, gradient in enumerate(shared):
        try:
            rebuilt.append(
                invert(network, gradient, knows, replace(IDLG, steps=steps), seed=SEED + number).images
            )
        except DataError:
            rebuilt.append(torch.full((1, *knows.shape), 0.5))
            failed += 1
    return torch.cat(rebuilt), failed
