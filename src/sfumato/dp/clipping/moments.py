"""AdaClip's mean and deviation of each coordinate, which shift and scale a vector."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sfumato.dp.clipping.policy import check_policy
from sfumato.dp.clipping.rows import check_above_0, check_between_0_and_1
from sfumato.errors import ArtefactError, ConfigError

NAME = "adaclip"


class Moments:
    """Mean m and deviation s of each coordinate, learned from noised releases alone. State: both.

    Source: Pichapati et al. 2019, Algorithm 1: w = (g - m) / b with b_i = sqrt(s_i · Σ s_j); w clipped to 1
    and noised; g̃ = b·w̃ + m. Then v = (g̃ - m)^2 - b^2 σ^2 within [h1, h2], σ the noise of w̃;
    s^2 ← β2 s^2 + (1 - β2) v, m ← β1 m + (1 - β1) g̃.

    A public implementation of the paper has these equations, with one difference: there v is taken about the
    mean AFTER its update, which makes it smaller by β1^2, 2%. We did not have the text of the paper's
    experiments: its β1, β2, h1 and h2 are not confirmed. To compare policies, choose `largest` on validation
    data, as `studies/meta.py` does.

    Args of the constructor:
        mean_decay: β1.
        variance_decay: β2.
        smallest, largest: h1 and h2, between which a variance is kept; the first is their geometric mean.
    """

    def __init__(self, mean_decay: float, variance_decay: float, smallest: float, largest: float) -> None:
        check_between_0_and_1("mean_decay", mean_decay)
        check_between_0_and_1("variance_decay", variance_decay)
        check_above_0("smallest", smallest)
        check_above_0("largest", largest)
        if smallest >= largest:
            raise ConfigError(
                f"smallest={smallest:g}: below largest={largest:g}, between which variances lie"
            )
        self._mean_decay, self._variance_decay = mean_decay, variance_decay
        self._smallest, self._largest = smallest, largest
        self._mean: Tensor | None = None  # (P,), from the first step on
        self._deviation: Tensor | None = None  # (P,)

    def frame(self, size: int) -> tuple[Tensor, Tensor]:
        """m and b, (P,) float64 each. Raises ConfigError if earlier vectors had another size."""
        mean, deviation = self._of(size)
        return mean, (deviation * deviation.sum()).sqrt()

    def learn(self, moved: Tensor, sigma: float) -> None:
        """Learns from a release. `moved`: g̃ - m, (P,) float64; `sigma`: the deviation of the noise of w̃."""
        mean, deviation = self._of(len(moved))
        _, scale = self.frame(len(moved))
        variance = (moved**2 - (scale * sigma) ** 2).clamp(self._smallest, self._largest)
        kept = self._variance_decay
        self._deviation = (kept * deviation**2 + (1 - kept) * variance).sqrt()
        self._mean = mean + (1 - self._mean_decay) * moved

    def _of(self, size: int) -> tuple[Tensor, Tensor]:
        if self._mean is None or self._deviation is None:
            first = (self._smallest * self._largest) ** 0.25
            return torch.zeros(size, dtype=torch.float64), torch.full((size,), first, dtype=torch.float64)
        if len(self._mean) != size:
            raise ConfigError(
                f"contributions have {size} values and earlier ones had {len(self._mean)}: "
                "take a new policy for another network"
            )
        return self._mean, self._deviation

    def state(self) -> dict[str, Any]:
        """The policy's name, and mean and deviation of each coordinate; None before the first step."""
        mean, deviation = self._mean, self._deviation
        return {
            "policy": NAME,
            "mean": None if mean is None else mean.tolist(),
            "deviation": None if deviation is None else deviation.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`. Raises ArtefactError if it belongs to another policy, or is damaged."""
        check_policy(state, NAME)
        mean, deviation = state.get("mean"), state.get("deviation")
        if mean is None and deviation is None:
            self._mean = self._deviation = None
            return
        try:
            moments = torch.tensor([mean, deviation], dtype=torch.float64)  # (2, P)
        except (TypeError, ValueError) as error:
            raise ArtefactError(f"the {NAME} state of the checkpoint is damaged: start anew") from error
        if moments.ndim != 2 or not (moments.isfinite().all() and (moments[1] > 0).all()):
            raise ArtefactError(f"the {NAME} state of the checkpoint is damaged: start anew")
        self._mean, self._deviation = moments[0], moments[1]
