"""FS-PIC: few-shot classification of protected images, by prototypes behind an optional denoiser.

Source: Parnami et al. 2022, Sec. IV, Algorithm 1. The three models compared there are
`train(..., Clear())` tested on protected images, `train` with `denoiser_depth=None`, and `train` with a
denoiser. Where the paper writes the Euclidean distance, its square is used, as by Snell et al. 2017.

Beyond the paper: releases that hold one value for each cell of pixels are denoised and embedded as these
values (`cell`), an encoder may be trained to classify before it is trained on episodes
(`pretraining_epochs`), and one model may serve a range of protections (`train` with several of them), which
it is told of and weighs support images by.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages, split_by_class
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.errors import ArtefactError, ConfigError, did_you_mean
from sfumato.images import to_float, to_uint8
from sfumato.learn.augmentation import augmented
from sfumato.learn.batch_norm import in_order
from sfumato.learn.cards import Checkpoint, Precision, Share, Spec, kind_of, protection_of, published
from sfumato.learn.conditions import Conditions
from sfumato.learn.devices import ALONE, Devices
from sfumato.learn.epochs import (
    check_run,
    describing,
    optimiser_state,
    resuming,
    set_optimiser_state,
    under,
)
from sfumato.learn.prototypes import episode_accuracies, prototype_logits, refusal, support_weights
from sfumato.networks import Conv4, DnCNN, ResNet12
from sfumato.networks.weights import initial_weights, no_larger_than, take_weights
from sfumato.precision import autocast, resolve
from sfumato.protect import Protection, enlarge
from sfumato.protect.release import made_of

ENCODERS = {"conv4": Conv4, "resnet12": ResNet12}

_KIND = "few-shot"
_CHECKPOINT = "few-shot checkpoint"
_EMBED_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class FewShotConfig:
    """How a few-shot model is trained; the defaults are the paper's for CelebA, with Conv-4.

    Attributes:
        way, shot, queries: N, K and Q of a training episode.
        epochs: at most so many; `episodes_per_epoch` episodes each.
        episodes_per_step: a step of Adam follows the mean gradient of so many, each of which batch norm sees
            by itself; one in the paper. It is they that several devices share. They divide
            `episodes_per_epoch`.
        patience: epochs of episodes without a better validation accuracy before training stops.
        validation_way, validation_shot, validation_queries, validation_episodes: how that is measured.
        learning_rate: of Adam; halved every `halve_every` epochs.
        encoder: "conv4" or "resnet12"; ignored where `train` is given a module.
        denoiser_depth: layers of the DnCNN in front, 8 in the paper; None for no denoiser.
        denoiser_width: its filters, 64 in the paper.
        cell: the networks see an image as the means of square cells of so many pixels; 1 for every pixel,
            as in the paper. None: as the protection releases it, which holds no more than these values, at a
            fraction of the operations (docs/results.md). Of pixelized images, whose cells have no noise, a
            denoiser then has nothing to take away.
        pretraining_epochs: the first epochs, in which the encoder learns to classify all training classes by
            a linear layer, which is then left out: for large encoders. Batches are as large as an episode,
            and as many a step.
        flips: whether every other training image is mirrored left to right, by chance, before it is
            protected: for photographs, not for characters.
        shifts: how many pixels every training image is moved by at most, up or down and left or right, before
            it is protected; its edges are repeated.
        precision: see `sfumato.precision`.
    """

    way: int = 5
    shot: int = 5
    queries: int = 5
    epochs: int = 200
    episodes_per_epoch: int = 100
    episodes_per_step: int = 1
    patience: int = 20
    validation_way: int = 5
    validation_shot: int = 5
    validation_queries: int = 5
    validation_episodes: int = 200
    learning_rate: float = 1e-3
    halve_every: int = 20
    encoder: str = "conv4"
    denoiser_depth: int | None = 8
    denoiser_width: int = 64
    cell: int | None = None
    pretraining_epochs: int = 0
    flips: bool = False
    shifts: int = 0
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise ConfigError(
                f"no encoder is called {self.encoder!r}: {did_you_mean(self.encoder, ENCODERS)}"
            )
        resolve(self.precision)
        if self.denoiser_depth is not None and self.denoiser_depth < 2:
            raise ConfigError(
                f"denoiser_depth={self.denoiser_depth}: at least 2 layers, or None for no denoiser"
            )
        for name in ("epochs", "episodes_per_epoch", "patience", "halve_every", "validation_episodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.episodes_per_step < 1 or self.episodes_per_epoch % self.episodes_per_step:
            raise ConfigError(
                f"episodes_per_step={self.episodes_per_step}: at least 1, and a divisor of "
                f"episodes_per_epoch={self.episodes_per_epoch}"
            )
        if self.cell is not None and self.cell < 1:
            raise ConfigError(f"cell={self.cell}: at least 1, for every pixel, or null for the protection's")
        if self.shifts < 0:
            raise ConfigError(f"shifts={self.shifts}: at least 0 pixels")
        if not 0 <= self.pretraining_epochs <= self.epochs:
            raise ConfigError(f"pretraining_epochs={self.pretraining_epochs}: from 0 to epochs={self.epochs}")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (the paper uses 0.001)")
        for shape in ("episode", "validation_episode"):
            getattr(self, shape)  # checks way, shot and queries

    @property
    def episode(self) -> Shape:
        """The shape of a training episode."""
        return Shape(way=self.way, shot=self.shot, queries=self.queries)

    @property
    def validation_episode(self) -> Shape:
        """The shape of a validation episode."""
        return Shape(way=self.validation_way, shot=self.validation_shot, queries=self.validation_queries)


# Parnami et al. 2022, Table II.
FS_PIC_OMNIGLOT = FewShotConfig(way=60, shot=5, queries=5, epochs=500, patience=50)
FS_PIC_CELEBA = FewShotConfig(way=5, shot=5, queries=5, epochs=200, patience=20)
FS_PIC_MINIIMAGENET = FewShotConfig(way=5, shot=5, queries=15, epochs=200, patience=20)


@dataclass(frozen=True)
class Accuracy:
    """Mean accuracy over test episodes with its 95% interval, mean +- half_width.

    The interval covers the draw of the episodes, not the training: another seed may lie outside it.
    """

    mean: float
    half_width: float
    episodes: int
    shape: Shape
    spec: str

    @classmethod
    def over(cls, scores: Tensor, shape: Shape, spec: str) -> "Accuracy":
        """Of the (E,) accuracies of test episodes."""
        count = len(scores)
        half_width = 1.96 * scores.std().item() / math.sqrt(count) if count > 1 else math.inf
        return cls(scores.mean().item(), half_width, count, shape, spec)

    def __str__(self) -> str:
        return (
            f"{100 * self.mean:.1f}% +- {100 * self.half_width:.1f} "
            f"({self.shape}, {self.episodes} episodes, {self.spec})"
        )


class FewShotModel(nn.Module):
    """An encoder, with a denoiser in front or without. State: their weights.

    Attributes:
        conditions: the protections it was trained for; where there are several, it is told which.
        cell: the networks see means of square cells of so many pixels.
        card: what is known of its making: settings, data digest, validation accuracy, privacy spent.
    """

    def __init__(
        self,
        encoder: nn.Module,
        denoiser: nn.Module | None,
        *,
        conditions: Conditions,
        cell: int,
        card: dict[str, Any],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.denoiser = denoiser
        self.conditions = conditions
        self.cell = cell
        self.card = card
        # Measurably faster on a processor, the more so in bfloat16 (benchmarks/episode.py).
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def specs(self) -> tuple[str, ...]:
        """The protections it was trained for."""
        return tuple(protection.spec for protection in self.conditions.protections)

    def forward(self, protected: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Denoise and embed. Mixed precision ends here: distances are differences of large numbers.

        Args:
            protected: (N, C, h, w) float32, released images as `seen` makes them.
            places: (N, K) float32, `conditions.position` of the protection of each.

        Returns:
            denoised (N, C, h, w) and embeddings (N, D), both float32.
        """
        images = protected.contiguous(memory_format=torch.channels_last)
        planes = places[:, :, None, None].expand(-1, -1, *images.shape[2:])

        def told(features: Tensor) -> Tensor:
            return torch.cat([features, planes], 1) if planes.shape[1] else features

        with autocast(self.card["precision"], images.device):
            denoised = images if self.denoiser is None else self.denoiser(told(images))
            embeddings = self.encoder(told(denoised))
        return denoised.float(), embeddings.float()

    def seen(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, C, h, w) float32, the means of cells that the networks see."""
        if self.cell == 1:
            return to_float(images)
        # Cells at the border that are cut short are divided by the pixels they have.
        return functional.avg_pool2d(to_float(images), self.cell, ceil_mode=True, count_include_pad=False)

    def weight(self, protection: Protection) -> float:
        """What a support image so protected weighs in a prototype; 1 is the mean over all it was trained for.

        Measured on the validation images by `prototypes.support_weights`, for each protection that the model
        was trained for; of others, that of the nearest.

        Raises:
            ConfigError: nothing was measured, as where the model was not made by `train`.
        """
        if "weights" not in self.card:
            raise ConfigError(
                "the weights of support images were never measured: evaluate with weighted=False"
            )
        measured: float = self.card["weights"][self.conditions.nearest(protection).spec]
        return measured

    @torch.no_grad()
    def embed(self, released: Tensor, protection: Protection | None = None) -> Tensor:
        """(N, C, H, W) uint8 released images -> (N, D) float32 embeddings.

        Args:
            released: as `Release.images()` gives them.
            protection: what released them; a model that was trained for several must be told. It is then
                told the nearest of those: of numbers between them it has learned nothing, and embeds worse.
        """
        return self._infer(released, protection, lambda images, places: self(images, places)[1])

    @torch.no_grad()
    def denoise(self, released: Tensor, protection: Protection | None = None) -> Tensor:
        """(N, C, H, W) uint8 released images -> uint8 denoised ones; the same where there is no denoiser.

        A denoiser that sees cells gives cells, each enlarged to its pixels. `protection`: see embed.
        """
        if self.denoiser is None:
            return released
        size = (released.shape[2], released.shape[3])
        return self._infer(
            released,
            protection,
            lambda images, places: enlarge(
                to_uint8(self(images, places)[0]).cpu(), cell=self.cell, size=size
            ),
        )

    def _infer(
        self, released: Tensor, protection: Protection | None, function: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        if protection is None:
            if len(self.specs) > 1:
                raise ConfigError(
                    f"this model serves {', '.join(self.specs)}: pass the protection that the images have"
                )
            protection = self.conditions.protections[0]
        self.eval()
        device = next(self.parameters()).device
        place = self.conditions.position(self.conditions.nearest(protection)).to(device)
        parts = []
        for part in released.split(_EMBED_BATCH):
            parts.append(function(self.seen(part.to(device)), place.expand(len(part), -1)).cpu())
        return torch.cat(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact."""
        card = {"kind": _KIND, "cell": self.cell, **published(self.card)}
        artefacts.save(path, self.state_dict(), card)


