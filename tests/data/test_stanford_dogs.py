"""Stanford Dogs: breeds from the names of folders, whole breeds in a split, and the official lists."""

import sys
from pathlib import Path

import numpy as np
import pytest
from layouts import by_split, levels, photograph
from scipy.io import savemat

from sfumato.data import load, stanford_dogs
from sfumato.errors import DataError, ImageError, MissingExtraError

FOLDERS = {
    "n02085620-Chihuahua": "Chihuahua",
    "n02086240-Shih-Tzu": "Shih-Tzu",
    "n02095314-wire-haired_fox_terrier": "wire-haired fox terrier",
    "n02099601-golden_retriever": "golden retriever",
    "n02106030-collie": "collie",
    "n02110185-Siberian_husky": "Siberian husky",
    "n02113978-Mexican_hairless": "Mexican hairless",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The official layout: lists.tar is unpacked into `lists`, its lists are MATLAB cell arrays."""
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for folder in FOLDERS:
        for i, part in ((1, "train"), (2, "test"), (3, "train")):
            file = f"{folder}/{folder.split('-')[0]}_{i}.jpg"
            photograph(tmp_path / "Images" / file, 40 if part == "train" else 80)
            lists[part].append(file)
    (tmp_path / "lists").mkdir()
    for part, files in lists.items():
        cells = np.array(files, dtype=object)[:, None]
        savemat(tmp_path / "lists" / f"{part}_list.mat", {"file_list": cells})
    return tmp_path


def test_breeds_are_named_by_what_follows_the_wordnet_id(root: Path):
    assert set(load(f"stanford_dogs:{root}", size=8).label("class").names) == set(FOLDERS.values())


def test_a_breed_is_in_one_split(root: Path):
    parts = by_split(stanford_dogs(root, size=8), "class")
    assert set(parts) == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == len(FOLDERS)


def test_the_official_split_is_that_of_the_lists(root: Path):
    data = load(f"stanford_dogs:{root}", size=8, split="images")
    assert by_split(data, "class") == {name: set(FOLDERS.values()) for name in ("train", "test")}
    assert set(levels(data.split("train"))) == {40}
    assert set(levels(data.split("test"))) == {80}


def test_the_lists_may_lie_beside_the_images(root: Path):
    for path in (root / "lists").iterdir():
        path.rename(root / path.name)
    assert len(stanford_dogs(root, size=8, split="images").split("test")) == len(FOLDERS)


def test_whole_breeds_need_no_lists(root: Path):
    for path in (root / "lists").iterdir():
        path.unlink()
    assert len(stanford_dogs(root, size=8)) == 21


def test_a_missing_list_is_named_with_its_archive(root: Path):
    (root / "lists" / "test_list.mat").unlink()
    with pytest.raises(DataError, match=r"no lists/test_list\.mat or test_list\.mat .*content of lists\.tar"):
        stanford_dogs(root, split="images")


def test_a_damaged_list_is_named(root: Path):
    (root / "lists" / "train_list.mat").write_bytes(b"MATLAB no more")
    with pytest.raises(
        DataError, match=r"train_list\.mat: no MATLAB file with a file_list .*: download it again"
    ):
        stanford_dogs(root, split="images")


def test_an_image_in_neither_list_is_named(root: Path):
    photograph(root / "Images" / "n02106030-collie" / "my_dog.jpg")
    with pytest.raises(DataError, match=r"1 images are in neither list \(n02106030-collie/my_dog\.jpg\)"):
        stanford_dogs(root, split="images")


def test_without_scipy_the_official_split_names_the_extra(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(
        MissingExtraError,
        match=r"official split of Stanford Dogs needs scipy.*pip install -c constraints.txt -e '\.\[study\]",
    ):
        stanford_dogs(root, split="images")


def test_missing_images_are_answered_with_the_archive(tmp_path: Path):
    with pytest.raises(DataError, match=r"no Images .*the content of images\.tar there, from http"):
        stanford_dogs(tmp_path)


def test_an_unreadable_image_is_named(root: Path):
    (root / "Images" / "n02106030-collie" / "n02106030_2.jpg").write_bytes(b"")
    with pytest.raises(ImageError, match=r"n02106030-collie/n02106030_2\.jpg"):
        stanford_dogs(root)
