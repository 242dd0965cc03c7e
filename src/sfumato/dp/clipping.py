"""How far a task may move the meta-update, who decides it, and whether that decision is paid for.

At a meta-step tasks are Poisson-sampled, and each gives one vector: all layers and, for Meta-SGD, its
learning rates. A policy clips every vector, adds Gaussian noise once to the sum, divides by the PUBLIC number
of tasks (rate times pool size: the realised number is secret), and then updates its norm from noised values
alone.

The unit is one task, added or removed. A step of a covered policy costs what ONE Gaussian mechanism with
noise multiplier z costs. A policy that releases a second value pays for it from the same z, by a share s:

    z_sum = z / sqrt(1 - s),   z_other = z / sqrt(s),   1 / z_sum^2 + 1 / z_other^2 = 1 / z^2.

Both values, each divided by its noise, are one vector that a task moves by at most 1 / z, and they come from
one draw of tasks: also under Poisson sampling they are one Gaussian mechanism (Andrew et al. 2021, Theorem 1,
is this with s = z^2 / z_other^2).

Floating point gives nothing away (Mironov 2012): clipped values are cut towards zero to a grid, 2^40 steps
of which or more are one deviation of the noise, and `fresh_gaussian` draws noise on that grid, as a discrete
Gaussian. While tasks / z is below 4,096, float64 adds such numbers exactly. A Gaussian added to a whole
number and rounded is a Gaussian mechanism, rounded; and of 2^40 steps, a discrete Gaussian is as likely as a
rounded one, up to a factor of 1 ± 2^-73 within 40 deviations: 2^-33 of ε for 10^6 values in 10^6 steps.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ArtefactError, ConfigError, did_you_mean

Draw = Callable[[tuple[int, ...], float], Tensor]  # shape, standard deviation -> Gaussian noise, float64

# Vectors are cut to a hair below C: far more than float64 loses in norms of 10^6 values and in sums of tasks.
_BELOW = 1 - 1e-9


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
class _Step:
    """What a policy is given at a meta-step, checked; see ClippingPolicy.step."""

    contributions: Tensor  # (T, P)
    finite: Tensor  # (T,) bool
    slopes: Tensor  # (T,) float64, derivatives that are finite; empty for a policy that does not follow them
    noise_multiplier: float
    public_count: float
    draw: Draw

    def mean(self, clip: Callable[[Tensor], Tensor], std: float) -> Tensor:
        """(P,) float64, of the clipped contributions; `std` is of the noise on their sum."""
        return _noised_sum(self.contributions, clip, std, self.draw) / self.public_count

    def mean_of(self, values: Tensor, std: float) -> float:
        """Of another value of each task, (T,); `std` is of the noise on their sum."""
        return _noised(values, std, self.draw).item() / self.public_count


class ClippingPolicy(ABC):
    """Clips, sums, noises, and chooses the next norm. State: what it learned from its own noised releases.

    Attributes:
        name: as `parse` knows it.
        covered: whether all that it releases lies within the stated ε.
        not_covered: what does not, in words for an artefact's card; empty where nothing is left out.
        follows_norm: whether it needs the derivative of each task with respect to C.
    """

    name: ClassVar[str]
    covered: ClassVar[bool] = True
    not_covered: ClassVar[str] = ""
    follows_norm: ClassVar[bool] = False

    def __init__(self, norm: float) -> None:
        self._norm = norm

    @property
    def norm(self) -> float:
        """C, the norm in force. Public, where the policy is covered."""
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
        step = _Step(contributions, finite, slopes, noise_multiplier, public_count, draw)
        return Outcome(self._update(step), not bool(sound.all()))

    @abstractmethod
    def _update(self, step: _Step) -> Tensor:
        """Release the mean contribution, (P,) float64, and choose the next norm."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on exactly: plain JSON."""
        return {"policy": self.name, "norm": self._norm}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`. Raises ArtefactError where it is of another policy, or damaged."""
        self._norm = _norm_in(state, self.name)


def clip_rows(contributions: Tensor, *, clipping_norm: float) -> Tensor:
    """Scale each task's contribution to an L2 norm of at most C. (T, P) -> (T, P) float64.

    Source: Abadi et al. 2016, Algorithm 1, with a task in the place of an example.

    Guarantees, in exact arithmetic on the float64 result: no row has a norm above C; a row within
    (1 - 1e-9)·C comes back unchanged, a zero row too; a row with a value that is not finite becomes zero, so
    that no task can spoil the sum. The sum over tasks has L2 sensitivity C when a task is added or removed.
    """
    _above_0("clipping_norm", clipping_norm)
    rows, _ = _finite(contributions)
    unit, peaks = _scaled(rows)
    lengths = unit.norm(dim=1, keepdim=True)  # (T, 1), 1 or more but for zero rows
    limit = clipping_norm * _BELOW
    clipped: Tensor = torch.where(peaks * lengths <= limit, rows, unit * (limit / lengths.clamp(min=1)))
    return clipped


def normalise_rows(contributions: Tensor, *, stability: float) -> Tensor:
    """g / (|g| + γ) for each task. (T, P) -> (T, P) float64, each of a norm below 1.

    Source: Bu, Wang, Zha & Karypis 2022, "Automatic clipping", AUTO-S. Rows that are not finite become zero.
    """
    rows, _ = _finite(contributions)
    unit, peaks = _scaled(rows)
    lengths = unit.norm(dim=1, keepdim=True)  # (T, 1)
    denominators: Tensor = lengths + stability / peaks
    return unit * _BELOW / denominators


def split(noise_multiplier: float, *, share: float) -> tuple[float, float]:
    """z -> z of the sum and z of the other release, which together cost what z costs (see the module)."""
    return noise_multiplier / math.sqrt(1 - share), noise_multiplier / math.sqrt(share)


class Fixed(ClippingPolicy):
    """One public norm for the whole run: the paper's "vanilla". State: none."""

    name = "fixed"

    def __init__(self, clipping_norm: float) -> None:
        _above_0("clipping_norm", clipping_norm)
        super().__init__(clipping_norm)

    def _update(self, step: _Step) -> Tensor:
        clip = partial(clip_rows, clipping_norm=self._norm)
        return step.mean(clip, step.noise_multiplier * self._norm)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Check that the norm is the same: there is nothing to go on from."""
        if _norm_in(state, self.name) != self._norm:
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
        _above_0("stability", stability)
        super().__init__(1.0)  # whatever the contributions
        self._stability = stability

    def _update(self, step: _Step) -> Tensor:
        normalise = partial(normalise_rows, stability=self._stability)
        return step.mean(normalise, step.noise_multiplier)

    def state(self) -> dict[str, Any]:
        """The policy's name and stability."""
        return {"policy": self.name, "stability": self._stability}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Check that the stability is the same: there is nothing to go on from."""
        _check_policy(state, self.name)
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
        _above_0("start", start)
        _between_0_and_1("quantile", quantile)
        _above_0("learning_rate", learning_rate)
        _between_0_and_1("share", share)
        super().__init__(start)
        self._start, self._quantile, self._learning_rate, self._share = start, quantile, learning_rate, share

    def sum_multiplier(self, noise_multiplier: float) -> float:
        """z / sqrt(1 - s)."""
        return split(noise_multiplier, share=self._share)[0]

    def _update(self, step: _Step) -> Tensor:
        of_sum, of_bits = split(step.noise_multiplier, share=self._share)
        within = _norms(step.contributions) <= self._norm  # (T,)
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
        _between_0_and_1("mean_decay", mean_decay)
        _between_0_and_1("variance_decay", variance_decay)
        _above_0("smallest", smallest)
        _above_0("largest", largest)
        if smallest >= largest:
            raise ConfigError(
                f"smallest={smallest:g}: below largest={largest:g}, between which variances lie"
            )
        super().__init__(1.0)  # of the shifted and scaled vector
        self._mean_decay, self._variance_decay = mean_decay, variance_decay
        self._smallest, self._largest = smallest, largest
        self._mean: Tensor | None = None  # (P,), from the first step on
        self._deviation: Tensor | None = None  # (P,)

    def _update(self, step: _Step) -> Tensor:
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
        _check_policy(state, self.name)
        mean, deviation = state.get("mean"), state.get("deviation")
        if mean is None and deviation is None:
            self._mean = self._deviation = None
            return
        try:
            found = torch.tensor([mean, deviation], dtype=torch.float64)  # (2, P)
        except (TypeError, ValueError) as error:
            raise ArtefactError(f"the {self.name} state of the checkpoint is damaged: start anew") from error
        if found.ndim != 2 or not (found.isfinite().all() and (found[1] > 0).all()):
            raise ArtefactError(f"the {self.name} state of the checkpoint is damaged: start anew")
        self._mean, self._deviation = found[0], found[1]


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
        _above_0("start", start)
        _above_0("bound", bound)
        _above_0("learning_rate", learning_rate)
        _between_0_and_1("share", share)
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

    def _update(self, step: _Step) -> Tensor:
        of_sum, of_slopes = split(step.noise_multiplier, share=self._share)
        bound = self._bound * _BELOW
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
        _above_0("start", start)
        _above_0("learning_rate", learning_rate)
        super().__init__(start)
        self._smallest, self._learning_rate = start / 1000, learning_rate

    def _update(self, step: _Step) -> Tensor:
        # An empty batch draws no noise.
        total = torch.zeros(step.contributions.shape[1], dtype=torch.float64)
        for row in _rows(step.contributions):
            clipped = clip_rows(row, clipping_norm=self._norm)[0]
            total += clipped + step.draw(tuple(clipped.shape), step.noise_multiplier * self._norm)
        slope = step.slopes.sum().item() / step.public_count
        self._norm = max(self._norm - self._learning_rate * slope, self._smallest)
        return total / step.public_count


def private_start(
    norms: Tensor,
    *,
    noise_multiplier: float,
    draw: Draw,
    smallest: float = 1e-3,
    largest: float = 1e3,
    bins: int = 24,
    quantile: float = 0.5,
) -> float:
    """A quantile of the norms, from a noised histogram over geometric bins.

    A task is in one bin (norms beyond the range in the first or last, norms that are no number in none):
    adding or removing it moves the counts by at most 1 in L2. All counts are one Gaussian release of
    sensitivity 1, to be charged: at rate 1 where the norms of all tasks were given. The start is the
    geometric middle of the bin that best holds the quantile of the noised counts: an edge of it would not do,
    since all norms may be in one bin, and every edge then parts them as badly. A bin ends at 1.8 times its
    beginning, by default.

    Args:
        norms: (T,), of the contributions of tasks; may be empty.
        noise_multiplier: z >= 0, the standard deviation of the noise on each count.
        draw: Gaussian noise.
        smallest, largest: the range, public.
        bins: how many.
        quantile: γ in (0, 1).
    """
    _above_0("smallest", smallest)
    _between_0_and_1("quantile", quantile)
    if not smallest < largest < math.inf:
        raise ConfigError(f"largest={largest:g}: above smallest={smallest:g}, and finite")
    if bins < 2:
        raise ConfigError(f"bins={bins}: at least 2, or there is nothing to choose")
    _check_noise(noise_multiplier)
    edges = torch.logspace(math.log10(smallest), math.log10(largest), bins + 1, dtype=torch.float64)
    known = norms.detach().to("cpu", torch.float64).flatten()
    places = torch.bucketize(known[~known.isnan()], edges[1:-1])  # 0 to bins - 1
    counts = places.bincount(minlength=bins).double()  # (bins,)
    noisy = _noised(counts[None], noise_multiplier, draw)
    below = torch.cat([noisy.new_zeros(1), noisy.cumsum(0)])  # (bins + 1,), up to each edge
    wanted = quantile * below[-1]
    found = int(torch.maximum(below[:-1] - wanted, wanted - below[1:]).argmin())
    return math.sqrt(edges[found] * edges[found + 1])


def published_start(norms: Tensor) -> float:
    """The median of the norms of the first epoch: private data, for `PublishedMetaClip` alone."""
    known = norms.detach().to("cpu", torch.float64).flatten()
    known = known[known.isfinite()]
    if not len(known) or not known.median() > 0:
        raise ConfigError(
            "the median of the first epoch's norms is not above 0: train on tasks that have one"
        )
    return float(known.quantile(0.5))


def fresh_gaussian(shape: tuple[int, ...], std: float) -> Tensor:
    """Noise of the operating system's entropy for real runs. -> float64 of `shape`.

    A discrete Gaussian on a grid, see the module, whose deviation is `std` or up to 2^-40 of it more.
    """
    if not std:
        return torch.zeros(shape, dtype=torch.float64)
    step = _grid(std)
    drawn = fresh_noise().discrete_gaussian(shape or (1,), variance=Fraction(math.ceil(std / step) ** 2))
    return (drawn.double() * step).reshape(shape)


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
        raise ConfigError(f"clipping {name} needs {' and '.join(missing)}: give a public number above 0")
    return POLICIES[name](**settings)


def _finite(contributions: Tensor) -> tuple[Tensor, Tensor]:
    """(T, P) -> (T, P) float64 with zero rows for those that are not finite, and (T,) bool: which are."""
    rows = contributions.detach().to("cpu", torch.float64)
    finite = rows.isfinite().all(1)
    return torch.where(finite[:, None], rows, 0.0), finite


def _scaled(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(T, P) -> rows over their largest value, (T, P), and that value, (T, 1): norms that cannot overflow."""
    peaks = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return rows / peaks, peaks


def _noised(rows: Tensor, std: float, draw: Draw) -> Tensor:
    """(T, ...) -> (...), the sum with noise; see `_noised_sum`."""
    if not std:
        return rows.sum(0)
    step = _grid(std)
    return (rows / step).trunc().sum(0) * step + draw(tuple(rows.shape[1:]), std)


def _noised_sum(rows: Tensor, change: Callable[[Tensor], Tensor], std: float, draw: Draw) -> Tensor:
    """(T, P) -> (P,), the sum of all changed rows with noise: here private values meet it.

    Row by row, which stays in the processor's cache: ten times as fast for networks of 10^5 parameters.

    Args:
        rows: contributions.
        change: (1, P) -> (1, P) float64, what clips them.
        std: of the noise.
        draw: see Draw.
    """
    step = _grid(std) if std else 1.0
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for row in _rows(rows):
        changed = change(row.detach().to("cpu", torch.float64)) / step
        total += (changed.trunc_() if std else changed)[0]
    return total * step + draw(tuple(total.shape), std)


def _grid(std: float) -> float:
    """The step of the grid of noise: a power of two, 2^40 to 2^41 of which are the deviation."""
    return 2.0 ** (math.frexp(std)[1] - 41)


def _slopes(derivatives: Tensor | None, finite: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """(T,) -> (T,) float64, zero where not finite, and (T,) bool: where contribution and derivative are."""
    if derivatives is None:
        raise ConfigError(f"clipping {name} follows dL/dC: hand in derivatives, one number a task")
    if derivatives.shape != finite.shape:
        raise ConfigError("derivatives are one number a task: their shape does not fit the contributions")
    slopes = derivatives.detach().to("cpu", torch.float64)
    return torch.where(slopes.isfinite(), slopes, 0.0), finite & slopes.isfinite()


def _bounded(value: float, middle: float, reach: float) -> float:
    return min(max(value, middle - reach), middle + reach)


def _checked(contributions: Tensor, noise_multiplier: float, public_count: float) -> Tensor:
    """(T,) bool, which rows are finite; after the checks that every step needs."""
    if contributions.ndim != 2 or not contributions.shape[1]:
        raise ConfigError("contributions are (tasks, values), with one value or more: flatten each task")
    _check_noise(noise_multiplier)
    if not 0 < public_count < math.inf:
        raise ConfigError(
            f"public_count={public_count:g}: above 0 and finite; "
            "take rate times pool size, never how many were drawn"
        )
    return contributions.detach().isfinite().all(1).cpu()


def _rows(contributions: Tensor) -> Iterator[Tensor]:
    """Each as (1, P)."""
    return (contributions[i : i + 1] for i in range(len(contributions)))


def _norms(contributions: Tensor) -> Tensor:
    """(T, P) -> (T,) float64; of rows that are not finite, 0."""
    scaled = [_scaled(_finite(row)[0]) for row in _rows(contributions)]
    return torch.tensor([float(peak * unit.norm()) for unit, peak in scaled], dtype=torch.float64)


def _check_noise(noise_multiplier: float) -> None:
    if not 0 <= noise_multiplier < math.inf:
        raise ConfigError(
            f"noise_multiplier={noise_multiplier:g}: from 0 (no noise, no promise), and finite; "
            "dp.accounting.calibrate finds one for a budget"
        )


def _above_0(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{name}={value:g}: above 0 and finite")


def _between_0_and_1(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigError(f"{name}={value:g}: above 0 and below 1")


def _check_policy(state: Mapping[str, Any], name: str) -> None:
    if state.get("policy") != name:
        raise ArtefactError(
            f"the checkpoint was made with clipping {state.get('policy')}, not {name}: resume with that one"
        )


def _norm_in(state: Mapping[str, Any], name: str) -> float:
    _check_policy(state, name)
    norm = state.get("norm")
    if not isinstance(norm, float | int) or not 0 < norm < math.inf:
        raise ArtefactError(f"the {name} state of the checkpoint is damaged: start anew")
    return float(norm)
