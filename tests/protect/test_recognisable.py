"""Where people remain recognisable by the size of cells; figures: docs/results/protections.md."""

import pytest

from sfumato.protect import expand, parse
from sfumato.protect.naming import recognisable


def test_the_cells_that_a_stranger_names_faces_by_are_told_from_those_where_chance_is_left():
    shape = (3, 84, 84)
    assert recognisable(parse("pixelize:cell=4"), shape)  # 24.9% are named, faces found on 99 of 100
    assert not recognisable(parse("pixelize:cell=8"), shape)  # 0.5%
    assert not recognisable(parse("dp-pix:cell=4,epsilon=3"), shape)  # 1.3%, by its noise


def test_the_bound_is_a_twelfth_of_the_shorter_side():
    assert not recognisable(parse("pixelize:cell=10"), (3, 500, 120))
    assert recognisable(parse("pixelize:cell=9"), (3, 500, 120)) == (
        "people remain recognisable if a face fills the image: a cell of 9x9 pixels is 1/13 of the "
        "shorter side, and faces are recognised at cells of less than 1/12 of it: choose a share of the "
        "image, "
        "such as cell=1/8"
    )


@pytest.mark.parametrize("spec", ["dp-pix:cell=8,epsilon=3", "dp-pix-gaussian:cell=8,rho=0.5"])
def test_a_cell_of_8_protects_small_faces_and_no_photographs(spec):
    assert not recognisable(parse(spec), (3, 84, 84))
    assert recognisable(parse(spec), (3, 640, 480))


def test_noise_counts_as_far_as_averages_leave_it():
    weak, strong = expand("dp-pix:cell=8,epsilon=3,0.01")
    assert recognisable(weak, (3, 480, 480))
    assert not recognisable(strong, (3, 480, 480))


@pytest.mark.parametrize("size", [(480, 640), (84, 84), (31, 57)])
def test_a_share_of_an_eighth_protects_at_every_size_and_one_of_a_fiftieth_at_none(size):
    assert not recognisable(parse("pixelize:cell=1/8"), (3, *size))
    if min(size) > 50:
        assert recognisable(parse("pixelize:cell=1/50"), (3, *size))


@pytest.mark.parametrize("spec", ["none", "blur:radius=2", "block"])
def test_of_what_has_no_cells_nothing_is_said(spec):
    assert recognisable(parse(spec), (3, 480, 480)) == ""


def test_of_an_image_that_is_too_small_to_be_released_nothing_is_said():
    assert recognisable(parse("pixelize:cell=1/8"), (3, 8, 8)) == ""
