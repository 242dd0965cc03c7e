"""Restoration: guess the original of a release, after training on pairs made from other people's photographs.

The adversary needs only this library and pictures of their own: they protect these as the device does, and
learn the way back. Under squared error they learn the mean of all originals that a release leaves possible,
so that lost details come back blurred.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack.saturation import Training, Validation, hold_out, train
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.data.labelled import draw_rows
from sfumato.errors import ConfigError, DataError, did_you_mean
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.networks import DnCNN, UNet
from sfumato.networks.weights import initial_weights

NETWORKS: dict[str, Callable[[int], nn.Module]] = {"dncnn": DnCNN, "unet": UNet}

_RESTORE_BATCH = 64
VALIDATED = 64  # photographs of held-out people that decide when to stop


@dataclass(frozen=True, kw_only=True)
class RestorationConfig:
    """The strength of the adversary.

    Attributes:
        network: "unet", with a wide view, or "dncnn", with a narrow view at full resolution.
        steps: of training, at most; it ends when the validation stops improving, see attack.saturation.
        batch: images a step.
        learning_rate: of Adam, falling to 0 at the end.
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
    """Guesses originals. State: the weights of its network.

    Attributes:
        trained: the training; None if it was not trained.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.trained: Training | None = None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, released: Tensor) -> Tensor:
        """(N, C, H, W) float -> (N, C, H, W) float32, not clamped."""
        with autocast(resolve("auto", released.device), released.device):
            guess: Tensor = self.network(released.contiguous(memory_format=torch.channels_last))
        return guess.float()

    @torch.no_grad()
    def restore(self, released: Tensor) -> Tensor:
        """Guess originals from (N, C, H, W) uint8 releases as received. -> (N, C, H, W) uint8."""
        check_batch(released)
        self.eval()
        device = device_of(self)
        parts = [to_uint8(self(to_float(to_device(x, device)))) for x in released.split(_RESTORE_BATCH)]
        return torch.cat(parts).to(released.device)


def train_restorer(
    clean: Tensor,
    protected: Callable[[Tensor, int], Tensor],
    config: RestorationConfig,
    *,
    people: Tensor | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    device: torch.device | None = None,
) -> Restorer:
    """Train a network to undo a protection, by mean squared error, on pictures of other people.

    Args:
        clean: (N, C, H, W) uint8, photographs of the adversary.
        protected: maps a batch and a step to the batch as received, with fresh noise at each step.
        config: see RestorationConfig.
        people: (N,) who is on each photograph: some are held out to decide when to stop; None: all differ.
        seed: decides weights and order.
        progress: called after each step with the numbers done and planned.
        device: trains the network, which stays there; None for the CPU, which makes all draws.

    Raises:
        DataError: there are no photographs.
    """
    check_batch(clean)
    if not len(clean):
        raise DataError("a restorer is trained on at least one photograph")
    who = torch.arange(len(clean)) if people is None else people
    held = hold_out(who, most=VALIDATED, seed=seed)
    asked = clean[held][draw_rows(who[held], VALIDATED, seed=seed)]
    clean = clean[~held]
    validation = None
    generator = torch.Generator().manual_seed(seed)
    with initial_weights(seed):
        restorer = Restorer(NETWORKS[config.network](clean.shape[1])).to(device)
    there = device_of(restorer)
    if len(asked):
        seen = to_float(to_device(protected(asked, config.steps), there))
        validation = psnr_of(lambda: restorer(seen), asked)

    def loss(step: int) -> Tensor:
        batch = clean[torch.randint(len(clean), (config.batch,), generator=generator)]
        released = to_device(protected(batch, step), there)
        return functional.mse_loss(restorer(to_float(released)), to_float(to_device(batch, there)))

    restorer.trained = train(
        loss,
        restorer,
        ceiling=config.steps,
        learning_rate=config.learning_rate,
        validation=validation,
        progress=progress,
    )
    return restorer


def psnr_of(guess: Callable[[], Tensor], images: Tensor) -> Validation:
    """Validate a restorer or an inverter by the PSNR of its guesses at (N, C, H, W) uint8 images.

    Args:
        guess: returns (N, C, H, W) float guesses.
        images: of held-out people.
    """
    wanted = to_float(images)

    def judge() -> float:
        error = functional.mse_loss(guess().to(wanted.device), wanted).item()
        return -10 * math.log10(max(error, 1e-10))

    return Validation(figure="PSNR in dB", judge=judge, gain=0.05)


def check_training(*, steps: int, batch: int, learning_rate: float) -> None:
    """Raise ConfigError for invalid settings of a training."""
    for name, value in (("steps", steps), ("batch", batch)):
        if value < 1:
            raise ConfigError(f"{name}={value}: at least 1")
    if not 0 < learning_rate < math.inf:
        raise ConfigError(f"learning_rate={learning_rate:g}: above 0")
