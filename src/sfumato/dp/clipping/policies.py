"""The policies that choose norms, by the names that the CLI and configurations write."""

import inspect
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sfumato.dp.clipping.policy import ClippingPolicy, Step, check_policy, norm_in
from sfumato.dp.clipping.rows import (
    BELOW,
    check_above_0,
    check_between_0_and_1,
    clip_rows,
    normalise_rows,
    row_norms,
    single_rows,
)
from sfumato.errors import ArtefactError, ConfigError, did_you_mean


def split(noise_multiplier: float, *, share: float) -> tuple[float, float]:
    """z -> z of the sum and z of the other release, which together cost what z costs (see the module)."""
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
        """Check that the norm is the same: there is nothing to go on from."""
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
        super().__init__(1.0)  # whatever the contributions
        self._stability = stability

    def _update(self, step: Step) -> Tensor:
        normalise = partial(normalise_rows, stability=self._stability)
        return step.mean(normalise, step.noise_multiplier)

    def state(self) -> dict[str, Any]:
        """The policy's name and stability."""
        return {"policy": self.name, "stability": self._stability}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Check that the stability is the same: there is nothing to go on from."""
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
        within = row_norms(step.contributions) <= self._norm  # (T,)
        bits = (within.double() - 0.5) * step.finite  # (T,)
        update = step.mean(partial(clip_rows, clipping_norm=self._norm), of_sum * self._norm)
        fraction = step.mean_of(bits, of_bits / 2) + 0.5
        # In logarithms, and bounded: much noise on few tasks must not leave what a double can hold.
        wanted = math.log(self._norm) - self._learning_rate * (fraction - self._quantile)
        self._norm = math.exp(_bounded(wanted, math.log(self._start), 6 * math.log(10)))
        return update


class AdaClip(ClippingPolicy):
    """Coordinates are shifted and scaled by what earlier releases tell of them, then the vector is clipped.

    Source: Pichapati et al. 2019, Algorithm 1: w = (g - m) / b with b_i = sqrt(s_i · Σ s_j), s the standard
    deviations; w clipped to 1, summed and noised; g̃ = b·w̃ + m. Then v = (g̃ - m)^2 - b^2 σ^2 within [h1, h2],
    σ the noise of w̃; s^2 ← β2 s^2 + (1 - β2) v, m ← β1 m + (1 - β1) g̃. Mean and deviations come from noised
    releases, and cost nothing. The paper could not be read again for this: v is taken about the mean BEFORE
    its update, and the defaults, from memory, are to be checked against its experiments.

    A limit of the method: v is cut off below, so that noise alone makes it positive on average. Where P is
    well above (tasks / z)^2, as for every network with few tasks a step, v ends at h2 in the 32% of draws
    that are beyond one deviation, and at h1 in the others: s settles at 0.56·sqrt(h2) everywhere, which is a
    fixed norm of 0.56·sqrt(P·h2). Choose `largest` with that in mind.

    State: mean and deviation of each coordinate.

    Args of the constructor:
        mean_decay: β1.
        variance_decay: β2.
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
        self._mean: Tensor | None = None  # (P,), from the first step on
        self._deviation: Tensor | None = None  # (P,)

    def _update(self, step: Step) -> Tensor:
        mean, deviation = self._moments(step.contributions.shape[1])
        scale = (deviation * deviation.sum()).sqrt()  # (P,), b

        def clip(row: Tensor) -> Tensor:
            # A task left out must add nothing, and a zero row would become -m / b.
            shifted = torch.where(row.isfinite().all(), (row - mean) / scale, 0.0)
            return clip_rows(shifted, clipping_norm=1.0)

        moved = scale * step.mean(clip, step.noise_multiplier)  # (P,), g̃ - m
        sigma = step.noise_multiplier / step.public_count
        variance = (moved**2 - (scale * sigma) ** 2).clamp(self._smallest, self._largest)
        kept = self._variance_decay
        self._deviation = (kept * deviation**2 + (1 - kept) * variance).sqrt()
        self._mean = mean + (1 - self._mean_decay) * moved
        return mean + moved

    def _moments(self, size: int) -> tuple[Tensor, Tensor]:
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

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the mean and deviation of a checkpoint."""
        check_policy(state, self.name)
        mean, deviation = state.get("mean"), state.get("deviation")
        if mean is None and deviation is None:
            self._mean = self._deviation = None
            return
        try:
            moments = torch.tensor([mean, deviation], dtype=torch.float64)  # (2, P)
        except (TypeError, ValueError) as error:
            raise ArtefactError(f"the {self.name} state of the checkpoint is damaged: start anew") from error
        if moments.ndim != 2 or not (moments.isfinite().all() and (moments[1] > 0).all()):
            raise ArtefactError(f"the {self.name} state of the checkpoint is damaged: start anew")
        self._mean, self._deviation = moments[0], moments[1]


class MetaClip(ClippingPolicy):
    """The norm follows the gradient of the meta-loss with respect to it, privately. State: the norm.

    Source: Meta-Clip (docs/papers.md), C ← C - η dL/dC, made sound: the derivative of each task is clipped to
    a public bound, the sum of them noised and charged, and the start is public, or from `private_start`.

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


