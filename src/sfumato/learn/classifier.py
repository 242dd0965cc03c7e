"""An ordinary classifier of released images: it measures how well a task of many images still works.

Source: the mask paper (docs/papers.md, "Mask"), Sec. III, whose accuracies are of a classifier that is
INDEPENDENT of the mask's own. All its classes are known in training, and it is tested on other images of
them; for new classes, see `few_shot`.

Such classifiers are the victims of gradient attacks, too: the SemSim paper (docs/papers.md, "SemSim"), App. C
and Table 3, has residual, dense and plain networks, trained by SGD, with and without augmentation.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pydantic
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.base.hardware import autocast, device_of, to_device
from sfumato.base.proportions import wilson
from sfumato.data.labelled import LabelledImages
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.episodes import seed_of
from sfumato.errors import DataError
from sfumato.images import to_float
from sfumato.learn import fit, method
from sfumato.learn.augmentation import POLICIES, apply, augment
from sfumato.learn.of_vectors import logistic_regression
from sfumato.learn.start import START_FIELD, begin
from sfumato.networks.classifiers import CLASSIFIERS, check_network, make_classifier
from sfumato.networks.encoders.pretrained import PretrainedClassifier, check_card, on_card
from sfumato.networks.weights import initial_weights
from sfumato.protect import Protection, parse
from sfumato.protect.release import artefact_of

_COPIES = 4  # releases of an image for a linear layer, if each is different
OPTIMISERS = ("adam", "sgd")


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """The settings of training a classifier; for those that are not here see learn.method.

    Images are varied AFTER they are protected, by flips and shifts, and a policy, in this order: the receiver
    of releases has nothing else.

    Attributes:
        network: "predictor", that of the mask paper; "conv4"; a victim of gradient attacks: "lenet",
            "convnet8", "resnet20", "resnet50", "resnet152"; or an encoder that was trained
            before, see networks.pretrained, with a linear layer on it.
        optimiser: "adam", or "sgd": Nesterov momentum of 0.9, weight decay of 5e-4, and a rate that falls to
            0 along a cosine over all epochs; the SemSim paper has 0.1 for it.
    """

    network: str = "predictor"
    start: str = field(default="drawn", metadata=START_FIELD)
    epochs: int = 30
    patience: int = 10
    batch: int = 64
    learning_rate: float = 1e-3
    optimiser: str = "adam"
    flips: bool = False
    shifts: int = 0
    policy: str = "none"  # see `augmentation.apply`
    precision: str = "auto"

    def __post_init__(self) -> None:
        check_network(self.network, CLASSIFIERS, what="network")
        method.check_least(self, batch=2, epochs=1, patience=1, shifts=0)
        method.check_known("optimiser", self.optimiser, OPTIMISERS)
        method.check_known("policy", self.policy, POLICIES)


@dataclass(frozen=True)
class Accuracy:
    """The share of test images that are classified correctly, with Wilson's 95% interval over them."""

    mean: float
    low: float
    high: float
    images: int  # tested ones
    chance: float  # the share of the commonest class of the test images
    spec: str  # the protection of the test images
    # Share, low and high of every second test image, and of the others; none for a single image.
    halves: tuple[tuple[float, float, float], ...] = ()
    right: Tensor | None = field(default=None, compare=False, repr=False)  # (2, N) right and asked, by image

    @classmethod
    def of(cls, guesses: Tensor, codes: Tensor, spec: str) -> "Accuracy":
        """The accuracy of (N,) guesses of the (N,) codes."""
        right = guesses == codes
        parts = [right] if len(right) < 2 else [right, right[0::2], right[1::2]]
        hits = [(int(part.sum()), len(part)) for part in parts]
        every, *halves = ((number / of, *wilson(number, of)) for number, of in hits)
        both, common = torch.stack([right, torch.ones_like(right)]), int(codes.bincount().max())
        return cls(*every, len(right), common / len(codes), spec, tuple(halves), both)

    def __str__(self) -> str:
        low, high = 100 * self.low, 100 * self.high
        return f"{100 * self.mean:.1f}% ({low:.1f} to {high:.1f}; {self.images:,} images, {self.spec})"


