"""A folder per class: what is read, what is passed over, what is refused."""

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from layouts import by_split, levels, photograph, values
from PIL import Image

from sfumato import images
from sfumato.data import folder, load
from sfumato.errors import DataError, ImageError

names = partial(values, label="class")
CLASSES = ["anna", "bela", "cleo", "dora", "emil", "fred", "gert"]


def test_a_sub_folder_is_a_class_and_its_files_are_images(tmp_path: Path):
    photograph(tmp_path / "anna" / "1.png", 10)
    photograph(tmp_path / "anna" / "2.JPG", 20)
    photograph(tmp_path / "bela" / "1.webp", 30)
    data = folder(tmp_path, size=8)
    assert data.name == f"folder:{tmp_path}"
    assert data.images.shape == (3, 3, 8, 8)
    assert levels(data) == pytest.approx([10, 20, 30], abs=2)
    assert names(data) == ["anna", "anna", "bela"]
    assert folder(tmp_path, channels=1).images.shape == (3, 1, 84, 84)


def test_images_of_any_shape_become_centre_squares_of_one_size(tmp_path: Path):
    for i, shape in enumerate([(3, 10, 20), (1, 31, 7), (3, 5, 5)]):
        (tmp_path / "anna").mkdir(exist_ok=True)
        images.write(tmp_path / "anna" / f"{i}.png", torch.full(shape, 9, dtype=torch.uint8))
    assert torch.equal(folder(tmp_path, size=16).images, torch.full((3, 3, 16, 16), 9).byte())


def test_names_may_be_in_any_script_and_have_spaces(tmp_path: Path):
    written = ["Анна", "naïve ☂", "山田 太郎", "x,y"]
    for name in written:
        photograph(tmp_path / name / "фото 1.png", 10)
    assert folder(tmp_path, size=8).label("class").names == tuple(sorted(written))


def test_images_deeper_down_belong_to_the_class_above(tmp_path: Path):
    for level, name in ((10, "anna/2024/july/1"), (20, "anna/1"), (30, "bela/1")):
        photograph(tmp_path / f"{name}.png", level)
    data = folder(tmp_path, size=8)
    assert {*zip(names(data), levels(data), strict=True)} == {("anna", 10), ("anna", 20), ("bela", 30)}


def test_hidden_files_and_other_files_are_passed_over(tmp_path: Path):
    photograph(tmp_path / "anna" / "1.png", 10)
    photograph(tmp_path / ".cache" / "1.png", 20)
    for name in ("notes.txt", "._1.png", ".hidden.png", "Thumbs.db", "../README.md", "../x.png"):
        (tmp_path / "anna" / name).write_bytes(b"no image")
    (tmp_path / "anna" / "folder.png").mkdir()
    os.mkfifo(tmp_path / "anna" / "2.png")
    data = folder(tmp_path, size=8)
    assert levels(data) == [10]
    counts = {"hidden": 3, "no images by their first bytes": 3, "images in no folder of a class": 1}
    assert data.left_out == {**counts, "no regular files": 1}


@pytest.mark.parametrize("name", ["train/anna/.thumbnails", "train/.cache"])
def test_hidden_folders_inside_a_class_and_a_split_are_passed_over(tmp_path: Path, name: str):
    photograph(tmp_path / "train" / "anna" / "1.png", 10)
    photograph(tmp_path / name / "1.png", 20)
    data = folder(tmp_path, size=8)
    assert (names(data), levels(data)) == (["anna"], [10])