class PublishedMetaClip(ClippingPolicy):
    """Meta-Clip as published, to be compared with: NOT private. State: the norm, which is private data.

    Source: Meta-Clip (docs/papers.md), Algorithms 1 to 3: every task's clipped gradient gets noise of its
    own, N(0, z^2 C^2), and C ← C - η dL/dC by the raw derivative; `published_start` gives the first C. The
    norm, which `state` returns, and the scale of the noise are functions of private tasks that no noise
    covers. Where the paper is silent: means are over the public number of tasks; derivatives that are not
    finite count as zero; and C does not fall below a thousandth of its start.
    """

    name = "meta-clip-published"
    covered = False
    follows_norm = True
    not_covered = (
        "the clipping norm: its start is the median of the norms of private tasks, and it follows their raw "
        "derivatives, without noise. Nor the number of tasks: noise is drawn for each, and an empty step has "
        "none. The bound of the run is infinite; the paper's epsilon is conditional on a clipping norm that "
        "is public, which this one is not"
    )

    def __init__(self, start: float, learning_rate: float = 0.05) -> None:
        check_above_0("start", start)
        check_above_0("learning_rate", learning_rate)
        super().__init__(start)
        self._smallest, self._learning_rate = start / 1000, learning_rate

    def _update(self, step: Step) -> Tensor:
        # An empty batch draws no noise.
        total = torch.zeros(step.contributions.shape[1], dtype=torch.float64)
        for row in single_rows(step.contributions):
            clipped = clip_rows(row, clipping_norm=self._norm)[0]
            total += clipped + step.draw(tuple(clipped.shape), step.noise_multiplier * self._norm)
        slope = step.slopes.sum().item() / step.public_count
        self._norm = max(self._norm - self._learning_rate * slope, self._smallest)
        return total / step.public_count


POLICIES: dict[str, type[ClippingPolicy]] = {
    policy.name: policy for policy in (Fixed, Automatic, Quantile, AdaClip, MetaClip, PublishedMetaClip)
}


def parse(name: str, settings: Mapping[str, float]) -> ClippingPolicy:
    """The policy of that name with these settings, as the CLI and configurations write them.

    Raises:
        ConfigError: no such policy or setting, a setting missing, or a value that cannot work.
    """
    if name not in POLICIES:
        raise ConfigError(f"no clipping policy is called {name!r}: {did_you_mean(name, POLICIES)}")
    known = inspect.signature(POLICIES[name]).parameters
    for word in settings:
        if word not in known:
            raise ConfigError(f"clipping {name} has no setting {word!r}: {did_you_mean(word, known)}")
    missing = [w for w, p in known.items() if p.default is inspect.Parameter.empty and w not in settings]
    if missing:
        cure = f"(on the command line: --clip {missing[0]}=1)"
        raise ConfigError(
            f"clipping {name} needs {' and '.join(missing)}: give a public number above 0 {cure}"
        )
    return POLICIES[name](**settings)


def _bounded(value: float, middle: float, reach: float) -> float:
    return min(max(value, middle - reach), middle + reach)
