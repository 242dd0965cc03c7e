"""Restoration: guess the original of a release, after training on pairs made from other people's photographs.

The adversary needs no more than this library and pictures of his own: he protects them as the device does,
and learns the way back. Under squared error he learns the mean of all originals that a release leaves
possible, so that what is truly lost comes back blurred.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import ConfigError, DataError, did_you_mean
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.networks import DnCNN, UNet
from sfumato.networks.weights import initial_weights
from sfumato.precision import autocast, resolve

NETWORKS: dict[str, Callable[[int], nn.Module]] = {"dncnn": DnCNN, "unet": UNet}

_RESTORE_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class RestorationConfig:
    """How strong the adversary is.

    Attributes:
        network: "unet", which sees far, or "dncnn", which sees near at full resolution.
        steps: of training.
        batch: images a step.
        learning_rate: of Adam, falling to 0 along a cosine.
    """

    network: str = "unet"
    steps: int = 1000
    batch: int = 32
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise ConfigError(
                f"no network is called {self.network!r}: {did_you_mean(self.network, NETWORKS)}"
            )
        check_training(steps=self.steps, batch=self.batch, learning_rate=self.learning_rate)


class Restorer(nn.Module):
    """Guesses originals. State: the weights of its network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, released: Tensor) -> Tensor:
        """(N, C, H, W) float -> the same, float32, not clamped."""
        with autocast(resolve("auto"), released.device):
            guess: Tensor = self.network(released.contiguous(memory_format=torch.channels_last))
        return guess.float()

    @torch.no_grad()
    def restore(self, released: Tensor) -> Tensor:
        """(N, C, H, W) uint8 as the receiver sees them -> (N, C, H, W) uint8 guesses at the originals."""
        check_batch(released)
        self.eval()
        return torch.cat([to_uint8(self(to_float(part))) for part in released.split(_RESTORE_BATCH)])


def train_restorer(
    clean: Tensor,
    protected: Callable[[Tensor, int], Tensor],
    config: RestorationConfig,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Restorer:
    """Train a network to undo a protection, by mean squared error, on other pictures than those to restore.

    Args:
        clean: (N, C, H, W) uint8, photographs that the adversary holds.
        protected: batch, step -> the batch as a receiver would see it, by fresh noise at each step.
        config: see RestorationConfig.
        seed: decides weights and order.
        progress: called after each step with the numbers done and planned.

    Raises:
        DataError: there are no photographs.
    """
    check_batch(clean)
    if not len(clean):
        raise DataError("a restorer is trained on at least one photograph")
    generator = torch.Generator().manual_seed(seed)
    with initial_weights(seed):
        restorer = Restorer(NETWORKS[config.network](clean.shape[1]))

    def loss(step: int) -> Tensor:
        batch = clean[torch.randint(len(clean), (config.batch,), generator=generator)]
        return functional.mse_loss(restorer(to_float(protected(batch, step))), to_float(batch))

    minimise(loss, restorer, steps=config.steps, learning_rate=config.learning_rate, progress=progress)
    return restorer


def minimise(
    loss: Callable[[int], Tensor],
    model: nn.Module,
    *,
    steps: int,
    learning_rate: float,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Train a model by Adam, whose learning rate falls to 0 along a cosine, and leave it in evaluation mode.

    Args:
        loss: step -> the loss of the model on a batch; steps count from 0.
        model: whose parameters the loss depends on.
        steps: of training.
        learning_rate: of the first step.
        progress: called after each step with the numbers done and planned.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    model.train()
    for step in range(steps):
        loss(step).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        schedule.step()
        if progress is not None:
            progress(step + 1, steps)
    model.eval()


def check_training(*, steps: int, batch: int, learning_rate: float) -> None:
    """Raise ConfigError for settings that no training can have."""
    for name, value in (("steps", steps), ("batch", batch)):
        if value < 1:
            raise ConfigError(f"{name}={value}: at least 1")
    if not 0 < learning_rate < math.inf:
        raise ConfigError(f"learning_rate={learning_rate:g}: above 0")
