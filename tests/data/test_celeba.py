"""CelebA: its lists as text and as CSV, whole people or the official partition, its crop, a part of it."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import by_split, photograph, values
from PIL import Image

from sfumato import images
from sfumato.data import LabelledImages, celeba, load
from sfumato.data.readers.celeba import SHARES
from sfumato.data.readers.official import class_splits
from sfumato.errors import DataError, SfumatoError

HEADER = """
    5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair
    Blond_Hair Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup
    High_Cheekbones Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose
    Receding_Hairline Rosy_Cheeks Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat
    Wearing_Lipstick Wearing_Necklace Wearing_Necktie Young
"""
ATTRIBUTES = HEADER.split()

PEOPLE_HERE = ["2880", "2937", "8692", "5805", "9295", "4153", "9040", "6369"]  # three images each

# What each image has, in turn; the hair of the last three is none, two colours, and bald.
MARKS = [
    {"Black_Hair", "Wearing_Hat"},
    {"Blond_Hair"},
    {"Brown_Hair", "Young"},
    {"Gray_Hair"},
    set(),
    {"Black_Hair", "Brown_Hair"},
    {"Bald"},
    {"Young", "Wearing_Hat"},
]
HAIR = ["black", "blond", "brown", "gray", "other", "other", "other", "other"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The official layout: 24 images of 8 people, 178 x 218; an image's level is ten times its number."""
    files = [f"{i:06d}.jpg" for i in range(1, 25)]
    for i, file in enumerate(files, 1):
        photograph(tmp_path / "img_align_celeba" / file, 10 * i, size=(178, 218))
    text = [str(len(files)), " ".join(ATTRIBUTES) + " "]
    for i, file in enumerate(files):
        marks = [" 1" if name in MARKS[i % 8] else "-1" for name in ATTRIBUTES]
        text.append(f"{file} {' '.join(marks)}")
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(text) + "\n")
    (tmp_path / "identity_CelebA.txt").write_text(
        "".join(f"{file} {PEOPLE_HERE[i % 8]}\n" for i, file in enumerate(files))
    )
    (tmp_path / "list_eval_partition.txt").write_text(
        "".join(f"{file} {min(i // 8, 2)}\n" for i, file in enumerate(files))
    )
    return tmp_path


@pytest.fixture
def kaggle(root: Path) -> Path:
    """The copies on Kaggle: a folder in a folder of the same name, lists as CSV, nobody's identity."""
    (root / "img_align_celeba").rename(root / "inner")
    (root / "img_align_celeba").mkdir()
    (root / "inner").rename(root / "img_align_celeba" / "img_align_celeba")
    _, header, *rows = (root / "list_attr_celeba.txt").read_text().splitlines()
    lines = [",".join(["image_id", *header.split()]), *(",".join(row.split()) for row in rows)]
    (root / "list_attr_celeba.csv").write_text("\n".join(lines) + "\n")
    rows = (root / "list_eval_partition.txt").read_text().splitlines()
    lines = ["image_id,partition", *(row.replace(" ", ",") for row in rows)]
    (root / "list_eval_partition.csv").write_text("\n".join(lines) + "\n")
    for path in root.glob("*.txt"):
        path.unlink()
    return root


def people(root: Path, **settings: object) -> LabelledImages:
    return load(f"celeba:{root}", **{"size": 8, "least_images": 3} | settings)


def partition(root: Path, **settings: object) -> LabelledImages:
    return load(f"celeba:{root}", **{"size": 8, "split": "attributes"} | settings)


# Labels


def test_each_of_the_40_attributes_is_a_label_of_yes_or_no_beside_identity_and_hair(root: Path):
    data = partition(root)
    assert set(data.labels) == {"identity", "hair_color", *(name.lower() for name in ATTRIBUTES)}
    assert values(data, "wearing_hat")[:8] == ["yes", *["no"] * 6, "yes"]
    assert values(data, "hair_color")[:8] == HAIR  # where exactly one is set
    assert values(data, "identity")[:8] == PEOPLE_HERE


def test_the_copies_on_kaggle_give_the_same_but_no_identity(root: Path, request: pytest.FixtureRequest):
    official = partition(root)
    copy = partition(request.getfixturevalue("kaggle"))
    assert torch.equal(copy.images, official.images)
    assert set(copy.labels) == set(official.labels) - {"identity"}
    assert all(values(copy, name) == values(official, name) for name in copy.labels)
    assert all(torch.equal(copy.splits[name], official.splits[name]) for name in official.splits)


def test_the_lists_may_lie_in_the_folders_of_the_official_site_and_images_be_those_in_the_wild(root: Path):
    for folder, names in (
        ("Anno", ["identity_CelebA.txt", "list_attr_celeba.txt"]),
        ("Eval", ["list_eval_partition.txt"]),
        ("Img", ["img_align_celeba"]),
    ):
        (root / folder).mkdir()
        for name in names:
            (root / name).rename(root / folder / name)
    assert len(people(root)) == len(partition(root)) == 24
    (root / "Img" / "img_align_celeba").rename(root / "img_celeba")
    assert len(partition(root, crop=None)) == 24