def test_links_within_the_folder_are_read_and_those_out_of_it_are_left_out(tmp_path, monkeypatch):
    photograph(tmp_path / "private" / "real.png", 10)
    photograph(tmp_path / "root" / "bela" / "1.png", 20)
    (tmp_path / "root" / "anna").mkdir(parents=True)
    (tmp_path / "root" / "anna" / "1.png").symlink_to(tmp_path / "private" / "real.png")
    (tmp_path / "root" / "anna" / "2.png").symlink_to("../bela/1.png")
    (tmp_path / "root" / "cleo").symlink_to(tmp_path / "private")
    told: list[ImageError] = []
    data = folder(tmp_path / "root", size=8, skip_unreadable=told.append)
    assert list(zip(names(data), levels(data), strict=True)) == [("anna", 20), ("bela", 20)]
    assert ["is a link out of its folder" in str(error) for error in told] == [True, True]
    monkeypatch.setenv("SFUMATO_OUTSIDE", str(tmp_path / "private"))
    assert levels(folder(tmp_path / "root", size=8)) == [10, 20, 20, 10]


def test_the_order_does_not_depend_on_when_files_were_made(tmp_path: Path):
    for root, order in (("a", [1, 2, 3]), ("b", [3, 1, 2])):
        for level in order:
            photograph(tmp_path / root / f"class-{level % 2}" / f"{level}.png", level)
    assert folder(tmp_path / "a", size=8).digest == folder(tmp_path / "b", size=8).digest


# Splits


def test_without_split_folders_whole_classes_are_given_to_splits(tmp_path: Path):
    for level, name in enumerate(CLASSES):
        for i in range(3):
            photograph(tmp_path / name / f"{i}.png", level)
    data = folder(tmp_path, size=4)
    parts = by_split(data, "class")
    assert {name: len(part) for name, part in parts.items()} == {"train": 3, "validation": 2, "test": 2}
    assert set.union(*parts.values()) == set(CLASSES)
    assert sum(len(data.split(name)) for name in parts) == 21


@pytest.mark.parametrize("written", ["validation", "val", "valid"])
def test_split_folders_above_the_classes_are_the_splits(tmp_path: Path, written: str):
    for level, name in ((10, "train/anna"), (20, "train/bela"), (30, f"{written}/cleo"), (40, "test/dora")):
        photograph(tmp_path / name / "1.png", level)
    data = folder(tmp_path, size=8)
    assert by_split(data, "class") == {"train": {"anna", "bela"}, "validation": {"cleo"}, "test": {"dora"}}
    assert levels(data.split("test")) == [40]


def test_a_class_may_be_in_two_split_folders_or_be_called_as_a_split_is(tmp_path: Path):
    for name in ("two/train/anna/1", "two/test/anna/2", "called/test/1", "called/anna/1", "called/bela/1"):
        photograph(tmp_path / f"{name}.png", 10)
    assert by_split(folder(tmp_path / "two", size=8), "class") == {"train": {"anna"}, "test": {"anna"}}
    assert folder(tmp_path / "called", size=8).label("class").names == ("anna", "bela", "test")


@pytest.mark.parametrize("name", ["1.jfif", "1.jpe", "1.MPO", "1", "1.jpg_large", "1.JPG~2", "1.txt"])
def test_an_image_is_known_by_its_first_bytes_whatever_its_name(tmp_path: Path, name: str):
    photograph(tmp_path / "anna" / "1.png", 10)
    (tmp_path / "bela").mkdir()
    (tmp_path / "bela" / name).write_bytes(images.encode(torch.full((3, 9, 9), 20).byte(), "JPEG"))
    assert names(folder(tmp_path, size=8)) == ["anna", "bela"]


@pytest.mark.parametrize("limit", ["2147483648", "100"])
def test_what_is_left_out_is_counted_by_reason_also_from_the_cache(tmp_path, monkeypatch, limit):
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SFUMATO_MEMORY", limit)
    root = tmp_path / "root"
    photograph(root / "anna" / "1.png", 10)
    pages = [Image.new("RGB", (9, 9), (level, 0, 0)) for level in (1, 2, 3)]
    pages[0].save(root / "anna" / "2.gif", save_all=True, append_images=pages[1:])
    (root / "bela").mkdir()
    (root / "bela" / "1.png").write_bytes(b"damaged")
    (root / "cleo").mkdir()
    (root / "cleo" / "1.psd").write_bytes(b"8BPS")
    for _ in range(2):
        data = load(f"folder:{root}", size=8, strict=False)
        assert data.left_out == {
            "no images by their first bytes": 1,
            "folders without an image: cleo": 1,
            "further pictures of files, such as pages or frames": 2,
            "values of 'class' of which no image can be read: bela": 1,
        }
    assert "bela" not in data.describe_left_out(names=False)
    assert "1 of 3 files, which cannot be read; and 1 (" in data.describe_left_out(names=False)


