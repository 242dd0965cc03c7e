"""LFW: people from folders, and the splits of View 1."""

from pathlib import Path

import pytest
from layouts import by_split, photograph, values

from sfumato.data import load
from sfumato.data.readers.lfw import lfw
from sfumato.errors import ConfigError, DataError, ImageError

IMAGES = {
    "Aaron_Eckhart": 1,
    "Abel_Pacheco": 4,
    "AJ_Cook": 1,
    "Akhmed_Zakayev": 3,
    "Al_Gore": 8,
    "Alex_Barros": 2,
}
IMAGES |= {"Zico": 3}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The photographs as lfw.tgz has them, without lists."""
    return written(tmp_path, "lfw")


def written(root: Path, name: str) -> Path:
    for person, count in IMAGES.items():
        for i in range(1, count + 1):
            photograph(root / name / person / f"{person}_{i:04d}.jpg", 10 * i, size=(250, 250))
    return root


@pytest.fixture
def view_1(root: Path) -> Path:
    """The lists of View 1: how many people, then a name and how many images, a line each."""
    for part, people in (
        ("Train", ["Aaron_Eckhart", "Al_Gore", "Zico"]),
        ("Test", ["AJ_Cook", "Abel_Pacheco"]),
    ):
        lines = [str(len(people)), *(f"{name}\t{IMAGES[name]}" for name in people)]
        (root / f"peopleDev{part}.txt").write_text("\n".join(lines) + "\n")
    return root


def test_a_folder_is_a_person(root: Path):
    data = load(f"lfw:{root}", size=8)
    names = values(data, "identity")
    assert {name: names.count(name) for name in names} == IMAGES


@pytest.mark.parametrize("name", ["lfw-deepfunneled", "lfw_funneled", "lfw-deepfunneled/lfw-deepfunneled"])
def test_funneled_photographs_are_read_too(tmp_path: Path, name: str):
    assert len(lfw(written(tmp_path, name), size=8)) == sum(IMAGES.values())


def test_people_with_fewer_images_are_left_out(root: Path):
    data = load(f"lfw:{root}", size=8, least_images=3)
    assert set(values(data, "identity")) == {"Abel_Pacheco", "Akhmed_Zakayev", "Al_Gore", "Zico"}
    few = sum(number for number in IMAGES.values() if number < 3)
    assert data.left_out["images of people with fewer than 3"] == few


def test_without_lists_a_person_is_in_one_of_three_splits(root: Path):
    parts = by_split(lfw(root, size=8), "identity")
    assert set(parts) == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == len(IMAGES)


def test_with_the_lists_of_view_1_people_are_split_as_they_say(view_1: Path):
    assert by_split(lfw(view_1, size=8), "identity") == {
        "train": {"Aaron_Eckhart", "Al_Gore", "Zico"},
        "test": {"AJ_Cook", "Abel_Pacheco"},
    }


# What is refused


def test_missing_photographs_are_answered_with_the_archive(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"no lfw or lfw-deepfunneled .*content of lfw\.tgz there, from https"
    ):
        lfw(tmp_path)


def test_nobody_with_enough_images_is_answered_with_the_most_there_are(root: Path):
    with pytest.raises(DataError, match="nobody has 20 images, the most is 8: lower least_images"):
        lfw(root, least_images=20)


def test_a_setting_below_one_is_refused(root: Path):
    with pytest.raises(ConfigError, match="least_images=0: at least 1"):
        lfw(root, least_images=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Aaron_Eckhart\t1\n", r"peopleDevTest\.txt, line 1: .* instead of the number of people"),
        (
            "2\nAaron_Eckhart\t1\nAJ_Cook\n",
            r"line 3: 'AJ_Cook' instead of a name and a number of images",
        ),
        ("1\nAaron Eckhart\t1\n", r"line 2: 'Aaron Eckhart 1' instead of a name"),
    ],
)
def test_a_malformed_list_of_people_is_named_with_its_line(view_1: Path, text: str, message: str):
    (view_1 / "peopleDevTest.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        lfw(view_1)


def test_an_unreadable_image_is_named(root: Path):
    (root / "lfw" / "Zico" / "Zico_0002.jpg").write_bytes(b"")
    with pytest.raises(ImageError, match=r"Zico_0002\.jpg"):
        lfw(root)