# Splits


def test_people_are_in_one_split_each_by_the_papers_counts_or_in_the_official_partition(root: Path):
    parts = by_split(people(root), "identity")
    assert set(parts) == {"train", "validation", "test"}
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == 8
    splits = class_splits([str(i) for i in range(1510 + 378 + 427)], shares=SHARES)
    assert Counter(splits) == {"train": 1510, "validation": 378, "test": 427}
    official = [rows.tolist() for rows in partition(root).splits.values()]
    assert official == [list(range(start, start + 8)) for start in (0, 8, 16)]


def test_people_with_fewer_images_are_left_out_and_the_most_there_are_is_said(root: Path):
    with pytest.raises(DataError, match="nobody has 30 images, the most is 3: lower least_images"):
        load(f"celeba:{root}")
    text = (root / "identity_CelebA.txt").read_text()
    (root / "identity_CelebA.txt").write_text(text.replace("000001.jpg 2880", "000001.jpg 2937"))
    assert set(values(people(root), "identity")) == set(PEOPLE_HERE) - {"2880"}


def test_the_crop_of_the_paper_is_the_centre_of_176_and_without_it_the_largest_square_is_kept(root: Path):
    """Every image is a bright square of 176 in a dark frame: one pixel at each side, 21 above and below."""
    picture = np.zeros((218, 178, 3), np.uint8)
    picture[21:197, 1:177] = 200
    for path in (root / "img_align_celeba").iterdir():
        Image.fromarray(picture).save(path, quality=100)
    cropped = celeba(root, split="attributes")
    assert cropped.images.shape[2:] == (84, 84)
    assert cropped.images.float().std() < 1  # no frame
    whole = celeba(root, split="attributes", size=178, crop=None).images[0]
    first = root / "img_align_celeba" / "000001.jpg"
    assert torch.equal(whole, images.read(first, size=178))
    assert whole[:, :, 0].float().mean() < 100  # the frame
    photograph(first, 50, size=(100, 60))
    assert celeba(root, split="attributes", size=8).images[0].unique().tolist() == [50]


# What is refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "img_align_celeba",
            r"no img_align_celeba or .*put the content of img_align_celeba\.zip there, from h",
        ),
        ("list_attr_celeba.txt", r"\.txt or list_attr_celeba\.csv .*put list_attr_celeba\.txt there"),
        ("identity_CelebA.txt", r"no identity_CelebA\.txt .*or pass split='attributes', which does without"),
        ("list_eval_partition.txt", r"no list_eval_partition\.txt or list_eval_partition\.csv"),
    ],
)
def test_a_missing_part_is_named_with_its_cure(root: Path, name: str, message: str):
    (root / name).rename(root / "elsewhere")
    with pytest.raises(DataError, match=message):
        (partition if "partition" in name else people)(root)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("identity_CelebA.txt", "000002.jpg 2937", "000002.jpg", r"txt, line 2: '000002.jpg' instead of a"),
        ("identity_CelebA.txt", "000002.jpg 2937\n", "", r"identity_CelebA\.txt: no line for 000002\.jpg"),
        ("list_eval_partition.txt", "09.jpg 1", "09.jpg 7", r"line 9: .* a file and its part, 0, 1, 2"),
        ("list_attr_celeba.txt", "2.jpg -1", "2.jpg 0", r"line 4: 40 values .*40 values, each 1 or -1"),
        ("list_attr_celeba.txt", "000002.jpg -1", "000002.jpg", r"line 4: 39 values instead of 40 values"),
        ("list_attr_celeba.txt", "Black_Hair", "Blue_Hair", r"line 2: a line without Black_Hair"),
        *(
            ("list_attr_celeba.txt", kept, "", r"list_attr_celeba\.txt") for kept in (0, 1, 2)
        ),  # ends too soon
    ],
)
def test_a_malformed_line_is_named(root: Path, name: str, old: str | int, new: str, message: str):
    text = (root / name).read_text()
    if isinstance(old, int):
        old = "".join(text.splitlines(keepends=True)[old:])
    assert old in text
    (root / name).write_text(text.replace(old, new))
    with pytest.raises(DataError, match=message):
        partition(root)


def test_images_that_are_not_there_are_counted(root: Path):
    for i in (3, 4, 5):
        (root / "img_align_celeba" / f"{i:06d}.jpg").unlink()
    with pytest.raises(DataError, match=r"000003\.jpg: no such file, like 2 others that the list names: put"):
        partition(root)


@pytest.mark.parametrize(
    "settings", [{"crop": 0}, {"least_images": 0}, {"split": "people"}, {"crop": "wide"}]
)
def test_a_setting_that_cannot_work_is_named(root: Path, settings: dict[str, object]):
    with pytest.raises(SfumatoError, match=next(iter(settings))):
        load(f"celeba:{root}", **settings)
