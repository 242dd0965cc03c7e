"""studies/stand_ins.py: averages of k people, faces swapped within landmarks, and how they come in."""

from collections.abc import Callable
from pathlib import Path

import pytest
import stand_ins
import torch

from sfumato.data.labelled import LabelledImages, label_of
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError
from sfumato.protect import parse

PEOPLE = torch.arange(7).repeat_interleave(3)  # three photographs each
LANDMARKS = torch.tensor([[25.0, 24.0], [39.0, 24.0], [32.0, 31.0], [26.0, 38.0], [38.0, 38.0]])


@pytest.fixture(scope="module")
def photographs() -> torch.Tensor:
    """21 colour photographs of 64 x 64."""
    return torch.randint(0, 256, (21, 3, 64, 64), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


@pytest.mark.parametrize("k", [2, 3, 5, 7])
def test_what_is_averaged_is_the_same_for_k_people_and_the_mean_of_them(photographs: torch.Tensor, k: int):
    made = stand_ins.k_same(photographs, PEOPLE, k)
    _, groups = made.flatten(1).unique(dim=0, return_inverse=True)
    for group in groups.unique():
        rows = groups == group
        assert len(PEOPLE[rows].unique()) >= k
        assert torch.equal(made[rows][0], photographs[rows].float().mean(0).round().to(torch.uint8))


def test_more_people_than_there_are_cannot_be_averaged(photographs: torch.Tensor):
    with pytest.raises(DataError, match="k=8: there are 7 people: choose a smaller k"):
        stand_ins.k_same(photographs, PEOPLE, 8)


def test_the_nearest_photographs_of_others_are_averaged():
    levels = torch.tensor([0, 100, 4, 104], dtype=torch.uint8)
    flat = levels[:, None, None, None].expand(4, 3, 16, 16)
    made = stand_ins.k_same(flat, torch.tensor([0, 1, 2, 3]), 2)
    assert made[:, 0, 0, 0].tolist() == [2, 102, 2, 102]


def test_a_face_in_its_own_place_changes_nothing(photographs: torch.Tensor):
    same = stand_ins.swapped(photographs[0], LANDMARKS, photographs[0], LANDMARKS)
    assert (same.int() - photographs[0].int()).abs().max() <= 1


def test_another_face_comes_within_the_ellipse_alone(photographs: torch.Tensor):
    made = stand_ins.swapped(photographs[0], LANDMARKS, photographs[1], LANDMARKS + 3)
    soft = stand_ins.ellipse(LANDMARKS, 64, 64)
    assert torch.equal(made[:, soft == 0], photographs[0][:, soft == 0])
    inside = soft == 1
    assert (made[:, inside] != photographs[0][:, inside]).double().mean() > 0.9


def test_the_ellipse_has_the_landmarks_in_it_and_not_the_border():
    soft = stand_ins.ellipse(LANDMARKS, 64, 64)
    columns, rows = LANDMARKS.long().T
    assert (soft[rows, columns] > 0.9).all()
    assert soft[0].max() == soft[-1].max() == soft[:, 0].max() == soft[:, -1].max() == 0
    assert (soft > 0.5).double().mean() < 0.5


def test_a_turned_face_is_turned_back_onto_the_landmarks():
    # A bright spot on the other's left eye comes upon the photograph's left eye.
    other = torch.full((3, 64, 64), 100, dtype=torch.uint8)
    theirs = torch.stack([63 - LANDMARKS[:, 1], LANDMARKS[:, 0]], 1)  # by a quarter turn
    x, y = theirs[0].long().tolist()
    other[:, y - 2 : y + 3, x - 2 : x + 3] = 250
    photograph = torch.randint(90, 110, (3, 64, 64), generator=torch.Generator().manual_seed(1)).to(
        torch.uint8
    )
    made = stand_ins.swapped(photograph, LANDMARKS, other, theirs).float().mean(0)
    spot = made[22:27, 23:28].mean()  # around (25, 24)
    assert spot > made[29:34, 30:35].mean() + 5
    assert spot > made[22:27, 37:42].mean() + 5


def test_drawn_faces_are_of_people_who_are_on_no_photograph_and_their_landmarks_lie_in_the_face():
    donors = stand_ins.drawn(20)
    assert donors.photographs.shape[0] == 20
    assert (donors.people < 0).all()
    assert len(donors.people.unique()) == 20
    left, right, nose, *corners = donors.landmarks.unbind(1)
    seen_whole = right[:, 0] - left[:, 0] > stand_ins.DRAWN_SIZE / 16  # of one both eyes may not be seen
    assert seen_whole.double().mean() > 0.8
    for corner in corners:
        assert (corner[:, 1] > nose[:, 1])[seen_whole].all()
    assert (nose[:, 1] > (left + right)[:, 1] / 2)[seen_whole].all()
    assert ((left[:, 0] < nose[:, 0]) & (nose[:, 0] < right[:, 0]))[seen_whole].all()


def test_hair_and_hats_of_drawn_faces_have_the_colour_of_their_skin():
    donors = stand_ins.drawn(5)
    corner = donors.photographs[:, :, 0, 0]  # background
    assert torch.equal(corner, donors.photographs[:, :, 0, -1])
    middle = donors.photographs[torch.arange(5), :, *donors.landmarks.mean(1).long().flip(1).T]
    assert (corner.float() - middle.float()).abs().mean() < 60


def test_grey_photographs_get_grey_faces(photographs: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    def found(every: LabelledImages, people: torch.Tensor, donors: Callable) -> stand_ins.Donors:
        return donors(None)

    monkeypatch.setattr(stand_ins, "exchanged", found)
    monkeypatch.setattr(stand_ins, "DRAWN", 5)
    grey = photographs[:, :1].expand(-1, 3, -1, -1)
    nearly = grey.clamp(max=250) + torch.tensor([0, 2, 1], dtype=torch.uint8)[:, None, None]
    for images, same in ((photographs, False), (grey, True), (nearly, True)):
        given = stand_ins.covered(LabelledImages("faces", images, {}, {}), PEOPLE).photographs
        assert given.shape[1] == 3
        assert bool((given == given[:, :1]).all()) == same


def test_what_was_made_comes_out_of_the_spec(
    photographs: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stand_ins, "MADE", tmp_path)
    every = LabelledImages(
        "faces", photographs, {"identity": label_of([str(each) for each in PEOPLE.tolist()])}, {}
    )
    made = 255 - photographs
    stand_ins.written("turned", every, made)
    protection = parse(f"outside:index={tmp_path / 'turned' / 'index.csv'}")
    assert torch.equal(protection.release(photographs[4:9], seeded_noise(0)).images(), made[4:9])
    assert protection.guarantee((3, 64, 64)) is None