class _Refusal(pydantic.BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    threshold: Annotated[float, Field(ge=0)]
    accepted: Share
    refused: Share


class _Card(artefacts.Card):
    config: FewShotConfig
    specs: Annotated[list[Spec], Field(min_length=1, max_length=1024)]
    channels: artefacts.Channels
    precision: Precision
    cell: artefacts.Side
    shape: artefacts.ImageShape | None = None
    weights: dict[artefacts.Name, Annotated[float, Field(gt=0)]] | None = None
    made_of: list[artefacts.Sha256 | None] | None = None
    refusal: _Refusal | None = None

    @pydantic.model_validator(mode="after")
    def _parts_fit(self) -> "_Card":
        if self.weights is not None and set(self.weights) != set(self.specs):
            raise ValueError("weights: one of each of its specs is needed")
        if self.made_of is not None and len(self.made_of) != len(self.specs):
            raise ValueError("made_of: one for each of its specs is needed")
        if self.shape is not None and self.shape[0] != self.channels:
            raise ValueError(f"shape: of {self.shape[0]} channels, and channels is {self.channels}")
        if self.config.denoiser_width < 1:
            raise ValueError(f"config.denoiser_width={self.config.denoiser_width}: at least 1")
        if self.shape is not None and self.config.denoiser_depth is not None:
            artefacts.check_map(self.config.denoiser_width, self.shape, self.cell)
        return self


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None) -> FewShotModel:
    """Read a model that `FewShotModel.save` wrote.

    Args:
        path: the artefact.
        encoder: a module of the same architecture, for a model trained with the user's own.

    Raises:
        ArtefactError: damaged, foreign, of an earlier version, or the weights do not fit the encoder.
    """
    first = artefacts.read_card(path)
    if first.get("kind") == _KIND and "cell" not in first:
        raise ArtefactError(f"{path}: of an earlier version, whose models had no cells: train it again")
    tensors, card = artefacts.load(path, kind=_KIND, schema=_Card)
    cell = card.pop("cell")
    digests = card.get("made_of") or [None] * len(card["specs"])
    with describing(path, _KIND), no_larger_than(tensors):
        config = replace(FewShotConfig(**card["config"]), cell=cell)
        protections = [
            protection_of(spec, digest, path) for spec, digest in zip(card["specs"], digests, strict=True)
        ]
        if card.get("weights"):
            saved = zip(protections, card["specs"], strict=True)
            card["weights"] = {each.spec: card["weights"][spec] for each, spec in saved}
        card["specs"] = [each.spec for each in protections]
        model = untrained(card["channels"], config, protections, encoder=encoder, card=card)
    cure = "pass the encoder module that it was trained with" if encoder is None else "another architecture"
    take_weights(model, tensors, path, cure=f" ({cure})")
    return model


