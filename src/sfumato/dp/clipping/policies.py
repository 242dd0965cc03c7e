"""The policies that clip, noise, and choose norms, by their names in the CLI and in configurations."""

import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from sfumato.dp.clipping.rows import (
    BELOW,
    Draw,
    check_above_0,
    check_between_0_and_1,
    clip_rows,
    finite_rows,
    grid_of,
    normalise_rows,
    row_norms,
)
from sfumato.errors import ArtefactError, ConfigError, did_you_mean

_Policy = TypeVar("_Policy")

# (t, P) the contributions of some tasks, and (t,) dL/dC of each, or None if the policy does not follow it.
Part = tuple[Tensor, Tensor | None]


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


def split(noise_multiplier: float, *, share: float) -> tuple[float, float]:
    """z -> z of the sum and z of the other release, which together cost z (see the package)."""
    return noise_multiplier / math.sqrt(1 - share), noise_multiplier / math.sqrt(share)


class ClippingPolicy:
    """Clips, sums, noises, and chooses the next norm. State: all it learned from its own noised releases.

    A policy has three functions of its state: `clip` and `vote` of tasks, which are private, and `learn`, of
    what is released of them. Meta-Clip as published (`learn.inner_noise`) has the same, without noise.

    Attributes:
        name: as `parse` knows it.
        follows_norm: whether it needs the derivative of each task with respect to C.
        norm: C, the norm in force. Public.
        share: s of the cost of a step that the votes get; 0 without votes.
        reach: the most that a vote moves the sum of votes.
    """

    name: ClassVar[str]
    follows_norm: ClassVar[bool] = False
    share = 0.0
    reach = 1.0

    def __init__(self, norm: float) -> None:
        self.norm = norm

    def clip(self, rows: Tensor) -> Tensor:
        """(T, P) -> (T, P) float64, no row longer than the norm, and zero if it is not finite."""
        return clip_rows(rows, clipping_norm=self.norm)

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """(T, P) rows and (T,) derivatives -> (T,) float64, each within the reach."""
        return slopes

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """Chooses the next norm from what is released. -> the update.

        Args:
            mean: (P,) of the clipped rows, with noise of deviation `sigma` in units of the norm.
            vote: the mean vote, with noise.
        """
        return mean

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """The part of z for the sum: its noise has this standard deviation, in units of C."""
        return split(noise_multiplier, share=self.share)[0] if self.share else noise_multiplier

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
            contributions, derivatives: see Part; T is secret and may be 0.
            noise_multiplier: z >= 0 of the whole step; 0 adds no noise, and promises nothing.
            public_count: rate times pool size, > 0.
            draw: Gaussian noise; fresh entropy for real runs.

        Raises:
            ConfigError: a number outside its bounds, or derivatives missing; nothing was drawn or updated.
        """
        parts = [(contributions, derivatives)]
        return self.step_over(parts, noise_multiplier=noise_multiplier, public_count=public_count, draw=draw)

    def step_over(
        self, parts: Iterable[Part], *, noise_multiplier: float, public_count: float, draw: Draw
    ) -> Outcome:
        """Does the same for tasks that come some at a time, so that memory does not grow with their number.

        It works row by row, in the processor's cache: ten times as fast for networks of 10^5 parameters. It
        keeps no part, and draws noise only after it has read all of them.

        Args:
            parts: at least one, each with some of the tasks or none; each is read once, when it is needed.
            noise_multiplier, public_count, draw: as for `step`.
        """
        if not 0 <= noise_multiplier < math.inf:
            raise ConfigError(
                f"noise_multiplier={noise_multiplier:g}: from 0 (no noise, no promise), and finite; "
                "dp.accounting.calibrate finds one for a budget"
            )
        if not 0 < public_count < math.inf:
            raise ConfigError(
                f"public_count={public_count:g}: above 0 and finite; "
                "take rate times pool size, never how many were drawn"
            )
        of_sum = self.sum_multiplier(noise_multiplier)
        std = of_sum * self.norm
        total, votes, zeroed = torch.zeros((), dtype=torch.float64), [], False
        for rows, derivatives in parts:
            slopes, finite = self._slopes(rows, derivatives)
            zeroed |= not bool(finite.all())
            if self.share:
                votes.append(self.vote(rows, slopes))
            if not total.ndim:
                total = torch.zeros(rows.shape[1], dtype=torch.float64)
            for number in range(len(rows)):
                row = rows[number : number + 1].detach().to("cpu", torch.float64)
                total += _on_grid(self.clip(row)[0], std)
                del row  # a view, which would keep the part while the next one is computed
            del rows
        mean = (total + draw(tuple(total.shape), std)) / public_count
        vote = 0.0
        if self.share:
            std = split(noise_multiplier, share=self.share)[1] * self.reach
            vote = (_on_grid(torch.cat(votes), std).sum(0) + draw((), std)).item() / public_count
        return Outcome(self.learn(mean, vote, of_sum / public_count), zeroed)

    def _slopes(self, rows: Tensor, derivatives: Tensor | None) -> tuple[Tensor, Tensor]:
        """(T,) float64, derivatives, 0 if not finite; and (T,) bool, whether all numbers of a task are."""
        if rows.ndim != 2 or not rows.shape[1]:
            raise ConfigError("contributions are (tasks, values), with one value or more: flatten each task")
        finite = finite_rows(rows).cpu()
        if not self.follows_norm:
            return torch.zeros(len(rows), dtype=torch.float64), finite
        if derivatives is None:
            raise ConfigError(f"clipping {self.name} follows dL/dC: hand in derivatives, one number a task")
        if derivatives.shape != finite.shape:
            raise ConfigError("derivatives are one number a task: their shape does not fit the contributions")
        slopes = derivatives.detach().to("cpu", torch.float64)
        return torch.where(slopes.isfinite(), slopes, 0.0), finite & slopes.isfinite()

    def state(self) -> dict[str, Any]:
        """The state of a checkpoint, from which a run resumes exactly: plain JSON."""
        return {"policy": self.name, "norm": self.norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from `state()`. Raises ArtefactError if it belongs to another policy, or is damaged."""
        if state.get("policy") != self.name:
            raise ArtefactError(
                f"the checkpoint was made with clipping {state.get('policy')}, not {self.name}: resume with "
                "that one"
            )
        try:
            self._take(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"the {self.name} state of the checkpoint is damaged: start anew") from error

    def _take(self, state: Mapping[str, Any]) -> None:
        norm = float(state["norm"])
        if not 0 < norm < math.inf:
            raise ValueError("norm")
        self.norm = norm


