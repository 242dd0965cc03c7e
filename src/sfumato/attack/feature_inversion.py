"""Feature inversion: guess the image behind a private feature, by a decoder trained on other people's.

Source: Dosovitskiy & Brox 2016, Sec. 3; Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 6.3 and Fig. 10,
judge private features by this decoder. The adversary has photographs of their own, and the extractor of the
device. Under squared error the decoder learns the mean of all images that a feature leaves possible: lost
details come back as an average.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.attack import saturation
from sfumato.attack.restore import VALIDATED, check_training, psnr_of
from sfumato.attack.saturation import Training, hold_out
from sfumato.base.hardware import autocast, device_of, resolve, to_device
from sfumato.data.labelled import draw_rows
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.networks import UpConvolutional
from sfumato.networks.weights import initial_weights

_RESTORE_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """The strength of the adversary.

    Attributes:
        steps: of training, at most; it ends when the validation stops improving, see attack.saturation.
        batch: pairs a step.
        learning_rate: of Adam, falling to 0 at the end.
        width: of the decoder, see UpConvolutional.
    """

    steps: int = 2000
    batch: int = 64
    learning_rate: float = 1e-3
    width: int = 32

    def __post_init__(self) -> None:
        check_training(steps=self.steps, batch=self.batch, learning_rate=self.learning_rate)
        if self.width < 1:
            raise ConfigError(f"width={self.width}: at least 1")


class Inverter(nn.Module):
    """Guesses images from features. State: the weights of its decoder, and moments of the training features.

    Attributes:
        mean: (D,), of the training features.
        spread: (D,), their standard deviation; 1 if it is 0.
        trained: the training; None if it was not trained.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, decoder: nn.Module, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.decoder = decoder
        self.trained: Training | None = None
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, features: Tensor) -> Tensor:
        """(N, D) float64 -> (N, C, H, W) float32, not clamped."""
        # In float64: float32 would lose the difference of large numbers.
        scaled = ((features - self.mean) / self.spread).float()
        with autocast(resolve("auto", features.device), features.device):
            images: Tensor = self.decoder(scaled)
        return images.float()

    @torch.no_grad()
    def restore(self, features: Tensor) -> Tensor:
        """Guess the images of (N, D) received features. -> (N, C, H, W) uint8.

        Raises:
            DataError: features have another dimension than in training, or are not finite.
        """
        check_features(features)
        if features.shape[1] != len(self.mean):
            raise DataError(
                f"features of {features.shape[1]} numbers: this decoder was trained on features of "
                f"{len(self.mean)}: train one on such features"
            )
        self.eval()
        device = device_of(self)
        parts = [to_uint8(self(to_device(part.double(), device))) for part in features.split(_RESTORE_BATCH)]
        return torch.cat(parts).to(features.device)


def train(
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

    The paper does not say: each number of a feature is first scaled to mean 0 and variance 1.

    Args:
        features: (N, D), of the images, as received: with the noise of the release.
        images: (N, C, H, W) uint8, photographs of the adversary; for sides see check_sides.
        config: see InversionConfig.
        people: (N,) who is on each image: some are held out to decide when to stop; None: all differ.
        seed: decides weights and order.
        progress: called after each step with the numbers done and planned.
        device: trains the network, which stays there; None for the CPU, which makes all draws.

    Raises:
        DataError: fewer than two pairs, unequal numbers of features and images, features that are not
            finite, or sides that the decoder cannot draw.
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
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = images.shape[1:]
    with initial_weights(seed):
        decoder = UpConvolutional(features.shape[1], (channels, height, width), width=config.width)
    # Differences in the last digit of float32 are rounding and must not be amplified.
    inverter = Inverter(decoder, mean, torch.where(spread > 1e-7 * mean.abs(), spread, 1.0)).to(device)
    there = device_of(inverter)

    who = torch.arange(len(images)) if people is None else people
    held = hold_out(who, most=VALIDATED, seed=seed)
    chosen = held.nonzero()[:, 0][draw_rows(who[held], VALIDATED, seed=seed)]
    asked = to_device(exact[chosen], there)
    validation = psnr_of(lambda: inverter(asked), images[chosen]) if len(asked) else None
    exact, images = exact[~held], images[~held]

    def loss(step: int) -> Tensor:
        rows = torch.randint(len(images), (config.batch,), generator=generator)
        wanted = to_float(to_device(images[rows], there))
        return functional.mse_loss(inverter(to_device(exact[rows], there)), wanted)

    inverter.trained = saturation.train(
        loss,
        inverter,
        ceiling=config.steps,
        learning_rate=config.learning_rate,
        validation=validation,
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