def train(
    data: LabelledImages,
    protection: Protection | Sequence[Protection],
    config: FewShotConfig,
    *,
    target: str = "class",
    validation: LabelledImages | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    losses: Callable[[float], None] | None = None,
    devices: Devices | None = None,
) -> FewShotModel:
    """Train by Algorithm 1 and return the model of the epoch with the best validation accuracy.

    Every image is protected anew in every episode, by seeded noise: these copies stay with the trainer.

    Args:
        data: clean images to train on.
        protection: what the model must cope with; `Clear()` gives the clean-trained baseline. Several of one
            family give one model for a range: each image is protected by one of them, at random, and the
            networks are told by which.
        config: see FewShotConfig.
        target: the label to classify.
        validation: images of other classes for early stopping; None holds back 15% of the classes.
        encoder: any module from (N, C, H, W) float images to (N, D); None for the one that config names.
            It is trained in place, and sees every pixel unless config.cell says otherwise. For a range of
            protections, one more plane for each parameter that differs comes after the channels.
        seed: decides weights, episodes and noise. The same seed, machine and thread count repeat a run.
        checkpoint: a file written after each epoch. Where it exists, training goes on from it, exactly as
            if it had not stopped; it is removed by the caller when no longer needed.
        progress: called after each step with the numbers of episodes done and planned.
        losses: called after each step with its mean loss over the episodes.
        devices: where this is one of several processes, see `devices.launch`, that share the episodes of a
            step. All are given the same data and settings, and return the same model; the first validates,
            and writes the checkpoint, which all can read. Losses and statistics do not depend on how many
            they are, but for rounding, unless an encoder of one's own draws, as dropout does.

    Raises:
        DataError: too few classes or images for an episode.
        ConfigError: several protections that are not of one family, or fewer episodes a step than processes.
        ArtefactError: the checkpoint belongs to another run.
    """
    devices = devices or ALONE
    protections = list(protection) if isinstance(protection, Sequence) else [protection]
    if validation is None:
        parts = split_by_class(data.label(target).codes, shares=(0.85, 0.15, 0.0), seed=seed)
        data, validation = data.rows(parts["train"]), data.rows(parts["validation"])
    sampler = Sampler(data.label(target), config.episode)
    card = {
        "config": asdict(config),
        "specs": [each.spec for each in protections],
        "encoder": config.encoder if encoder is None else type(encoder).__name__,
        "channels": data.images.shape[1],
        "target": target,
        "data": {"name": kind_of(data), "digest": data.digest, "images": len(data)},
        "seed": seed,
        "precision": resolve(config.precision),
        "privacy_spent": None,  # of the TRAINING images: this method protects those of users, not these
    }
    model = untrained(data.images.shape[1], config, protections, encoder=encoder, card=card, seed=seed)
    devices.align(model)
    classes, codes = data.label(target).codes.unique(return_inverse=True)
    classifier = None
    if config.pretraining_epochs:
        dimension = model.embed(data.images[:1], protections[0]).shape[1]
        classifier = torch.zeros(len(classes), dimension)
    run = Training(model, config, classifier, devices=devices)
    if checkpoint is not None and devices.of_first(Path(checkpoint).exists):
        run.resume(checkpoint)
    judge = _Validation(validation, target, protections, config, seed)
    planned = config.epochs * config.episodes_per_epoch
    while not run.finished:
        order = torch.Generator().manual_seed(seed_of(seed, run.epoch))
        noise = seeded_noise(seed, run.epoch)
        pretraining = run.epoch < config.pretraining_epochs
        if pretraining:
            size = config.way * (config.shot + config.queries)
            rows = torch.randint(len(data), (config.episodes_per_epoch, size), generator=order)
        else:
            rows = sampler.draw(config.episodes_per_epoch, order).flatten(1)  # (E, N * (K + Q))
        run.start_epoch()
        batches: list[Batch] = []
        for done, batch in enumerate(rows, 1):
            images = augmented(data.images[batch], order, flips=config.flips, shifts=config.shifts)
            which = _choose(len(images), len(protections), order)
            released = _release(images, protections, which, noise)
            batches.append(Batch(images, released, which, codes[batch] if pretraining else None))
            if len(batches) < config.episodes_per_step:
                continue
            loss = run.step(batches)
            batches = []
            if losses is not None:
                losses(loss.item())
            if progress is not None:
                progress(run.epoch * config.episodes_per_epoch + done, planned)
        run.finish_epoch(devices.of_first(lambda: judge.accuracy(model)))
        if checkpoint is not None and devices.first:
            run.save(checkpoint)
    best = run.best_model()
    best.card["weights"] = judge.weights(best)
    best.card["refusal"] = judge.refusal(best)
    best.card["shape"] = list(data.images.shape[1:])
    best.card["made_of"] = [made_of(each) for each in protections]
    return best


