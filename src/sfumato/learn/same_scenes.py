"""The same scenes with other people: the cost of a code's information about the person.

Source: ours; docs/papers.md, "Codes". A code of a task still reveals a little of the person: each bit is set
a few hundredths more often, or less, than in codes of others, and many releases add this up. Two images of
one scene (the same hat, light, pose and background) differ only in the person: their codes should not differ.
"""

from torch import Tensor

PAIRS, SETS = 5.0, 100.0  # of both costs; others were compared by studies/accelerator/releases.py at 258aef2f
_FROM, _UNTIL = 0.2, 0.5  # shares of a training, between which the weight rises


def height(done: float) -> float:
    """The share of the cost's weight after this share of the training: the task comes first."""
    return min(1.0, max(0.0, (done - _FROM) / (_UNTIL - _FROM)))


def cost(numbers: Tensor, codes: Tensor) -> Tensor:
    """The cost of one set: the variance between people in a scene, and that of people's mean codes.

    (P, S, d) of P people in the same S scenes: numbers before their sign, and codes as released.
    """
    return PAIRS * numbers.var(0).mean() + SETS * shift(codes)


def shift(codes: Tensor) -> Tensor:
    """The variance of people's mean codes, mean over bits. (P, S, d) in the same scenes, S even.

    The same scenes for everybody remove the task from it, and the product of the differences in two halves of
    the scenes has no bias from chance: it is 0 on average, and may be negative, if codes reveal no person.
    """
    halves = codes.unflatten(1, (2, -1)).mean(2)  # (P, 2, d)
    about = halves - halves.mean(0)
    variance: Tensor = (about[:, 0] * about[:, 1]).sum(0).mean() / (len(codes) - 1)
    return variance
