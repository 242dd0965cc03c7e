"""How exactly the numbers of an update are known: in mixed precision to 16 bits, of two states to theirs."""

import torch
from torch import Tensor

_KNOWN = (8, 11, 24)  # significant bits of bfloat16, float16 and float32
_MOSTLY = 0.9  # of the numbers: in the rest the difference of two states was rounded itself


def significant_bits(numbers: Tensor) -> int:
    """In how many bits all numbers are exact: 8 of bfloat16, 11 of float16, 24 of float32, or else 53.

    They show it whatever type they are kept in, and whatever power of two a loss was scaled by.
    """
    return next((bits for bits in _KNOWN if bool(_exact(numbers, bits).all())), 53)


def rounding(change: Tensor, before: Tensor) -> Tensor:
    """What rounding may have added to the numbers of each row: root mean squares, upper estimates.

    Args:
        change: (m, ...), a tensor of the update.
        before: the parameter that it is of. Where taking the one from the other gives a state of the same
            precision, the update is a difference of two such states, and has their rounding.
    """
    bits, own = significant_bits(change), significant_bits(before)
    added = 2.0**-bits * _typical(change)
    if bits < 24 and bool(change.any()):
        added += change[change != 0].abs().min()  # the least number of 16 bits: smaller ones are none
    if float(_exact(before.double() - change.double(), own).double().mean()) > _MOSTLY:
        added += 2.0**-own * _typical(before)
    return added


def _exact(numbers: Tensor, bits: int) -> Tensor:
    """Which numbers have no more significant bits."""
    scaled: Tensor = torch.frexp(numbers.detach().double()).mantissa * 2**bits
    return scaled.eq(scaled.round())


def _typical(numbers: Tensor) -> Tensor:
    """(m,) root mean squares of rows."""
    return numbers.detach().double().flatten(1).square().mean(1).sqrt()