def evaluate(
    model: FewShotModel,
    data: LabelledImages,
    *,
    way: int,
    shot: int,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | Sequence[Protection] | None = None,
    weighted: bool = True,
    seed: int = 0,
) -> Accuracy:
    """Mean accuracy over test episodes, on images protected once each.

    A device releases an image once, however many episodes it serves: only the images that some episode
    draws are protected and embedded.

    Args:
        model: from `train` or `load`.
        data: clean images of classes that were never trained on.
        way, shot, queries, episodes: the test.
        target: the label to classify.
        protection: None for what the model was trained for. With several, each image has one of them, at
            random, as where devices choose for themselves.
        weighted: whether support images count by `FewShotModel.weight` of their protection, which asks no
            device for anything; or all alike. With one protection it is the same.
        seed: of the episodes and of the noise. The episodes do not depend on the model or the protection,
            so that models are compared on the same ones.

    Raises:
        DataError: too few classes or images for an episode.
    """
    if protection is None:
        protection = model.conditions.protections
    protections = list(protection) if isinstance(protection, Sequence) else [protection]
    sampler = Sampler(data.label(target), Shape(way=way, shot=shot, queries=queries))
    generator = torch.Generator().manual_seed(seed)
    drawn, places = sampler.draw(episodes, generator).unique(return_inverse=True)
    which = _choose(len(drawn), len(protections), generator)
    released = _release(data.images[drawn], protections, which, seeded_noise(seed))
    embeddings = _embed(model, released, protections, which)
    weights = None
    if weighted and len(protections) > 1:
        weights = torch.tensor([model.weight(each) for each in protections])[which]
    scores = episode_accuracies(embeddings, places, shot=shot, weights=weights)
    return Accuracy.over(scores, sampler.shape, ", ".join(each.spec for each in protections))


