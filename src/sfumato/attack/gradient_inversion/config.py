"""Settings of gradient inversion, and those of published attacks."""

import math
from dataclasses import dataclass

from sfumato.errors import ConfigError, did_you_mean

OBJECTIVES = ("squared", "cosine")
LABELS = ("known", "inferred", "optimised")
OPTIMISERS = ("lbfgs", "adam", "signed-adam")


@dataclass(frozen=True, kw_only=True)
class InversionConfig:
    """The settings of gradient inversion.

    Attributes:
        objective: distance of gradients: "squared", summed over all entries, or "cosine", 1 - cosine over all
            layers at once.
        total_variation: weight of mean |dx| + mean |dy| of the guess.
        statistics: weight of the distance between the batch norm statistics of the guess and those that the
            adversary knows, see ThreatModel.
        labels: "known", "inferred" (see label_inference), or "optimised" with the images.
        optimiser: "lbfgs" with a strong Wolfe line search, "adam", or "signed-adam", on signs.
        learning_rate: of the optimiser.
        steps: of the optimiser; for L-BFGS, iterations.
        decay_at: shares of the steps after which Adam's rate is divided by 10.
        box: whether a guess is clamped to [0, 1] after each step of Adam.
        restarts: guesses from different starts; the least distance of gradients, without priors, counts.
    """

    objective: str = "cosine"
    total_variation: float = 0.0
    statistics: float = 0.0
    labels: str = "inferred"
    optimiser: str = "signed-adam"
    learning_rate: float = 0.1
    steps: int = 4800
    decay_at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    box: bool = True
    restarts: int = 1

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("objective", self.objective, OBJECTIVES),
            ("labels", self.labels, LABELS),
            ("optimiser", self.optimiser, OPTIMISERS),
        ):
            if value not in choices:
                raise ConfigError(f"no {name} is called {value!r}: {did_you_mean(value, choices)}")
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        for name in ("total_variation", "statistics"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 0, its weight")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate}: above 0")
        if not all(0 < share < 1 for share in self.decay_at):
            raise ConfigError(f"decay_at={self.decay_at}: shares of the steps, between 0 and 1")


DLG = InversionConfig(
    objective="squared", labels="optimised", optimiser="lbfgs", learning_rate=1.0, steps=3000, box=False
)
IDLG = InversionConfig(
    objective="squared", labels="inferred", optimiser="lbfgs", learning_rate=1.0, steps=3000, box=False
)
INVERTING_GRADIENTS = InversionConfig(total_variation=1e-1)
GRAD_ATTACK = InversionConfig(
    total_variation=1e-1, statistics=5e-3, labels="known", optimiser="adam", steps=10_000
)
