"""The cost of stretches of steps to a task, and to an image."""

import math
from collections.abc import Sequence
from typing import Literal

from sfumato.dp.accounting.cross_checks import gdp_epsilon, rdp_epsilon
from sfumato.dp.accounting.losses import pld_epsilon
from sfumato.dp.accounting.stretches import Stretch, by_setting, check_stretches
from sfumato.errors import ConfigError, did_you_mean

AccountantName = Literal["pld", "rdp", "gdp"]


def epsilon(stretches: Sequence[Stretch], delta: float, accountant: AccountantName = "pld") -> float:
    """The ε of all stretches together for a TASK, at δ.

    Source: Doroshenko et al. 2022 ("pld"); Mironov, Talwar & Zhang 2019 with Canonne, Kamath & Steinke 2020,
    Prop. 12 ("rdp"); Bu, Dong, Long & Su 2020, Theorem 5 ("gdp": μ^2 = sum of T q^2 (e^(1/σ^2) - 1)). The
    first two as Google's dp-accounting has them.

    Promises: "pld" and "rdp" are upper bounds. "pld" is above the truth by less than 0.1% for usual training
    settings, and by more at the extremes: ε above 100, or far below 0.01. "gdp" promises nothing.

    Args:
        stretches: in any order, since composition has none; no stretch costs 0.
        delta: δ, from 1e-9 to below 1.
        accountant: "pld" to state, "rdp" to check it, "gdp" to compare with papers that state it.

    Returns:
        ε >= 0; infinity without noise, or if the bound is beyond all use (about 10^6).

    Raises:
        ConfigError: δ is out of range, there are more than 10^6 steps, or no such accountant.
        MissingExtraError: dp-accounting is not installed.
    """
    check_stretches(stretches, delta)
    steps = by_setting(stretches)
    if not steps:
        return 0.0
    match accountant:
        case "pld":
            return pld_epsilon(steps, delta, tasks=1)
        case "rdp":
            return rdp_epsilon(steps, delta)
        case "gdp":
            return gdp_epsilon(steps, delta)
    raise ConfigError(
        f"no accountant is called {accountant!r}: {did_you_mean(accountant, ('pld', 'rdp', 'gdp'))}"
    )


def image_epsilon(tasks: int, stretches: Sequence[Stretch], delta: float) -> float:
    """The ε of an IMAGE that occurs in up to `tasks` tasks of a pool whose tasks overlap: an upper bound.

    Neighbours are a pool and the one without the image and without all tasks that it occurs in. Of these k
    tasks Binomial(k, q) are drawn into a step, and each moves the sum by C at most: a mixture of Gaussians,
    which dominates the release (Choquette-Choo et al. 2024, "Privacy Amplification for Matrix Mechanisms",
    Corollary 4.7), also for images in fewer tasks. Composed as a PLD, on a coarser grid than for
    `epsilon`: 0.02% above the truth for 1000 steps at rate 0.016, 0.5% for 10,000 at 0.0016.
    It says nothing about pools in which another image replaces it in those tasks.

    Args:
        tasks: k >= 1, a public bound on the number of tasks with the same image.
        stretches: as for `epsilon`; their σ stays in units of the clipping norm of one task.
        delta: δ, from 1e-9 to below 1.

    Returns:
        ε >= 0; with k = 1 that of `epsilon`.

    Raises:
        ConfigError: k is below 1, or `epsilon` refuses its arguments.
    """
    if not (1 <= tasks < math.inf and tasks == int(tasks)):
        raise ConfigError(f"tasks={tasks}: an image that counts occurs in at least 1 task, a whole number")
    check_stretches(stretches, delta)
    steps = by_setting(stretches)
    return pld_epsilon(steps, delta, tasks=int(tasks)) if steps else 0.0
