"""Protections of the gradients that leave a client of federated learning: name of a parameter -> its gradient.

Sources: Zhu, Liu & Han 2019, Sec. 5, for pruning and noise; Abadi et al. 2016, Algorithm 1, for clipping
with noise. Pruning and noise alone prove nothing. Clipping with noise does, by `dp_sgd_epsilon`, if the
noise is fresh. Drawn here from a seeded generator, in floating point, it SIMULATES what an attack would meet,
and hides nothing. A release takes its noise from `dp.clipping.fresh_gaussian`, as `learn.meta` does.
"""

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from sfumato.dp.accounting import Stretch, epsilon
from sfumato.dp.clipping import Fixed

Gradients = Mapping[str, Tensor]


def prune(gradients: Gradients, *, share: float) -> dict[str, Tensor]:
    """Sets the entries of least magnitude to 0, for each tensor by itself.

    Source: Zhu et al. 2019, Sec. 5.2; by layer as GradAttack (Huang et al. 2021) and the SemSim paper, which prune 0.9
    and 0.99. There a quantile is the threshold, and entries that equal it stay; here exactly floor(share · n) of n
    entries are set to 0, the first among equal ones.
    """
    exact = Fraction(str(share))  # as written: 0.29 · 100 is 28.999... in floating point
    pruned = {}
    for name, gradient in gradients.items():
        values = gradient.flatten().clone()
        values[values.abs().argsort(stable=True)[: math.floor(exact * values.numel())]] = 0
        pruned[name] = values.reshape(gradient.shape)
    return pruned


def add_gaussian(gradients: Gradients, *, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Adds independent Gaussian noise of standard deviation `scale` to every entry.

    Source: Zhu et al. 2019, Sec. 5.1, whose numbers, 10^-4 to 10^-1, are VARIANCES: their square roots are the scale.
    """
    return {
        name: gradient + scale * _gaussian(gradient.shape, generator).to(gradient)
        for name, gradient in gradients.items()
    }


def add_laplacian(gradients: Gradients, *, scale: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Adds independent Laplace noise of standard deviation `scale`, b = scale / sqrt(2), to every entry."""
    noisy = {}
    for name, gradient in gradients.items():
        # The difference of two exponential variables is Laplace(b = 1).
        drawn = torch.empty(2, *gradient.shape, dtype=torch.float64).exponential_(generator=generator)
        noisy[name] = gradient + scale / math.sqrt(2) * (drawn[0] - drawn[1]).to(gradient)
    return noisy


def clip_and_noise(
    gradients: Gradients, *, clipping_norm: float, noise_multiplier: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Clips the gradient of each example, (B, ...), sums, adds noise once, divides by their number: DP-SGD.

    Source: Abadi et al. 2016, Algorithm 1, by `dp.clipping.Fixed`: the norm of an example is over all tensors
    together; the noise of the sum has a standard deviation of σ·C. It divides by B, which it assumes to be
    public: an accounted run divides by the expected number.
    """
    tensors = gradients.values()
    rows = torch.cat([gradient.flatten(1) for gradient in tensors], 1)  # (B, P)
    update = (
        Fixed(clipping_norm)
        .step(
            rows,
            noise_multiplier=noise_multiplier,
            public_count=len(rows),
            draw=lambda shape, std: std * _gaussian(shape, generator),
        )
        .update
    )
    parts = update.split([gradient[0].numel() for gradient in tensors])
    return {
        name: part.reshape(gradient.shape[1:]).to(gradient)
        for (name, gradient), part in zip(gradients.items(), parts, strict=True)
    }


def dp_sgd_epsilon(*, noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The ε of an example after steps of DP-SGD, with fresh noise and Poisson sampling: an upper bound (PLD)."""
    return epsilon([Stretch(noise_multiplier, rate, steps)], delta)


def _gaussian(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
