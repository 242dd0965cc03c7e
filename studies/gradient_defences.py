"""Protections of the gradients that leave a client of federated learning.

Sources: Zhu, Liu & Han 2019, Sec. 5, for pruning and noise; Abadi et al. 2016, Algorithm 1, for clipping
with noise. Pruning and noise alone prove nothing. Clipping with noise does, by `dp_sgd_epsilon`, if the
noise is fresh. Drawn here from a seeded generator, in floating point, it SIMULATES what an attack would meet,
and hides nothing. A release takes its noise from `dp.clipping.fresh_gaussian`, as `learn.meta` does.

Gradients are a dict from the name of a parameter to its gradient; results are new ones.
"""

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from sfumato.dp.accounting import Stretch, epsilon
from sfumato.dp.clipping import Fixed
from sfumato.errors import ConfigError, DataError

Gradients = Mapping[str, Tensor]


def prune(gradients: Gradients, *, share: float) -> dict[str, Tensor]:
    """Sets the entries of least magnitude to 0, for each tensor by itself.

    Source: Zhu et al. 2019, Sec. 5.2; by layer as GradAttack (Huang et al. 2021) and the SemSim paper
    (docs/papers.md, "SemSim"), which prune 0.9 and 0.99. There a quantile is the threshold, and entries that
    equal it stay; here exactly floor(share · n) of n entries are set to 0, the first among equal ones.

    Args:
        gradients: of any shapes.
        share: from 0 to below 1.

    Raises:
        ConfigError: a share outside.
        DataError: a gradient that is not finite.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"share={share:g}: from 0 to below 1, such as 0.9: the rest carries the update")
    _check_finite(gradients)
    # As written: 0.29 · 100 is 28.999... in floating point.
    exact = Fraction(str(share))
    pruned = {}
    for name, gradient in gradients.items():
        values = gradient.flatten().clone()
        least = values.abs().argsort(stable=True)[: math.floor(exact * values.numel())]
        values[least] = 0
        pruned[name] = values.reshape(gradient.shape)
    return pruned


def add_gaussian(gradients: Gradients, *, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Adds independent Gaussian noise of standard deviation `scale` to every entry.

    Source: Zhu et al. 2019, Sec. 5.1, whose numbers, 10^-4 to 10^-1, are VARIANCES: their square roots are
    the scale. The generator is seeded: a simulation, see the module.

    Raises:
        ConfigError: a scale below 0.
        DataError: a gradient that is not finite.
    """
    _check_noise(gradients, scale)
    return {
        name: gradient + scale * _on(gradient, _gaussian(gradient.shape, generator))
        for name, gradient in gradients.items()
    }


def add_laplacian(gradients: Gradients, *, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Adds independent Laplace noise of standard deviation `scale`, b = scale / sqrt(2), to every entry.

    Source and errors as of `add_gaussian`.
    """
    _check_noise(gradients, scale)
    noisy = {}
    for name, gradient in gradients.items():
        # The difference of two exponential variables is Laplace(b = 1).
        drawn = torch.empty(2, *gradient.shape, dtype=torch.float64).exponential_(generator=generator)
        noisy[name] = gradient + scale / math.sqrt(2) * _on(gradient, drawn[0] - drawn[1])
    return noisy


def clip_and_noise(
    gradients_of_examples: Gradients,
    *,
    clipping_norm: float,
    noise_multiplier: float,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Clips the gradient of each example, sums, adds Gaussian noise once, divides by their number: DP-SGD.

    Source: Abadi et al. 2016, Algorithm 1, by `dp.clipping.Fixed`: the norm of an example is over all tensors
    together; the noise of the sum has a standard deviation of σ·C. It divides by B, which it assumes to be
    public: an accounted run divides by the expected number.

    Args:
        gradients_of_examples: name -> (B, ...), such as `torch.func.vmap` of a gradient gives.
        clipping_norm: C > 0.
        noise_multiplier: σ >= 0, in units of C; 0 adds no noise, and promises nothing.
        generator: of the noise; seeded: a simulation, see the module.

    Returns:
        name -> (...), of the types of the gradients.

    Raises:
        ConfigError: a norm or noise outside these bounds.
        DataError: no gradients, different numbers of examples, or a gradient that is not finite.
    """
    counts = {len(gradient) for gradient in gradients_of_examples.values()}
    if len(counts) != 1 or counts == {0}:
        raise DataError(
            f"gradients of {sorted(counts)} examples: every tensor has its examples first, 1 or more, and as "
            "many as the others"
        )
    _check_finite(gradients_of_examples)
    tensors = gradients_of_examples.values()
    rows = torch.cat([gradient.flatten(1) for gradient in tensors], 1)  # (B, P)
    outcome = Fixed(clipping_norm).step(
        rows,
        noise_multiplier=noise_multiplier,
        public_count=len(rows),
        draw=lambda shape, std: std * _gaussian(shape, generator),
    )
    parts = outcome.update.split([gradient[0].numel() for gradient in tensors])
    return {
        name: _on(gradient, part.reshape(gradient.shape[1:]))
        for (name, gradient), part in zip(gradients_of_examples.items(), parts, strict=True)
    }


def dp_sgd_epsilon(*, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The ε of an example after steps of DP-SGD, with fresh noise and Poisson sampling: an upper bound (PLD).

    Bounds, errors and names are those of `dp.accounting.epsilon`.
    """
    return epsilon([Stretch(noise_multiplier, rate, steps)], delta)


def _gaussian(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _on(gradient: Tensor, values: Tensor) -> Tensor:
    """Values with the type and the device of a gradient: all devices draw the same noise."""
    return values.to(gradient.device, gradient.dtype)


def _check_noise(gradients: Gradients, scale: float) -> None:
    if not 0 <= scale < math.inf:
        raise ConfigError(f"scale={scale:g}: a standard deviation from 0 (no noise), and finite")
    _check_finite(gradients)


def _check_finite(gradients: Gradients) -> None:
    for name, gradient in gradients.items():
        # Of the extremes: a mask of all values takes longer than the step.
        if gradient.numel() and not torch.stack(gradient.aminmax()).isfinite().all():
            raise DataError(
                f"the gradient of {name!r} has values that are not finite: the training has diverged, take a "
                "smaller learning rate"
            )
