"""Official layouts: Caltech-101, LFW and MiniImageNet."""

from collections.abc import Callable
from pathlib import Path

import pytest
from layouts import by_split, levels, photograph, values

from sfumato.data import caltech101, lfw, load, miniimagenet
from sfumato.errors import ConfigError, DataError, ImageError

CALTECH = ["Faces", "Faces_easy", "accordion", "airplanes", "anchor", "ant", "barrel", "bass"]
MINI = {"train": ["n01532829", "n01558993"], "val": ["n01855672", "n02091244"]}
MINI["test"] = ["n01930112", "n01981276"]
PEOPLE = {"Aaron_Eckhart": 1, "Abel_Pacheco": 4, "AJ_Cook": 1, "Akhmed_Zakayev": 3}
PEOPLE |= {"Al_Gore": 8, "Alex_Barros": 2, "Zico": 3}


def write_caltech(root: Path) -> None:
    """Grey and colour JPEG of all shapes."""
    for name in [*CALTECH, "BACKGROUND_Google"]:
        for i in (1, 2):
            path = root / "101_ObjectCategories" / name / f"image_{i:04d}.jpg"
            photograph(path, 9 * i, size=(30, 20 + i), mode="L" if name == "anchor" else "RGB")
    (root / "101_ObjectCategories" / "BACKGROUND_Google" / "tmp").touch()  # is in the archive


def write_lists(root: Path) -> None:
    """MiniImageNet by Ravi & Larochelle: all images in one folder, a CSV per split."""
    for part, classes in MINI.items():
        rows = ["filename,label"]
        for name, wordnet in ((f"{wordnet}{i:08d}.jpg", wordnet) for wordnet in classes for i in (1, 2)):
            photograph(root / "images" / name, 60 if name.endswith("2.jpg") else 30)
            rows.append(f"{name},{wordnet}")
        (root / f"{part}.csv").write_text("\n".join(rows) + "\n")


def write_folders(root: Path) -> None:
    """MiniImageNet as a folder per class below a folder per split."""
    for part, classes in MINI.items():
        for wordnet in classes:
            for i in (1, 2):
                photograph(root / part / wordnet / f"{wordnet}{i:08d}.jpg", 30 * i)


def write_lfw(root: Path, name: str = "lfw") -> None:
    for person, count in PEOPLE.items():
        for i in range(1, count + 1):
            photograph(root / name / person / f"{person}_{i:04d}.jpg", 10 * i, size=(250, 250))


@pytest.fixture
def view_1(tmp_path: Path) -> Path:
    """The lists of View 1: how many people, then a name and how many images, a line each."""
    write_lfw(tmp_path)
    for part, people in (
        ("Train", ["Aaron_Eckhart", "Al_Gore", "Zico"]),
        ("Test", ["AJ_Cook", "Abel_Pacheco"]),
    ):
        lines = [str(len(people)), *(f"{name}\t{PEOPLE[name]}" for name in people)]
        (tmp_path / f"peopleDev{part}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


# What is read


@pytest.mark.parametrize(("source", "label"), [("caltech101", "class"), ("lfw", "identity")])
def test_a_folder_is_a_class_and_a_class_is_in_one_of_three_splits(tmp_path: Path, source: str, label: str):
    written, names = {"caltech101": (write_caltech, CALTECH), "lfw": (write_lfw, PEOPLE)}[source]
    written(tmp_path)
    data = load(f"{source}:{tmp_path}", size=8)
    assert set(data.label(label).names) == set(names)  # without the background
    parts = by_split(data, label)
    assert set(parts) == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == len(names)


def test_the_folder_of_the_classes_of_caltech_may_be_named_itself_and_its_background_asked_for(tmp_path):
    write_caltech(tmp_path)
    for inner in ("", "101_ObjectCategories"):
        assert len(caltech101(tmp_path / inner, size=8)) == 16
    assert "BACKGROUND_Google" in caltech101(tmp_path, size=8, background=True).label("class").names


@pytest.mark.parametrize("more", range(5))
def test_the_photographs_that_two_classes_of_caltech_share_are_in_one_split(tmp_path: Path, more: int):
    write_caltech(tmp_path)
    for i in range(more):  # another draw for each number of classes
        photograph(tmp_path / "101_ObjectCategories" / f"wheel_{i}" / "image_0001.jpg")
    parts = by_split(caltech101(tmp_path, size=8), "class").values()
    assert all(("Faces" in names) == ("Faces_easy" in names) for names in parts)


@pytest.mark.parametrize("written", [write_lists, write_folders])
def test_lists_or_folders_of_miniimagenet_name_class_and_split(tmp_path, written):
    written(tmp_path)
    if written is write_lists:  # which come before folders
        photograph(tmp_path / "train" / "n99999999" / "x.jpg")
    data = miniimagenet(tmp_path)
    assert data.images.shape == (12, 3, 84, 84)
    assert by_split(data, "class") == {
        name: set(MINI[part]) for name, part in (("train", "train"), ("validation", "val"), ("test", "test"))
    }
    assert levels(data) == [30, 60] * 6


@pytest.mark.parametrize("name", ["lfw-deepfunneled", "lfw_funneled", "lfw-deepfunneled/lfw-deepfunneled"])
def test_funneled_photographs_are_read_too(tmp_path: Path, name: str):
    write_lfw(tmp_path, name)
    names = values(lfw(tmp_path, size=8), "identity")
    assert {name: names.count(name) for name in names} == PEOPLE


def test_people_with_fewer_images_are_left_out_and_the_most_there_are_is_said(tmp_path: Path):
    write_lfw(tmp_path)
    data = load(f"lfw:{tmp_path}", size=8, least_images=3)
    assert set(values(data, "identity")) == {"Abel_Pacheco", "Akhmed_Zakayev", "Al_Gore", "Zico"}
    few = sum(number for number in PEOPLE.values() if number < 3)
    assert data.left_out["images of people with fewer than 3"] == few
    with pytest.raises(DataError, match="nobody has 20 images, the most is 8: lower least_images"):
        lfw(tmp_path, least_images=20)
    with pytest.raises(ConfigError, match="least_images=0: at least 1"):
        lfw(tmp_path, least_images=0)


def test_with_the_lists_of_view_1_people_are_split_as_they_say(view_1: Path):
    assert by_split(lfw(view_1, size=8), "identity") == {
        "train": {"Aaron_Eckhart", "Al_Gore", "Zico"},
        "test": {"AJ_Cook", "Abel_Pacheco"},
    }


# What is refused


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "caltech101",
            r"\(found: Annotations\): put the content of 101_\w+\.tar\.gz there, from https://data\.",
        ),
        ("miniimagenet", r"no train\.csv or train .*put images with train\.csv.*image-net\.org"),
        ("lfw", r"no lfw or lfw-deepfunneled .*content of lfw\.tgz there, from https"),
    ],
)
def test_what_is_missing_is_answered_with_what_is_there_and_the_archive(tmp_path, source, message):
    (tmp_path / "Annotations").mkdir()
    with pytest.raises(DataError, match=message):
        load(f"{source}:{tmp_path}")
    with pytest.raises(DataError, match=r"gone: no .*found: no such folder"):
        load(f"{source}:{tmp_path / 'gone'}")
    (tmp_path / "101_ObjectCategories").mkdir()
    with pytest.raises(DataError, match="101_ObjectCategories: no images in sub-folders: put the content of"):
        caltech101(tmp_path)


