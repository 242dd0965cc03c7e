"""CIFAR-10 and CIFAR-100: archives that Python 2 pickled, read without running what a pickle names."""

import os
import pickle
import pickletools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layouts import by_split, values

from sfumato.data import cifar10, cifar100, load
from sfumato.data.readers._pickles import read
from sfumato.errors import DataError

RNG = np.random.default_rng(0)
PIXELS = {
    "train": RNG.integers(0, 256, (200, 3072), np.uint8),
    "test": RNG.integers(0, 256, (100, 3072), np.uint8),
}
CODES = {"train": list(range(100)) * 2, "test": list(reversed(range(100)))}


def python_2(value: Any) -> bytes:
    """The opcodes with which Python 2 pickles a value by protocol 2; its text has no encoding."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python_2(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(python_2, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
    shape = b"".join(map(python_2, value.shape)) + b"\x86"
    return empty + b"(K\x01" + shape + kind + b"\x89" + python_2(value.tobytes()) + b"tb"


def pickled(value: Any) -> bytes:
    return b"\x80\x02" + python_2(value) + b"."


def batch_100(part: str) -> dict[bytes, Any]:
    return {
        b"filenames": [b"apple_s_%06d.png" % i for i in range(len(CODES[part]))],
        b"batch_label": b"training batch 1 of 1",
        b"fine_labels": CODES[part],
        b"coarse_labels": [code % 20 for code in CODES[part]],
        b"data": PIXELS[part],
    }


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    """cifar-100-python with three images of each class; class i is of superclass i modulo 20."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "file.txt~").touch()  # is in the archive
    for part in ("train", "test"):
        (folder / part).write_bytes(pickled(batch_100(part)))
    names = {
        b"fine_label_names": [b"fine_%02d" % i for i in range(100)],
        b"coarse_label_names": [b"coarse_%02d" % i for i in range(20)],
    }
    (folder / "meta").write_bytes(pickled(names))
    return tmp_path


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """cifar-10-batches-py with two images of each class in each of its six batches."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for n, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        rows = PIXELS["train"][20 * n : 20 * n + 20]
        batch = {b"data": rows, b"labels": [i % 10 for i in range(20)], b"batch_label": b"batch"}
        (folder / name).write_bytes(pickled(batch))
    names = {b"label_names": [b"airplane", b"automobile", *(b"kind_%d" % i for i in range(2, 10))]}
    (folder / "batches.meta").write_bytes(pickled(names))
    return tmp_path


# The archives


def test_the_pickles_of_these_tests_are_real_ones():
    found = pickle.loads(pickled({b"data": PIXELS["test"], b"labels": [1, 2]}), encoding="bytes")
    assert np.array_equal(found[b"data"], PIXELS["test"])
    assert found[b"labels"] == [1, 2]


def test_pixels_are_red_green_and_blue_planes_of_rows(hundred: Path):
    data = load(f"cifar100:{hundred}")
    assert data.images.shape == (300, 3, 32, 32)
    assert torch.equal(data.images[200:].reshape(100, -1), torch.from_numpy(PIXELS["test"]))


def test_a_class_has_its_name_and_its_superclass(hundred: Path):
    data = cifar100(hundred)
    assert values(data, "class")[:3] == ["fine_00", "fine_01", "fine_02"]
    assert values(data, "superclass")[200:203] == ["coarse_19", "coarse_18", "coarse_17"]


def test_the_official_split_is_by_image(hundred: Path):
    data = load(f"cifar100:{hundred}", split="images")
    assert {name: (int(rows[0]), int(rows[-1])) for name, rows in data.splits.items()} == {
        "train": (0, 199),
        "test": (200, 299),
    }


def test_whole_classes_are_split_64_16_and_20(hundred: Path):
    parts = by_split(cifar100(hundred), "class")
    assert {name: len(part) for name, part in parts.items()} == {"train": 64, "validation": 16, "test": 20}
    assert len(set.union(*parts.values())) == 100


def test_whole_superclasses_are_split_12_4_and_4(hundred: Path):
    parts = by_split(cifar100(hundred, split="superclasses"), "superclass")
    assert {name: len(part) for name, part in parts.items()} == {"train": 12, "validation": 4, "test": 4}
    assert len(set.union(*parts.values())) == 20


def test_cifar_10_has_its_five_batches_and_its_test(ten: Path):
    data = load(f"cifar10:{ten}", split="images")
    assert torch.equal(data.images.reshape(120, -1), torch.from_numpy(PIXELS["train"][:120]))
    assert values(data, "class")[:2] == ["airplane", "automobile"]
    assert {name: len(rows) for name, rows in data.splits.items()} == {"train": 100, "test": 20}


def test_whole_classes_of_cifar_10_are_split_6_2_and_2(ten: Path):
    parts = by_split(cifar10(ten), "class")
    assert {name: len(part) for name, part in parts.items()} == {"train": 6, "validation": 2, "test": 2}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_archives_that_were_pickled_anew_are_read_too(hundred: Path, protocol: int):
    """By NumPy 2 and Python 3, with text for keys, and bytes in whatever way the protocol writes them."""
    before = cifar100(hundred).digest
    batch = batch_100("test")
    again = {key.decode(): value for key, value in batch.items() if key != b"filenames"}
    (hundred / "cifar-100-python" / "test").write_bytes(pickle.dumps(again, protocol))
    assert cifar100(hundred).digest == before


def test_an_array_by_columns_is_read_by_rows(tmp_path: Path):
    array = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    (tmp_path / "x").write_bytes(pickle.dumps(array, 4))
    assert np.array_equal(read(tmp_path / "x", cure="").values, array)


# What is refused


def test_a_missing_archive_is_named(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"no cifar-100-python .*put the content of cifar-100-python\.tar\.gz"
    ):
        cifar100(tmp_path)


@pytest.mark.parametrize("name", ["train", "meta"])
def test_a_missing_file_is_named(hundred: Path, name: str):
    (hundred / "cifar-100-python" / name).unlink()
    with pytest.raises(
        DataError, match=rf"{name}: cannot be read .*put the content of cifar-100-python\.tar"
    ):
        cifar100(hundred)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": PIXELS["test"][:, :100]}, "no array 'data' of n x 3072 pixels"),
        ({b"data": PIXELS["test"][:0]}, "no array 'data' of n x 3072 pixels"),
        ({b"data": b"pixels"}, "no array 'data' of n x 3072 pixels"),
        ({b"fine_labels": [0, 1]}, "2 codes in 'fine_labels' for 100 images"),
        ({b"fine_labels": b"apple"}, "'fine_labels' is not a list of codes"),
        ({b"fine_labels": [b"apple"] * 100}, "'fine_labels' is not a list of codes"),
        ({b"fine_labels": [100] * 100}, "'fine_labels' has codes that are not 0 to 99"),
        ({b"coarse_labels": [-1] * 100}, "'coarse_labels' has codes that are not 0 to 19"),
    ],
)
def test_a_batch_with_other_content_is_named(hundred: Path, change: dict[bytes, Any], message: str):
    (hundred / "cifar-100-python" / "test").write_bytes(pickled(batch_100("test") | change))
    with pytest.raises(DataError, match=f"test: {message}"):
        cifar100(hundred)


@pytest.mark.parametrize("names", [[b"a", 3], b"names", None], ids=["a number", "text", "nothing"])
def test_names_that_are_none_are_refused(hundred: Path, names: Any):
    content = {} if names is None else {b"fine_label_names": names}
    (hundred / "cifar-100-python" / "meta").write_bytes(pickled(content))
    with pytest.raises(DataError, match="meta: 'fine_label_names' is not a list of names"):
        cifar100(hundred)


def test_a_pickle_of_something_else_is_refused(hundred: Path):
    (hundred / "cifar-100-python" / "meta").write_bytes(pickled([1, 2]))
    with pytest.raises(DataError, match="meta: a pickled list instead of a dict"):
        cifar100(hundred)


# Hostile pickles


class Call:
    """Pickles as a call, which an ordinary unpickler makes."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read(path, cure="download it again")
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(": download it again")
    return str(caught.value)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path, protocol: int):
    mark = tmp_path / "ran"
    said = refusal(tmp_path / "x", pickle.dumps(Call(os.system, f"touch {mark}"), protocol))
    assert f"refused, for it names {os.name}.system" in said
    assert not mark.exists()


