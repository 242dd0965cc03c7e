"""Drawn hats on photographs: real people, and a task of many classes that is not who they are."""

import itertools
from functools import cache
from pathlib import Path

import pytest
import torch
from layouts import assert_independent, by_split, values
from torch import Tensor

from sfumato import images
from sfumato.data import LabelledImages, hats, load, table
from sfumato.data.worlds import _hats as drawn
from sfumato.data.worlds._portraits import SCENE
from sfumato.data.worlds.hats import put_on
from sfumato.errors import ConfigError, DataError, SfumatoError

TURNS = itertools.cycle(["train", "test"])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 people, ten photographs of each: a colour a person, a little noise a photograph, an age a person."""
    return written(tmp_path_factory.mktemp("photographs"), persons=40, photographs=10)


@pytest.fixture(scope="module")
def dressed(people: Path) -> LabelledImages:
    return hats(people, size=24, headwear=40)


# Labels


def test_labels_of_the_table_stay_and_headwear_is_added(dressed: LabelledImages, people: Path):
    source = table(people, size=24)
    photograph = dressed.label("original").codes
    assert set(dressed.labels) == {"identity", "age", "headwear", "original"}
    for name in ("identity", "age"):
        assert dressed.label(name).names == source.label(name).names
        assert torch.equal(dressed.label(name).codes, source.label(name).codes[photograph])
    assert len(dressed.classes("headwear")) == len(dressed.label("headwear").names) == 40


def test_a_training_photograph_has_three_hats_and_every_other_one(dressed: LabelledImages):
    for split, each in {"train": 3, "validation": 1, "test": 1}.items():
        copies = dressed.split(split).label("original").codes.unique(return_counts=True)[1]
        assert copies.unique().tolist() == [each]


def test_how_many_hats_a_photograph_has_can_be_said(people: Path):
    data = hats(people, size=16, headwear=30, per_photo=2, per_test_photo=4)
    counts = {name: len(rows) for name, rows in data.splits.items()}
    assert counts == {"train": 2 * 240, "validation": 4 * 60, "test": 4 * 100}


def test_where_every_photograph_has_one_hat_no_label_says_which_is_a_copy(people: Path):
    assert set(hats(people, size=16, per_photo=1).labels) == {"identity", "age", "headwear"}


def test_the_hats_of_one_photograph_all_differ_and_are_not_always_the_same_together(people, dressed):
    """240 hands of three, from decks of 24: one deck for all would give eight."""

    def hands(data: LabelledImages, each: int) -> Tensor:
        train = data.split("train")
        return (
            train.label("headwear").codes[train.label("original").codes.argsort(stable=True)].view(-1, each)
        )

    worn = hands(hats(people, size=16, headwear=10, per_photo=4), 4)  # four of six hats
    assert all(len(hand.unique()) == 4 for hand in worn)
    assert len(hands(dressed, 3).sort(dim=1).values.unique(dim=0)) > 200


def test_within_a_split_one_hat_is_worn_as_often_as_another(dressed: LabelledImages):
    """Up to one where a photograph has one hat; with three, a deck of 24 hats is dealt whole."""
    for split in ("train", "validation", "test"):
        counts = dressed.split(split).label("headwear").codes.unique(return_counts=True)[1]
        assert counts.max() - counts.min() <= 1


# Disjointness and independence


def test_splits_share_neither_people_nor_hats(dressed: LabelledImages):
    for name in ("identity", "headwear"):
        members = by_split(dressed, name).values()
        assert [len(part) for part in members] == [24, 6, 10]
        assert len(set.union(*members)) == 40


def test_the_splits_of_the_table_are_kept_and_photographs_in_none_wear_a_training_hat_each(tmp_path: Path):
    split = {0: "train", 1: "train", 2: "test", 3: "", 4: "distractors"}
    path = written(tmp_path, persons=5, photographs=6, split=split.get)
    data = hats(path, size=16, headwear=9)
    assert by_split(data, "identity") == {
        "train": {"person-00", "person-01"},
        "test": {"person-02"},
        "distractors": {"person-04"},
    }
    assert len(data) == 2 * 6 * 3 + 6 + 6 + 6
    assert len(set(data.label("original").codes.tolist())) == 30
    spare = data.rows(torch.arange(48, 54))  # after all others
    assert set(values(spare, "identity")) == {"person-03"}
    assert set(spare.classes("headwear").tolist()) <= set(data.split("train").classes("headwear").tolist())


def test_further_hats_are_further_pictures_of_test_people_and_change_no_other_image(tmp_path: Path):
    split = {0: "train", 1: "validation", 2: "test", 3: ""}
    path = written(tmp_path, persons=4, photographs=6, split=split.get)
    more, plain = (hats(path, size=16, headwear=20, further=further) for further in (3, 0))
    first = len(plain)
    assert torch.equal(more.images[:first], plain.images)
    assert more.splits["further"].tolist() == list(range(first, first + 18))
    further = more.split("further")
    assert set(values(further, "identity")) == {"person-02"}
    assert further.label("original").codes.unique(return_counts=True)[1].tolist() == [3] * 6
    assert set(further.classes("headwear").tolist()) <= set(more.split("test").classes("headwear").tolist())


def test_distractors_wear_hats_of_the_test_split(tmp_path: Path):
    """In hats of their own they would be told from those of the test by their hats."""
    split = {0: "train", 1: "test", 2: "distractors"}
    path = written(tmp_path, persons=3, photographs=20, split=split.get)
    worn = by_split(hats(path, size=16, headwear=12), "headwear")
    assert worn["test"] == worn["distractors"]
    assert not worn["test"] & worn["train"]


def test_people_are_dealt_to_splits_by_identity_whichever_column_is_first_or_by_a_label_that_is_named(people):
    rows = [line.split(",") for line in people.read_text().splitlines()]
    path = people.parent / "other.csv"
    path.write_text("\n".join(f"{file},{age},{who}" for file, who, age in rows))
    parts = by_split(hats(path, size=16), "identity").values()
    assert not any(a & b for a, b in itertools.combinations(parts, 2))
    ages = by_split(hats(people, size=16, identity="age"), "age")
    assert [len(ages[name]) for name in ("train", "validation", "test")] == [2, 2, 2]


def test_headwear_and_identity_do_not_tell_each_other(tmp_path: Path):
    """With one hat a photograph: several all differ, so that theirs are not independent."""
    dealt = hats(written(tmp_path, persons=60, photographs=30), size=16, headwear=40, per_photo=1)
    for split in map(dealt.split, ("train", "validation", "test")):
        assert_independent(split.label("identity").codes, split.label("headwear").codes)


# Pixels


@pytest.mark.parametrize("family", range(len(drawn.FAMILIES)))
def test_the_hat_changes_its_pixels_and_the_rest_of_the_photograph_stays(family: int):
    photographs, worn, scene = noise(24), of_family(family, 24), scenes(24)
    pictures, cover = put_on(photographs, worn, scene)
    bare = (cover == 0)[:, None].expand_as(pictures)
    assert torch.equal(pictures[bare], photographs[bare])
    whole = cover == 1
    assert whole.flatten(1).any(1).all()
    changed = (pictures != photographs).any(1)
    assert changed[whole].float().mean() > 0.99  # a colour of cloth is that of the photograph now and then


@pytest.mark.parametrize("family", range(len(drawn.FAMILIES)))
def test_nothing_of_the_photograph_shows_through_a_hat(family: int):
    worn, scene = of_family(family, 24), scenes(24)
    one, cover = put_on(noise(24), worn, scene)
    other, _ = put_on(255 - noise(24), worn, scene)
    whole = (cover == 1)[:, None].expand_as(one)
    assert torch.equal(one[whole], other[whole])


@pytest.mark.parametrize("size", [42, 84])
@pytest.mark.parametrize("family", range(len(drawn.FAMILIES)))
def test_the_lower_edge_lies_at_row_24_of_84_give_or_take_3(family: int, size: int):
    """In the middle of the image, where the face is: the ends of a tilted brim hang lower."""
    _, cover = put_on(noise(64, size), of_family(family, 64), scenes(64))
    touched = (cover[:, :, size // 2 - 1 : size // 2 + 1] > 0).any(2)
    edge = (touched * torch.arange(1, size + 1)).amax(1)  # the first row below
    assert round(21 / 84 * size) <= edge.min() <= edge.max() <= round(27 / 84 * size)
    assert len(edge.unique()) > 2


def test_where_faces_lie_elsewhere_hats_can_too(people: Path):
    _, high = put_on(noise(16), of_family(0, 16), scenes(16), edge=0.3, width=0.2)
    _, low = put_on(noise(16), of_family(0, 16), scenes(16), edge=0.6, width=0.4)
    rows = [max((cover > 0).any(2).nonzero()[:, 1].tolist()) for cover in (high, low)]
    assert rows[1] - rows[0] > 0.2 * 84
    assert (low > 0).sum() > 2 * (high > 0).sum()
    settings = {"size": 16, "headwear": 9, "per_photo": 1}
    assert hats(people, **settings).digest != hats(people, **settings, edge=0.5).digest


def test_two_photographs_in_one_hat_differ_in_size_and_place():
    worn = of_family(0, 1).rows(torch.zeros(24, dtype=torch.int64))
    black = torch.zeros(24, 3, 84, 84, dtype=torch.uint8)
    _, cover = put_on(black, worn, scenes(24), edge=0.9, width=0.2)  # no hat ends at the border
    sizes = cover.sum((1, 2))
    assert 1.2 < sizes.max() / sizes.min() < 1.5  # a fifth in length
    left, right = ((cover > 0).any(1).long().argmax(1), (cover.flip(2) > 0).any(1).long().argmax(1))
    assert (left - right).unique().numel() > 4  # pixels to the sides


@pytest.mark.parametrize(
    ("name", "channel"), [("gain", 1), ("red", 0), ("blue", 2), ("fade", 1), ("grain", 1)]
)
def test_light_and_fading_of_the_drawn_world_change_a_hat(name: str, channel: int):
    low, high = scenes(1), scenes(1)
    low[:, list(SCENE).index(name)], high[:, list(SCENE).index(name)] = 0.0, 0.99
    one, other = (put_on(noise(1), of_family(0, 1), scene)[0][0, channel] for scene in (low, high))
    assert (one.float() - other.float()).abs().sum() > 500


def test_an_image_is_the_photograph_in_its_hat(dressed: LabelledImages, people: Path):
    source = table(people, size=24)
    behind = source.images[dressed.label("original").codes]
    same = (dressed.images == behind).all(1).float()
    assert same[:, 12:].mean() > 0.95  # the face
    assert same[:, :5].mean() < 0.5  # the hat
    assert (same.flatten(1).mean(1) < 0.95).all()  # nobody is without one


# Determinism


def test_the_same_seed_gives_the_same_bytes(dressed: LabelledImages, people: Path):
    assert hats(people, size=24, headwear=40).digest == dressed.digest
    assert load(f"hats:{people}", size=24, headwear=40).digest == dressed.digest
    assert hats(people, size=24, headwear=40, seed=1).digest != dressed.digest


def test_a_hat_is_drawn_the_same_alone_and_among_others():
    photographs, worn, scene = noise(24), of_family(3, 24), scenes(24)
    pictures, cover = put_on(photographs, worn, scene)
    for row in (0, 7, 23):
        rows = torch.tensor([row])
        picture, part = put_on(photographs[rows], worn.rows(rows), scene[rows])
        assert torch.equal(picture[0], pictures[row])
        assert torch.equal(part[0], cover[row])


def test_a_folder_per_person_gives_what_its_table_gives(tmp_path: Path):
    path = written(tmp_path / "photographs", persons=6, photographs=3)
    path.unlink()
    data = hats(tmp_path / "photographs", size=16, headwear=9)
    assert set(data.labels) == {"class", "headwear", "original"}
    assert [len(data.split(s).classes("class")) for s in ("train", "validation", "test")] == [2, 2, 2]


# What is refused


def test_a_place_with_no_photographs_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone\.csv: no such table or folder: .*name a CSV .* or a folder"):
        hats(tmp_path / "gone.csv")
    with pytest.raises(DataError, match=r"hats: needs one path: write hats:PATH"):
        load("hats")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"headwear": 5}, "headwear=5: 3 splits share no hats .* ask for at least 6"),
        ({"headwear": 0}, "headwear is at least 1, got 0"),
        ({"headwear": 8, "per_photo": 5}, "5 hats a photograph, and train has 4: ask for fewer"),
        ({"headwear": 8, "per_test_photo": 3}, "3 hats a photograph, and validation has 2"),
        ({"per_photo": 0}, "per_photo is at least 1, got 0"),
        ({"per_test_photo": 0}, "per_test_photo is at least 1, got 0"),
        ({"seed": -1}, "seed is at least 0, got -1"),
        ({"size": 15}, "size is 16 to 512 pixels, got 15"),
        ({"edge": 24}, "edge is a share of the image, 0.1 to 0.9, got 24"),
        ({"width": 0.0}, "width is a share of the image, 0.1 to 0.9, got 0"),
        ({"identity": "persons"}, "no column 'persons' to split by"),
        ({"headwear": "many"}, "headwear='many'"),
        ({"channels": 1}, "hats: no setting 'channels'"),
    ],
)
def test_a_number_that_cannot_work_is_answered_with_what_can(people: Path, settings: dict, message: str):
    with pytest.raises(SfumatoError, match=message):
        load(f"hats:{people}", **{"size": 16, **settings})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A hat in colour would be all the colour that there is.
        ({"grey": True}, r"the photographs are grey, .* take photographs in colour"),
        (
            {"split": lambda _: next(TURNS)},
            r"'person-0\d' is in more than one split: remove the split column",
        ),
        ({"persons": 3}, r"left for validation: 3 values of 'identity' .* take 6 or more"),
        ({"split": lambda _: ""}, "no photograph is in a split: fill in the column"),
    ],
)
def test_photographs_that_cannot_be_split_or_dressed_are_refused(tmp_path: Path, changes: dict, message: str):
    with pytest.raises(DataError, match=message):
        hats(written(tmp_path, **{"persons": 6, "photographs": 3, **changes}), size=16)


def test_a_table_that_has_headwear_already_is_refused(people: Path):
    path = people.parent / "hatted.csv"
    path.write_text(people.read_text().replace("identity,age", "identity,headwear"))
    with pytest.raises(DataError, match="has a label 'headwear' already: rename that column"):
        hats(path, size=16)


def test_more_images_than_the_memory_may_hold_are_refused(people: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SFUMATO_MEMORY", str(400 * 3 * 16 * 16))  # the photographs, and not three hats each
    with pytest.raises(ConfigError, match="880 images of 16x16 are more than the 307200 bytes of"):
        hats(people, size=16)


# Real photographs


def test_hats_on_labelled_faces_in_the_wild(shared_data, tmp_path, monkeypatch):
    """One photograph in sixteen."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "studies")
    import unpack

    write, path = unpack.write_table, tmp_path / "table.csv"
    monkeypatch.setattr(
        unpack,
        "write_table",
        lambda table, rows, root: write(table, rows[::16], root, [*range(len(rows))[::16]]),
    )
    unpack.lfw(shared_data, tmp_path)
    source, data = table(path), hats(path, headwear=160)
    assert {name: len(part) for name, part in data.splits.items()} == {
        name: len(part) * (3 if name == "train" else 1) for name, part in source.splits.items()
    }
    test, behind = data.split("test"), source.split("test").images
    assert len(test.classes("identity")) > 40
    assert len(test.classes("headwear")) == 40
    same = (test.images == behind).all(1)  # (N, H, W)
    assert same[:, 50:].all()  # nose and mouth
    assert same[:, 18, 36:48].float().mean() < 0.05  # the forehead