def _choose(images: int, protections: int, generator: torch.Generator) -> Tensor:
    """(N,) int64, which protection each image gets. One protection draws nothing from the generator."""
    if protections == 1:
        return torch.zeros(images, dtype=torch.int64)
    return torch.randperm(images, generator=generator) % protections  # all as often


def _release(images: Tensor, protections: Sequence[Protection], which: Tensor, noise: Noise) -> Tensor:
    """(N, C, H, W) uint8, each image released by protections[which]."""
    if len(protections) == 1:
        return protections[0].release(images, noise).images()
    released = torch.empty_like(images)
    for number, protection in enumerate(protections):
        rows = (which == number).nonzero().flatten()
        if len(rows):
            released[rows] = protection.release(images[rows], noise).images()
    return released


def _embed(model: FewShotModel, released: Tensor, protections: Sequence[Protection], which: Tensor) -> Tensor:
    """(N, D) embeddings of images, each released by protections[which]."""
    if len(protections) == 1:
        return model.embed(released, protections[0])
    order = which.argsort(stable=True)
    parts = [
        model.embed(released[which == n], each) for n, each in enumerate(protections) if (which == n).any()
    ]
    return torch.cat(parts)[order.argsort()]


def fs_pic_loss(model: FewShotModel, clean: Tensor, released: Tensor, shape: Shape, places: Tensor) -> Tensor:
    """The joint loss of one episode: denoising loss + mean negative log-likelihood of the queries.

    Source: Parnami et al. 2022, Eq. (7), on values in [0, 1]. The denoising loss is Eq. (6): half the
    squared error of an image, SUMMED over its values, mean over images. Algorithm 1 there writes MSE; with
    a mean over the values the weight is so small that the denoiser serves the classifier alone, and what
    it returns is less like the original than what it was given.

    Args:
        model: in training mode.
        clean, released: (N * (K + Q), C, H, W) uint8, class by class, support before queries.
        shape: N, K and Q.
        places: (N * (K + Q), P), `Conditions.position` of the protection of each image.
    """
    denoised, embeddings = model(model.seen(released), places)
    by_class = embeddings.unflatten(0, (shape.way, -1))  # (N, K + Q, D)
    means = by_class[:, : shape.shot].mean(1)  # (N, D)
    logits = prototype_logits(by_class[:, shape.shot :].flatten(0, 1), means)  # (N * Q, N)
    labels = torch.arange(shape.way, device=logits.device).repeat_interleave(shape.queries)
    return functional.cross_entropy(logits, labels) + _denoising_loss(model, denoised, clean)