def _on_grid(values: Tensor, std: float) -> Tensor:
    """Cut towards zero to the grid of noise of that deviation, on which sums are exact."""
    step = grid_of(std) if std else 0.0
    return (values / step).trunc() * step if std else values


class Fixed(ClippingPolicy):
    """One public norm for the whole run: the paper's "vanilla". State: none."""

    name = "fixed"

    def __init__(self, clipping_norm: float) -> None:
        check_above_0("clipping_norm", clipping_norm)
        super().__init__(clipping_norm)


class Automatic(ClippingPolicy):
    """Contributions are normalised, not clipped: no norm to choose. State: none.

    Source: Bu et al. 2022, AUTO-S, g / (|g| + γ) with γ = 0.01. Every result is shorter than 1, so that the
    sensitivity is below 1 and noise of z is enough. The scale of contributions is lost: the rate of the
    meta-update has to carry it.
    """

    name = "automatic"

    def __init__(self, stability: float = 0.01) -> None:
        check_above_0("stability", stability)
        super().__init__(1.0)  # whatever the contributions are
        self._stability = stability

    def clip(self, rows: Tensor) -> Tensor:
        """g / (|g| + γ)."""
        return normalise_rows(rows, stability=self._stability)


class Quantile(ClippingPolicy):
    """The norm follows a quantile of the norms of contributions, privately. State: the norm.

    Source: Andrew, Thakkar, McMahan & Ramaswamy 2021, Algorithm 1: C ← C·exp(-η (b̃ - γ)), b̃ the noised
    fraction of tasks within C. As there, centred bits ±1/2 are summed, of sensitivity 1/2; a task that is not
    finite has no bit. Beyond the paper: the denominator is public, the noise of the bits follows from a share
    of the step's cost, and C stays within 10^±6 of its start.

    Args of the constructor:
        start: the first C, public.
        quantile: γ, the fraction of tasks that should be within C.
        learning_rate: η.
        share: s of the cost that the bits get. The paper's rule of thumb, noise of tasks / 20 on the bits, is
            s = 100 z^2 / tasks^2: at z = 1 more than there is, for 10 tasks or fewer. Chosen by simulation
            (in the tests): s = 0.1 gives the sum 5.4% more noise and keeps ln C within 0.18 and 0.06 of the
            median's for 4 and 16 tasks; with 0.01 it is over 0.5 for 4; 0.3 gains little for 20% more noise.
    """

    name = "quantile"
    reach = 0.5

    def __init__(
        self, start: float, quantile: float = 0.5, learning_rate: float = 0.2, share: float = 0.1
    ) -> None:
        check_above_0("start", start)
        check_between_0_and_1("quantile", quantile)
        check_above_0("learning_rate", learning_rate)
        check_between_0_and_1("share", share)
        super().__init__(start)
        self._start, self._quantile, self._learning_rate, self.share = start, quantile, learning_rate, share

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """1/2 for a task within the norm, -1/2 for one beyond, 0 if it is not finite."""
        return ((row_norms(rows) <= self.norm).double() - 0.5) * finite_rows(rows).cpu()

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """C ← C·exp(-η (b̃ - γ)), in logarithms, and bounded: noise could leave the range of a double."""
        middle, reach = math.log(self._start), 6 * math.log(10)
        wanted = math.log(self.norm) - self._learning_rate * (vote + 0.5 - self._quantile)
        self.norm = math.exp(min(max(wanted, middle - reach), middle + reach))
        return mean


