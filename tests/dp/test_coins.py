"""Coins that samplers toss: exact by their binary digits, with the bits that they are given."""

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from sfumato.dp.mechanisms import _Coin


def coin(chance: Fraction) -> _Coin:
    return _Coin(lambda digits: int(chance * 2**digits))


def bits_of(number: bytes) -> Callable[[int], bytes]:
    """A source that gives these bytes, in order."""
    left: Iterator[int] = iter(number)
    return lambda count: bytes(next(left) for _ in range(count))


@pytest.mark.parametrize(
    "chance", [Fraction(1, 3), Fraction(5, 7), Fraction(1, 2**20), Fraction(65535, 65536)]
)
def test_a_fresh_toss_compares_the_first_bytes_with_the_chance(chance: Fraction):
    """A uniform number of 80 bits, just below the chance and just above it."""
    below, above = int(chance * 2**80) - 1, int(chance * 2**80) + 1
    assert coin(chance).toss_fresh(bits_of(below.to_bytes(10)))
    assert not coin(chance).toss_fresh(bits_of(above.to_bytes(10)))


def test_two_bytes_decide_where_they_differ_from_the_chance():
    asked: list[int] = []

    def bits(count: int) -> bytes:
        asked.append(count)
        return b"\x40" * count

    assert coin(Fraction(1, 3)).toss_fresh(bits)
    assert not coin(Fraction(1, 5)).toss_fresh(bits)
    assert asked == [2, 2]
