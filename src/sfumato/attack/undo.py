"""Guess the original behind a release, by a network trained on other people's photographs.

A restorer undoes a protection of images; an inverter draws the image behind a private feature. The adversary
protects photographs of their own as the device does, and learns the way back. Under squared error they learn
the mean of all originals that a release leaves possible, so that lost details come back blurred.

Source of the inverter: Dosovitskiy & Brox 2016, Sec. 3; Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 6.3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack import saturation
from sfumato.attack.ensemble import RESTORED
from sfumato.attack.saturation import Training, Validation, check_bounds, hold_out
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.data.labelled import draw_rows
from sfumato.errors import ConfigError, DataError, did_you_mean
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.networks import DnCNN, UNet, UpConvolutional
from sfumato.networks.weights import initial_weights

NETWORKS: dict[str, Callable[[int], nn.Module]] = {"dncnn": DnCNN, "unet": UNet}

_BATCH = 64  # releases at once, in use
_VALIDATED = 64  # photographs of held-out people that decide when to stop

Progress = Callable[[int, int], None]


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
        check_bounds(self, "learning_rate", steps=1, batch=1)


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """The strength of the adversary.

    Attributes:
        steps, batch, learning_rate: see RestorationConfig.
        width: of the decoder, see UpConvolutional.
    """

    steps: int = 2000
    batch: int = 64
    learning_rate: float = 1e-3
    width: int = 32

    def __post_init__(self) -> None:
        check_bounds(self, "learning_rate", steps=1, batch=1, width=1)


class Undoer(nn.Module):
    """Guesses originals of what arrives. State: the weights of its network."""

    check: Callable[[Tensor], None]  # raises DataError for releases that it cannot read

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.trained: Training | None = None  # the course of its training, if there was one

    def prepare(self, received: Tensor) -> Tensor:
        """Make the network's input of what arrives."""
        raise NotImplementedError

    def forward(self, received: Tensor) -> Tensor:
        """(N, ...) -> (N, C, H, W) float32, not clamped."""
        with autocast(resolve("auto", received.device), received.device):
            guess: Tensor = self.network(self.prepare(received))
        return guess.float()

    @torch.no_grad()
    def restore(self, received: Tensor) -> Tensor:
        """Guess originals from N releases as received. -> (N, C, H, W) uint8. Raises DataError, see check."""
        self.check(received)
        self.eval()
        device = device_of(self)
        parts = [to_uint8(self(to_device(part, device))) for part in received.split(_BATCH)]
        return torch.cat(parts).to(received.device)


class Restorer(Undoer):
    """Guesses originals of (N, C, H, W) uint8 images."""

    check = staticmethod(check_batch)

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepare(self, received: Tensor) -> Tensor:
        """See Undoer.prepare."""
        return to_float(received).contiguous(memory_format=torch.channels_last)


class Inverter(Undoer):
    """Guesses images from (N, D) features. State: the weights of its decoder, and moments in training."""

    mean: Tensor  # (D,)
    spread: Tensor  # (D,), their standard deviation; 1 if it is 0

    def __init__(self, decoder: nn.Module, mean: Tensor, spread: Tensor) -> None:
        super().__init__(decoder)
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def prepare(self, received: Tensor) -> Tensor:
        """See Undoer.prepare. In float64: float32 would lose the difference of large numbers."""
        return ((received.double() - self.mean) / self.spread).float()

    def check(self, received: Tensor) -> None:
        """Raise DataError unless they are features of the dimension of training, and finite."""
        check_features(received)
        if received.shape[1] != len(self.mean):
            raise DataError(
                f"features of {received.shape[1]} numbers: this decoder was trained on features of "
                f"{len(self.mean)}: train one on such features"
            )


def train(
    release: Callable[[Tensor, int, int], Any],
    photographs: Tensor,
    people: Tensor,
    config: RestorationConfig | InversionConfig,
    seed: int,
    how: dict[str, Any],
) -> Undoer:
    """Train a network that undoes a protection, on (N, C, H, W) uint8 photographs of (N,) other people.

    For `release` see ensemble.Gallery; `how` has the device and the progress.
    """
    how = {**how, "people": people, "seed": seed}
    if isinstance(config, InversionConfig):
        return train_inverter(release(photographs, RESTORED, 0).vectors(), photographs, config, **how)

    def show(batch: Tensor, step: int) -> Tensor:
        shown: Tensor = release(batch, RESTORED, step).images()
        return shown

    return train_restorer(photographs, show, config, **how)