class AdaClip(ClippingPolicy):
    """Coordinates are shifted and scaled by earlier releases, then the vector is clipped.

    Source: Pichapati et al. 2019, Algorithm 1: w = (g - m) / b with b_i = sqrt(s_i · Σ s_j); w clipped to 1
    and noised; g̃ = b·w̃ + m. Then v = (g̃ - m)^2 - b^2 σ^2 within [h1, h2], σ the noise of w̃;
    s^2 ← β2 s^2 + (1 - β2) v, m ← β1 m + (1 - β1) g̃. All of it comes from noised releases, and costs nothing.

    A public implementation of the paper takes v about the mean AFTER its update, which makes it smaller by
    β1^2, 2%. The paper's β1, β2, h1 and h2 are not confirmed: choose `largest` on validation data, as
    `studies/meta.py` at 2f64c651 did.

    A limit of the method: v is cut off below, so noise alone makes it positive on average. If P is well above
    (tasks / z)^2, as for every network with few tasks a step, v ends at h2 in the 32% of draws beyond one
    deviation, and at h1 in the others: s settles at 0.56·sqrt(h2) everywhere, which is a fixed norm of
    0.56·sqrt(P·h2). Choose `largest` with that in mind.

    State: mean m and deviation s of each coordinate, from the first step on.

    Args of the constructor:
        mean_decay, variance_decay: β1 and β2.
        smallest, largest: h1 and h2, between which a variance is kept; the first is their geometric mean.
    """

    name = "adaclip"

    def __init__(
        self,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        smallest: float = 1e-12,
        largest: float = 1.0,
    ) -> None:
        check_between_0_and_1("mean_decay", mean_decay)
        check_between_0_and_1("variance_decay", variance_decay)
        check_above_0("smallest", smallest)
        check_above_0("largest", largest)
        if smallest >= largest:
            raise ConfigError(
                f"smallest={smallest:g}: below largest={largest:g}, between which variances lie"
            )
        super().__init__(1.0)  # of the shifted and scaled vector
        self._mean_decay, self._variance_decay = mean_decay, variance_decay
        self._smallest, self._largest = smallest, largest
        self._mean: Tensor | None = None  # (P,)
        self._deviation: Tensor | None = None  # (P,)

    def frame(self, size: int) -> tuple[Tensor, Tensor]:
        """m and b, (P,) float64 each. Raises ConfigError if earlier vectors had another size."""
        mean, deviation = self._of(size)
        return mean, (deviation * deviation.sum()).sqrt()

    def clip(self, rows: Tensor) -> Tensor:
        """(g - m) / b, clipped; zero for a row that is not finite, and not -m / b."""
        mean, scale = self.frame(rows.shape[1])
        shifted = torch.where(finite_rows(rows)[:, None], (rows - mean) / scale, 0.0)
        return clip_rows(shifted, clipping_norm=1.0)

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """Learns from the mean w̃."""
        before, deviation = self._of(len(mean))
        _, scale = self.frame(len(mean))
        moved = scale * mean  # g̃ - m
        variance = (moved**2 - (scale * sigma) ** 2).clamp(self._smallest, self._largest)
        kept = self._variance_decay
        self._deviation = (kept * deviation**2 + (1 - kept) * variance).sqrt()
        self._mean = before + (1 - self._mean_decay) * moved
        return before + moved

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
            "policy": self.name,
            "mean": None if mean is None else mean.tolist(),
            "deviation": None if deviation is None else deviation.tolist(),
        }

    def _take(self, state: Mapping[str, Any]) -> None:
        if state["mean"] is None and state["deviation"] is None:
            self._mean = self._deviation = None
            return
        moments = torch.tensor([state["mean"], state["deviation"]], dtype=torch.float64)  # (2, P)
        if not (moments.isfinite().all() and (moments[1] > 0).all()):
            raise ValueError("moments")
        self._mean, self._deviation = moments[0], moments[1]


