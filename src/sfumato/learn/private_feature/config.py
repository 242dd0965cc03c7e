"""The settings of training a private feature."""

import math
from dataclasses import dataclass
from typing import Any

from sfumato.base.hardware import resolve
from sfumato.errors import ConfigError

VARIANTS = ("network", "simple", "dpfe", "log-rank", "adversarial", "information")


@dataclass(frozen=True, kw_only=True)
class FeatureConfig:
    """The settings of training a private feature. The paper gives `dimension`, the networks, and Adam.

    Attributes:
        widths: of the attribute network, see TinyDarknet.
        cut: the layer whose output is encoded; conv4_2, conv5_1, conv6_1 and conv7 in the paper.
        dimension: d, of the feature.
        variant: "network" stops after the first stage, and has no feature yet; "simple" stops before the
            last; "dpfe", "log-rank", "adversarial" and "information" are variants of the last.
        beta: the weight of privacy in the last stage. For "dpfe" it is β/N of Eq. (7): the attributes' loss
            is its mean over a batch here, and their sum there. For "log-rank" it multiplies log-rank
            privacy; for "adversarial" it is the factor of the reversed gradient; for "information" it
            multiplies the bound, in nats.
        attribute_epochs: the first stage, of the network without auto-encoder.
        simple_epochs: the second stage, for the attributes alone.
        private_epochs: the last stage, which "simple" skips.
        batch: images a step. Gradients are not accumulated over parts of a batch: batch norm and Eq. (7)
            would see each by itself.
        pairs: the images of a batch, in the last stage, that are there for another of the same identity.
            Eq. (7) has them by chance: hardly any, with many identities.
        learning_rate: of Adam.
        precision: see `sfumato.base.hardware`.
    """

    widths: tuple[int, ...] = (16, 32, 64, 128, 128, 64, 64)
    cut: str = "conv7"
    dimension: int = 10
    variant: str = "dpfe"
    beta: float = 0.1
    attribute_epochs: int = 20
    simple_epochs: int = 5
    private_epochs: int = 10
    batch: int = 64
    pairs: int = 16
    learning_rate: float = 1e-3
    precision: str = "auto"

    def __post_init__(self) -> None:
        if len(self.widths) != 7 or min(self.widths) < 1:
            raise ConfigError(f"widths={self.widths}: seven numbers of at least 1, as TinyDarknet takes them")
        if self.variant not in VARIANTS:
            raise ConfigError(f"variant={self.variant}: choose {', '.join(VARIANTS)}")
        if not 0 <= self.beta < math.inf:
            raise ConfigError(f"beta={self.beta:g}: at least 0, which adds no privacy")
        for name in ("dimension", "attribute_epochs", "simple_epochs", "private_epochs", "pairs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        least = max(4, 2 * self.pairs)
        if self.batch < least:
            raise ConfigError(
                f"batch={self.batch}: at least {least}, for pairs={self.pairs} and for batch norm"
            )
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.001)")
        resolve(self.precision)

    @property
    def epochs(self) -> int:
        """The epochs of all stages."""
        stages = (self.attribute_epochs, self.simple_epochs, self.private_epochs)
        return sum(stages[: {"network": 1, "simple": 2}.get(self.variant, 3)])

    def stage(self, epoch: int) -> str:
        """The stage of an epoch, counted from 0: "network", "simple", or the variant."""
        if epoch < self.attribute_epochs:
            return "network"
        return "simple" if epoch < self.attribute_epochs + self.simple_epochs else self.variant


def config_of(card: dict[str, Any]) -> FeatureConfig:
    """The settings of a model's card."""
    return FeatureConfig(**card["config"] | {"widths": tuple(card["config"]["widths"])})
