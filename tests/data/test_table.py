"""A table of images: a CSV that names files, labels and splits, and the one that `write` makes."""

from pathlib import Path

import pytest
import torch
from layouts import by_split, levels, photograph, values

from sfumato import images
from sfumato.data import Label, LabelledImages, glyphs, load, table
from sfumato.data.labelled import label_of
from sfumato.data.readers.table import write
from sfumato.errors import DataError, ImageError


def test_every_column_but_file_and_split_is_a_label_and_rows_stay_in_their_order(tmp_path: Path):
    path = written(tmp_path, "person,file,hat\nb,3.png,red\na,1.png,red\nb,2.png,red\n")
    data = table(path, size=8)
    assert data.images.shape == (3, 3, 8, 8)
    assert levels(data) == [30, 10, 20]
    assert values(data, "person") == ["b", "a", "b"]
    assert values(data, "hat") == ["red"] * 3
    assert table(path, channels=1).images.shape[1] == 1


def test_files_lie_relative_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "elsewhere").mkdir()
    images.write(tmp_path / "deep" / "x.png", torch.zeros(3, 4, 4, dtype=torch.uint8))
    path = written(tmp_path, "file,class\ndeep/x.png,a\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(table(path)) == 1


def test_values_may_be_quoted_and_the_mark_of_a_spreadsheet_is_no_part_of_the_first_column(tmp_path: Path):
    text = '\ufefffile,class\r\n0.png,"Doe, ""Jo"""\r\n1.png,"two\nlines"\r\n2.png,ä\r\n'
    assert values(table(written(tmp_path, text), size=8), "class") == ['Doe, "Jo"', "two\nlines", "ä"]


# Splits


def test_a_split_column_decides_the_splits(tmp_path: Path):
    data = table(
        written(tmp_path, "file,class,split\n0.png,a,test\n1.png,a,train\n2.png,b,val\n3.png,b,train\n")
    )
    assert {name: rows.tolist() for name, rows in data.splits.items()} == {
        "train": [1, 3],
        "validation": [2],
        "test": [0],
    }


def many_rows() -> str:
    """Twelve people, six hats; every image shows another pair."""
    rows = [f"{i % 5}.png,person-{i % 12:02d},hat-{i // 12}" for i in range(72)]
    return "\n".join(["file,person,hat", *rows])


@pytest.mark.parametrize(("split_by", "by"), [(None, "person"), ("person", "person"), ("hat", "hat")])
def test_without_a_split_column_whole_values_of_one_label_are_given_to_splits(tmp_path, split_by, by):
    data = table(written(tmp_path, many_rows()), size=4, split_by=split_by)
    other = {"person": "hat", "hat": "person"}[by]
    parts = by_split(data, by).values()
    assert all(len(part) >= 2 for part in parts)
    assert sum(len(part) for part in parts) == len(set.union(*parts)) == len(data.classes(by))
    assert all(len(part) == len(data.classes(other)) for part in by_split(data, other).values())


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\n0.png,a\n", "no column 'file': .*Known: class, path"),
        ("File,class\n0.png,a\n", "no column 'file': did you mean 'File'"),
        ("", "is empty: write a header, and below it a row for each file"),
        ("file,class\n../0.png,a\n", r"table\.csv, line 2: ../0.png lies outside of the folder of the table"),
        (
            "file,class\n0.png,a\n1.png,a \n",
            "two values of the label 'class' are 'a' and 'a ', which look alike",
        ),
        ("file\n0.png\n", "no label column: add one, such as 'class'"),
        ("file,split\n0.png,train\n", "no label column: add one"),
        ("file,class\n", "no rows: list at least one image"),
        ("file,class\n0.png,a\n1.png,\n", r"table\.csv, line 3: no value for 'class': fill it in or remove"),
        ("file,class\n0.png,a\n1.png\n", r"table\.csv, line 3: no value for 'class'"),
        ("file,class\n,a\n", r"table\.csv, line 2: no value for 'file'"),
        ("file,class,split\n0.png,a,train\n0.png,a,tests\n", r"table\.csv, line 3: .*did you mean 'test'"),
        ("file,class,split\n0.png,a,banana\n", r"table\.csv, line 2: .*Known: distractors, test, train, val"),
    ],
)
def test_a_table_that_lacks_something_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(DataError, match=message):
        table(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    ["file,class\n\n0.png,a\n1.png,\n", 'file,class\n0.png,"a\nb"\n1.png,\n'],
    ids=["blank line", "value of two lines"],
)
def test_the_line_number_is_that_of_an_editor(tmp_path: Path, text: str):
    with pytest.raises(DataError, match="line 4: no value"):
        table(written(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.csv", r"gone\.csv: cannot be read \(No such file or directory\)"),
        ("latin.csv", "cannot be read as a CSV in UTF-8"),
        ("0.png", r"0\.png: (cannot be read as a CSV|no column)"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, name: str, message: str):
    written(tmp_path, "")
    (tmp_path / "latin.csv").write_bytes("file,class\n0.png,Ä\n".encode("latin-1"))
    with pytest.raises(DataError, match=message):
        table(tmp_path / name)


def test_a_label_to_split_by_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path):
    with pytest.raises(DataError, match="no column 'persons' to split by: did you mean 'person'"):
        table(written(tmp_path, many_rows()), split_by="persons")


def test_a_file_that_is_not_there_is_named_and_left_out_where_that_is_wanted(tmp_path: Path):
    told: list[ImageError] = []
    path = written(tmp_path, "file,class,split\n0.png,a,train\ngone.png,b,test\n2.png,c,test\n")
    with pytest.raises(ImageError, match=r"gone\.png: cannot be read"):
        table(path)
    data = table(path, size=8, skip_unreadable=told.append)
    assert by_split(data, "class") == {"train": {"a"}, "test": {"c"}}
    assert levels(data.split("test")) == [20]
    assert ["gone.png" in str(error) for error in told] == [True]


# Writing


def test_a_written_table_reads_back_equal_and_without_splits_with_the_same_images_and_labels(tmp_path: Path):
    world = glyphs(classes=9, drawers=3, size=16)
    path = write(world, tmp_path / "new" / "glyphs")
    assert path == tmp_path / "new" / "glyphs" / "table.csv"
    assert table(path, size=16, channels=1).digest == world.digest
    part = world.rows(torch.arange(18))
    read = table(write(part, tmp_path / "part"), size=16, channels=1)
    assert torch.equal(read.images, part.images)
    assert values(read, "drawer") == values(part, "drawer")


def test_labels_that_need_quotes_read_back_equal(tmp_path: Path):
    odd = ['a "b"', "c,d", "e\nf", "Анна ☂", " g "]
    data = colours({"class": label_of(odd)})
    assert values(table(write(data, tmp_path / "odd"), size=8), "class") == odd


def test_images_in_no_split_read_back_in_no_split(tmp_path: Path):
    """`train` and `test` need not cover a data set: what a source gave, its copy gives too."""
    data = colours(
        {"class": label_of(list("abcde"))}, {"train": torch.tensor([0, 1]), "test": torch.tensor([3])}
    )
    read = table(write(data, tmp_path / "copy"), size=8)
    assert {name: rows.tolist() for name, rows in read.splits.items()} == {"train": [0, 1], "test": [3]}


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_a_table_is_written_over_nothing_and_whole_or_not_at_all(tmp_path, monkeypatch, make):
    def full(path: Path, image: torch.Tensor) -> None:
        raise OSError(28, "No space left on device", str(path))

    make(tmp_path / "old")
    data = colours({"class": label_of(list("abcde"))})
    with pytest.raises(DataError, match="old: exists already: name a new folder"):
        write(data, tmp_path / "old")
    monkeypatch.setattr(images, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write(data, tmp_path / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


# Helpers


def written(directory: Path, text: str) -> Path:
    """A table beside five images, 0.png to 4.png, of grey levels 0 to 40."""
    for i in range(5):
        images.write(directory / f"{i}.png", torch.full((3, 6, 6), 10 * i, dtype=torch.uint8))
    path = directory / "table.csv"
    path.write_bytes(text.encode())
    return path


def colours(labels: dict[str, Label], splits: dict[str, torch.Tensor] | None = None) -> LabelledImages:
    pixels = torch.arange(5).view(5, 1, 1, 1).expand(5, 3, 8, 8).mul(10).byte()
    return LabelledImages("colours", pixels, labels, splits or {})


def test_images_of_files_keep_their_names_when_they_are_written(tmp_path: Path):
    for name in ("anna/1.jpg", "anna/2.png", "bela/2024.may.png"):
        photograph(tmp_path / "photos" / name)
    data = load(f"folder:{tmp_path / 'photos'}", size=8)
    assert data.files == ("anna/1.jpg", "anna/2.png", "bela/2024.may.png")
    written = write(data, tmp_path / "out").parent
    assert (written / "images" / "anna" / "1.png").exists()
    assert (written / "images" / "bela" / "2024.may.png").exists()
    photograph(tmp_path / "photos" / "anna" / "1.png")
    again = table(write(load(f"folder:{tmp_path / 'photos'}", size=8), tmp_path / "both"), size=8)
    places = ("anna/1-000000", "anna/1-000001", "anna/2-000002", "bela/2024.may-000003")
    assert again.files == tuple(f"{place}.png" for place in places)
