"""The policies that choose norms, by their names in the CLI and in configurations."""

import inspect
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from sfumato.dp.clipping.moments import Moments
from sfumato.dp.clipping.policy import ClippingPolicy, Step, check_policy, norm_in
from sfumato.dp.clipping.rows import (
    BELOW,
    check_above_0,
    check_between_0_and_1,
    clip_rows,
    normalise_rows,
)
from sfumato.errors import ArtefactError, ConfigError, did_you_mean

_Policy = TypeVar("_Policy")


def split(noise_multiplier: float, *, share: float) -> tuple[float, float]:
    """z -> z of the sum and z of the other release, which together cost z (see the package)."""
    return noise_multiplier / math.sqrt(1 - share), noise_multiplier / math.sqrt(share)


class Fixed(ClippingPolicy):
    """One public norm for the whole run: the paper's "vanilla". State: none."""

    name = "fixed"

    def __init__(self, clipping_norm: float) -> None:
        check_above_0("clipping_norm", clipping_norm)
        super().__init__(clipping_norm)

    def _update(self, step: Step) -> Tensor:
        clip = partial(clip_rows, clipping_norm=self._norm)
        return step.mean(clip, step.noise_multiplier * self._norm)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Checks that the norm is the same; there is nothing else to restore."""
        if norm_in(state, self.name) != self._norm:
            raise ArtefactError(
                f"clipping_norm={self._norm:g} and the checkpoint has {state['norm']:g}: "
                "resume with the settings that it was made with"
            )


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

    def _update(self, step: Step) -> Tensor:
        normalise = partial(normalise_rows, stability=self._stability)
        return step.mean(normalise, step.noise_multiplier)

    def state(self) -> dict[str, Any]:
        """The policy's name and stability."""
        return {"policy": self.name, "stability": self._stability}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Checks that the stability is the same; there is nothing else to restore."""
        check_policy(state, self.name)
        if state.get("stability") != self._stability:
            raise ArtefactError(
                f"stability={self._stability:g} and the checkpoint has {state.get('stability')}: "
                "resume with the settings that it was made with"
            )


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
            (in the tests) for 4 to 16 tasks at z = 1 and log-normal norms of deviation 0.5: s = 0.1 gives the
            sum 5.4% more noise and keeps ln C within 0.18, 0.10 and 0.06 of the median's (root mean square;
            4, 8 and 16 tasks). With s = 0.01 it is over 0.5 for 4 tasks; s = 0.3 gains little, 0.12, for 20%
            more noise.
    """

    name = "quantile"
    follows_lengths = True

    def __init__(
        self, start: float, quantile: float = 0.5, learning_rate: float = 0.2, share: float = 0.1
    ) -> None:
        check_above_0("start", start)
        check_between_0_and_1("quantile", quantile)
        check_above_0("learning_rate", learning_rate)
        check_between_0_and_1("share", share)
        super().__init__(start)
        self._start, self._quantile, self._learning_rate, self._share = start, quantile, learning_rate, share

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """z / sqrt(1 - s)."""
        return split(noise_multiplier, share=self._share)[0]

    def _update(self, step: Step) -> Tensor:
        of_sum, of_bits = split(step.noise_multiplier, share=self._share)
        update = step.mean(partial(clip_rows, clipping_norm=self._norm), of_sum * self._norm)
        bits = ((step.norms <= self._norm).double() - 0.5) * step.finite  # (T,)
        fraction = step.mean_of(bits, of_bits / 2) + 0.5
        # In logarithms, and bounded: with few tasks the noise could leave the range of a double.
        wanted = math.log(self._norm) - self._learning_rate * (fraction - self._quantile)
        self._norm = math.exp(_clamp(wanted, math.log(self._start), 6 * math.log(10)))
        return update


class AdaClip(ClippingPolicy):
    """Coordinates are shifted and scaled by earlier releases, then the vector is clipped.

    Source: Pichapati et al. 2019, Algorithm 1; see `Moments`, whose settings these are. Mean and deviations
    come from noised releases, and cost nothing.

    A limit of the method: v is cut off below, so noise alone makes it positive on average. If P is well above
    (tasks / z)^2, as for every network with few tasks a step, v ends at h2 in the 32% of draws beyond one
    deviation, and at h1 in the others: s settles at 0.56·sqrt(h2) everywhere, which is a fixed norm of
    0.56·sqrt(P·h2). Choose `largest` with that in mind.

    State: mean and deviation of each coordinate.
    """

    name = "adaclip"

    def __init__(
        self,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        smallest: float = 1e-12,
        largest: float = 1.0,
    ) -> None:
        super().__init__(1.0)  # of the shifted and scaled vector
        self._moments = Moments(mean_decay, variance_decay, smallest, largest)

    def _update(self, step: Step) -> Tensor:
        mean, scale = self._moments.frame(step.size)

        def clip(row: Tensor) -> Tensor:
            # An omitted task must add nothing, and a zero row would become -m / b.
            shifted = torch.where(row.isfinite().all(), (row - mean) / scale, 0.0)
            return clip_rows(shifted, clipping_norm=1.0)

        moved = scale * step.mean(clip, step.noise_multiplier)  # (P,), g̃ - m
        self._moments.learn(moved, step.noise_multiplier / step.public_count)
        return mean + moved

    def state(self) -> dict[str, Any]:
        """The policy's name, and mean and deviation of each coordinate; None before the first step."""
        return self._moments.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resumes from the mean and deviation of a checkpoint."""
        self._moments.restore(state)


class MetaClip(ClippingPolicy):
    """The norm follows the gradient of the meta-loss with respect to it, privately. State: the norm.

    Source: Meta-Clip (docs/papers.md), C ← C - η dL/dC, made sound: the derivative of each task is clipped to
    a public bound, their sum is noised and charged, and the start is public, or from `private_start`.

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
        self._bound, self._learning_rate, self._share = bound, learning_rate, share

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """z / sqrt(1 - s)."""
        return split(noise_multiplier, share=self._share)[0]

    def _update(self, step: Step) -> Tensor:
        of_sum, of_slopes = split(step.noise_multiplier, share=self._share)
        bound = self._bound * BELOW
        update = step.mean(partial(clip_rows, clipping_norm=self._norm), of_sum * self._norm)
        slope = step.mean_of(step.slopes.clamp(-bound, bound), of_slopes * self._bound)
        self._norm = min(max(self._norm - self._learning_rate * slope, self._smallest), self._largest)
        return update


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


def _clamp(value: float, middle: float, reach: float) -> float:
    return min(max(value, middle - reach), middle + reach)