class MetaClip(ClippingPolicy):
    """The norm follows the gradient of the meta-loss with respect to it, privately. State: the norm.

    Source: Meta-Clip (docs/papers.md), C ← C - η dL/dC, made sound: the derivative of each task is clipped to
    a public bound, their sum is noised and charged, and the start is public.

    Args of the constructor:
        start: the first C, public.
        bound: B; derivatives are clipped to [-B, B], public.
        learning_rate: η. At z, C moves by noise of η·B·z / (sqrt(s)·tasks) a step.
        share: s of the cost that the derivatives get.
        smallest, largest: C stays between; None for a hundredth and a hundredfold of the start.
    """

    name = "meta-clip"
    follows_norm = True

    def __init__(
        self,
        start: float,
        bound: float,
        learning_rate: float = 0.05,
        share: float = 0.1,
        smallest: float | None = None,
        largest: float | None = None,
    ) -> None:
        check_above_0("start", start)
        check_above_0("bound", bound)
        check_above_0("learning_rate", learning_rate)
        check_between_0_and_1("share", share)
        super().__init__(start)
        self._smallest = start / 100 if smallest is None else smallest
        self._largest = start * 100 if largest is None else largest
        if not 0 < self._smallest <= start <= self._largest < math.inf:
            raise ConfigError(
                f"start={start:g}: from smallest={self._smallest:g}, which is above 0, "
                f"to largest={self._largest:g}, which is finite"
            )
        self.reach, self._learning_rate, self.share = bound, learning_rate, share

    def vote(self, rows: Tensor, slopes: Tensor) -> Tensor:
        """The derivative, clipped."""
        return slopes.clamp(-self.reach * BELOW, self.reach * BELOW)

    def learn(self, mean: Tensor, vote: float, sigma: float) -> Tensor:
        """C ← C - η dL/dC, within its range."""
        self.norm = min(max(self.norm - self._learning_rate * vote, self._smallest), self._largest)
        return mean


POLICIES: dict[str, type[ClippingPolicy]] = {
    policy.name: policy for policy in (Fixed, Automatic, Quantile, AdaClip, MetaClip)
}


def parse(name: str, settings: Mapping[str, float]) -> ClippingPolicy:
    """The policy of that name with these settings.

    Raises:
        ConfigError: no such policy or setting, a setting missing, or a value that cannot work.
    """
    if name == "meta-clip-published":
        raise ConfigError(
            "meta-clip-published is not a private clipping: its noise is inside the learning of each task, "
            "and nothing is proved about it; take meta-clip, or train without a promise and with --set "
            "inner_noise.noise_multiplier=0.4"
        )
    return policy_of(POLICIES, name, settings)


def policy_of(policies: Mapping[str, type[_Policy]], name: str, settings: Mapping[str, float]) -> _Policy:
    """Makes one of these policies. Raises ConfigError as `parse` does."""
    if name not in policies:
        raise ConfigError(f"no clipping policy is called {name!r}: {did_you_mean(name, policies)}")
    known = inspect.signature(policies[name]).parameters
    for word in settings:
        if word not in known:
            raise ConfigError(f"clipping {name} has no setting {word!r}: {did_you_mean(word, known)}")
    missing = [w for w, p in known.items() if p.default is inspect.Parameter.empty and w not in settings]
    if missing:
        cure = f"(sfumato train: --set private.settings.{missing[0]}=1)"
        raise ConfigError(
            f"clipping {name} needs {' and '.join(missing)}: give a public number above 0 {cure}"
        )
    return policies[name](**settings)