def test_a_pickle_that_would_evaluate_code_evaluates_nothing(tmp_path: Path):
    mark = tmp_path / "ran"
    said = refusal(tmp_path / "x", pickle.dumps(Call(eval, f"open({str(mark)!r}, 'w')"), 2))
    assert "names __builtin__.eval" in said
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "numpy load",
        "numpy.f2py compile",
        "numpy frombuffer",
        "numpy fromfile",
        "numpy memmap",
        "numpy recarray",
        "numpy._core.multiarray scalar",
        "numpy._core.numeric _frombuffer",
        "copyreg _reconstructor",
        "copy_reg _reconstructor",
        "builtins getattr",
        "_codecs decode",
        "sfumato.data.readers._pickles _Stand",
        "pickle loads",
        "torch.storage _load_from_bytes",
    ],
)
def test_a_pickle_that_names_anything_else_is_refused_by_that_name(tmp_path: Path, name: str):
    data = b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n)R."
    assert f"refused, for it names {name.replace(' ', '.')}: " in refusal(tmp_path / "x", data)


def test_a_name_is_refused_where_a_later_opcode_puts_it_together(tmp_path: Path):
    data = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R."  # STACK_GLOBAL
    assert "names os.system" in refusal(tmp_path / "x", data)


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (b"(ios\nsystem\n.", "INST"),
        (b"(cnumpy\nndarray\no.", "OBJ"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "NEWOBJ"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"P0\n.", "PERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ],
)
def test_opcodes_that_make_other_objects_are_refused(tmp_path: Path, data: bytes, opcode: str):
    assert f"uses {opcode}, which no array of bytes needs" in refusal(tmp_path / "x", data)