def _denoising_loss(model: FewShotModel, denoised: Tensor, clean: Tensor) -> Tensor:
    """Half the squared error of an image, summed over its values, mean over images; 0 without a denoiser."""
    if model.denoiser is None:
        return denoised.new_zeros(())
    return (denoised - model.seen(clean)).square().flatten(1).sum(1).mean() / 2


@torch.no_grad()
def operations(model: FewShotModel, shape: Sequence[int]) -> int:
    """How many multiply-adds the networks make of one (C, H, W) image; those of convolutions and layers."""
    model.eval()
    image = torch.zeros(1, *shape, dtype=torch.uint8)
    counter = FlopCounterMode(display=False)
    with counter:
        model.embed(image, model.conditions.protections[0])
    return counter.get_total_flops() // 2


def untrained(
    channels: int,
    config: FewShotConfig,
    protections: Sequence[Protection],
    *,
    encoder: nn.Module | None = None,
    card: dict[str, Any] | None = None,
    seed: int = 0,
) -> FewShotModel:
    """The model that `config` describes for some protections, with initial weights that `seed` decides."""
    conditions = Conditions(protections)
    cell = config.cell
    if cell is None:
        cell = math.gcd(*(each.cell for each in protections)) if encoder is None else 1
    planes = len(conditions.keys)
    with initial_weights(seed):
        if encoder is None:
            # The last maps are as large as they would be at full resolution.
            pools = max(0, 4 - round(math.log2(cell)))
            encoder = ENCODERS[config.encoder](channels + planes, pools=pools)
        denoiser = None
        if config.denoiser_depth is not None:
            denoiser = DnCNN(
                channels, depth=config.denoiser_depth, width=config.denoiser_width, planes=planes
            )
    card = card or {"precision": resolve(config.precision)}
    return FewShotModel(encoder, denoiser, conditions=conditions, cell=cell, card=card)


