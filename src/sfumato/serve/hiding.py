"""Noise on enrolled examples: the stored embedding of a photograph hides which one it was."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.dp.guarantee import round_up
from sfumato.errors import ConfigError, needs_extra


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """Noise that hides examples before they are stored.

    Each embedding is clipped to a norm of c and gets Gaussian noise, once, at enrolment. Everything derived
    later (prototypes, answers, copies of the database) costs nothing more. A photograph that is enrolled in n
    classes, or again after it was forgotten, costs n times. Who is enrolled, and with how many examples, is
    not hidden.

    Attributes:
        epsilon, delta: for an example: it could have been any other.
        clipping_norm: c; it must not depend on private data: choose it on public images.
    """

    epsilon: float
    clipping_norm: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.clipping_norm < math.inf:
            raise ConfigError(
                f"clipping_norm={self.clipping_norm:g}: above 0, such as the norm of most embeddings"
            )
        _ = self.sigma  # checks the budget

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on each value."""
        return _sigma(self.clipping_norm, self.epsilon, self.delta)

    def embeddings(self, embeddings: np.ndarray) -> np.ndarray:
        """Clip embeddings and add noise from the operating system's entropy. (N, D) -> (N, D) float32."""
        import torch

        from sfumato.dp.clipping import clip_rows, fresh_gaussian
        from sfumato.dp.clipping.noise import noisy_sum

        clipped = clip_rows(torch.from_numpy(embeddings), clipping_norm=self.clipping_norm)
        hidden = [noisy_sum(row[None], self.sigma, fresh_gaussian).numpy() for row in clipped]
        return np.stack(hidden).astype(np.float32) if hidden else embeddings.astype(np.float32)

    def __str__(self) -> str:
        return (
            f"an enrolled example hides which image it is at eps = {round_up(self.epsilon)}, "
            f"delta = {self.delta:g}, each time that it is enrolled"
        )


@lru_cache(maxsize=16)
def _sigma(clipping_norm: float, epsilon: float, delta: float) -> float:
    with needs_extra("noise on enrolled examples", "torch"):
        from sfumato.dp.private_mean import sigma_for
    return sigma_for(1, clipping_norm=clipping_norm, epsilon=epsilon, delta=delta)
