"""What every policy is: a step that clips, sums and noises, and a state that a checkpoint keeps."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.dp.clipping.noise import Draw, check_noise, noised, noised_sum
from sfumato.errors import ArtefactError, ConfigError


@dataclass(frozen=True)
class Outcome:
    """What a step gives.

    Attributes:
        update: (P,) float64, the noised estimate of the mean contribution: this may be released.
        zeroed: whether a task was left out for values that are not finite. Of private data, and not noised:
            for a log that stays with the data, never for an artefact. It tells neither which nor how many.
    """

    update: Tensor
    zeroed: bool


@dataclass(frozen=True)
class Step:
    """What a policy is given at a meta-step, checked; see ClippingPolicy.step."""

    contributions: Tensor  # (T, P)
    finite: Tensor  # (T,) bool
    slopes: Tensor  # (T,) float64, derivatives that are finite; empty for a policy that does not follow them
    noise_multiplier: float
    public_count: float
    draw: Draw

    def mean(self, clip: Callable[[Tensor], Tensor], std: float) -> Tensor:
        """(P,) float64, of the clipped contributions; `std` is of the noise on their sum."""
        return noised_sum(self.contributions, clip, std, self.draw) / self.public_count

    def mean_of(self, values: Tensor, std: float) -> float:
        """Of another value of each task, (T,); `std` is of the noise on their sum."""
        return noised(values, std, self.draw).item() / self.public_count


class ClippingPolicy(ABC):
    """Clips, sums, noises, and chooses the next norm. State: what it learned from its own noised releases.

    Attributes:
        name: as `parse` knows it.
        follows_norm: whether it needs the derivative of each task with respect to C.
    """

    name: ClassVar[str]
    follows_norm: ClassVar[bool] = False

    def __init__(self, norm: float) -> None:
        self._norm = norm

    @property
    def norm(self) -> float:
        """C, the norm in force. Public."""
        return self._norm

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """What is left of z for the sum: its noise has this standard deviation, in units of C."""
        return noise_multiplier

    def step(
        self,
        contributions: Tensor,
        *,
        noise_multiplier: float,
        public_count: float,
        draw: Draw,
        derivatives: Tensor | None = None,
    ) -> Outcome:
        """One meta-step. An empty batch is a step like any other: it draws noise and updates the norm.

        Args:
            contributions: (T, P), one row a task; T is secret and may be 0.
            noise_multiplier: z >= 0 of the whole step; 0 is no noise, and no promise.
            public_count: rate times pool size, > 0.
            draw: Gaussian noise; fresh entropy for real runs.
            derivatives: (T,), dL/dC of each task, for policies that follow it; others ignore it.

        Raises:
            ConfigError: a number outside its bounds, or derivatives missing; nothing was drawn or updated.
        """
        finite = _checked(contributions, noise_multiplier, public_count)
        slopes, sound = torch.empty(0), finite
        if self.follows_norm:
            slopes, sound = _slopes(derivatives, finite, self.name)
        step = Step(contributions, finite, slopes, noise_multiplier, public_count, draw)
        return Outcome(self._update(step), not bool(sound.all()))

    @abstractmethod
    def _update(self, step: Step) -> Tensor:
        """Release the mean contribution, (P,) float64, and choose the next norm."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on exactly: plain JSON."""
        return {"policy": self.name, "norm": self._norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`. Raises ArtefactError where it is of another policy, or damaged."""
        self._norm = norm_in(state, self.name)


def _checked(contributions: Tensor, noise_multiplier: float, public_count: float) -> Tensor:
    """(T,) bool, which rows are finite; after the checks that every step needs."""
    if contributions.ndim != 2 or not contributions.shape[1]:
        raise ConfigError("contributions are (tasks, values), with one value or more: flatten each task")
    check_noise(noise_multiplier)
    if not 0 < public_count < math.inf:
        raise ConfigError(
            f"public_count={public_count:g}: above 0 and finite; "
            "take rate times pool size, never how many were drawn"
        )
    return contributions.detach().isfinite().all(1).cpu()


def _slopes(derivatives: Tensor | None, finite: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """(T,) -> (T,) float64, zero where not finite, and (T,) bool: where contribution and derivative are."""
    if derivatives is None:
        raise ConfigError(f"clipping {name} follows dL/dC: hand in derivatives, one number a task")
    if derivatives.shape != finite.shape:
        raise ConfigError("derivatives are one number a task: their shape does not fit the contributions")
    slopes = derivatives.detach().to("cpu", torch.float64)
    return torch.where(slopes.isfinite(), slopes, 0.0), finite & slopes.isfinite()


def check_policy(state: Mapping[str, Any], name: str) -> None:
    """Raise ArtefactError for the state of another policy."""
    if state.get("policy") != name:
        raise ArtefactError(
            f"the checkpoint was made with clipping {state.get('policy')}, not {name}: resume with that one"
        )


def norm_in(state: Mapping[str, Any], name: str) -> float:
    """The norm of a checkpoint. Raises ArtefactError for another policy, or what is no norm."""
    check_policy(state, name)
    norm = state.get("norm")
    if not isinstance(norm, float | int) or not 0 < norm < math.inf:
        raise ArtefactError(f"the {name} state of the checkpoint is damaged: start anew")
    return float(norm)