class _Validation:
    """One fixed set of validation episodes, of images protected once each."""

    def __init__(
        self,
        data: LabelledImages,
        target: str,
        protections: Sequence[Protection],
        config: FewShotConfig,
        seed: int,
    ) -> None:
        sampler = Sampler(data.label(target), config.validation_episode)
        generator = torch.Generator().manual_seed(seed)
        drawn, self._places = sampler.draw(config.validation_episodes, generator).unique(return_inverse=True)
        # The last number keeps this noise apart from that of every epoch.
        noise = seeded_noise(seed, config.epochs)
        self._which = _choose(len(drawn), len(protections), generator)
        self._released = _release(data.images[drawn], protections, self._which, noise)
        self._protections = protections
        self._codes = data.label(target).codes[drawn]
        self._shot = config.validation_shot

    def accuracy(self, model: FewShotModel) -> float:
        """Mean over the episodes, all support images weighing the same."""
        scores = episode_accuracies(self._embed(model), self._places, shot=self._shot)
        return scores.mean().item()

    def weights(self, model: FewShotModel) -> dict[str, float]:
        """See FewShotModel.weight."""
        # An episode has two images or more of each class.
        found = support_weights(self._embed(model), self._codes, self._which)
        return dict(zip(model.specs, found.tolist(), strict=True))

    def refusal(self, model: FewShotModel) -> dict[str, float]:
        """See prototypes.refusal."""
        of_specs = torch.tensor([model.card["weights"][spec] for spec in model.specs])
        found = refusal(self._embed(model), self._places, shot=self._shot, weights=of_specs[self._which])
        return asdict(found)

    def _embed(self, model: FewShotModel) -> Tensor:
        return _embed(model, self._released, self._protections, self._which)


@dataclass(frozen=True)
class Batch:
    """The images of an episode, or, in pretraining, of a batch as large.

    Attributes:
        clean, released: (B, C, H, W) uint8.
        which: (B,) number of the protection of each image among those of the model; None for the first.
        codes: (B,) the class of each image, for pretraining; None for an episode.
    """

    clean: Tensor
    released: Tensor
    which: Tensor | None = None
    codes: Tensor | None = None


