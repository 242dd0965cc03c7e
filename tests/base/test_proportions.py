"""Intervals of proportions among groups."""

import pytest

from sfumato.base.proportions import of_groups, wilson


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_none_or_all_has_the_interval_of_its_trials_whatever_its_variance(share: float):
    low, high = of_groups(share, 0.01, groups=1000, trials=500)
    assert (low, high) == of_groups(share, 0.0, groups=1000, trials=500)
    assert (low, high) == pytest.approx(wilson(500 * share, 500), abs=1e-4)
