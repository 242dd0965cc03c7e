"""The guarantee of an update's noise, against every adversary."""

import math

from sfumato.audits.findings import Finding, Table
from sfumato.audits.update.case import Case
from sfumato.dp.naming import gaussian

_PRIORS = (10, 100, 1_000, 1_000_000)


def report_bound(case: Case) -> Finding:
    """Report the guarantee of noise against every adversary.

    Reconstruction robustness, Hayes, Mahloujifar & Balle 2023, Theorem 2: an adversary who comes near enough
    to an image with chance κ before they see the update, does so with at most Φ(Φ⁻¹(κ) + √T/σ) after it, for
    T steps of DP-SGD that may each see the image. Sampling of batches would reduce it.
    """
    noise, title = case.update.noise, "Bounds by the noise"
    if noise is None:
        return Finding(
            name="bound",
            title=title,
            verdict="not shown",
            sentence="No noise is stated, so nothing is proved: a stronger adversary may read more.",
        )
    mu = math.sqrt(case.update.training.steps) / noise.noise_multiplier
    bounds = {among: gaussian(1 / among, mu=mu).chance for among in _PRIORS}
    rows = tuple((f"1 in {among:,}", f"{bound:.2%}") for among, bound in bounds.items())
    among = 100
    return Finding(
        name="bound",
        title=title,
        verdict="bounded" if bounds[among] < 1 / 2 else "not shown",
        sentence=(
            f"Someone who guesses an image right 1 in {among} times beforehand does so in at most "
            f"{bounds[among]:.1%} of cases after this update, if noise of σ = {noise.noise_multiplier:g} was "
            f"added to gradients clipped to {noise.clipping_norm:g} in each of its steps."
        ),
        table=Table(
            ("chance beforehand", "at most afterwards"),
            rows,
            f"Φ(Φ⁻¹(κ) + √T/σ) with T = {case.update.training.steps}: Hayes et al. 2023, Theorem 2.",
        ),
        figures={"mu": mu, "bounds": {str(among): bound for among, bound in bounds.items()}},
    )
