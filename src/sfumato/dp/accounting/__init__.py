"""The total cost of noisy steps on sampled tasks, and the accountant that stops a run before its budget.

A step draws every task of the pool independently with a public probability, clips the contribution of each
drawn task to an L2 norm of C, sums, and adds Gaussian noise to the sum. Neighbours are pools that
differ by one task, added or removed; both directions are covered. An empty draw is a step like any other.

Three accountants answer the same question. PLD (privacy loss distributions, pessimistically rounded:
Doroshenko et al. 2022, "Connect the Dots") is an upper bound, and the number to state. RDP (Mironov et al.
2019) is a looser upper bound by another method: a cross-check. GDP (Dong, Roth & Su 2022, Sec. 5; Bu et al.
2020) is a central limit theorem: it may lie below the truth, and is never stated as a bound.

All of them hold for settings that are fixed beforehand or chosen by public events. Noise or rates that are
chosen by looking at noisy results need a privacy filter, which a PLD is not.
"""

from sfumato.dp.accounting.accountant import Accountant, Spent
from sfumato.dp.accounting.budgets import calibrate, steps_within
from sfumato.dp.accounting.costs import AccountantName, epsilon, image_epsilon
from sfumato.dp.accounting.stretches import MOST_STEPS, SMALLEST_DELTA, Stretch

__all__ = [
    "MOST_STEPS",
    "SMALLEST_DELTA",
    "Accountant",
    "AccountantName",
    "Spent",
    "Stretch",
    "calibrate",
    "epsilon",
    "image_epsilon",
    "steps_within",
]