@pytest.mark.parametrize(
    ("written", "source", "file"),
    [
        (write_caltech, "caltech101", "101_ObjectCategories/ant/image_0002.jpg"),
        (write_lists, "miniimagenet", "images/n0185567200000001.jpg"),
        (write_lfw, "lfw", "lfw/Zico/Zico_0002.jpg"),
    ],
)
def test_an_unreadable_image_is_named_or_left_out_where_that_is_wanted(tmp_path, written, source, file):
    written(tmp_path)
    (tmp_path / file).write_text("dear diary")
    with pytest.raises(ImageError, match=f"{file}: not an image"):
        load(f"{source}:{tmp_path}", size=8)
    assert len(load(f"{source}:{tmp_path}", size=8, strict=False).skipped) == 1


@pytest.mark.parametrize("written", [write_lists, write_folders])
def test_a_class_in_two_splits_is_refused(tmp_path: Path, written: Callable[[Path], None]):
    written(tmp_path)
    if written is write_lists:
        with (tmp_path / "test.csv").open("a") as opened:
            opened.write("n0153282900000001.jpg,n01532829\n")
    else:
        photograph(tmp_path / "test" / "n01532829" / "x.jpg")
    with pytest.raises(DataError, match="the class n01532829 is in train and in test: few-shot tests need"):
        miniimagenet(tmp_path)


@pytest.mark.parametrize(
    ("written", "name"), [(write_lists, "val.csv"), (write_lists, "images"), (write_folders, "val")]
)
def test_a_missing_part_of_miniimagenet_is_named(tmp_path: Path, written: Callable[[Path], None], name: str):
    written(tmp_path)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=f"no {name} .found: .*elsewhere"):
        miniimagenet(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"file,label\nx.jpg,a\n", r"val\.csv: no column 'filename': .*Known: file, label"),
        (b"filename,label\nn0153282900000001.jpg\n", r"val\.csv, line 2: 1 values instead of 2"),
        (b"filename,label\n", r"val\.csv: no rows under the header"),
        (b"", r"val\.csv: no column 'filename'"),
        (b"\xff\xfe\x00", r"val\.csv: cannot be read as text in UTF-8"),
        (b"filename,label\nx.jpg,a\ny.jpg,a\n", r"x\.jpg: no such file, like 1 others"),
    ],
)
def test_a_malformed_list_is_named_with_its_line(tmp_path: Path, text: bytes, message: str):
    write_lists(tmp_path)
    (tmp_path / "val.csv").write_bytes(text)
    with pytest.raises(DataError, match=message):
        miniimagenet(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Aaron_Eckhart\t1\n", r"peopleDevTest\.txt, line 1: .* instead of the number of people"),
        ("2\nAaron_Eckhart\t1\nAJ_Cook\n", r"line 3: 'AJ_Cook' instead of a name and a number of images"),
        ("1\nAaron Eckhart\t1\n", r"line 2: 'Aaron Eckhart 1' instead of a name"),
    ],
)
def test_a_malformed_list_of_people_is_named_with_its_line(view_1: Path, text: str, message: str):
    (view_1 / "peopleDevTest.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        lfw(view_1)
