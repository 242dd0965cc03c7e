"""FS-PIC: few-shot classification of protected images, by prototypes behind an optional denoiser.

Source: Parnami et al. 2022, Sec. IV, Algorithm 1. The three models compared there are
`train(..., Clear())` tested on protected images, `train` with `denoiser_depth=None`, and `train` with a
denoiser. Where the paper writes the Euclidean distance, its square is used, as by Snell et al. 2017.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import artefacts
from sfumato.data.labelled import LabelledImages, split_by_class
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ArtefactError, ConfigError, did_you_mean
from sfumato.images import to_float, to_uint8
from sfumato.networks import Conv4, DnCNN, ResNet12
from sfumato.precision import autocast, resolve
from sfumato.protect import Protection, parse

ENCODERS: dict[str, Callable[[int], nn.Module]] = {"conv4": Conv4, "resnet12": ResNet12}

_KIND = "few-shot"
_CHECKPOINT = "few-shot checkpoint"
_EMBED_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class FewShotConfig:
    """How a few-shot model is trained; the defaults are the paper's for CelebA, with Conv-4.

    Attributes:
        way, shot, queries: N, K and Q of a training episode.
        epochs: at most so many; `episodes_per_epoch` episodes each.
        patience: epochs without a better validation accuracy before training stops.
        validation_way, validation_shot, validation_queries, validation_episodes: how that is measured.
        learning_rate: of Adam; halved every `halve_every` epochs.
        encoder: "conv4" or "resnet12"; ignored where `train` is given a module.
        denoiser_depth: layers of the DnCNN in front, 8 in the paper; None for no denoiser.
        denoiser_width: its filters, 64 in the paper.
        flips: whether every other training image is mirrored left to right, by chance, before it is
            protected: for photographs, not for characters.
        precision: see `sfumato.precision`.
    """

    way: int = 5
    shot: int = 5
    queries: int = 5
    epochs: int = 200
    episodes_per_epoch: int = 100
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
    flips: bool = False
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

    def __str__(self) -> str:
        return (
            f"{100 * self.mean:.1f}% +- {100 * self.half_width:.1f} "
            f"({self.shape}, {self.episodes} episodes, {self.spec})"
        )


class FewShotModel(nn.Module):
    """An encoder, with a denoiser in front or without. State: their weights.

    Attributes:
        spec: the protection it was trained for.
        card: what is known of its making: settings, data digest, validation accuracy, privacy spent.
    """

    def __init__(
        self, encoder: nn.Module, denoiser: nn.Module | None, *, spec: str, card: dict[str, Any]
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.denoiser = denoiser
        self.spec = spec
        self.card = card
        # Measurably faster on a processor, the more so in bfloat16 (benchmarks/episode.py).
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, protected: Tensor) -> tuple[Tensor, Tensor]:
        """(N, C, H, W) float32 released images -> denoised (N, C, H, W) and embeddings (N, D), both float32.

        Mixed precision ends here: distances are differences of large numbers, and need float32.
        """
        images = protected.contiguous(memory_format=torch.channels_last)
        with autocast(self.card["precision"], images.device):
            denoised = images if self.denoiser is None else self.denoiser(images)
            embeddings = self.encoder(denoised)
        return denoised.float(), embeddings.float()

    @torch.no_grad()
    def embed(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 released images -> (N, D) float32 embeddings."""
        return self._infer(released, lambda images: self(images)[1])

    @torch.no_grad()
    def denoise(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 released images -> uint8 denoised ones; the same where there is no denoiser."""
        if self.denoiser is None:
            return released
        return self._infer(released, lambda images: to_uint8(self(images)[0]))

    def _infer(self, released: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        self.eval()
        device = next(self.parameters()).device
        parts = [function(to_float(part.to(device))).cpu() for part in released.split(_EMBED_BATCH)]
        return torch.cat(parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as an artefact."""
        artefacts.save(path, self.state_dict(), {"kind": _KIND, "spec": self.spec, **self.card})


def load(path: str | os.PathLike[str], *, encoder: nn.Module | None = None) -> FewShotModel:
    """Read a model that `FewShotModel.save` wrote.

    Args:
        path: the artefact.
        encoder: a module of the same architecture, for a model trained with the user's own.

    Raises:
        ArtefactError: damaged, foreign, or the weights do not fit the encoder.
    """
    tensors, card = artefacts.load(path, kind=_KIND)
    config = FewShotConfig(**card["config"])
    model = untrained(card["channels"], config, spec=card["spec"], encoder=encoder, card=card)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        cure = (
            "pass the encoder module that it was trained with" if encoder is None else "another architecture"
        )
        raise ArtefactError(f"{path}: the weights do not fit the networks ({cure})") from error
    return model


def train(
    data: LabelledImages,
    protection: Protection,
    config: FewShotConfig,
    *,
    target: str = "class",
    validation: LabelledImages | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FewShotModel:
    """Train by Algorithm 1 and return the model of the epoch with the best validation accuracy.

    Every image is protected anew in every episode, by seeded noise: these copies stay with the trainer.

    Args:
        data: clean images to train on.
        protection: what the model must cope with; `Clear()` gives the clean-trained baseline.
        config: see FewShotConfig.
        target: the label to classify.
        validation: images of other classes for early stopping; None holds back 15% of the classes.
        encoder: any module from (N, C, H, W) float images to (N, D); None for the one that config names.
            It is trained in place.
        seed: decides weights, episodes and noise. The same seed, machine and thread count repeat a run.
        checkpoint: a file written after each epoch. Where it exists, training goes on from it, exactly as
            if it had not stopped; it is removed by the caller when no longer needed.
        progress: called after each episode with the numbers done and planned.

    Raises:
        DataError: too few classes or images for an episode.
        ArtefactError: the checkpoint belongs to another run.
    """
    if validation is None:
        parts = split_by_class(data.label(target).codes, shares=(0.85, 0.15, 0.0), seed=seed)
        data, validation = data.rows(parts["train"]), data.rows(parts["validation"])
    sampler = Sampler(data.label(target), config.episode)
    card = {
        "config": asdict(config),
        "encoder": config.encoder if encoder is None else type(encoder).__name__,
        "channels": data.images.shape[1],
        "target": target,
        "data": {"name": data.name, "digest": data.digest, "images": len(data)},
        "seed": seed,
        "precision": resolve(config.precision),
        "privacy_spent": None,  # of the TRAINING images: this method protects those of users, not these
    }
    model = untrained(
        data.images.shape[1], config, spec=protection.spec, encoder=encoder, card=card, seed=seed
    )
    run = Training(model, config)
    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    judge = _Validation(validation, target, protection, config, seed)
    planned = config.epochs * config.episodes_per_epoch
    while run.epoch < config.epochs and run.stale < config.patience:
        order = torch.Generator().manual_seed(_hash_seed(seed, run.epoch))
        noise = seeded_noise(seed, run.epoch)
        rows = sampler.draw(config.episodes_per_epoch, order)  # (E, N, K + Q)
        run.start_epoch()
        for done, episode in enumerate(rows, 1):
            images = data.images[episode.flatten()]
            if config.flips:
                mirrored = torch.rand(len(images), generator=order) < 0.5
                images[mirrored] = images[mirrored].flip(3)
            run.step(images, protection.release(images, noise).images())
            if progress is not None:
                progress(run.epoch * config.episodes_per_epoch + done, planned)
        run.finish_epoch(judge.accuracy(model))
        if checkpoint is not None:
            run.save(checkpoint)
    return run.best_model()


def evaluate(
    model: FewShotModel,
    data: LabelledImages,
    *,
    way: int,
    shot: int,
    queries: int = 15,
    episodes: int = 600,
    target: str = "class",
    protection: Protection | None = None,
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
        protection: None for the one that the model was trained for.
        seed: of the episodes and of the noise. The episodes do not depend on the model or the protection,
            so that models are compared on the same ones.

    Raises:
        DataError: too few classes or images for an episode.
    """
    protection = parse(model.spec) if protection is None else protection
    sampler = Sampler(data.label(target), Shape(way=way, shot=shot, queries=queries))
    rows = sampler.draw(episodes, torch.Generator().manual_seed(seed))
    drawn, places = rows.unique(return_inverse=True)
    embeddings = model.embed(protection.release(data.images[drawn], seeded_noise(seed)).images())
    scores = episode_accuracies(embeddings, places, shot=shot)
    half_width = 1.96 * scores.std().item() / math.sqrt(episodes) if episodes > 1 else math.inf
    return Accuracy(scores.mean().item(), half_width, episodes, sampler.shape, protection.spec)


def episode_accuracies(embeddings: Tensor, places: Tensor, *, shot: int) -> Tensor:
    """Accuracy of each episode. (n, D) embeddings, (E, N, K + Q) places among them -> (E,).

    The first `shot` places of each class are its support, the rest its queries.
    """
    way = places.shape[1]
    scores = []
    for part in places.split(64):
        vectors = embeddings[part]  # (e, N, K + Q, D)
        prototypes = vectors[:, :, :shot].mean(2)  # (e, N, D)
        logits = prototype_logits(vectors[:, :, shot:].flatten(1, 2), prototypes)  # (e, N * Q, N)
        guesses = logits.argmax(-1).unflatten(1, (way, -1))  # (e, N, Q)
        scores.append((guesses == torch.arange(way)[:, None]).float().mean((1, 2)))
    return torch.cat(scores)


def prototype_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Minus the squared Euclidean distances. (..., Q, D) queries, (..., N, D) prototypes -> (..., Q, N).

    Source: Snell et al. 2017, Eq. (2); Parnami et al. 2022, Eq. (3).
    """
    cross = queries @ prototypes.mT
    return 2 * cross - queries.square().sum(-1, keepdim=True) - prototypes.square().sum(-1)[..., None, :]


def fs_pic_loss(model: FewShotModel, clean: Tensor, released: Tensor, shape: Shape) -> Tensor:
    """The joint loss of one episode: denoising loss + mean negative log-likelihood of the queries.

    Source: Parnami et al. 2022, Eq. (7), on values in [0, 1]. The denoising loss is Eq. (6): half the
    squared error of an image, SUMMED over its values, mean over images. Algorithm 1 there writes MSE; with
    a mean over the values the weight is so small that the denoiser serves the classifier alone, and what
    it returns is less like the original than what it was given.

    Args:
        model: in training mode.
        clean, released: (N * (K + Q), C, H, W) uint8, class by class, support before queries.
        shape: N, K and Q.
    """
    denoised, embeddings = model(to_float(released))
    by_class = embeddings.unflatten(0, (shape.way, -1))  # (N, K + Q, D)
    prototypes = by_class[:, : shape.shot].mean(1)  # (N, D)
    logits = prototype_logits(by_class[:, shape.shot :].flatten(0, 1), prototypes)  # (N * Q, N)
    labels = torch.arange(shape.way, device=logits.device).repeat_interleave(shape.queries)
    loss = functional.cross_entropy(logits, labels)
    if model.denoiser is None:
        return loss
    errors: Tensor = (denoised - to_float(clean)).square().flatten(1).sum(1)  # (N * (K + Q),)
    return loss + errors.mean() / 2


def _hash_seed(*parts: int) -> int:
    """One 63-bit seed from several numbers, so that neither epochs nor seeds overlap."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)


def untrained(
    channels: int,
    config: FewShotConfig,
    *,
    spec: str,
    encoder: nn.Module | None = None,
    card: dict[str, Any] | None = None,
    seed: int = 0,
) -> FewShotModel:
    """The model that `config` describes, with initial weights that `seed` decides."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = ENCODERS[config.encoder](channels) if encoder is None else encoder
        denoiser = None
        if config.denoiser_depth is not None:
            denoiser = DnCNN(channels, depth=config.denoiser_depth, width=config.denoiser_width)
    return FewShotModel(encoder, denoiser, spec=spec, card=card or {"precision": resolve(config.precision)})


class _Validation:
    """Accuracy on one fixed set of protected validation episodes."""

    def __init__(
        self, data: LabelledImages, target: str, protection: Protection, config: FewShotConfig, seed: int
    ) -> None:
        sampler = Sampler(data.label(target), config.validation_episode)
        rows = sampler.draw(config.validation_episodes, torch.Generator().manual_seed(seed))
        drawn, self._places = rows.unique(return_inverse=True)
        # The last number keeps this noise apart from that of every epoch.
        self._released = protection.release(data.images[drawn], seeded_noise(seed, config.epochs)).images()
        self._shot = config.validation_shot

    def accuracy(self, model: FewShotModel) -> float:
        scores = episode_accuracies(model.embed(self._released), self._places, shot=self._shot)
        return scores.mean().item()


class Training:
    """Training under way. State: weights, optimiser, epoch, and the best weights so far.

    `train` drives it; a training loop of one's own does as `train` does: start_epoch, step for each
    episode, finish_epoch.
    """

    def __init__(self, model: FewShotModel, config: FewShotConfig) -> None:
        self._model = model
        self._config = config
        self._parameters = list(model.parameters())
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
    def _best_epoch(self) -> int:
        return self._accuracies.index(max(self._accuracies))

    def start_epoch(self) -> None:
        """Set the learning rate, and the networks to training mode."""
        self._model.train()
        halvings = self.epoch // self._config.halve_every
        for group in self._optimiser.param_groups:
            group["lr"] = self._config.learning_rate * 0.5**halvings

    def step(self, clean: Tensor, released: Tensor) -> None:
        """One step of Adam on the joint loss of an episode; see fs_pic_loss."""
        device = self._parameters[0].device
        loss = fs_pic_loss(self._model, clean.to(device), released.to(device), self._config.episode)
        loss.backward()
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

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
        for i, parameter in enumerate(self._parameters):
            tensors |= {f"adam.{i}.{k}": v for k, v in self._optimiser.state[parameter].items()}
        card = {"kind": _CHECKPOINT, "run": self._identity(), "accuracies": self._accuracies}
        artefacts.save(path, tensors, card)

    @torch.no_grad()
    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint. Raises ArtefactError for that of another run."""
        tensors, card = artefacts.load(path, kind=_CHECKPOINT)
        if card["run"] != self._identity():
            raise ArtefactError(f"{path}: the checkpoint of another run: delete it, or name another file")
        self._model.load_state_dict(_under("model.", tensors))
        self._best = _under("best.", tensors)
        for i, parameter in enumerate(self._parameters):
            # The fused optimiser walks through memory: its state must lie as the parameter does.
            self._optimiser.state[parameter] = {
                k: torch.empty_like(parameter).copy_(v) if v.shape == parameter.shape else v
                for k, v in _under(f"adam.{i}.", tensors).items()
            }
        self._accuracies = card["accuracies"]

    def _identity(self) -> Any:
        """What must be equal for a checkpoint to go on as this run, as JSON gives it back."""
        return json.loads(json.dumps({"spec": self._model.spec, **self._model.card}))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