class ClassifierModel(method.Model):
    """A network from released images to classes."""

    kind = "classifier"
    network: nn.Module

    def forward(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, classes) float32 logits."""
        return self.logits(to_float(released))

    def logits(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float in [0, 1] -> (N, classes) float32."""
        with autocast(self.card["precision"], images.device):
            logits = self.network(images.contiguous(memory_format=torch.channels_last))
        return torch.as_tensor(logits).float()

    def classify(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N,) int64, indices of `classes`."""
        return self.infer(lambda part: self(part).argmax(1), released)


class _Card(artefacts.Card):
    config: ClassifierConfig
    shape: artefacts.ImageShape
    classes: method.Names
    precision: method.Precision
    spec: method.Spec = "none"
    made_of: artefacts.Sha256 | None = None
    shapes: bool = False

    @pydantic.model_validator(mode="after")
    def _holds_its_encoder(self) -> "_Card":
        check_card(self.config.network)
        return self


def load(path: str | os.PathLike[str]) -> ClassifierModel:
    """Reads a saved model. Raises ArtefactError for any other file."""

    def make(card: dict[str, Any]) -> ClassifierModel:
        if "spec" in card:
            card["spec"] = method.protection_of(card["spec"], card.get("made_of"), path).spec
        return make_untrained(card, ClassifierConfig(**card["config"]), seed=0)

    return method.load_model(path, kind=ClassifierModel.kind, schema=_Card, untrained=make)


def train(
    data: LabelledImages,
    protection: Protection,
    config: ClassifierConfig,
    *,
    target: str,
    shapes: bool = False,
    validation: LabelledImages | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: fit.Progress | None = None,
    device: torch.device | None = None,
) -> ClassifierModel:
    """Trains on released images and returns the model as of the best epoch. See also learn.method.

    Images, also those of validation, are released once; if the protection draws noise, anew in every epoch,
    by seeded noise: these copies stay with the trainer. With `shapes` it sees only which pixels a release
    shows, see `Release.shapes`.

    Raises DataError for what `trainable` refuses, and for shapes of a protection that shows all pixels.
    """
    classes = trainable(data, target, config.network)
    codes = method.codes_of(data, target, classes, "classifier")
    own = {"classes": list(classes), "target": target, "validation": validation, "spec": protection.spec}
    card = method.training_card(data, config, seed=seed, device=device, **own)
    card |= {"made_of": artefact_of(protection), "shapes": shapes}
    card["config"]["network"] = on_card(config.network)
    model = make_untrained(card, config, seed=seed)
    card["start"] = begin(model.network, config.start)
    model.to(device)
    judge, shown = None, None
    if validation is not None:  # the last number separates this noise from that of every epoch
        noise = seeded_noise(seed, config.epochs)
        shown = _release_for_test(model, validation, protection, noise, target)
        judge = partial(_share, model, *shown)
    if isinstance(model.network, PretrainedClassifier):
        copies = range(_COPIES if protection.draws_noise else 1)
        releases = (_release(model, protection, data, seeded_noise(seed, copy)) for copy in copies)
        card |= _fit_head(model.network, releases, codes, shown, flips=config.flips, seed=seed)
        if not model.network.encoder.rate:
            return model.eval()
    descent = fit.adam(config.learning_rate)
    if config.optimiser == "sgd":
        nesterov: dict[str, Any] = {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
        descent = partial(torch.optim.SGD, lr=config.learning_rate, **nesterov)
    run = fit.Run(model, descent, kind="classifier checkpoint", identity=card, device=device)
    steps = -(-len(data) // config.batch)  # of an epoch
    released: Tensor | None = None

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Variants of images as float, and their codes."""
        nonlocal released
        if released is None or protection.draws_noise:
            released = _release(model, protection, data, seeded_noise(seed, epoch))
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        for step, rows in enumerate(torch.randperm(len(data), generator=order).tensor_split(steps)):
            if config.optimiser == "sgd":
                done = (epoch * steps + step) / (config.epochs * steps)
                run.set_rate(config.learning_rate * ((1 + math.cos(math.pi * done)) / 2))
            images = augment(released[rows], order, flips=config.flips, shifts=config.shifts)
            yield to_float(apply(images, config.policy, order)), codes[rows]

    def step(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, wanted = (to_device(part, run.device) for part in batch)
        return run.minimise(functional.cross_entropy(model.logits(images), wanted))

    more: dict[str, Any] = {"patience": config.patience, "checkpoint": checkpoint, "progress": progress}
    fit.fit(run, batches, step, epochs=config.epochs, steps=steps, judge=judge, **more)
    card |= run.outcome
    return model


@torch.no_grad()
def _fit_head(
    network: PretrainedClassifier,
    releases: Iterable[Tensor],
    codes: Tensor,
    judge: tuple[Tensor, Tensor] | None,
    *,
    flips: bool,
    seed: int,
) -> dict[str, Any]:
    """Fits the linear layer on an encoder that was trained before, to all releases. -> entries of a card."""
    encoder, head = network.eval().encoder, network.head
    device = device_of(encoder)

    def raw(released: Tensor) -> Tensor:
        return method.in_batches(lambda part: encoder.raw(to_float(to_device(part, device))), released)

    outputs = [raw(each) for released in releases for each in (released, released.flip(3))[: 1 + flips]]
    encoder.standardise(torch.cat(outputs))
    features = [encoder.scale(each).cpu() for each in outputs]
    held = None if judge is None else (encoder.scale(raw(judge[0])).cpu(), judge[1])
    weights, biases, accuracy = logistic_regression(features, codes, head.out_features, held, seed=seed)
    head.weight.copy_(weights)
    head.bias.copy_(biases)
    return {"epochs": 0, "validation_accuracy": accuracy}


def evaluate(
    model: ClassifierModel,
    data: LabelledImages,
    *,
    target: str,
    protection: Protection | None = None,
    seed: int = 0,
) -> Accuracy:
    """The share of clean images classified correctly, released by a protection or that of the training."""
    protection = protection or parse(model.card["spec"])
    noise = seeded_noise(seed, model.card["config"]["epochs"] + 1)  # neither of training nor of validation
    released, codes = _release_for_test(model, data, protection, noise, target)
    return Accuracy.of(model.classify(released), codes, protection.spec)


def trainable(
    data: LabelledImages, target: str, network: str, *others: LabelledImages | None
) -> tuple[str, ...]:
    """The classes of the training images, if a network can be trained on them and tested on others."""
    try:
        # On the device "meta" this would be free, but for seconds in which PyTorch imports its compiler.
        shape = {"shape": data.images.shape[1:], "classes": range(2)}
        make_untrained(shape, ClassifierConfig(network=network), seed=0)
    except DataError as error:
        raise DataError(f"{data.name}: {error}") from error
    return method.classes_of(data, target, "classifier", *others)


def make_untrained(card: dict[str, Any], config: ClassifierConfig, *, seed: int) -> ClassifierModel:
    """Makes the model of a card's `shape` and `classes`, with initial weights from `seed`."""
    channels, height, width = card["shape"]
    with initial_weights(seed):
        network = make_classifier(config.network, (channels, height, width), len(card["classes"]))
    return ClassifierModel(card, network=network)


def _release_for_test(
    model: ClassifierModel, data: LabelledImages, protection: Protection, noise: Noise, target: str
) -> tuple[Tensor, Tensor]:
    """Released images for a test, and their codes."""
    method.check_shape(data.images, model.card["shape"], "classifier", f"{data.name}: ")
    codes = method.codes_of(data, target, model.classes, "classifier")
    return _release(model, protection, data, noise), codes


def _release(model: ClassifierModel, protection: Protection, data: LabelledImages, noise: Noise) -> Tensor:
    release = protection.release(data.images, noise)
    return release.shapes() if model.card["shapes"] else release.images()


def _share(model: ClassifierModel, released: Tensor, codes: Tensor) -> float:
    return (model.classify(released) == codes).double().mean().item()
