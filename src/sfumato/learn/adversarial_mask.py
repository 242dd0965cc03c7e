"""Learned masks: which pixels a task needs, so that the others never leave the device.

Source: the mask paper (docs/papers.md, "Mask"), Sec. II. A masker scores every pixel; the highest scores
are revealed to one classifier, which must name the class, and the rest is shown to the same classifier,
which must not. Only labels of the task are used: nobody says who is in a picture.

Where the paper is silent: one Adam for both kinds of steps, so that the masker weighs the two losses by the
size of their gradients; in the adversarial step the classifier normalises by its running statistics; and the
best epoch is chosen by images under the mask that a device would apply.

Other than the paper: masks are trained as a device applies them, by a straight-through gradient. As published
(`selection="soft"`) a hidden pixel that tells the class is darkened, not revealed; docs/results.md has both.
Beyond the paper: `anneal_from`.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch, to_float
from sfumato.learn import epochs
from sfumato.learn.batch_norm import of_whole_batches
from sfumato.learn.cards import Names, Precision, kind_of
from sfumato.learn.devices import ALONE, Devices
from sfumato.learn.fit import Progress, Run, adam, fit
from sfumato.networks import Predictor, UNet
from sfumato.networks.weights import initial_weights
from sfumato.precision import autocast, resolve
from sfumato.protect.mask import (
    KIND,
    MaskCard,
    pixel_scores,
    pixels_shown,
    reveal,
    top_pixels,
    untrained_masker,
)

SELECTIONS = ("straight-through", "soft")

_CHECKPOINT = "mask checkpoint"
_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """How a mask is trained. The paper gives `keep`, `predictor_batches` and the kind of networks.

    Attributes:
        keep: the share of the pixels to reveal, above 0 and below 1.
        adversarial: False trains without adversarial steps, the paper's baseline.
        predictor_batches: main steps before each adversarial one.
        batch: images a step, at most: an epoch is cut into equal parts. There is no accumulation over parts
            of a batch: batch norm would see each by itself, and train another model. Devices can share it.
        epochs: how often every image is seen.
        learning_rate: of Adam.
        masker_width: filters of the U-Net at full resolution; twice as many after each halving.
        levels: how often it halves.
        selection: "straight-through": masks of 0 and 1, as a device applies them, and the gradient as if they
            were the scores. Or "soft", the paper's: revealed pixels are multiplied by their scores, hidden
            ones too, and the scores of revealed pixels alone learn from the main loss.
        anneal_from: the share revealed in the first epoch; it falls to `keep` over the first half of the
            epochs. None: `keep` from the start.
        flips: whether every other training image is mirrored left to right, by chance.
        precision: see `sfumato.precision`.
    """

    keep: float = 0.25
    adversarial: bool = True
    predictor_batches: int = 3
    batch: int = 64
    epochs: int = 20
    learning_rate: float = 1e-3
    masker_width: int = 16
    levels: int = 3
    selection: str = "straight-through"
    anneal_from: float | None = None
    flips: bool = False
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
        if self.batch < 2:
            raise ConfigError(f"batch={self.batch}: at least 2, which batch norm needs")
        for name in ("predictor_batches", "epochs", "masker_width", "levels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.001)")
        if self.selection not in SELECTIONS:
            raise ConfigError(f"selection={self.selection}: choose {' or '.join(SELECTIONS)}")
        resolve(self.precision)


def keep_at(config: MaskConfig, epoch: int) -> float:
    """The share of the pixels that is revealed in an epoch, counted from 0."""
    if config.anneal_from is None:
        return config.keep
    left = max(0.0, 1 - 2 * epoch / config.epochs)
    return config.keep + left * (config.anneal_from - config.keep)


def adversarial_at(config: MaskConfig, step: int) -> bool:
    """Whether a step, counted from 0 over all epochs, is an adversarial one."""
    return config.adversarial and step % (config.predictor_batches + 1) == config.predictor_batches


def split(scores: Tensor, *, count: int, selection: str) -> tuple[Tensor, Tensor]:
    """The masks of what is revealed and of what is hidden: m_top and m - m_top.

    Source: the mask paper, Sec. II-A. The selection itself has no gradient, and there:

    - "soft", as published: m_top is m where it is among the K highest of its image, and 0 elsewhere. A hidden
      pixel learns nothing from the main loss; from the adversarial loss, where it tells the class, it learns
      to have a LOWER score, for that darkens it, though it ought to be revealed.
    - "straight-through": m_top is 1 and 0, and m is 1, with the gradient of m in m_top (Bengio, Leonard &
      Courville 2013, Sec. 3.1). A hidden pixel that tells the class then learns to have a higher score.

    Args:
        scores: (N, 1, H, W), m in [0, 1].
        count: K.
        selection: one of SELECTIONS.

    Returns:
        two masks of (N, 1, H, W); at every pixel, one of them is 0.
    """
    top = top_pixels(scores.detach(), count=count)
    if selection == "soft":
        revealed = scores * top
        return revealed, scores - revealed
    revealed = top + (scores - scores.detach())  # the bracket is exactly 0
    return revealed, 1 - revealed


def uniform_cross_entropy(logits: Tensor) -> Tensor:
    """Mean over images of -Σ_c 1/C · log softmax(logits)_c: at least ln C, where all classes are as likely.

    Source: the mask paper, Sec. II-B, L_Obfuscator, whose sum over N is over the classes.

    Args:
        logits: (N, C).
    """
    return -logits.log_softmax(1).mean()


class MaskModel(nn.Module):
    """A masker, and the classifier that was trained with it. State: their weights.

    Attributes:
        card: what is known of its making: settings, data digest, validation accuracy.
    """

    def __init__(self, masker: UNet, predictor: Predictor, *, card: dict[str, Any]) -> None:
        super().__init__()
        self.masker = masker
        self.predictor = predictor
        self.card = card
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def keep(self) -> float:
        """The share of the pixels that it was trained to show."""
        return float(self.card["config"]["keep"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that the predictor chooses among."""
        return tuple(self.card["classes"])

    def scores(self, images: Tensor) -> Tensor:
        """The soft mask. (N, C, H, W) uint8 -> (N, 1, H, W) float32 in [0, 1]; see protect.mask.

        Raises DataError for images of another size than it was trained on.
        """
        check_batch(images)
        if list(images.shape[1:]) != list(self.card["shape"]):
            found, wanted = ("x".join(map(str, each)) for each in (images.shape[1:], self.card["shape"]))
            raise DataError(f"images of {found}: this mask was trained on {wanted}: resize them")
        self.eval()
        return pixel_scores(self.masker, images.to(_device(self))).to(images.device)

    def masked(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> what a device would show of them: `keep` of the pixels, the others 0."""
        count = pixels_shown(self.keep, (images.shape[2], images.shape[3]))
        return reveal(images, self.scores(images), count=count)[0]

    @torch.no_grad()
    def classify(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 masked images -> (N,) int64, places in `classes`."""
        self.eval()
        parts = []
        device = _device(self)
        for part in released.split(_BATCH):
            with autocast(self.card["precision"], device):
                logits = self.predictor(_ready(part, device))
            parts.append(logits.float().argmax(1))
        return torch.cat(parts).to(released.device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact, which `protect.parse("mask:artefact=PATH")` applies."""
        artefacts.save(path, self.state_dict(), {"kind": KIND, **self.card})


class _Card(MaskCard):
    """Of both networks: the device side asks for less."""

    config: MaskConfig  # type: ignore[assignment]
    classes: Names
    precision: Precision


def load(path: str | os.PathLike[str]) -> MaskModel:
    """Read a model that `MaskModel.save` wrote. Raises ArtefactError: damaged, foreign, of another kind."""
    return epochs.load_model(
        path,
        kind=KIND,
        schema=_Card,
        untrained=lambda card: untrained(card, MaskConfig(**card["config"]), seed=0),
    )


def train(
    data: LabelledImages,
    config: MaskConfig,
    *,
    target: str,
    validation: LabelledImages | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    losses: Callable[[float], None] | None = None,
    devices: Devices | None = None,
) -> MaskModel:
    """Train masker and predictor and return them as of the best epoch.

    Args:
        data: clean images to train on.
        config: see MaskConfig.
        target: the label that the task needs.
        validation: other images of the same classes, by whose accuracy under the mask of `keep` the best
            epoch is chosen; None for the last epoch.
        seed: decides weights and order. The same seed, machine and thread count repeat a run.
        checkpoint: a file written after each epoch. Where it exists, training goes on from it, exactly as
            if it had not stopped; it is removed by the caller when no longer needed.
        progress: called after each step with the numbers done and planned.
        losses: called after each step with its loss.
        devices: where this is one of several processes, see `devices.launch`, that share the images of a
            batch. All are given the same data and settings, and return the same model; the first validates,
            and writes the checkpoint, which all can read. Losses, and batch norm, are those of
            whole batches: they do not depend on how many processes there are, but for rounding.

    Raises:
        DataError: fewer than two classes, images that are too small, or classes that are in `validation`
            alone.
        ConfigError: `keep` is less than a pixel of these images, or a step has fewer images than processes.
        ArtefactError: the checkpoint belongs to another run.
    """
    classes = trainable(data, config, target)
    codes = codes_of(data, target, classes)
    if validation is not None:
        codes_of(validation, target, classes)  # fails now, not after an epoch
    card = {
        "config": asdict(config),
        "shape": list(data.images.shape[1:]),
        "classes": list(classes),
        "target": target,
        "data": {"name": kind_of(data), "digest": data.digest, "images": len(data)},
        "validation": None if validation is None else validation.digest,
        "seed": seed,
        "precision": resolve(config.precision),
        "privacy_spent": None,  # of the TRAINING images: this method protects those of users, not these
    }
    model = untrained(card, config, seed=seed)
    training = Training(model, config, devices=devices or ALONE)
    steps = -(-len(data) // config.batch)  # of an epoch

    def batches(epoch: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of a step over all epochs, its images and their codes."""
        training.start_epoch()
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        rows = torch.randperm(len(data), generator=order).tensor_split(steps)
        for step, batch in enumerate(rows, epoch * steps):
            images = data.images[batch]
            if config.flips:
                mirrored = torch.rand(len(images), generator=order) < 0.5
                images[mirrored] = images[mirrored].flip(3)
            yield step, images, codes[batch]

    def step(batch: tuple[int, Tensor, Tensor]) -> Tensor:
        number, images, wanted = batch
        if adversarial_at(config, number):
            return training.obfuscator_step(images)
        return training.predictor_step(images, wanted)

    fit(
        training.run,
        batches,
        step,
        epochs=config.epochs,
        steps=steps,
        judge=None if validation is None else partial(evaluate, model, validation),
        checkpoint=checkpoint,
        progress=progress,
        losses=losses,
    )
    card |= training.run.outcome
    return model


def evaluate(model: MaskModel, data: LabelledImages) -> float:
    """The share of images that the predictor names, of those pixels alone that a device would show.

    Raises:
        DataError: images of another size, or of classes that were never trained on.
    """
    codes = codes_of(data, model.card["target"], model.classes)
    return (model.classify(model.masked(data.images)) == codes).double().mean().item()


def trainable(data: LabelledImages, config: MaskConfig, target: str) -> tuple[str, ...]:
    """The classes of the training images, where a mask can be trained on them.

    Raises:
        DataError, ConfigError: see train.
    """
    classes = epochs.classes_of(data, target, "mask")
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


def codes_of(data: LabelledImages, target: str, classes: Sequence[str]) -> Tensor:
    """(N,) int64, the place in `classes` of the class of each image. Raises DataError for other classes."""
    return epochs.codes_of(data, target, classes, "mask")


def untrained(card: dict[str, Any], config: MaskConfig, *, seed: int) -> MaskModel:
    """The model of a card's `shape` and `classes`, with initial weights that `seed` decides."""
    channels, height, width = card["shape"]
    with initial_weights(seed):
        masker = untrained_masker(channels, width=config.masker_width, levels=config.levels)
        predictor = Predictor((channels, height, width), len(card["classes"]))
    return MaskModel(masker, predictor, card=card)


class Training:
    """The two kinds of steps. State: that of the run, and how many pixels are shown.

    `train` drives it; a training loop of one's own calls start_epoch, and one kind of step for each batch.

    Attributes:
        model: in training.
        run: its weights and optimiser.
    """

    def __init__(self, model: MaskModel, config: MaskConfig, *, devices: Devices = ALONE) -> None:
        self.model = model
        self.run = Run(
            model, adam(config.learning_rate), kind=_CHECKPOINT, identity=model.card, devices=devices
        )
        self._config = config
        self._count = 0

    def start_epoch(self) -> None:
        """Set K, and the networks to training mode."""
        _, height, width = self.model.card["shape"]
        self._count = pixels_shown(keep_at(self._config, self.run.epoch), (height, width))
        self.model.train()

    def predictor_step(self, images: Tensor, codes: Tensor) -> Tensor:
        """Update Φ and masker to minimise the cross-entropy of Φ(x_p), which is returned.

        Args:
            images: (B, C, H, W) uint8, the whole batch, of which this process takes its share.
            codes: (B,) int64.
        """
        mine = self._share(images)
        with of_whole_batches(self.model, self.run.devices):
            revealed, _ = self._masked(images[mine])
            with self._autocast():
                logits = self.model.predictor(revealed)
        wanted = codes[mine].to(self.run.device)
        return self.run.minimise(
            functional.cross_entropy(logits.float(), wanted) * (len(wanted) / len(codes))
        )

    def obfuscator_step(self, images: Tensor) -> Tensor:
        """Update the masker alone to minimise the cross-entropy of Φ(x_o) with the uniform distribution.

        Neither the parameters of Φ move nor its running statistics, which are of revealed images. Returns
        the loss.

        Args:
            images: (B, C, H, W) uint8, the whole batch, of which this process takes its share.
        """
        mine = self._share(images)
        with of_whole_batches(self.model.masker, self.run.devices):
            _, hidden = self._masked(images[mine])
        # By the statistics of revealed images, as in use. By those of the batch, which undo what darkens all
        # hidden pixels alike, the mask covered much less of what tells the class.
        self.model.predictor.eval()
        with self._autocast():
            logits = self.model.predictor(hidden)
        self.model.predictor.train()
        loss = uniform_cross_entropy(logits.float()) * (len(hidden) / len(images))
        # Adam passes over parameters without gradients, those of Φ.
        loss.backward(inputs=list(self.model.masker.parameters()))
        return self.run.update(loss)

    def _share(self, images: Tensor) -> slice:
        return self.run.devices.share(len(images), what="images", setting="batch")

    def _masked(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) uint8 -> x_p and x_o, float32."""
        ready = _ready(images, self.run.device)
        with self._autocast():
            unbounded = self.model.masker(ready)
        scores = unbounded.float().sigmoid()
        revealed, hidden = split(scores, count=self._count, selection=self._config.selection)
        return revealed * ready, hidden * ready

    def _autocast(self) -> torch.autocast:
        return autocast(self.model.card["precision"], self.run.device)


def _device(model: MaskModel) -> torch.device:
    return next(model.parameters()).device


def _ready(images: Tensor, device: torch.device) -> Tensor:
    return to_float(images.to(device)).contiguous(memory_format=torch.channels_last)