@pytest.mark.parametrize(
    "array",
    [
        np.array([Call(os.system, "true")], dtype=object),
        np.zeros(2, dtype=[("a", "u1"), ("b", "O")]),
        np.zeros(2),
        np.array(["text"]),
    ],
    ids=["objects", "fields", "floats", "text"],
)
def test_arrays_of_anything_but_bytes_are_refused(tmp_path: Path, array: np.ndarray):
    assert "refused, for it" in refusal(tmp_path / "x", pickle.dumps(array, 2))


def test_calling_the_type_of_an_array_is_refused(tmp_path: Path):
    assert "calls numpy.ndarray itself" in refusal(
        tmp_path / "x", b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R."
    )


def test_an_array_that_claims_more_than_its_bytes_is_refused_before_it_has_any_room(tmp_path: Path):
    data = pickled(np.zeros((2, 3), np.uint8)).replace(b"J\x02\x00\x00\x00J", b"J\xff\xff\xff\x7fJ")
    assert "claims an array of shape (2147483647, 3)" in refusal(tmp_path / "x", data)


def test_an_empty_array_of_any_claimed_size_takes_no_room(tmp_path: Path):
    shape = b"\x8a\x08" + (10**15).to_bytes(8, "little") + b"\x85"
    data = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + shape + b"U\x01b\x87R."
    (tmp_path / "x").write_bytes(data)
    assert read(tmp_path / "x", cure="").values.size == 0


@pytest.mark.parametrize("state", [b"N", b"(K\x01t", b"}", b"(K\x01K\x01K\x01K\x01K\x01t"])
def test_an_array_with_another_state_is_refused(tmp_path: Path, state: bytes):
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    refusal(tmp_path / "x", b"\x80\x02" + empty + state + b"b.")


