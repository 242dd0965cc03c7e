"""The settings of training a mask, and the values for each epoch and step."""

import math
from dataclasses import dataclass

from sfumato.base.hardware import resolve
from sfumato.errors import ConfigError

SELECTIONS = ("straight-through", "soft")
RELEASES = ("hard", "soft", "shape")


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """The settings of training a mask. The paper gives `keep`, `predictor_batches` and the networks.

    Attributes:
        keep: the share of the pixels to reveal, above 0 and below 1.
        adversarial: False trains without adversarial steps, the paper's baseline.
        predictor_batches: main steps before each adversarial one.
        batch: images a step, at most: an epoch is cut into equal parts. Gradients are not accumulated over
            parts of a batch: batch norm would see each by itself, and train another model.
        epochs: passes over all images.
        learning_rate: of Adam.
        masker_width: filters of the U-Net at full resolution; twice as many after each halving.
        levels: how often it halves.
        selection: "straight-through": masks of 0 and 1, as a device applies them, and the gradient as if they
            were the scores. Or "soft", the paper's: revealed pixels are multiplied by their scores, hidden
            ones too, and the scores of revealed pixels alone learn from the main loss.
        anneal_from: the share revealed in the first epoch; it falls to `keep` over the first half of the
            epochs. None: `keep` from the start.
        flips: whether every other training image is mirrored left to right, by chance.
        against: the weight of the reversed gradient of an adversary, who distinguishes people by the shown
            pixels; 0 for no adversary. Not in the paper. See adversary.Adversary.
        values: the values that a device will send, which choose the best epoch: "hard", the shown pixels;
            "soft", their products with their scores, as published, for releases of `values=soft`; or "shape",
            only which pixels they are, for releases of `values=shape`, on which the networks are trained. The
            hidden part of a shape says the same as the shown one, so the paper's adversarial steps do not
            apply.
        precision: see `sfumato.base.hardware`.
    """

    keep: float = 0.25
    adversarial: bool = True
    predictor_batches: int = 3
    batch: int = 64
    epochs: int = 20
    learning_rate: float = 1e-3
    masker_width: int = 16
    levels: int = 3
    selection: str = "straight-through"
    anneal_from: float | None = None
    flips: bool = False
    against: float = 0.0
    values: str = "hard"
    precision: str = "auto"

    def __post_init__(self) -> None:
        if not 0 < self.keep < 1:
            raise ConfigError(
                f"keep={self.keep:g}: a share of the pixels, above 0 and below 1 (the paper shows 0.25)"
            )
        if self.anneal_from is not None and not self.keep <= self.anneal_from <= 1:
            raise ConfigError(
                f"anneal_from={self.anneal_from:g}: from keep={self.keep:g} to 1, or null to begin with keep"
            )
        if self.batch < 2:
            raise ConfigError(f"batch={self.batch}: at least 2, which batch norm needs")
        for name in ("predictor_batches", "epochs", "masker_width", "levels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate:g}: above 0 (such as 0.001)")
        if not 0 <= self.against < math.inf:
            raise ConfigError(f"against={self.against:g}: at least 0, which adds no adversary")
        for name, known in (("selection", SELECTIONS), ("values", RELEASES)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name}={getattr(self, name)}: choose {' or '.join(known)}")
        if self.values == "shape" and (self.adversarial or self.selection == "soft"):
            raise ConfigError(
                "values=shape: the hidden part of a shape says the same as the shown one, and it has no soft "
                "values: set adversarial=false and selection=straight-through"
            )
        if self.values == "soft" and self.selection != "soft":
            raise ConfigError(
                "values=soft: the networks were never shown soft values: set selection=soft as well"
            )
        resolve(self.precision)


def keep_at(config: MaskConfig, epoch: int) -> float:
    """The share of shown pixels in an epoch, counted from 0."""
    if config.anneal_from is None:
        return config.keep
    left = max(0.0, 1 - 2 * epoch / config.epochs)
    return config.keep + left * (config.anneal_from - config.keep)


def adversarial_at(config: MaskConfig, step: int) -> bool:
    """Whether a step, counted from 0 over all epochs, is an adversarial one."""
    return config.adversarial and step % (config.predictor_batches + 1) == config.predictor_batches
