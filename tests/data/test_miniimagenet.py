"""MiniImageNet: the CSV files of Ravi & Larochelle, or folders; never a class in two splits."""

from pathlib import Path

import pytest
from layouts import by_split, levels, photograph, values

from sfumato.data import load, miniimagenet
from sfumato.errors import DataError, ImageError

CLASSES = {
    "train": ["n01532829", "n01558993"],
    "val": ["n01855672", "n02091244"],
    "test": ["n01930112", "n01981276"],
}
SPLITS = {"train": set(CLASSES["train"]), "validation": set(CLASSES["val"]), "test": set(CLASSES["test"])}


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """The layout of Ravi & Larochelle: all images in one folder, a CSV per split."""
    for part, classes in CLASSES.items():
        rows = ["filename,label"]
        for wordnet in classes:
            for i in (1, 2):
                name = f"{wordnet}{i:08d}.jpg"
                photograph(tmp_path / "images" / name, 30 * i)
                rows.append(f"{name},{wordnet}")
        (tmp_path / f"{part}.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder per class below a folder per split."""
    for part, classes in CLASSES.items():
        for wordnet in classes:
            for i in (1, 2):
                photograph(tmp_path / part / wordnet / f"{wordnet}{i:08d}.jpg", 30 * i)
    return tmp_path


def test_lists_name_the_class_and_the_split_of_each_image(lists: Path):
    data = load(f"miniimagenet:{lists}", size=8)
    assert data.images.shape == (12, 3, 8, 8)
    assert by_split(data, "class") == SPLITS
    assert levels(data) == [30, 60] * 6


def test_folders_name_them_too(folders: Path):
    data = load(f"miniimagenet:{folders}", size=8)
    assert by_split(data, "class") == SPLITS
    assert levels(data) == [30, 60] * 6


def test_lists_come_before_folders(lists: Path):
    photograph(lists / "train" / "n99999999" / "x.jpg")
    assert "n99999999" not in values(miniimagenet(lists, size=8), "class")


def test_the_images_are_84_pixels_wide(folders: Path):
    assert miniimagenet(folders).images.shape[2:] == (84, 84)


# What is refused


@pytest.mark.parametrize("form", ["lists", "folders"])
def test_a_class_in_two_splits_is_refused(form: str, request: pytest.FixtureRequest):
    root = request.getfixturevalue(form)
    if form == "lists":
        with (root / "test.csv").open("a") as opened:
            opened.write("n0153282900000001.jpg,n01532829\n")
    else:
        photograph(root / "test" / "n01532829" / "x.jpg")
    with pytest.raises(DataError, match="the class n01532829 is in train and in test: few-shot tests need"):
        miniimagenet(root)


def test_neither_form_is_answered_with_both(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"no train\.csv or train .*put images with train\.csv.*image-net\.org"
    ):
        miniimagenet(tmp_path)


@pytest.mark.parametrize("name", ["val.csv", "images"])
def test_a_missing_part_of_the_lists_is_named(lists: Path, name: str):
    (lists / name).rename(lists / "elsewhere")
    with pytest.raises(DataError, match=f"no {name} .found"):
        miniimagenet(lists)


def test_a_missing_folder_is_named(folders: Path):
    (folders / "val").rename(folders / "elsewhere")
    with pytest.raises(DataError, match=r"no val .found: elsewhere, test, train"):
        miniimagenet(folders)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\nx.jpg,a\n", r"val\.csv: no column 'filename': .*Known: file, label"),
        ("filename,label\nn0153282900000001.jpg\n", r"val\.csv, line 2: 1 values instead of 2"),
        ("filename,label\n", r"val\.csv: no rows under the header"),
        ("", r"val\.csv: no column 'filename'"),
    ],
)
def test_a_malformed_list_is_named_with_its_line(lists: Path, text: str, message: str):
    (lists / "val.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        miniimagenet(lists)


def test_a_list_in_another_encoding_is_named(lists: Path):
    (lists / "val.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"val\.csv: cannot be read as text in UTF-8"):
        miniimagenet(lists)


def test_an_image_that_a_list_names_in_vain_is_named(lists: Path):
    for i in (1, 2):
        (lists / "images" / f"n01855672{i:08d}.jpg").unlink()
    with pytest.raises(DataError, match=r"n0185567200000001\.jpg: no such file, like 1 others"):
        miniimagenet(lists)


def test_an_unreadable_image_is_named(lists: Path):
    (lists / "images" / "n0185567200000001.jpg").write_bytes(b"")
    with pytest.raises(ImageError, match=r"n0185567200000001\.jpg"):
        miniimagenet(lists)
