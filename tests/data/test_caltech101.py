"""Caltech-101: a folder per class, without the background, and with whole classes in a split."""

from pathlib import Path

import pytest
from layouts import by_split, photograph, values

from sfumato.data import caltech101, load
from sfumato.errors import DataError, ImageError

CLASSES = ["Faces", "Faces_easy", "accordion", "airplanes", "anchor", "ant", "barrel", "bass"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The official layout: grey and colour JPEG of all shapes."""
    for name in [*CLASSES, "BACKGROUND_Google"]:
        for i in (1, 2):
            path = tmp_path / "101_ObjectCategories" / name / f"image_{i:04d}.jpg"
            photograph(path, 9 * i, size=(30, 20 + i), mode="L" if name == "anchor" else "RGB")
    (tmp_path / "101_ObjectCategories" / "BACKGROUND_Google" / "tmp").touch()  # is in the archive
    return tmp_path


def test_a_folder_is_a_class_and_the_background_is_none(root: Path):
    data = load(f"caltech101:{root}", size=8)
    assert data.label("class").names == tuple(CLASSES)
    assert data.images.shape == (16, 3, 8, 8)


def test_the_background_is_read_where_it_is_wanted(root: Path):
    assert "BACKGROUND_Google" in caltech101(root, size=8, background=True).label("class").names


def test_a_class_is_in_one_split(root: Path):
    parts = by_split(caltech101(root, size=8), "class")
    assert set(parts) == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == len(CLASSES)


@pytest.mark.parametrize("more", range(5))
def test_the_photographs_that_two_classes_share_are_in_one_split(root: Path, more: int):
    for i in range(more):  # another draw for each number of classes
        photograph(root / "101_ObjectCategories" / f"wheel_{i}" / "image_0001.jpg")
    parts = by_split(caltech101(root, size=8), "class")
    assert [name for name in parts if "Faces" in parts[name]] == [
        name for name in parts if "Faces_easy" in parts[name]
    ]


def test_the_folder_of_the_classes_may_be_named_itself(root: Path):
    inside = caltech101(root / "101_ObjectCategories", size=8)
    assert values(inside, "class") == values(caltech101(root, size=8), "class")


def test_a_missing_folder_is_answered_with_what_is_there_and_the_archive(tmp_path: Path):
    (tmp_path / "Annotations").mkdir()
    with pytest.raises(
        DataError,
        match=r"no 101_ObjectCategories \(found: Annotations\): "
        r"put the content of 101_ObjectCategories\.tar\.gz there, from https://data\.caltech\.edu",
    ):
        caltech101(tmp_path)


def test_a_root_that_is_not_there_is_said_to_be_no_folder(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone: no 101_ObjectCategories .found: no such folder"):
        caltech101(tmp_path / "gone")


def test_an_empty_folder_has_no_images(tmp_path: Path):
    (tmp_path / "101_ObjectCategories").mkdir()
    with pytest.raises(DataError, match="101_ObjectCategories: no images in sub-folders: put the content of"):
        caltech101(tmp_path)


def test_an_unreadable_image_is_named(root: Path):
    (root / "101_ObjectCategories" / "ant" / "image_0002.jpg").write_text("dear diary")
    with pytest.raises(ImageError, match=r"ant/image_0002\.jpg: not an image"):
        caltech101(root)


def test_an_unreadable_image_is_left_out_where_that_is_wanted(root: Path):
    (root / "101_ObjectCategories" / "ant" / "image_0002.jpg").write_text("dear diary")
    told: list[ImageError] = []
    assert len(caltech101(root, size=8, skip_unreadable=told.append)) == 15
    assert len(told) == 1
