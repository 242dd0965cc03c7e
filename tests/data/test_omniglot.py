"""Omniglot: its official layout, its rotations, and the Vinyals split, on fake and on real drawings."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from layouts import by_split, values
from PIL import Image

from sfumato.data import LabelledImages, omniglot
from sfumato.data.readers.omniglot import _split_of
from sfumato.errors import DataError, ImageError

PACKED = Path(__file__).parents[2].parent / "shared" / "data"

needs_real_data = pytest.mark.skipif(
    not (PACKED / "omniglot_105_bits.npz").exists(), reason=f"no Omniglot in {PACKED}"
)

# Early_Aramaic is of the background set; the last four characters of Gurmukhi are split from the others.
ALPHABETS = ("Early_Aramaic", "Angelic", "Gurmukhi", "Keble")
COUNTS = {"Early_Aramaic": 22, "Angelic": 20, "Gurmukhi": 45, "Keble": 26}  # of characters; 20 drawers each


# A fake layout, whose drawings are known


def test_ink_is_255_on_0(tmp_path: Path):
    data = omniglot(fake(tmp_path), rotations=False)
    assert data.images.shape == (8, 1, 28, 28)
    assert data.images.unique().tolist() == [0, 255]
    assert data.images.float().mean() < 128  # the drawings are black on white paper
    assert omniglot(tmp_path, size=105).images.shape[2:] == (105, 105)


def test_labels_are_read_from_folders_and_file_names(tmp_path: Path):
    data = omniglot(fake(tmp_path), rotations=False)
    names = ("Hebrew/character01", "Hebrew/character02", "Keble/character01", "Latin/character01")
    assert data.label("class").names == names
    assert values(data, "alphabet") == ["Hebrew"] * 4 + ["Keble"] * 2 + ["Latin"] * 2
    assert values(data, "drawer") == ["01", "02"] * 4


def test_each_rotation_is_a_class_of_its_own_in_the_split_of_its_character(tmp_path: Path):
    data = omniglot(fake(tmp_path))
    assert len(data.classes("class")) == 4 * 4
    characters = {"train": ["Latin/character01"], "test": ["Keble/character01"]}
    characters["validation"] = ["Hebrew/character01", "Hebrew/character02"]
    assert by_split(data, "class") == {
        split: {f"{name}/rot{turn}" for name in names for turn in ("000", "090", "180", "270")}
        for split, names in characters.items()
    }
    for name, alphabet in zip(values(data, "class"), values(data, "alphabet"), strict=True):
        assert name.startswith(alphabet)
    assert values(data, "drawer") == ["01", "02"] * 16


def test_a_rotated_class_shows_the_drawing_turned_against_the_clock(tmp_path: Path):
    data = omniglot(fake(tmp_path))
    upright = drawings(data, "Latin/character01/rot000")
    for turn in (90, 180, 270):
        turned = drawings(data, f"Latin/character01/rot{turn:03d}")
        for before, after in zip(upright, turned, strict=True):
            assert np.array_equal(np.asarray(Image.fromarray(before).rotate(turn)), after)


def test_the_split_of_lake_keeps_alphabets_and_whoever_drew_them_apart(tmp_path: Path):
    data = omniglot(fake(tmp_path), rotations=False, split="lake")
    assert by_split(data, "alphabet") == {"train": {"Latin"}, "validation": {"Hebrew"}, "test": {"Keble"}}
    drawers = by_split(data, "drawer")
    assert drawers["test"] == {"Keble/01", "Keble/02"}
    assert len(set.union(*drawers.values())) == sum(map(len, drawers.values()))


@pytest.mark.parametrize("part", ["images_background", "images_evaluation"])
def test_a_missing_part_is_named_with_the_archive_to_unpack(tmp_path: Path, part: str):
    root = fake(tmp_path)
    (root / part).rename(root / "elsewhere")
    with pytest.raises(DataError, match=rf"{part}: no ALPHABET/characterNN/\*\.png: unpack {part}\.zip"):
        omniglot(root)


def test_a_damaged_drawing_is_named(tmp_path: Path):
    root = fake(tmp_path)
    path = root / "images_background" / "Latin" / "character01" / "0001_02.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ImageError, match=r"0001_02\.png"):
        omniglot(root)


# The split


@needs_real_data
def test_every_character_is_in_the_split_of_vinyals():
    published = {
        split: (PACKED / "splits" / f"omniglot_vinyals_{file}.txt").read_text().split()
        for split, file in (("train", "train"), ("validation", "val"), ("test", "test"))
    }
    assert list(map(len, published.values())) == [1028, 172, 423]
    names = np.load(PACKED / "omniglot_28.npz")["characters"].tolist()
    assert sorted(names) == sorted(chain.from_iterable(published.values()))
    assert {name: _split_of(Path("images_background", name, "1.png"), "vinyals") for name in names} == {
        name: split for split, members in published.items() for name in members
    }


# The real drawings


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> LabelledImages:
    """Four whole alphabets, written at 105 pixels as studies/unpack.py does, and read at 28."""
    root = tmp_path_factory.mktemp("omniglot")
    table = dict(np.load(PACKED / "omniglot_28.npz"))
    bits = np.load(PACKED / "omniglot_105_bits.npz")["bits"]
    for i in chosen(table["characters"]):
        part = "images_background" if table["background"][i] else "images_evaluation"
        folder = root / part / str(table["characters"][i])
        folder.mkdir(parents=True)
        for drawer, drawing in enumerate(np.unpackbits(bits[i], axis=-1, count=105), 1):
            name = f"{table['character_id'][i]:04d}_{drawer:02d}.png"
            Image.fromarray(255 * (1 - drawing)).convert("1").save(folder / name)
    return omniglot(root)


@needs_real_data
def test_real_drawings_have_the_pixels_of_the_published_protocol(real: LabelledImages):
    table = dict(np.load(PACKED / "omniglot_28.npz"))
    for i in chosen(table["characters"]):
        for turn in range(4):
            expected = np.rot90(table["images"][i], turn, axes=(1, 2))  # (20, 28, 28), by drawer
            name = f"{table['characters'][i]}/rot{90 * turn:03d}"
            assert np.array_equal(drawings(real, name), expected), name


@needs_real_data
def test_real_drawings_are_all_there_under_their_alphabets(real: LabelledImages):
    assert Counter(values(real, "alphabet")) == {name: 4 * 20 * count for name, count in COUNTS.items()}
    assert len(real.classes("drawer")) == 20


@needs_real_data
def test_the_last_characters_of_gurmukhi_are_tested_on_and_the_others_trained_on(real: LabelledImages):
    of = by_split(real, "class")
    gurmukhi = {name: len([c for c in part if c.startswith("Gurmukhi")]) // 4 for name, part in of.items()}
    assert gurmukhi == {"train": 41, "validation": 0, "test": 4}
    assert {name: len(part) // 4 for name, part in of.items()} == {
        "train": COUNTS["Angelic"] + 41,
        "validation": COUNTS["Early_Aramaic"],
        "test": COUNTS["Keble"] + 4,
    }


# Helpers


def fake(root: Path) -> Path:
    """Two alphabets of the background set and one of the evaluation set, each drawn by two hands."""
    for part, character in (
        ("images_background", "Latin/character01"),
        ("images_background", "Hebrew/character01"),
        ("images_background", "Hebrew/character02"),
        ("images_evaluation", "Keble/character01"),
    ):
        folder = root / part / character
        folder.mkdir(parents=True)
        for drawer in (1, 2):
            paper = np.full((105, 105), 255, dtype=np.uint8)
            # An L, so that no rotation looks like another.
            paper[10:90, 20 : 20 + 8 * drawer] = 0
            paper[80:90, 20:70] = 0
            Image.fromarray(paper).convert("1").save(folder / f"0001_{drawer:02d}.png")
    return root


def chosen(characters: np.ndarray) -> list[int]:
    return [i for i, name in enumerate(characters) if name.split("/")[0] in ALPHABETS]


def drawings(data: LabelledImages, name: str) -> np.ndarray:
    """(n, H, W) of one class, in the order of the drawers."""
    code = data.label("class").names.index(name)
    rows = (data.label("class").codes == code).nonzero().flatten()
    rows = rows[data.label("drawer").codes[rows].argsort()]
    return data.images[rows, 0].numpy()
