"""The adversary's knowledge, and the target of their guesses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.attack import label_inference
from sfumato.attack.gradient_inversion.config import InversionConfig
from sfumato.attack.gradient_inversion.victim import Gradients, Moments, Victim
from sfumato.errors import ConfigError, DataError

_STAND_INS = 256  # images for label inference
_LEAST = 1e-30


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """The adversary's knowledge, in addition to the model and the shared gradient.

    Attributes:
        shape: (C, H, W) of the images.
        batch: B, the number of images behind the gradient.
        labels: (B,) int64, in any order; None if unknown.
        statistics: maps the name of a batch norm layer to mean and variance (C,) of its inputs over the
            batch, for `InversionConfig.statistics`; None: they use the running ones of the model.
        pruned: they know that entries of 0 were pruned, and do not compare these.
        noise: standard deviation of the added noise that they know: a tensor of the gradient is weighted by
            its share of signal.
        local_steps: of SGD behind the shared difference of parameters, before minus after (FedAvg); the
            steps are simulated on the guess (Dimitrov et al. 2022, Algorithm 1).
        local_batch: b, the images of each of these steps; None: all B. Step t takes images t·b to t·b + b of
            the batch, and starts again at its end. If the client shuffles in each epoch, this order is right
            for the first only (the source has a prior for the others).
        local_rate: of these steps; 1 step of rate 1 is the gradient itself.
    """

    shape: tuple[int, int, int]
    batch: int = 1
    labels: Tensor | None = None
    statistics: Mapping[str, tuple[Tensor, Tensor]] | None = None
    pruned: bool = False
    noise: float = 0.0
    local_steps: int = 1
    local_rate: float = 1.0
    local_batch: int | None = None

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ConfigError(f"shape={self.shape}: channels, height and width of the images")
        for name in ("batch", "local_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: at least 1")
        if self.labels is not None and tuple(self.labels.shape) != (self.batch,):
            raise ConfigError(
                f"labels of shape {tuple(self.labels.shape)}: one for each of the {self.batch} images"
            )
        if not 0 <= self.noise < math.inf:
            raise ConfigError(f"noise={self.noise}: at least 0, its standard deviation")
        if self.local_batch is not None and not 1 <= self.local_batch <= self.batch:
            raise ConfigError(
                f"local_batch={self.local_batch}: a step sees 1 to {self.batch} images, those of the batch"
            )
        if not 0 < self.local_rate < math.inf:
            raise ConfigError(f"local_rate={self.local_rate}: above 0")


def in_common(knows: ThreatModel) -> tuple[object, ...]:
    """Return the settings that all problems of one call must share."""
    return (
        tuple(knows.shape), knows.batch, knows.pruned, knows.noise, knows.local_steps, knows.local_rate,
        knows.local_batch, knows.labels is None, knows.statistics is None,
    )  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """The target of a guess."""

    target: Tensor  # (P,), in the order of the victim's parameters
    weights: Tensor | None  # (P,), weights of entries; None: 1
    statistics: Moments
    labels: Tensor | None  # None: optimised


def problem_of(
    victim: Victim, shared: Gradients, knows: ThreatModel, config: InversionConfig, *, seed: int
) -> Problem:
    """Set up the problem of one gradient; inferred labels use stand-in images of that seed.

    Raises:
        DataError, ConfigError: see invert_all.
    """
    target = _check(victim, shared)
    statistics = {}
    for name in victim.norms:
        known = victim.running if knows.statistics is None else knows.statistics
        if name not in known:
            raise DataError(
                f"the known statistics lack {name}: give those of all {len(victim.norms)} batch norms"
            )
        mean, variance = known[name]
        statistics[name] = (mean.to(victim.device), variance.to(victim.device))
    labels = None
    if config.labels == "known" and knows.labels is None:
        raise ConfigError("labels='known', but the threat model has none: give them, or infer labels")
    if config.labels == "known":
        labels = knows.labels
    elif config.labels == "inferred":
        generator = torch.Generator().manual_seed(seed)
        counts = label_inference.counts(
            victim.model,
            {name: gradient / knows.local_rate for name, gradient in target.items()},
            knows.batch,
            label_inference.stand_ins(knows.shape, _STAND_INS, generator),
            local_steps=knows.local_steps,
            change=target,
        )
        labels = torch.arange(len(counts)).repeat_interleave(counts)
    flat = torch.cat([gradient.flatten() for gradient in target.values()])
    return Problem(flat, _weights(target, knows), statistics, labels)


def _check(victim: Victim, shared: Gradients) -> dict[str, Tensor]:
    """Return the gradient in the order of the parameters. Raises DataError."""
    missing = [name for name in victim.names if name not in shared]
    foreign = [name for name in shared if name not in victim.names]
    if missing or foreign:
        problems = [
            f"{what} {names[0]}" for what, names in (("lacks", missing), ("has unknown", foreign)) if names
        ]
        raise DataError(
            f"the gradient is of another model: it {' and '.join(problems)} "
            f"({len(missing)} lacking, {len(foreign)} unknown): give one for every trained parameter"
        )
    for name in victim.names:
        wanted, shape = victim.parameters[name].shape, shared[name].shape
        if wanted != shape:
            raise DataError(
                f"the gradient of {name} is {tuple(shape)} where the parameter is {tuple(wanted)}: "
                "it is of another model"
            )
        if not bool(shared[name].isfinite().all()):
            raise DataError(f"the gradient of {name} has numbers that are not finite: nothing can be matched")
    if not any(bool(shared[name].any()) for name in victim.names):
        raise DataError("the gradient is zero everywhere: it contains nothing about the images")
    return {
        name: shared[name].detach().to(victim.device, weight.dtype)
        for name, weight in victim.parameters.items()
    }


def _weights(target: Gradients, knows: ThreatModel) -> Tensor | None:
    """Return the (P,) weights of a gradient's entries; None if all are equal."""
    if not knows.noise and not knows.pruned:
        return None
    weights = torch.cat([_trust(gradient, knows).flatten() for gradient in target.values()])
    if not bool(weights.any()):
        raise ConfigError(
            f"no entry of this gradient counts with noise={knows.noise:g}: nothing can be matched"
        )
    return weights


def _trust(target: Tensor, knows: ThreatModel) -> Tensor:
    """Weigh entries: 0 for pruned ones, and tensors by their share of signal."""
    weight = torch.ones((), device=target.device, dtype=target.dtype)
    if knows.noise:
        energy = target.square().sum()
        weight = (1 - target.numel() * knows.noise**2 / energy.clamp(min=_LEAST)).clamp(min=0)
    return weight * (target != 0) if knows.pruned else weight.expand_as(target)
