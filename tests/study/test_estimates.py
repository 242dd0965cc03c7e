"""A number over seeds, with the interval that stands beside it."""

from hypothesis import given
from hypothesis.strategies import floats, lists

from sfumato.study.choose.estimates import over_seeds

SHARES = floats(0, 1)


@given(lists(SHARES, min_size=2, max_size=6))
def test_the_mean_over_seeds_lies_in_its_interval_whatever_is_rounded(shares: list[float]):
    estimate = over_seeds([(share, 0.0, 1.0) for share in shares])
    assert estimate.low <= estimate.value <= estimate.high


@given(SHARES)
def test_seeds_that_agree_have_no_interval(share: float):
    estimate = over_seeds([(share, 0.0, 1.0)] * 3)
    assert estimate.low == estimate.value == estimate.high == share
