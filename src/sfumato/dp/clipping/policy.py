"""The base of every policy: a step that clips, sums and noises, and a state for checkpoints."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.dp.clipping.noise import Draw, check_noise, noisy_sum, noisy_sum_of
from sfumato.dp.clipping.rows import finite_rows, row_norms
from sfumato.errors import ArtefactError, ConfigError


@dataclass(frozen=True)
class Outcome:
    """The result of a step.

    Attributes:
        update: (P,) float64, the noised estimate of the mean contribution: this may be released.
        zeroed: whether a task was left out because of values that are not finite. It depends on private data,
            without noise: log it next to the data, never in an artefact. It says neither which nor how many.
    """

    update: Tensor
    zeroed: bool


# (t, P) the contributions of some tasks, and (t,) dL/dC of each, or None if the policy does not follow it.
Part = tuple[Tensor, Tensor | None]


class Step:
    """The input of a policy at a meta-step. State: the tasks, which are read once, some at a time.

    Attributes:
        size: P.
        noise_multiplier, public_count, draw: see ClippingPolicy.step.
    """

    def __init__(
        self,
        parts: Iterable[Part],
        policy: "ClippingPolicy",
        *,
        noise_multiplier: float,
        public_count: float,
        draw: Draw,
    ) -> None:
        rest = iter(parts)
        first = next(rest)
        self._parts: Iterator[Part] = itertools.chain([first], rest)
        self._policy = policy
        self._finite: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._slopes: list[Tensor] = []
        self.size = first[0].shape[-1] if first[0].ndim else 0
        self.noise_multiplier, self.public_count, self.draw = noise_multiplier, public_count, draw

    def mean(self, clip: Callable[[Tensor], Tensor], std: float) -> Tensor:
        """(P,) float64, the mean clipped contribution; `std` of the noise on the sum. Reads the tasks."""
        return noisy_sum_of(map(self._read, self._parts), clip, std, self.draw) / self.public_count

    def mean_of(self, values: Tensor, std: float) -> float:
        """The mean of another value of each task, (T,); `std` of the noise on their sum."""
        return noisy_sum(values, std, self.draw).item() / self.public_count

    @property
    def finite(self) -> Tensor:
        """(T,) bool: whether all values of a task, and its followed derivative, are finite."""
        return torch.cat(self._finite)

    @property
    def norms(self) -> Tensor:
        """(T,) float64, the norms of the contributions, for a policy that follows them."""
        return torch.cat(self._norms)

    @property
    def slopes(self) -> Tensor:
        """(T,) float64, the derivatives, 0 if not finite; for policies that follow them."""
        return torch.cat(self._slopes)

    def _read(self, part: Part) -> Tensor:
        contributions, derivatives = part
        if contributions.ndim != 2 or not contributions.shape[1]:
            raise ConfigError("contributions are (tasks, values), with one value or more: flatten each task")
        finite = finite_rows(contributions).cpu()
        if self._policy.follows_norm:
            slopes, finite = _slopes(derivatives, finite, self._policy.name)
            self._slopes.append(slopes)
        if self._policy.follows_lengths:
            self._norms.append(row_norms(contributions))
        self._finite.append(finite)
        return contributions


class ClippingPolicy(ABC):
    """Clips, sums, noises, and chooses the next norm. State: all it learned from its own noised releases.

    Attributes:
        name: as `parse` knows it.
        follows_norm: whether it needs the derivative of each task with respect to C.
        follows_lengths: whether it needs the norm of each contribution.
    """

    name: ClassVar[str]
    follows_norm: ClassVar[bool] = False
    follows_lengths: ClassVar[bool] = False

    def __init__(self, norm: float) -> None:
        self._norm = norm

    @property
    def norm(self) -> float:
        """C, the norm in force. Public."""
        return self._norm

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """The part of z for the sum: its noise has this standard deviation, in units of C."""
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
            noise_multiplier: z >= 0 of the whole step; 0 adds no noise, and promises nothing.
            public_count: rate times pool size, > 0.
            draw: Gaussian noise; fresh entropy for real runs.
            derivatives: (T,), dL/dC of each task, for policies that follow it; others ignore it.

        Raises:
            ConfigError: a number outside its bounds, or derivatives missing; nothing was drawn or updated.
        """
        parts = [(contributions, derivatives)]
        return self.step_over(parts, noise_multiplier=noise_multiplier, public_count=public_count, draw=draw)

    def step_over(
        self, parts: Iterable[Part], *, noise_multiplier: float, public_count: float, draw: Draw
    ) -> Outcome:
        """Does the same for tasks that come some at a time, so that memory does not grow with their number.

        Args:
            parts: at least one, each with some of the tasks or none; each is read once, when it is needed.
            noise_multiplier, public_count, draw: as for `step`.
        """
        check_noise(noise_multiplier)
        if not 0 < public_count < math.inf:
            raise ConfigError(
                f"public_count={public_count:g}: above 0 and finite; "
                "take rate times pool size, never how many were drawn"
            )
        step = Step(parts, self, noise_multiplier=noise_multiplier, public_count=public_count, draw=draw)
        update = self._update(step)
        return Outcome(update, not bool(step.finite.all()))

    @abstractmethod
    def _update(self, step: Step) -> Tensor:
        """Releases the mean contribution, (P,) float64, and chooses the next norm."""

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint, from which a run resumes exactly: plain JSON."""
        return {"policy": self.name, "norm": self._norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`. Raises ArtefactError if it belongs to another policy, or is damaged."""
        self._norm = norm_in(state, self.name)


def _slopes(derivatives: Tensor | None, finite: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """(T,) -> (T,) float64, zero if not finite; and (T,) bool, whether contribution and slope are finite."""
    if derivatives is None:
        raise ConfigError(f"clipping {name} follows dL/dC: hand in derivatives, one number a task")
    if derivatives.shape != finite.shape:
        raise ConfigError("derivatives are one number a task: their shape does not fit the contributions")
    slopes = derivatives.detach().to("cpu", torch.float64)
    return torch.where(slopes.isfinite(), slopes, 0.0), finite & slopes.isfinite()


def check_policy(state: Mapping[str, Any], name: str) -> None:
    """Raises ArtefactError for the state of another policy."""
    if state.get("policy") != name:
        raise ArtefactError(
            f"the checkpoint was made with clipping {state.get('policy')}, not {name}: resume with that one"
        )


def norm_in(state: Mapping[str, Any], name: str) -> float:
    """The norm of a checkpoint. Raises ArtefactError for another policy, or an invalid norm."""
    check_policy(state, name)
    norm = state.get("norm")
    if not isinstance(norm, float | int) or not 0 < norm < math.inf:
        raise ArtefactError(f"the {name} state of the checkpoint is damaged: start anew")
    return float(norm)
