"""What one release of a protection tells, in bits, and what is proved of who it shows, in words."""

import math
from pathlib import Path

import pytest
from cloud import SIDE, encoder

from sfumato.dp.naming import Information, gaussian_ball
from sfumato.protect import expand, parse
from sfumato.protect.code import Code
from sfumato.protect.naming import Counted, bound_naming, information, naming_words, recognisable

SHAPE = (3, SIDE, SIDE)


@pytest.fixture
def artefact(tmp_path: Path) -> str:
    return str(encoder(tmp_path / "c.safetensors", bits=12))


def test_a_code_without_noise_tells_its_bits_and_no_more(artefact: str):
    told = information(Code(artefact))
    assert (told.outputs, told.leakage) == (12, 12)


def test_flips_and_lies_leave_the_count_and_lessen_the_leakage(artefact: str):
    flipped = information(Code(artefact, flip=0.1))
    assert flipped.outputs == 12
    assert flipped.leakage == pytest.approx(12 * math.log2(1.8))
    answered = information(Code(artefact, epsilon=2.0))
    assert answered.outputs == 12
    assert answered.leakage == pytest.approx(12 + math.log2(math.exp(2) / (math.exp(2) + 4095)))


def test_noisy_numbers_are_not_counted_and_leak_the_volume_of_their_ball(tmp_path: Path):
    path = str(encoder(tmp_path / "c.safetensors", numbers=4))
    told = information(Code(path, norm=1.0, noise=0.25))
    assert told.outputs == math.inf
    volume = gaussian_ball(1e-9, dimensions=4, ratio=2.0).chance / 1e-9
    assert told.leakage == pytest.approx(math.log2(volume), rel=1e-6)
    assert information(Code(path)) == Information()


@pytest.mark.parametrize("spec", ["none", "blur:radius=2", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3"])
def test_of_pixels_nothing_is_counted(spec: str):
    assert information(parse(spec)) == Information()
    assert naming_words(parse(spec), SHAPE) == "nothing is proved about who it shows"
    assert naming_words(parse(spec), SHAPE, releases=2) == "nothing is proved about who they show"


@pytest.mark.parametrize("noise", [{}, {"flip": 0.1}, {"flip": 0.4}, {"epsilon": 2.0}])
@pytest.mark.parametrize("releases", [1, 3])
def test_no_bound_is_above_what_the_leakage_says(artefact: str, noise: dict[str, float], releases: int):
    """What a ledger composes from the leakage alone holds whatever a protection knows of itself."""
    code = Code(artefact, **noise)
    leakage = information(code).leakage
    for people in (2, 100, 10**5, 10**9, 10**12):
        least = min(1.0, 2 ** (releases * leakage) / people)
        stated = bound_naming(code, SHAPE, candidates=people, releases=releases).chance
        assert stated <= least * (1 + 1e-9)


def test_a_protection_that_is_only_counted_says_as_much_as_a_code_of_so_many_bits(artefact: str):
    assert naming_words(Counted(2**12), SHAPE) == naming_words(Code(artefact), SHAPE)
    assert naming_words(Counted(None), SHAPE) == "nothing is proved about who it shows"
    assert information(Counted(2**12)) == information(Code(artefact))


# Where people remain recognisable by the size of cells; figures: docs/results/protections.md


def test_the_cells_that_a_stranger_names_faces_by_are_told_from_those_where_chance_is_left():
    shape = (3, 84, 84)
    assert recognisable(parse("pixelize:cell=4"), shape)  # 24.9% are named, faces found on 99 of 100
    assert not recognisable(parse("pixelize:cell=8"), shape)  # 0.5%
    assert not recognisable(parse("dp-pix:cell=4,epsilon=3"), shape)  # 1.3%, by its noise


def test_the_bound_is_a_twelfth_of_the_shorter_side():
    assert not recognisable(parse("pixelize:cell=10"), (3, 500, 120))
    assert recognisable(parse("pixelize:cell=9"), (3, 500, 120)) == (
        "people remain recognisable if a face fills the image: a cell of 9x9 pixels is 1/13 of the shorter "
        "side, and faces are recognised at cells of less than 1/12 of it: choose a share of the image, such "
        "as cell=1/8"
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


@pytest.mark.parametrize(
    ("spec", "side"), [("none", 480), ("blur:radius=2", 480), ("block", 480), ("pixelize:cell=1/8", 8)]
)
def test_of_what_has_no_cells_or_is_too_small_to_be_released_nothing_is_said(spec, side):
    assert recognisable(parse(spec), (3, side, side)) == ""
