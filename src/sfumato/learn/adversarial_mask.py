"""Learned masks: the pixels that a task needs, so that the others never leave the device.

Source: the mask paper (docs/papers.md, "Mask"), Sec. II. A masker scores every pixel; the highest scores
are shown to one classifier, which must name the class, and the rest is shown to the same classifier,
which must not. Only labels of the task are used, and labels of people only if `against` is set.

Where the paper is silent, we decided: one Adam for both kinds of steps, so the masker weighs the two losses
by the size of their gradients; in the adversarial step the classifier normalises by its running statistics;
and the best epoch is chosen by images under the mask that a device would apply.

Unlike the paper, masks are trained as a device applies them, by a straight-through gradient: see `split`, and
docs/results.md for both. Beyond the paper: `anneal_from`, `against` and `values="shape"`, see MaskConfig.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import autocast, device_of, to_device
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler, Shape, largest, seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch
from sfumato.learn import method
from sfumato.learn.augmentation import augment
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.learn.private_feature import reverse_gradient
from sfumato.learn.start import begin
from sfumato.networks import Conv4, Predictor, UNet
from sfumato.networks.weights import initial_weights
from sfumato.protect.mask import KIND, MaskCard, make_masker, pixel_scores, pixels_shown, reveal, top_pixels

SELECTIONS = ("straight-through", "soft")
RELEASES = ("hard", "soft", "shape")
_RESTORER_WIDTH, _RESTORER_LEVELS = 8, 3
_SHARPNESS = 10.0  # the initial scale of similarities


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """The settings of training a mask; for those that are not here see learn.method.

    The paper gives `keep`, `predictor_batches` and the networks.

    Attributes:
        anneal_from: the share revealed in the first epoch; it falls to `keep` over the first half of the
            epochs. None: `keep` from the start.
        against: the weight of the reversed gradient of an Adversary, who distinguishes people by the shown
            pixels; 0 for no adversary.
        values: the values that a device will send, which choose the best epoch: "hard", the shown pixels;
            "soft", their products with their scores, as published; or "shape", only which pixels they are, on
            which the networks are then trained, without the paper's adversarial steps.
    """

    keep: float = 0.25  # the share of the pixels to reveal, above 0 and below 1
    adversarial: bool = True  # False trains without adversarial steps, the paper's baseline
    predictor_batches: int = 3  # main steps before each adversarial one
    batch: int = 64
    epochs: int = 20
    learning_rate: float = 1e-3
    masker_width: int = 16  # filters of the U-Net at full resolution; twice as many after each halving
    levels: int = 3  # how often it halves
    selection: str = "straight-through"  # masks of 0 and 1; or "soft", the paper's: see `split`
    anneal_from: float | None = None
    flips: bool = False
    against: float = 0.0
    values: str = "hard"
    precision: str = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.keep < 1:
            raise ConfigError(
                f"keep={self.keep:g}: a share of the pixels, above 0 and below 1 (the paper shows 0.25)"
            )
        if self.anneal_from is not None and not self.keep <= self.anneal_from <= 1:
            raise ConfigError(
                f"anneal_from={self.anneal_from:g}: from keep={self.keep:g} to 1, or null to begin with keep"
            )
        method.check_least(self, batch=2, predictor_batches=1, epochs=1, masker_width=1, levels=1, against=0)
        for name, known in (("selection", SELECTIONS), ("values", RELEASES)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}={getattr(self, name)}: choose {' or '.join(known)}")
        if self.values == "shape" and (self.adversarial or self.selection == "soft"):
            raise ConfigError(
                "values=shape: the hidden part of a shape says the same as the shown one, and it has no soft "
                "values: set adversarial=false and selection=straight-through"
            )
        if self.values == "soft" and self.selection != "soft":
            raise ConfigError(
                "values=soft: the networks were never shown soft values: set selection=soft as well"
            )


def keep_at(config: MaskConfig, epoch: int) -> float:
    """The share of shown pixels in an epoch, counted from 0."""
    if config.anneal_from is None:
        return config.keep
    left = max(0.0, 1 - 2 * epoch / config.epochs)
    return config.keep + left * (config.anneal_from - config.keep)


def adversarial_at(config: MaskConfig, step: int) -> bool:
    """Whether a step, counted from 0 over all epochs, is an adversarial one."""
    return config.adversarial and step % (config.predictor_batches + 1) == config.predictor_batches


class MaskModel(method.Model):
    """A masker, and the classifier that was trained with it, for `protect.parse("mask:artefact=PATH")`."""

    kind = KIND
    masker: UNet
    predictor: Predictor

    def scores(self, images: Tensor) -> Tensor:
        """The soft mask. (N, C, H, W) uint8 of the training's size -> (N, 1, H, W) float32 in [0, 1]."""
        check_batch(images)
        method.check_shape(images, self.card["shape"], "mask")
        self.eval()
        return pixel_scores(self.masker, images.to(device_of(self))).to(images.device)

    def mask_images(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> the images that a device would send; 255 for each shown pixel of a shape."""
        sends, (height, width) = self.card["config"]["values"], images.shape[2:]
        count = pixels_shown(self.card["config"]["keep"], (height, width))
        values, shown = reveal(images, self.scores(images), count=count, soft=sends == "soft")
        return shown.expand_as(images).byte() * 255 if sends == "shape" else values

    def classify(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 masked images -> (N,) int64, indices of `classes`."""

        def guess(part: Tensor) -> Tensor:
            with autocast(self.card["precision"], part.device):
                return torch.as_tensor(self.predictor(method.as_input(part, part.device)))

        return self.infer(guess, released).argmax(1)


class _Card(MaskCard):
    """The card of both networks: the device side needs less."""

    config: MaskConfig  # type: ignore[assignment]
    classes: method.Names
    precision: method.Precision


def load(path: str | os.PathLike[str]) -> MaskModel:
    """Reads a saved model. Raises ArtefactError for any other file."""

    def make(card: dict[str, Any]) -> MaskModel:
        return make_untrained(card, MaskConfig(**card["config"]), seed=0)

    return method.load_model(path, kind=KIND, schema=_Card, untrained=make)


def evaluate(model: MaskModel, data: LabelledImages) -> float:
    """The share of images that the predictor names by the pixels that a device would show."""
    codes = method.codes_of(data, model.card["target"], model.classes, "mask")
    return (model.classify(model.mask_images(data.images)) == codes).double().mean().item()


def make_untrained(card: dict[str, Any], config: MaskConfig, *, seed: int) -> MaskModel:
    """Makes the model of a card's `shape` and `classes`, with initial weights from `seed`."""
    channels, height, width = card["shape"]
    with initial_weights(seed):
        masker = make_masker(channels, width=config.masker_width, levels=config.levels)
        predictor = Predictor((channels, height, width), len(card["classes"]))
    return MaskModel(card, masker=masker, predictor=predictor)


class Adversary(nn.Module):
    """The adversary against whom a mask is trained: they name the person by the shown pixels.

    Not in the mask paper, whose adversarial step hides the TASK in the HIDDEN pixels. They restore the image
    from a release, and embed it so that releases of one person are near each other; the gradient of all that
    they minimise reaches the masker reversed (Ganin & Lempitsky 2015). In episodes of N people one release of
    each is known, and the others are to be named: so they learn the differences between people, also unseen.
    """

    def __init__(self, channels: int, *, seed: int) -> None:
        super().__init__()
        with initial_weights(seed):
            self.restorer = UNet(channels, width=_RESTORER_WIDTH, levels=_RESTORER_LEVELS)
            self.encoder = Conv4(channels)
        begin(self.encoder, "drawn")  # there is little time to learn
        self.sharpness = nn.Parameter(torch.tensor(math.log(_SHARPNESS)))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, released: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) float releases -> (B, C, H, W) restored images, and (B, D) embeddings of length 1."""
        restored = self.restorer(released.contiguous(memory_format=torch.channels_last))
        return restored.float(), functional.normalize(self.encoder(restored).float(), dim=1)

    def naming_loss(self, embedded: Tensor, way: int) -> Tensor:
        """The cross-entropy of naming all of (N * (1 + Q), D) by cosines to the first of each person."""
        known, asked = embedded.unflatten(0, (way, -1)).split([1, len(embedded) // way - 1], dim=1)
        cosines = asked.flatten(0, 1) @ known[:, 0].T  # (N * Q, N)
        people = torch.arange(way, device=cosines.device).repeat_interleave(asked.shape[1])
        return functional.cross_entropy(self.sharpness.exp() * cosines, people)


def episodes_of_people(people: LabelledImages, sensitive: str, *, batch: int) -> Sampler:
    """Samples the adversary's episodes of at most `batch` images: half as many people, or fewer with more."""
    label = people.label(sensitive)
    there = int((label.codes.unique(return_counts=True)[1] >= 2).sum())
    if there < 2:
        raise DataError(
            f"{people.name}: {method.count_in_words(there)} of label {sensitive!r} with two images, and an "
            "adversary learns to distinguish people: choose another label, or add images"
        )
    way = max(2, min(there, batch // 2))
    way, shot, queries = largest(label.codes, way=way, shot=1, queries=max(1, batch // way - 1))
    return Sampler(label, Shape(way=way, shot=shot, queries=queries))


def train(
    data: LabelledImages,
    config: MaskConfig,
    *,
    target: str,
    sensitive: str | None = None,
    people: LabelledImages | None = None,
    validation: LabelledImages | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> MaskModel:
    """Trains masker and predictor and returns them as of the best epoch. See also learn.method.

    The accuracy under the mask of `keep` chooses it, with an adversary among the epochs of the second half.
    `sensitive` is the label of the person, if `config.against` is above 0, and `people` are images with it
    for the adversary, which need not have the target; None for `data`.

    Raises DataError and ConfigError for what `trainable` refuses, and for people whom no adversary needs.
    """
    classes = trainable(data, config, target, validation)  # fails now, not after an epoch
    codes = method.codes_of(data, target, classes, "mask")
    people = data if people is None else people
    if (config.against > 0) != (sensitive is not None):
        raise ConfigError(
            f"against={config.against:g} and sensitive={sensitive}: give both, a weight and the label that "
            "names the person, or neither"
        )
    sampler = None  # of the adversary's episodes
    if sensitive is not None:
        if sensitive == target:
            raise DataError(f"{target!r} is target and sensitive: a mask cannot both show and hide it")
        method.check_shape(people.images, data.images.shape[1:], "mask", f"{people.name}: ")
        sampler = episodes_of_people(people, sensitive, batch=config.batch)
    own = {"classes": list(classes), "target": target, "sensitive": sensitive, "validation": validation}
    card = method.training_card(data, config, seed=seed, device=device, **own)
    card["people"] = None if sampler is None else people.digest
    model = make_untrained(card, config, seed=seed)
    training = Training(model, config, device=device)
    steps = -(-len(data) // config.batch)  # of an epoch
    of_people = torch.Generator()

    def batches(epoch: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of a step over all epochs, its images and their codes."""
        training.start_epoch()
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        of_people.manual_seed(seed_of(seed, epoch, 1))  # the order is the same without an adversary
        rows = torch.randperm(len(data), generator=order).tensor_split(steps)
        for number, batch in enumerate(rows, epoch * steps):
            yield number, augment(data.images[batch], order, flips=config.flips), codes[batch]

    def step(batch: tuple[int, Tensor, Tensor]) -> Tensor:
        number, images, wanted = batch
        if adversarial_at(config, number):
            return training.obfuscator_step(images)
        if sampler is None:
            return training.predictor_step(images, wanted)
        rows = sampler.draw(1, of_people)[0]  # (N, 1 + Q)
        shown = augment(people.images[rows.flatten()], of_people, flips=config.flips)
        return training.predictor_step(images, wanted, shown, way=len(rows))

    def judge() -> float:
        # An early epoch is as accurate, but before the adversary had time: it would be the least private.
        early = sampler is not None and training.run.epoch < config.epochs // 2
        return 0.0 if early or validation is None else evaluate(model, validation)

    more: dict[str, Any] = {"checkpoint": checkpoint, "progress": progress}
    more |= {"judge": None if validation is None else judge}
    fit(training.run, batches, step, epochs=config.epochs, steps=steps, **more)
    card |= training.run.outcome
    return model


def trainable(
    data: LabelledImages, config: MaskConfig, target: str, *others: LabelledImages | None
) -> tuple[str, ...]:
    """The classes of the training images, if a mask can be trained on them. Raises DataError, ConfigError."""
    classes = method.classes_of(data, target, "mask", *others)
    height, width = data.images.shape[2:]
    least = max(2**config.levels, 16)
    if min(height, width) < least:
        raise DataError(
            f"{data.name}: images of {height}x{width}: halved {max(config.levels, 4)} times by the networks, "
            f"which need at least {least}x{least}: load them at a larger size"
        )
    if not pixels_shown(config.keep, (height, width)):
        raise ConfigError(
            f"keep={config.keep:g} of {height}x{width} pixels is less than one: "
            f"choose at least {1 / (height * width):.2g}"
        )
    return classes


def split(scores: Tensor, *, count: int, selection: str) -> tuple[Tensor, Tensor]:
    """(N, 1, H, W) scores m -> the masks of the shown and of the hidden pixels: m_top and m - m_top.

    Source: the mask paper, Sec. II-A. The selection itself has no gradient, and there:

    - "soft", as published: m_top is m for the K highest of its image, and 0 elsewhere. A hidden
      pixel learns nothing from the main loss; if it reveals the class, it learns from the adversarial loss
      to have a LOWER score, which darkens it, though it ought to be shown.
    - "straight-through": m_top is 1 and 0, and m is 1, with the gradient of m in m_top (Bengio, Leonard &
      Courville 2013, Sec. 3.1). A hidden pixel that reveals the class then learns to have a higher score.
    """
    top = top_pixels(scores.detach(), count=count)
    if selection == "soft":
        revealed = scores * top
        return revealed, scores - revealed
    revealed = top + (scores - scores.detach())  # the bracket is exactly 0
    return revealed, 1 - revealed


def uniform_cross_entropy(logits: Tensor) -> Tensor:
    """Mean over images of -Σ_c 1/C · log softmax(logits)_c: at least ln C, reached if all classes are equal.

    Source: the mask paper, Sec. II-B, L_Obfuscator of (N, C) logits, whose sum over N is over the classes.
    """
    return -logits.log_softmax(1).mean()


class Training:
    """The two kinds of steps. State: that of the run, and the number of shown pixels."""

    def __init__(self, model: MaskModel, config: MaskConfig, *, device: torch.device | None = None) -> None:
        card = model.card
        self._adversary = Adversary(card["shape"][0], seed=card["seed"]) if config.against else None
        beside = nn.ModuleDict({} if self._adversary is None else {"adversary": self._adversary})
        about: dict[str, Any] = {"kind": "mask checkpoint", "identity": card, "device": device}
        self.run = Run(model, adam(config.learning_rate), beside=beside, **about)
        self.model, self._config, self._count = model, config, 0
        self._autocast = partial(autocast, card["precision"], self.run.device)

    def start_epoch(self) -> None:
        """Sets K, and the networks to training mode."""
        _, height, width = self.model.card["shape"]
        self._count = pixels_shown(keep_at(self._config, self.run.epoch), (height, width))
        self.model.train()

    def predictor_step(
        self, images: Tensor, codes: Tensor, people: Tensor | None = None, *, way: int = 0
    ) -> Tensor:
        """Updates Φ and masker to minimise the cross-entropy of Φ(x_p), and returns the loss.

        An adversary minimises that of people, (N * (1 + Q), C, H, W) uint8; the masker does the opposite.
        """
        revealed, _ = self._mask(images)
        with self._autocast():
            logits = self.model.predictor(revealed)
        loss = functional.cross_entropy(logits.float(), to_device(codes, self.run.device))
        if people is None or self._adversary is None:
            return self.run.minimise(loss)
        revealed, _ = self._mask(people)
        with self._autocast():
            restored, embedded = self._adversary(reverse_gradient(revealed, self._config.against))
        restoring = functional.mse_loss(restored, method.as_input(people, self.run.device))
        return self.run.minimise(loss + (restoring + self._adversary.naming_loss(embedded, way)))

    def obfuscator_step(self, images: Tensor) -> Tensor:
        """Minimises the cross-entropy of Φ(x_o) with a uniform distribution; Φ and its statistics stay."""
        _, hidden = self._mask(images)
        # By the statistics of shown images, as in use. With those of the batch, which undo an equal darkening
        # of all hidden pixels, the mask covered much less of the class.
        self.model.predictor.eval()
        with self._autocast():
            logits = self.model.predictor(hidden)
        self.model.predictor.train()
        loss = uniform_cross_entropy(logits.float())
        # Adam skips parameters without gradients, those of Φ.
        loss.backward(inputs=list(self.model.masker.parameters()))
        return self.run.update(loss)

    def _mask(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) uint8 -> x_p and x_o, float32; for a shape, the masks themselves."""
        ready = method.as_input(images, self.run.device)
        with self._autocast():
            unbounded = self.model.masker(ready)
        scores = unbounded.float().sigmoid()
        revealed, hidden = split(scores, count=self._count, selection=self._config.selection)
        if self._config.values == "shape":
            return revealed.expand_as(ready), hidden.expand_as(ready)
        return revealed * ready, hidden * ready