def undo(undoer: Undoer, released: Any) -> Tensor:
    """Undo a release as well as a network can. -> (N, C, H, W) uint8."""
    return undoer.restore(released.images() if isinstance(undoer, Restorer) else released.vectors())


def train_restorer(
    clean: Tensor,
    protected: Callable[[Tensor, int], Tensor],
    config: RestorationConfig,
    *,
    people: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> Restorer:
    """Train a network to undo a protection, by mean squared error, on pictures of other people.

    `clean`: (N, C, H, W) uint8, of the adversary. `protected` maps a batch and a step to the batch as
    received, with fresh noise at each step. `people`: (N,) who is on each: some are held out to decide when
    to stop; None: all differ. The network stays on `device`; the CPU makes all draws.
    """
    check_batch(clean)
    if not len(clean):
        raise DataError("a restorer is trained on at least one photograph")
    with initial_weights(seed):
        restorer = Restorer(NETWORKS[config.network](clean.shape[1])).to(device)
    _train(restorer, lambda rows, step: protected(clean[rows], step), clean, people, config, seed, progress)
    return restorer


def train_inverter(
    features: Tensor,
    images: Tensor,
    config: InversionConfig,
    *,
    people: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    device: torch.device | None = None,
) -> Inverter:
    """Train a decoder of features, by mean squared error, on images of other people.

    The paper does not say: each number of a feature is first scaled to mean 0 and variance 1. (N, D) features
    as received, with the noise of the release, and (N, C, H, W) uint8 photographs; see train_restorer.
    """
    check_batch(images)
    check_features(features)
    if len(features) != len(images):
        raise DataError(
            f"{len(features)} features for {len(images)} images: give the feature of each image, in order"
        )
    if len(images) < 2:
        raise DataError(f"a decoder is trained on at least 2 features and their images, got {len(images)}")
    exact = features.double()
    spread, mean = torch.std_mean(exact, dim=0)
    channels, height, width = images.shape[1:]
    with initial_weights(seed):
        decoder = UpConvolutional(features.shape[1], (channels, height, width), width=config.width)
    # Differences in the last digit of float32 are rounding and must not be amplified.
    inverter = Inverter(decoder, mean, torch.where(spread > 1e-7 * mean.abs(), spread, 1.0)).to(device)
    _train(inverter, lambda rows, _: exact[rows], images, people, config, seed, progress)
    return inverter


def _train(
    network: Undoer,
    received: Callable[[Tensor, int], Tensor],
    images: Tensor,
    people: Tensor | None,
    config: RestorationConfig | InversionConfig,
    seed: int,
    progress: Progress | None,
) -> None:
    """Train on what arrives of some rows of the images in a step; validate by the PSNR of held-out people."""
    device, generator = device_of(network), torch.Generator().manual_seed(seed)
    who = torch.arange(len(images)) if people is None else people
    held = hold_out(who, most=_VALIDATED, seed=seed)
    own, chosen = (~held).nonzero()[:, 0], held.nonzero()[:, 0]
    chosen = chosen[draw_rows(who[held], _VALIDATED, seed=seed)]
    asked = to_device(received(chosen, config.steps) if len(chosen) else chosen, device)
    wanted = to_float(images[chosen])

    def loss(step: int) -> Tensor:
        rows = own[torch.randint(len(own), (config.batch,), generator=generator)]
        guesses = network(to_device(received(rows, step), device))
        return functional.mse_loss(guesses, to_float(to_device(images[rows], device)))

    def judge() -> float:
        error = functional.mse_loss(network(asked).to(wanted.device), wanted).item()
        return -10 * math.log10(max(error, 1e-10))

    network.trained = saturation.train(
        loss,
        network,
        ceiling=config.steps,
        learning_rate=config.learning_rate,
        validation=Validation(figure="PSNR in dB", judge=judge, gain=0.05) if len(asked) else None,
        progress=progress,
    )


def check_features(features: Tensor) -> None:
    """Raise DataError unless `features` are (N, D) finite real numbers, D at least 1."""
    if features.ndim != 2 or not features.shape[1] or features.is_complex():
        raise DataError(f"features are (N, D) numbers, got {tuple(features.shape)} {features.dtype}")
    bad = (~features.isfinite()).any(dim=1).nonzero().flatten()
    if len(bad):
        raise DataError(
            f"{len(bad)} of {len(features)} features have numbers that are not finite, the first in row "
            f"{int(bad[0])}: leave them out, or mend their extractor"
        )
