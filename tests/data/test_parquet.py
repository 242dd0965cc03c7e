"""Images of Parquet files and of other libraries' data sets: the same pixels as their files give."""

import json

import numpy as np
import pytest
import torch
from layouts import values
from PIL import Image

from sfumato import data, images
from sfumato.base import parquet as expanding
from sfumato.data import from_dataset, load
from sfumato.errors import DataError, ImageError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

NAMES = ["anna", "ben"]
ABOUT = {
    "info": {"features": {"image": {"_type": "Image"}, "person": {"names": NAMES, "_type": "ClassLabel"}}}
}


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    """Six photographs, (6, 3, 12, 10)."""
    return torch.randint(0, 256, (6, 3, 12, 10), generator=torch.Generator().manual_seed(0)).byte()


@pytest.fixture(scope="module")
def expected(pictures) -> torch.Tensor:
    return torch.stack([images.read(images.encode(each), size=8) for each in pictures])


def rows(pictures, **more) -> dict:
    cells = [{"bytes": images.encode(each), "path": f"{n}.png"} for n, each in enumerate(pictures)]
    return {"image": cells, "person": [n % 2 for n in range(len(pictures))], **more}


def written(path, columns, about=ABOUT):
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": json.dumps(about)})
    parquet.write_table(table, path, row_group_size=4)
    return path


@pytest.mark.parametrize("limit", [None, "100"])
def test_a_file_of_hugging_face_is_its_images_and_the_names_of_its_classes(
    tmp_path, monkeypatch, pictures, expected, limit
):
    """In memory, and from the cache on disk, if they do not fit in 100 bytes."""
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    if limit:
        monkeypatch.setenv("SFUMATO_MEMORY", limit)
    embeddings = [[0.5, 1.5]] * 6  # neither words nor whole numbers: no label
    path = written(tmp_path / "a.parquet", rows(pictures, hat=list("xyzxyz"), embedding=embeddings))
    read = load(f"parquet:{path}", size=8)
    assert torch.equal(read.images[:], expected)
    assert {name: values(read, name) for name in read.labels} == {"person": NAMES * 3, "hat": list("xyzxyz")}


def test_files_named_by_splits_and_a_column_of_splits_say_the_same(tmp_path, pictures):
    folder = tmp_path / "data"
    folder.mkdir()
    written(folder / "train-00000-of-00002.parquet", rows(pictures[:2]))
    written(folder / "train-00001-of-00002.parquet", rows(pictures[2:4]))
    written(folder / "test-00000-of-00001.parquet", rows(pictures[4:]))
    by_name = load(f"parquet:{folder}", size=8)
    split = ["test"] * 2 + ["train"] * 4  # in the order of the files
    order = pictures[[4, 5, 0, 1, 2, 3]]
    by_column = load(f"parquet:{written(tmp_path / 'a.parquet', rows(order, split=split))}", size=8)
    for read in (by_name, by_column):
        assert {name: rows.tolist() for name, rows in read.splits.items()} == {
            "train": [2, 3, 4, 5],
            "test": [0, 1],
        }
    assert by_name.digest == by_column.digest


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("default/train/0000", "default/test/0000"),
        ("Training/part-0", "dev/part-0"),
        ("split=train/0", "split=test/0"),
        ("mnist_train", "mnist-test"),
        ("train-00000-of-00001", "dev-00000-of-00001"),
    ],
)
def test_splits_are_found_in_the_names_of_folders_and_files(tmp_path, pictures, train, test):
    for name, part in ((train, pictures[:4]), (test, pictures[4:])):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / f"{name}.parquet", rows(part))
    sizes = {name: len(each) for name, each in load(f"parquet:{tmp_path}", size=8).splits.items()}
    assert sizes == {"train": 4, ("validation" if "dev" in test else "test"): 2}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("full/train/0", "small/train/0", r"side by side \(full, small\): name one"),
        ("train/test-0", "train/0", "names the splits test and train"),
        ("train-0", "extra", r"the name of extra\.parquet states no split"),
        ("label=a/0", "1", "states no label"),
    ],
)
def test_files_with_two_readings_are_refused_with_a_question(tmp_path, pictures, first, second, message):
    for name in (first, second):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / f"{name}.parquet", rows(pictures))
    with pytest.raises(DataError, match=message):
        load(f"parquet:{tmp_path}")


def test_every_file_describes_its_own_columns(tmp_path, pictures):
    written(tmp_path / "a.parquet", rows(pictures, year=[2000] * 6))
    other = {"info": {"features": {"person": {"names": NAMES[::-1]}}}}
    written(tmp_path / "b.parquet", rows(pictures, year=[2000.0] * 6), other)  # as pandas with missing ones
    read = load(f"parquet:{tmp_path}", size=8)
    assert values(read, "person") == NAMES * 3 + NAMES[::-1] * 3
    assert read.label("year").names == ("2000",)
    written(tmp_path / "c.parquet", rows(pictures))
    with pytest.raises(DataError, match=r"c\.parquet and a\.parquet have different columns \(year\)"):
        load(f"parquet:{tmp_path}")