class Training:
    """Training under way. State: weights, optimiser, epoch, and the best weights so far.

    `train` drives it; a training loop of one's own does as `train` does: start_epoch, step for the episodes
    of each step, finish_epoch.
    """

    def __init__(
        self,
        model: FewShotModel,
        config: FewShotConfig,
        classifier: Tensor | None = None,
        *,
        devices: Devices = ALONE,
    ) -> None:
        """Prepare to train `model`; `classifier`: (classes, D) first weights of the layer of pretraining."""
        self._model = model
        self._config = config
        self._devices = devices
        self._parameters = list(model.parameters())
        device = self._parameters[0].device
        self._classifier = nn.Parameter(torch.empty(0) if classifier is None else classifier.to(device))
        if classifier is not None:
            self._parameters.append(self._classifier)
        self._optimiser = torch.optim.Adam(self._parameters, lr=config.learning_rate, fused=True)
        self._best = {k: v.clone() for k, v in model.state_dict().items()}
        self._accuracies: list[float] = []

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return len(self._accuracies)

    @property
    def stale(self) -> int:
        """How many epochs ago the best one was."""
        return self.epoch - 1 - self._best_epoch if self._accuracies else 0

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or `patience` of episodes without a better one: not in pretraining."""
        waited = min(self.stale, self.epoch - self._config.pretraining_epochs)
        return self.epoch >= self._config.epochs or waited >= self._config.patience

    @property
    def _best_epoch(self) -> int:
        return self._accuracies.index(max(self._accuracies))

    def start_epoch(self) -> None:
        """Set the learning rate, and the networks to training mode."""
        self._model.train()
        halvings = self.epoch // self._config.halve_every
        for group in self._optimiser.param_groups:
            group["lr"] = self._config.learning_rate * 0.5**halvings

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """One step of Adam on the mean loss of some episodes, see fs_pic_loss; or of pretraining batches.

        Returns the loss. Raises ConfigError where there are fewer episodes than processes.
        """
        mine = self._devices.share(len(batches), what="episodes", setting="episodes_per_step")
        share = torch.zeros((), device=self._parameters[0].device)
        with in_order(self._model, self._devices):
            for batch in batches[mine]:
                loss = self._loss(batch) / len(batches)
                loss.backward()
                share += loss.detach()
        whole = self._devices.add_up(self._parameters, share)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)
        return whole

    def _loss(self, batch: Batch) -> Tensor:
        device = self._parameters[0].device
        clean, released, which = batch.clean.to(device), batch.released.to(device), batch.which
        conditions = self._model.conditions
        places = torch.stack([conditions.position(each) for each in conditions.protections])  # (P, K)
        places = places[torch.zeros(len(clean), dtype=torch.int64) if which is None else which].to(device)
        if batch.codes is None:
            return fs_pic_loss(self._model, clean, released, self._config.episode, places)
        denoised, embeddings = self._model(self._model.seen(released), places)
        logits = embeddings @ self._classifier.T
        loss = functional.cross_entropy(logits, batch.codes.to(device), label_smoothing=0.1)
        return loss + _denoising_loss(self._model, denoised, clean)

    def finish_epoch(self, accuracy: float) -> None:
        """Note the validation accuracy, and the weights where it is the best so far."""
        self._accuracies.append(accuracy)
        if self.stale == 0:
            self._best = {k: v.clone() for k, v in self._model.state_dict().items()}

    def best_model(self) -> FewShotModel:
        """The model with the best weights, ready for use."""
        self._model.load_state_dict(self._best)
        self._model.card["epochs"] = self.epoch
        self._model.card["validation_accuracy"] = max(self._accuracies)
        return self._model.eval()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, whole or not at all."""
        tensors = {f"model.{k}": v for k, v in self._model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self._best.items()}
        tensors["classifier"] = self._classifier.detach()
        tensors |= optimiser_state(self._optimiser, self._parameters)
        card = {"kind": _CHECKPOINT, "run": self._identity(), "accuracies": self._accuracies}
        artefacts.save(path, tensors, card)

    @torch.no_grad()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT, schema=Checkpoint)
        check_run(path, card["run"], self._identity())
        with resuming(path):
            best = under("best.", tensors)
            self._model.load_state_dict(best)  # as a check: it is needed at the end
            self._model.load_state_dict(under("model.", tensors))
            self._classifier.copy_(tensors["classifier"])
            set_optimiser_state(self._optimiser, self._parameters, tensors)
            self._best, self._accuracies = best, card["accuracies"]

    def _identity(self) -> Any:
        """What must be equal for a checkpoint to go on as this run, as JSON gives it back."""
        return json.loads(json.dumps({"cell": self._model.cell, **self._model.card}))
