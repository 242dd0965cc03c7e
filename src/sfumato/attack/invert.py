"""Draw the image behind a private feature, by a network trained on other people's photographs.

The adversary protects photographs of their own as the device does, and learns the way back. Under squared
error they learn the mean of all originals that a release leaves possible, so that lost details are blurred.

Source: Dosovitskiy & Brox 2016, Sec. 3; Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 6.3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack import saturation
from sfumato.attack.saturation import Training, Validation, check_bounds, hold_out
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.data.labelled import draw_rows
from sfumato.errors import DataError
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.networks import UpConvolutional
from sfumato.networks.weights import initial_weights

_BATCH = 64  # releases at once, in use
_VALIDATED = 64  # photographs of held-out people that decide when to stop


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """The strength of the adversary.

    Attributes:
        steps, batch, learning_rate: see reidentify.AdversaryConfig.
        width: of the decoder, see UpConvolutional.
    """

    steps: int = 2000
    batch: int = 64
    learning_rate: float = 1e-3
    width: int = 32

    def __post_init__(self) -> None:
        check_bounds(self, "learning_rate", steps=1, batch=1, width=1)


class Inverter(nn.Module):
    """Guesses images from (N, D) features. State: the weights of its decoder, and moments in training."""

    mean: Tensor  # (D,)
    spread: Tensor  # (D,), their standard deviation; 1 if it is 0

    def __init__(self, decoder: nn.Module, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.network = decoder
        self.trained: Training | None = None  # the course of its training, if there was one
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, C, H, W) float32, not clamped."""
        # In float64: float32 would lose the difference of large numbers.
        scaled = ((features.double() - self.mean) / self.spread).float()
        with autocast(resolve("auto", features.device), features.device):
            guess: Tensor = self.network(scaled)
        return guess.float()

    @torch.no_grad()
    def restore(self, features: Tensor) -> Tensor:
        """Guess originals from N features as received. -> (N, C, H, W) uint8.

        Raises DataError unless they are features of the dimension of training, and finite.
        """
        check_features(features)
        if features.shape[1] != len(self.mean):
            raise DataError(
                f"features of {features.shape[1]} numbers: this decoder was trained on features of "
                f"{len(self.mean)}: train one on such features"
            )
        self.eval()
        device = device_of(self)
        parts = [to_uint8(self(to_device(part, device))) for part in features.split(_BATCH)]
        return torch.cat(parts).to(features.device)


def train_inverter(
    features: Tensor,
    images: Tensor,
    config: InversionConfig,
    *,
    people: Tensor | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    device: torch.device | None = None,
) -> Inverter:
    """Train a decoder of features, by mean squared error, on images of other people.

    The paper does not say: each number of a feature is first scaled to mean 0 and variance 1. (N, D) features
    as received, with the noise of the release, and (N, C, H, W) uint8 photographs. `people`: (N,) who is on
    each: some are held out to decide when to stop; None: all differ. It stays on `device`.
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
    device, generator = device_of(inverter), torch.Generator().manual_seed(seed)
    who = torch.arange(len(images)) if people is None else people
    held = hold_out(who, most=_VALIDATED, seed=seed)
    own, chosen = (~held).nonzero()[:, 0], held.nonzero()[:, 0]
    chosen = chosen[draw_rows(who[held], _VALIDATED, seed=seed)]
    asked, wanted = to_device(exact[chosen], device), to_float(images[chosen])

    def loss(step: int) -> Tensor:
        rows = own[torch.randint(len(own), (config.batch,), generator=generator)]
        guesses = inverter(to_device(exact[rows], device))
        return functional.mse_loss(guesses, to_float(to_device(images[rows], device)))

    def judge() -> float:
        error = functional.mse_loss(inverter(asked).to(wanted.device), wanted).item()
        return -10 * math.log10(max(error, 1e-10))

    inverter.trained = saturation.train(
        loss,
        inverter,
        ceiling=config.steps,
        learning_rate=config.learning_rate,
        validation=Validation(figure="PSNR in dB", judge=judge, gain=0.05) if len(asked) else None,
        progress=progress,
    )
    return inverter


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
