import math

import pytest
import torch

from sfumato.errors import ConfigError
from sfumato.learn.conditions import Conditions
from sfumato.protect import expand, parse


def conditions(*specs):
    return Conditions([protection for spec in specs for protection in expand(spec)])


@pytest.mark.parametrize("other", ["gaussian:sigma=7", "blur:radius=1", "none"])
def test_of_one_protection_there_is_nothing_to_tell_whatever_is_asked(other):
    one = conditions("gaussian:sigma=40")
    assert one.keys == ()
    assert one.position(parse(other)).shape == (0,)
    assert one.nearest(parse(other)) == parse("gaussian:sigma=40")


@pytest.mark.parametrize(
    ("sigma", "place"),
    [
        (20, -1),
        (40, -1),
        (math.sqrt(40 * 80), -0.5),
        (80, 0),  # the geometric middle of 40 and 160
        (160, 1),
        (500, 1),
    ],
)
def test_a_place_is_on_a_log_scale_from_the_lowest_to_the_highest_and_not_beyond(sigma, place):
    found = conditions("gaussian:sigma=80,160,40").position(parse(f"gaussian:sigma={sigma}"))
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([place], abs=1e-6)


def test_only_parameters_that_differ_are_told():
    ranges = conditions("dp-pix:cell=2,8,epsilon=3,pixels=4")
    assert ranges.keys == ("cell",)
    assert ranges.position(parse("dp-pix:cell=4,epsilon=1,pixels=9")).tolist() == pytest.approx([0])


def test_several_parameters_are_told_each_by_its_own_range():
    ranges = conditions("dp-pix:cell=2,8,epsilon=1,100")
    assert ranges.keys == ("cell", "epsilon")
    assert ranges.position(parse("dp-pix:cell=8,epsilon=10")).tolist() == pytest.approx([1, 0], abs=1e-6)
    assert ranges.position(parse("dp-pix:cell=2,epsilon=100")).tolist() == pytest.approx([-1, 1])


def test_the_ends_are_exact():
    ranges = conditions("gaussian:sigma=2.3,3.7,77.7")
    ends = [ranges.position(protection).item() for protection in ranges.protections]
    assert (ends[0], ends[-1]) == (-1, 1)


@pytest.mark.parametrize(
    ("sigma", "nearest"), [(2, 40), (40, 40), (56, 40), (57, 80), (113, 80), (114, 160), (900, 160)]
)
def test_the_nearest_is_that_of_the_smallest_ratio(sigma, nearest):
    # Between 40 and 80 the border is their geometric mean, 56.57; between 80 and 160 it is 113.1.
    found = conditions("gaussian:sigma=40,80,160").nearest(parse(f"gaussian:sigma={sigma}"))
    assert found == parse(f"gaussian:sigma={nearest}")


def test_every_protection_is_the_nearest_to_itself():
    ranges = conditions("dp-pix:cell=2,4,epsilon=1,3,9", "dp-pix:cell=3,epsilon=2")
    assert [ranges.nearest(each) for each in ranges.protections] == list(ranges.protections)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gaussian:sigma=40", "blur:radius=1"),
        ("none", "gaussian:sigma=40"),
        ("dp-pix:cell=2,epsilon=3", "dp-pix-gaussian:cell=2,rho=3"),
        # A network is told numbers: these two would look alike to it.
        ("dp-pix:cell=2,epsilon=3", "dp-pix:cell=2,epsilon=3,variant=published"),
        ("dp-pix:cell=2,epsilon=3", "dp-pix:cell=2,epsilon=9,variant=published"),
    ],
)
def test_other_families_are_refused_by_both_names(one, other):
    with pytest.raises(ConfigError) as refused:
        Conditions([parse(one), parse(other)])
    assert f"{parse(one).spec} and {parse(other).spec} are not of one family" in str(refused.value)


def test_a_protection_named_twice_is_refused():
    with pytest.raises(ConfigError, match=r"gaussian:sigma=40 occurs twice: name each protection once"):
        conditions("gaussian:sigma=40,80", "gaussian:sigma=40.0")


def test_no_protection_is_refused():
    with pytest.raises(ConfigError, match="at least one protection"):
        Conditions([])


@pytest.mark.parametrize("method", ["position", "nearest"])
@pytest.mark.parametrize("other", ["none", "dp-pix-gaussian:cell=2,rho=1"])
def test_of_another_family_a_range_says_nothing(method, other):
    ranges = conditions("dp-pix:cell=2,epsilon=1,3")
    with pytest.raises(ConfigError, match=rf"{other}: .* dp-pix:cell=2,epsilon=1, dp-pix:cell=2,epsilon=3"):
        getattr(ranges, method)(parse(other))


def test_a_range_of_one_variant_says_nothing_of_the_other():
    ranges = conditions("dp-pix:cell=2,epsilon=1,3")
    with pytest.raises(ConfigError, match="variant=published: the model takes"):
        ranges.position(parse("dp-pix:cell=2,epsilon=2,variant=published"))


def test_a_range_may_be_of_the_published_variant():
    ranges = Conditions([parse(f"dp-pix:cell=2,epsilon={e},variant=published") for e in (1, 4)])
    place = ranges.position(parse("dp-pix:cell=2,epsilon=2,variant=published"))
    assert place.tolist() == pytest.approx([0], abs=1e-6)
