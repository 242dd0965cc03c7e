"""How far a task may move the meta-update, who decides it, and how that decision is paid for.

At a meta-step tasks are Poisson-sampled, and each gives one vector: all layers and, for Meta-SGD, its
learning rates. A policy clips every vector, adds Gaussian noise once to the sum, divides by the PUBLIC number
of tasks (rate times pool size: the realised number is secret), and then updates its norm from noised values
alone.

The unit is one task, added or removed. A step costs what ONE Gaussian mechanism with noise multiplier z
costs. A policy that releases a second value pays for it from the same z, by a share s:

    z_sum = z / sqrt(1 - s),   z_other = z / sqrt(s),   1 / z_sum^2 + 1 / z_other^2 = 1 / z^2.

Both values, each divided by its noise, are one vector that a task moves by at most 1 / z, and they come from
one draw of tasks: also under Poisson sampling they are one Gaussian mechanism (Andrew et al. 2021, Theorem 1,
is this with s = z^2 / z_other^2).

Floating point leaks nothing (Mironov 2012): clipped values are cut towards zero to a grid with at least 2^40
steps in one deviation of the noise, and `fresh_gaussian` draws noise on that grid, as a discrete
Gaussian. While tasks / z is below 4,096, float64 adds such numbers exactly. A Gaussian added to a whole
number and rounded is a Gaussian mechanism, rounded; with 2^40 steps, a discrete Gaussian is as likely as a
rounded one, up to a factor of 1 ± 2^-73 within 40 deviations: 2^-33 of ε for 10^6 values in 10^6 steps.
"""

from sfumato.dp.clipping.policies import (
    POLICIES,
    AdaClip,
    Automatic,
    ClippingPolicy,
    Fixed,
    MetaClip,
    Outcome,
    Part,
    Quantile,
    parse,
    policy_of,
    split,
)
from sfumato.dp.clipping.rows import Draw, clip_rows, fresh_gaussian, normalise_rows

__all__ = [
    "POLICIES",
    "AdaClip",
    "Automatic",
    "ClippingPolicy",
    "Draw",
    "Fixed",
    "MetaClip",
    "Outcome",
    "Part",
    "Quantile",
    "clip_rows",
    "fresh_gaussian",
    "normalise_rows",
    "parse",
    "policy_of",
    "split",
]
