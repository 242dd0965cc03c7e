"""The training of SemSim's embedding."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.base.hardware import autocast, resolve, to_device
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, did_you_mean
from sfumato.images import to_float
from sfumato.learn.fit import Progress, Run, fit
from sfumato.learn.semsim.judgements import Judgements, resize
from sfumato.learn.semsim.losses import contrastive_loss, pairs, triplet_loss, triplets
from sfumato.networks.encoders.small import NETWORKS, Embedding
from sfumato.networks.weights import initial_weights

_KIND = "semsim"
_CHECKPOINT = "semsim checkpoint"
_LOSSES = ("triplet", "contrastive")


@dataclass(frozen=True, kw_only=True)
class SemSimConfig:
    """The settings of training SemSim. The defaults are those of the paper, as far as it gives them.

    Attributes:
        network: "resnet50", "resnet18", "resnet152" or "lenet".
        loss: "triplet" or "contrastive".
        margin: how much farther an unrecognised reconstruction must be; in the contrastive loss, how far.
        normalised: whether embeddings have length 1, and distances are at most 2.
        size: side of the images in pixels, after resizing.
        epochs: of all reconstructions.
        batch: reconstructions a step, at most: an epoch is cut into equal parts. Each comes with its original
            and, in a triplet, with a partner.
        learning_rate: of SGD; the published code has 0.05, over 100 epochs.
        momentum: Nesterov's, which the paper does not mention; the published code has it.
        precision: of training, see `sfumato.base.hardware`; SemSim is used in float32.
    """

    network: str = "resnet50"
    loss: str = "triplet"
    margin: float = 1.0
    normalised: bool = True
    size: int = 32
    epochs: int = 200
    batch: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.0
    precision: str = "auto"

    def __post_init__(self) -> None:
        for what, value, known in (("network", self.network, NETWORKS), ("loss", self.loss, _LOSSES)):
            if value not in known:
                raise ConfigError(f"no {what} is called {value!r}: {did_you_mean(value, known)}")
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.size < 8:
            raise ConfigError(f"size={self.size}: at least 8 pixels, which a ResNet halves 3 times")
        for name in ("margin", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name):g}: above 0, and finite")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum:g}: from 0 to below 1 (such as 0.9)")
        resolve(self.precision)


SEMSIM = SemSimConfig()


@dataclass(frozen=True)
class SemSimModel:
    """A trained embedding."""

    embedding: Embedding  # the network, in evaluation mode
    card: dict[str, Any]  # its settings, data digest and seed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact, which `sfumato.assess.semsim.SemSim.load` reads."""
        artefacts.save(path, self.embedding.state_dict(), {"kind": _KIND, **self.card})


def train(
    judgements: Judgements,
    config: SemSimConfig,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    observe: Callable[[int, float, Embedding], None] | None = None,
    device: torch.device | None = None,
) -> SemSimModel:
    """Trains an embedding on the judgements of people.

    Args:
        judgements: of one source, or combined from several.
        seed, checkpoint, progress, device: see learn.method.
        observe: called after each epoch with the number of epochs done, the mean loss of this one, and the
            embedding, which it may put into evaluation mode.

    Raises:
        DataError: no reconstruction was recognised, or all were.
        ConfigError: training diverges.
    """
    triplets(judgements, torch.Generator().manual_seed(seed))  # fails now if there are none
    precision = resolve(config.precision, device)
    with initial_weights(seed):
        embedding = Embedding(config.network, size=config.size, normalised=config.normalised)
    card = {
        "config": asdict(config),
        "data": judgements.card(),
        "seed": seed,
        "precision": precision,
    }
    descent = partial(
        torch.optim.SGD,
        lr=config.learning_rate,
        momentum=config.momentum,
        nesterov=config.momentum > 0,
    )
    run = Run(embedding, descent, kind=_CHECKPOINT, identity=card, device=device)
    judgements = resize(judgements, config.size)
    pool = torch.cat([judgements.originals, judgements.reconstructions]).to(run.device)
    steps = -(-len(judgements.of) // config.batch)  # of an epoch

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(B, 3) triplets or (B, 2) pairs, and which were recognised."""
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        groups = triplets(judgements, order) if config.loss == "triplet" else pairs(judgements)
        for rows in torch.randperm(len(groups), generator=order).tensor_split(steps):
            yield groups[rows], judgements.recognised[rows]

    def step(batch: tuple[Tensor, Tensor]) -> Tensor:
        groups, recognised = batch
        with autocast(precision, pool.device):
            embeddings = embedding(to_float(pool[to_device(groups.flatten(), run.device)]))
        loss = _loss(embeddings.unflatten(0, groups.shape), to_device(recognised, run.device), config)
        if not loss.isfinite():
            raise ConfigError(
                f"training diverges in epoch {run.epoch + 1}: lower learning_rate="
                f"{config.learning_rate:g}, or set normalised=true"
            )
        return run.minimise(loss)

    losses: list[Tensor] = []  # of an epoch

    def look() -> None:
        if observe is not None:
            observe(run.epoch + 1, torch.stack(losses).mean().item(), embedding)
        losses.clear()

    fit(
        run,
        batches,
        step,
        epochs=config.epochs,
        steps=steps,
        judge=look,
        checkpoint=checkpoint,
        progress=progress,
        losses=losses.append,
    )
    return SemSimModel(embedding, card)


def _loss(embeddings: Tensor, recognised: Tensor, config: SemSimConfig) -> Tensor:
    """The loss of (B, 3, D) triplets or (B, 2, D) pairs."""
    if config.loss == "triplet":
        anchors, positives, negatives = embeddings.unbind(1)
        return triplet_loss(anchors, positives, negatives, margin=config.margin)
    originals, others = embeddings.unbind(1)
    return contrastive_loss(originals, others, recognised, margin=config.margin)