def test_columns_that_are_no_labels_are_counted(tmp_path, pictures):
    columns = rows(pictures, score=[0.5] * 6, embedding=[[0.5]] * 6)
    read = load(f"parquet:{written(tmp_path / 'a.parquet', columns)}", size=8)
    assert read.left_out == {"columns that are no labels: embedding, score": 2}
    columns.pop("person")
    with pytest.raises(DataError, match="no label column, since embedding, score hold no words"):
        load(f"parquet:{written(tmp_path / 'a.parquet', columns)}")


BOMBS = {
    "rows": lambda: {"image": pyarrow.nulls(200_000, pyarrow.binary()), "person": np.zeros(200_000, "i1")},
    "a text": lambda: {"image": [b""], "person": ["x" * 2_600_000]},
    "a list": lambda: {"image": [b""], "person": [0], "list": [np.zeros(330_000)]},
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_becomes_large_is_refused(tmp_path, monkeypatch, bomb):
    monkeypatch.setattr(expanding, "MOST_EXPANDED", 2_560_000)  # a hundredth, with a hundredth of the bytes
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table(BOMBS[bomb]()), path, compression="zstd")
    with pytest.raises(DataError, match="leave out rows that repeat others"):
        load(f"parquet:{path}", strict=False)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": None, "person": [0, 1]}, "0 columns of images: one has bytes"),
        ({"mask": [b"a", b"b"], "person": [0, 1]}, "2 columns of images: name one, as image=image"),
        ({}, "no label column: add one"),
        ({"person": [0, None]}, "row 1: no value for 'person'"),
        ({"person": [0, 1], "split": ["train", "tain"]}, "no split 'tain': did you mean"),
    ],
)
def test_a_table_that_lacks_something_says_what(tmp_path, columns, message):
    columns = {name: column for name, column in ({"image": [b"a", b"b"]} | columns).items() if column}
    with pytest.raises(DataError, match=message):
        load(f"parquet:{written(tmp_path / 'a.parquet', columns)}")


def test_what_cannot_be_read_is_named_by_its_row_and_can_be_left_out(tmp_path, pictures):
    columns = rows(pictures)
    columns["image"][1] = {"bytes": None, "path": "elsewhere.png"}
    path = written(tmp_path / "a.parquet", columns)
    with pytest.raises(ImageError, match=r"a\.parquet, row 1: no bytes of an image: a path alone is not"):
        load(f"parquet:{path}")
    read = load(f"parquet:{path}", strict=False, size=8)
    assert (len(read), len(read.skipped)) == (5, 1)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load(f"parquet:{path}")
    with pytest.raises(DataError, match="the kind of source is missing: write parquet:"):
        load(str(path))


class Torch(torch.utils.data.Dataset):
    """As of torchvision: pairs of a picture and the number of a class, with the names of classes."""

    classes = NAMES

    def __init__(self, pictures, kind) -> None:
        self.pictures, self.kind = pictures, kind

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int):
        return self.kind(self.pictures[row]), row % 2


class HuggingFace(Torch):
    """As of `datasets`: dictionaries, and features that name the classes."""

    features = {"person": type("ClassLabel", (), {"names": NAMES})}  # noqa: RUF012

    def __getitem__(self, row: int):
        return {"image": {"bytes": images.encode(self.pictures[row]), "path": None}, "person": row % 2}


@pytest.mark.parametrize(
    "kind", [lambda p: p, lambda p: p / 255, lambda p: Image.fromarray(p.permute(1, 2, 0).numpy())]
)
def test_a_data_set_of_another_library_is_read_by_its_rows(pictures, expected, kind):
    for library, name in ((Torch, "class"), (HuggingFace, "person")):
        read = from_dataset(library(pictures, kind), size=8)
        assert torch.equal(read.images, expected)
        assert (read.label(name).names, read.split_by) == (tuple(NAMES), name)
    grey = from_dataset(Torch(pictures, kind), size=8, channels=1).images
    assert grey.shape == (6, 1, 8, 8)


def test_a_data_set_that_is_too_large_or_names_no_part_says_so(pictures, monkeypatch):
    with pytest.raises(DataError, match="dataset, row 0: has no part 'photo': name image and labels"):
        from_dataset(HuggingFace(pictures, None), image="photo", size=8)
    monkeypatch.setenv("SFUMATO_MEMORY", "100")
    with pytest.raises(DataError, match="6 rows, 1,152 bytes of images: from 1 to the 100 of SFUMATO_MEMORY"):
        data.from_dataset(Torch(pictures, np.asarray), size=8)
