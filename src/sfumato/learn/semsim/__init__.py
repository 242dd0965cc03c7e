"""SemSim's embedding: reconstructions that people recognise lie near their originals, others far away.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.3 and 5, App. B. It is used by `sfumato.assess.semsim`.

Where the paper is silent, we decided:

- An epoch shows each reconstruction once: as the positive or the negative of a triplet whose other side is
  drawn from the same original. If people recognised all reconstructions of an original, the negative is
  one of another original, which does not show this one either. If they recognised none, the positive is
  the original itself, at distance 0, and the negative is still pushed away.
- Distances are plain, not squared, and embeddings are normalised, in training as in use.
- The learning rate is constant, images are not augmented, and the last epoch is kept.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.base.hardware import autocast, resolve, to_device
from sfumato.episodes import seed_of
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn.fit import Progress, Run, fit
from sfumato.learn.method import check_known, check_least
from sfumato.learn.semsim.judgements import Judgements, combine, read, resize
from sfumato.networks.encoders.small import NETWORKS, Embedding
from sfumato.networks.weights import initial_weights

if TYPE_CHECKING:
    from sfumato.learn.semsim.perceptual import Looked

__all__ = ["SEMSIM", "Judgements", "SemSimConfig", "SemSimModel", "combine", "read", "train"]


@dataclass(frozen=True, kw_only=True)
class SemSimConfig:
    """The settings of training SemSim, also those of learn.method; the defaults are the paper's.

    `batch` counts reconstructions: each comes with its original and, in a triplet, a partner.
    """

    network: str = "resnet50"  # or "resnet18", "resnet152", "lenet"
    margin: float = 1.0  # how much farther an unrecognised reconstruction must be
    normalised: bool = True  # whether embeddings have length 1, and distances are at most 2
    size: int = 32  # side of the images in pixels, after resizing
    epochs: int = 200
    batch: int = 128
    learning_rate: float = 0.1  # of SGD; the published code has 0.05, over 100 epochs
    momentum: float = 0.0  # Nesterov's, which the paper does not mention; the published code has it
    precision: str = "auto"

    def __post_init__(self) -> None:
        check_known("network", self.network, NETWORKS)
        check_least(self, epochs=1, batch=1, size=8)  # a ResNet halves 3 times
        if not 0 < self.margin < math.inf:
            raise ConfigError(f"margin={self.margin:g}: above 0, and finite")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum={self.momentum:g}: from 0 to below 1 (such as 0.9)")


SEMSIM = SemSimConfig()


@dataclass(frozen=True)
class SemSimModel:
    """A trained measure."""

    kind: str  # of its artefact
    network: Any  # an Embedding, or a StageDistance with its SqueezeNet; in evaluation mode
    card: dict[str, Any]  # its settings, data digest and seed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact, which `sfumato.assess.semsim.load` reads."""
        artefacts.save(path, self.network.state_dict(), {"kind": self.kind, **self.card})


def train(
    judgements: Judgements,
    config: SemSimConfig,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> SemSimModel:
    """Trains an embedding on the judgements of people. See also learn.method.

    Raises DataError if no reconstruction was recognised, or all were, and ConfigError if training diverges.
    """
    triplets(judgements, torch.Generator().manual_seed(seed))  # fails now if there are none
    precision = resolve(config.precision, device)
    with initial_weights(seed):
        embedding = Embedding(config.network, size=config.size, normalised=config.normalised)
    card = {"config": asdict(config), "data": judgements.card(), "seed": seed, "precision": precision}
    momentum: dict[str, Any] = {"momentum": config.momentum, "nesterov": config.momentum > 0}
    descent = partial(torch.optim.SGD, lr=config.learning_rate, **momentum)
    run = Run(embedding, descent, kind="semsim checkpoint", identity=card, device=device)
    judgements = resize(judgements, config.size)
    pool = torch.cat([judgements.originals, judgements.reconstructions]).to(run.device)
    steps = -(-len(judgements.of) // config.batch)  # of an epoch

    def batches(epoch: int) -> Iterator[Tensor]:
        """(B, 3) triplets."""
        order = torch.Generator().manual_seed(seed_of(seed, epoch))
        groups = triplets(judgements, order)
        for rows in torch.randperm(len(groups), generator=order).tensor_split(steps):
            yield groups[rows]

    def step(groups: Tensor) -> Tensor:
        with autocast(precision, pool.device):
            embeddings = embedding(to_float(pool[to_device(groups.flatten(), run.device)]))
        loss = triplet_loss(*embeddings.unflatten(0, groups.shape).unbind(1), margin=config.margin)
        if not loss.isfinite():
            raise ConfigError(
                f"training diverges in epoch {run.epoch + 1}: lower learning_rate="
                f"{config.learning_rate:g}, or set normalised=true"
            )
        return run.minimise(loss)

    fit(run, batches, step, epochs=config.epochs, steps=steps, checkpoint=checkpoint, progress=progress)
    return SemSimModel("semsim", embedding, card)


def triplet_loss(anchors: Tensor, positives: Tensor, negatives: Tensor, *, margin: float) -> Tensor:
    """The mean of max(0, |a - p| - |a - n| + margin) over (B, D) embeddings (Sec. 4.3)."""
    near, far = (anchors - positives).norm(dim=1), (anchors - negatives).norm(dim=1)
    loss: Tensor = (near - far + margin).clamp(min=0).mean()
    return loss


def triplets(judgements: "Judgements | Looked", generator: torch.Generator) -> Tensor:
    """A triplet for each reconstruction, see above: (M, 3) int64 anchors, positives and negatives.

    They are indices of the originals followed by the reconstructions. Raises DataError if no reconstruction
    was recognised, or all were.
    """
    of, first = judgements.of, len(judgements.originals)
    positives = torch.arange(len(of)) + first
    negatives = positives.clone()
    recognised = judgements.recognised.nonzero().flatten()
    unrecognised = (~judgements.recognised).nonzero().flatten()
    drawn, own = _partners(judgements, unrecognised, among=recognised, generator=generator)
    positives[unrecognised] = torch.where(own, drawn + first, of[unrecognised])
    drawn, _ = _partners(judgements, recognised, among=unrecognised, generator=generator)
    negatives[recognised] = drawn + first
    return torch.stack([of, positives, negatives], dim=1)


def _partners(
    judgements: "Judgements | Looked", rows: Tensor, *, among: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """For each of (n,) rows one of the (m,) others, and whether it is of the same original, or of any."""
    of = judgements.of
    if not len(among):
        recognised, wanted = ("all", "harder") if judgements.recognised.any() else ("none", "easier")
        raise DataError(
            f"{judgements.source}: people recognised {recognised} of the {len(of)} reconstructions, which "
            f"gives nothing to learn from: add judgements of reconstructions that are {wanted} to recognise"
        )
    among = among[of[among].argsort(stable=True)]  # those of an original side by side
    counts = of[among].bincount(minlength=len(judgements.originals))
    starts = counts.cumsum(0) - counts
    own = counts[of[rows]] > 0
    start, count = starts[of[rows]].where(own, 0), counts[of[rows]].where(own, len(among))
    share = torch.rand(len(rows), generator=generator, dtype=torch.float64)
    return among[start + (share * count).long()], own
