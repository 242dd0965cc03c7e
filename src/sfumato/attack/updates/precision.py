"""The precision of an update's numbers: 16 bits in mixed precision, or that of two states."""

import torch
from torch import Tensor

_KNOWN = (8, 11, 24)  # significant bits of bfloat16, float16 and float32
_GRID = 1e-2  # of its step: numbers of a grid are as near to it
_MOSTLY = 0.9  # share of the numbers: in the rest the difference itself was rounded


def significant_bits(numbers: Tensor) -> int:
    """Count the bits in which all numbers are exact: 8 of bfloat16, 11 of float16, 24 of float32, or else 53.

    This does not depend on their present type, nor on a loss scaled by a power of two.
    """
    return next((bits for bits in _KNOWN if bool(_exact(numbers, bits).all())), 53)


def rounding(change: Tensor, before: Tensor, steps: int = 1) -> Tensor:
    """Estimate the rounding error of the numbers of each row: root mean squares, upper bounds.

    Args:
        change: (m, ...), a tensor of the update.
        before: the parameter. If subtracting the update from it gives a state of the same precision, the
            update is a difference of two such states, and has their rounding.
        steps: of the client, each of which rounds the state.
    """
    bits, own = significant_bits(change), significant_bits(before)
    added = 2.0**-bits * _typical(change)
    least = change[change != 0].abs().min() if bool(change.any()) else change.new_zeros(())
    if bits < 24 or bool(((change / least).round() * least - change).abs().amax() < _GRID * least):
        added += least  # of 16 bits, or of a grid as of 8 bits: smaller numbers vanish
    if float(_exact(before.double() - change.double(), own).double().mean()) > _MOSTLY:
        added += 2.0**-own * _typical(before) * steps**0.5
    return added


def _exact(numbers: Tensor, bits: int) -> Tensor:
    """Mark the numbers with at most this many significant bits."""
    scaled: Tensor = torch.frexp(numbers.detach().double()).mantissa * 2**bits
    return scaled.eq(scaled.round())


def _typical(numbers: Tensor) -> Tensor:
    """Compute (m,) root mean squares of rows."""
    return numbers.detach().double().flatten(1).square().mean(1).sqrt()