def test_a_pickle_cannot_change_what_stands_for_a_function(tmp_path: Path):
    data = b"\x80\x02cnumpy\ndtype\nN}U\x09_functionK\x01s\x86b."  # setattr(stand, "_function", 1)
    assert "changes a function" in refusal(tmp_path / "x", data)


@pytest.mark.parametrize("encoding", [b"zlib_codec", b"utf-32", b"rot13"])
def test_text_is_encoded_as_bytes_and_nothing_else(tmp_path: Path, encoding: bytes):
    data = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX" + struct.pack("<i", len(encoding)) + encoding
    assert "refused, for it encodes" in refusal(tmp_path / "x", data + b"\x86R.")


def test_one_text_cannot_be_encoded_again_and_again(tmp_path: Path):
    text = b"X" + struct.pack("<i", 1000) + b"a" * 1000 + b"q\x01"
    again = b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R"
    assert "encodes more text than it holds" in refusal(
        tmp_path / "x", b"\x80\x02](" + text + 50 * again + b"e."
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "numbers a value 2147483647"),  # room for 2**32 pointers
        (b"Np2147483647\n.", "numbers a value 2147483647"),
        (b"\x80\x02N" + b"\x85" * 200_000 + b"}(h\x00Nu.", "makes more than 100 calls"),  # a deep hash
        (b"\x80\x04\x8e" + (2**50).to_bytes(8, "little") + b"x.", "damaged pickle"),
        (b"\x80\x04\x95" + (2**50).to_bytes(8, "little") + b"N.", "damaged pickle"),
        (b"\x80\x02T\xff\xff\xff\x7fx.", "damaged pickle"),
        (b"\x80\x02\x8b\xff\xff\xff\x7fx.", "damaged pickle"),
        (b"I" + b"9" * 10_000 + b"\n.", "damaged pickle"),
    ],
)
def test_a_few_bytes_that_claim_a_machine_are_refused(tmp_path: Path, data: bytes, message: str):
    assert message in refusal(tmp_path / "x", data)


@pytest.mark.parametrize(
    "data", [b"", b"N", b"\x80\x63.", b"h\x05.", b"}(K\x01u.", b"]K\x01b.", b"\xff\xd8\xff", b"."]
)
def test_a_damaged_pickle_is_refused(tmp_path: Path, data: bytes):
    assert "a damaged pickle" in refusal(tmp_path / "x", data)


def test_every_shorter_archive_is_refused(tmp_path: Path):
    whole = pickled({b"data": np.zeros((1, 4), np.uint8), b"labels": [1], b"name": b"x"})
    for length in range(len(whole)):
        refusal(tmp_path / "x", whole[:length])


def test_no_archive_with_one_byte_changed_runs_anything(tmp_path: Path):
    """Whatever comes of it, it is a value of plain parts or a DataError."""
    whole = pickled({b"data": np.zeros((1, 4), np.uint8), b"labels": [1], b"name": b"x"})
    for place in range(len(whole)):
        for byte in (0, ord("."), ord("R"), ord("b"), ord("c"), ord("0"), whole[place] ^ 1, 255):
            (tmp_path / "x").write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            try:
                read(tmp_path / "x", cure="")
            except DataError:
                continue


def test_a_file_larger_than_any_official_one_is_not_opened(tmp_path: Path):
    with (tmp_path / "x").open("wb") as opened:
        opened.truncate(300_000_000)  # a hole: it takes no room on the disk
    with pytest.raises(DataError, match="300000000 bytes, more than any official file has"):
        read(tmp_path / "x", cure="")


def test_the_opcodes_of_an_official_pickle_are_all_known():
    """A name that pickletools does not have would be an opcode that is never allowed."""
    from sfumato.data.readers._pickles import _CALLS, _PLAIN

    assert {opcode.name for opcode in pickletools.opcodes} >= _PLAIN | _CALLS