@pytest.mark.parametrize(
    ("tops", "splits"),
    [
        (("Train", "Test"), {"train", "test"}),
        (("Training", "TESTING", "dev"), {"train", "test", "validation"}),
        (("train", "eval", "__MACOSX"), {"train", "test"}),
    ],
)
def test_words_for_splits_are_known_in_any_case(tmp_path: Path, tops: tuple[str, ...], splits: set[str]):
    for level, top in enumerate(tops):
        photograph(tmp_path / top / ("x/._1.png" if top == "__MACOSX" else "cat/1.png"), level)
    data = folder(tmp_path, size=8)
    assert set(data.splits) == splits
    assert data.label("class").names == ("cat",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["photos/cat/1", "photos/dog/1"], "one folder, photos/, and that holds cat, dog: .* write folder:"),
        (["images/train/cat/1", "images/test/cat/1"], "holds one folder, images/"),
        (["train2017/cat/1", "val2017/dog/1"], "are train2017/ and val2017/ splits or classes"),
        (["set-1/cat/1", "set-1/dog/1", "set-2/cat/1", "set-2/dog/1"], "set-1/ and set-2/ splits or classes"),
        (["test/cat/1", "eval/cat/1"], "eval/ and test/ are both the split 'test'"),
        (["train/cat/1", "extra/cat/1"], "extra/ lies next to it"),
    ],
)
def test_folders_with_two_readings_are_refused_with_a_question(tmp_path, files, message):
    for level, name in enumerate(files):
        photograph(tmp_path / f"{name}.png", level)
    with pytest.raises(DataError, match=message):
        folder(tmp_path)


# What is refused


def test_a_folder_that_is_not_there_and_a_file_are_named(tmp_path: Path):
    with pytest.raises(DataError, match="gone: no such folder: name one that holds"):
        folder(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file: is a file: for a table of images, write table:"):
        folder(tmp_path / "file")


@pytest.mark.parametrize("inside", [[], ["anna"], ["train/anna", "test"], ["1.png"]])
def test_a_folder_without_images_of_a_class_says_where_they_go(tmp_path, inside, monkeypatch):
    root = tmp_path / "photos"
    root.mkdir()
    for name in inside:
        photograph(root / name) if name == "1.png" else (root / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"photos: no images: put them .* per class, as photos/anna/1\.jpg"):
        folder(root)
    monkeypatch.chdir(root)
    with pytest.raises(DataError, match=r"as (\./)?(photos/)?anna/1\.jpg"):
        folder(".")


def test_unreadable_files_stop_the_reading_and_are_told_and_left_out_where_that_is_wanted(tmp_path: Path):
    for name, level in (("train/anna/1", 10), ("train/bela/2", 20), ("test/cleo/1", 30)):
        photograph(tmp_path / f"{name}.png", level)
    (tmp_path / "test" / "cleo" / "0.png").write_text("dear diary")
    (tmp_path / "train" / "bela" / "1.png").write_bytes(b"")
    with pytest.raises(ImageError, match=r"0\.png: not an image .*: remove the file, or pass"):
        folder(tmp_path)
    told: list[ImageError] = []
    data = folder(tmp_path, size=8, skip_unreadable=told.append)
    assert by_split(data, "class") == {"train": {"anna", "bela"}, "test": {"cleo"}}
    assert sorted(levels(data)) == [10, 20, 30]
    assert {Path(str(error).split(":")[0]).relative_to(tmp_path).as_posix() for error in told} == {
        *("test/cleo/0.png", "train/bela/1.png")
    }
