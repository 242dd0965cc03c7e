"""Imagenette: its English names, and its official split by image."""

from pathlib import Path

import pytest
from layouts import by_split, levels, photograph

from sfumato.data import imagenette, load
from sfumato.errors import DataError, ImageError

NAMES = {"n01440764": "tench", "n02102040": "English springer", "n03888257": "parachute"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The official layout with three of the ten classes, and the CSV of noisy labels beside it."""
    return written(tmp_path, "imagenette2")


def written(root: Path, copy: str) -> Path:
    for part, level in (("train", 10), ("val", 20)):
        for wordnet in NAMES:
            name = f"{wordnet}_{level}.jpg"
            photograph(root / copy / part / wordnet / name, level)
            (root / copy / part / wordnet / name).rename(
                root / copy / part / wordnet / f"ILSVRC2012_val_{level:08d}.JPEG"
            )
    (root / copy / "noisy_imagenette.csv").write_text("path,noisy_labels_0\n")
    return root


def test_wordnet_ids_become_english_names(root: Path):
    assert set(load(f"imagenette:{root}", size=8).label("class").names) == set(NAMES.values())


def test_the_official_split_is_by_image_and_val_is_the_test(root: Path):
    data = imagenette(root, size=8)
    assert by_split(data, "class") == {name: set(NAMES.values()) for name in ("train", "test")}
    assert set(levels(data.split("train"))) == {10}
    assert set(levels(data.split("test"))) == {20}


@pytest.mark.parametrize("copy", ["imagenette2-320", "imagenette2-160"])
def test_the_smaller_copies_are_read_too(tmp_path: Path, copy: str):
    assert len(imagenette(written(tmp_path, copy), size=8)) == 6


def test_the_folder_inside_may_be_named_itself(root: Path):
    assert len(imagenette(root / "imagenette2", size=8)) == 6


def test_a_missing_part_is_named(root: Path):
    (root / "imagenette2" / "val").rename(root / "elsewhere")
    with pytest.raises(DataError, match=r"imagenette2/val: no images .* put the content of imagenette2\.tgz"):
        imagenette(root)


def test_nothing_at_all_is_answered_with_the_archive(tmp_path: Path):
    with pytest.raises(DataError, match=r"no train or imagenette2/train .*found: nothing.*imagenette2\.tgz"):
        imagenette(tmp_path)


def test_a_class_that_is_none_of_the_ten_is_refused(root: Path):
    photograph(root / "imagenette2" / "train" / "n02086240" / "x.jpg")  # of Imagewoof
    with pytest.raises(DataError, match="'n02086240' is not one of the ten classes"):
        imagenette(root)


def test_an_unreadable_image_is_named(root: Path):
    (root / "imagenette2" / "val" / "n01440764" / "ILSVRC2012_val_00000020.JPEG").write_bytes(b"")
    with pytest.raises(ImageError, match=r"n01440764/ILSVRC2012_val_00000020\.JPEG"):
        imagenette(root)