# Helpers


def written(directory: Path, *, persons: int, photographs: int, split=None, grey=False) -> Path:
    """A table of photographs in a sub-folder per person, 24 pixels wide, with identity and age."""
    generator = torch.Generator().manual_seed(0)
    lines = ["file,identity,age" + (",split" if split else "")]
    for person in range(persons):
        (directory / f"person-{person:02d}").mkdir(parents=True)
        colour = torch.randint(40, 216, (1 if grey else 3, 1, 1), generator=generator)
        for photograph in range(photographs):
            grain = torch.randint(-30, 31, (1 if grey else 3, 24, 24), generator=generator)
            name = f"person-{person:02d}/{photograph}.png"
            images.write(directory / name, (colour + grain).to(torch.uint8))
            lines.append(
                f"{name},person-{person:02d},{10 * (person % 6)}" + (f",{split(person)}" if split else "")
            )
    path = directory / "table.csv"
    path.write_text("\n".join(lines))
    return path


def noise(count: int, size: int = 84) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), generator=generator, dtype=torch.uint8)


@cache
def many_kinds() -> drawn.Hats:
    return drawn.kinds(4000, seed=0)


def of_family(family: int, count: int) -> drawn.Hats:
    kinds = many_kinds()
    return kinds.rows((kinds.family == family).nonzero().flatten()[:count])


def scenes(count: int) -> Tensor:
    return torch.rand(count, len(SCENE), generator=torch.Generator().manual_seed(2))
