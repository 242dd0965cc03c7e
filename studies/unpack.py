"""Unpack the packed data sets of shared/data into layouts that the library reads; what is complete is left as it is.

    python studies/unpack.py lfw ../shared/data runs/data/lfw    # or omniglot, caltech101, cmu, fer, cifar10

Omniglot gets its official layout; the others become a table.csv with splits beside their pictures, LFW a second one
for tasks other than who it is.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from PIL import Image

from sfumato.base.files import write_rows


def omniglot(packed: Path, root: Path) -> int:
    """Write the 32,460 drawings as images_{background,evaluation}/ALPHABET/characterNN/ID_DRAWER.png."""
    table = np.load(packed / "omniglot_28.npz")
    ink = np.unpackbits(np.load(packed / "omniglot_105_bits.npz")["bits"], axis=-1, count=105)
    for i, character in enumerate(table["characters"]):
        part = "images_background" if table["background"][i] else "images_evaluation"
        folder = root / part / str(character)
        folder.mkdir(parents=True, exist_ok=True)
        for drawer, drawing in enumerate(ink[i], 1):
            name = f"{table['character_id'][i]:04d}_{drawer:02d}.png"
            Image.fromarray(255 * (1 - drawing)).convert("1").save(folder / name)
    return ink.shape[0] * ink.shape[1]


def lfw(packed: Path, root: Path) -> int:
    """Write the faces with identity, gender and smile.

    Test: 50 people with at least 10 images; validation: 25 more of them; train: all others with at least 4.
    Those with three are distractors: whoever looks for the 50 must tell them from 291 others.

    In attributes.csv those with one to three images whose smile is known are dealt out as well, since they
    have most of the labelled images: of 100 of them, 40 to the test and 10 to the validation.
    """
    table = dict(np.load(packed / "lfw_faces_84.npz"))
    counts = np.bincount(table["person"], minlength=len(table["names"]))
    frequent = np.random.default_rng(0).permutation((counts >= 10).nonzero()[0])
    split_of = np.where(counts >= 4, "train", np.where(counts == 3, "distractors", "")).astype(object)
    split_of[frequent[:50]], split_of[frequent[50:75]] = "test", "validation"
    known = np.unique(table["person"][table["smile"] != 255])
    rare = np.random.default_rng(0).permutation(known[counts[known] <= 3])
    attribute_split_of = split_of.copy()
    asked, held_back = 4 * len(rare) // 10, len(rare) // 10
    attribute_split_of[rare], attribute_split_of[rare[:asked]] = "train", "test"
    attribute_split_of[rare[asked : asked + held_back]] = "validation"
    unknown, people = {255: "unknown"}, table["person"]
    gender, smile = {0: "female", 1: "male", **unknown}, {0: "no", 1: "yes", **unknown}
    rows = []
    for i, (person, number) in enumerate(zip(people, table["image_number"], strict=True)):
        name = str(table["names"][person])
        row = {"file": f"{name}/{name}_{number:04d}.png", "identity": name}
        row |= {"gender": gender[table["gender"][person]], "smile": smile[table["smile"][i]]}
        rows.append(row | {"split": split_of[person]})
    attributes = [
        {**row, "split": attribute_split_of[person]} for row, person in zip(rows, people, strict=True)
    ]
    write_csv(attributes, root / "attributes.csv")
    # For the board: 20 images of each who has them, and five of each other, for adversaries and, if they have five, classifiers.
    board_split_of = np.where(counts >= 20, "test", np.where(counts >= 5, "train", "")).astype(object)
    most = {"test": 20, "train": 5, "": 5}
    board = [
        {**row, "split": board_split_of[person]}
        for i, (row, person) in enumerate(zip(rows, people, strict=True))
        if (people[:i] == person).sum() < most[board_split_of[person]] and row["gender"] != "unknown"
    ]
    write_csv(board, root / "board.csv")
    return write_table(table, rows, root)


def caltech101(packed: Path, root: Path) -> int:
    """Write the photographs with their class, split 64 / 16 / 20 as the packed file suggests."""
    table = dict(np.load(packed / "caltech101_84.npz"))
    rows = []
    for label, number in zip(table["label"], table["source_number"], strict=True):
        name = str(table["classes"][label])
        split = {"val": "validation"}.get(part := str(table["suggested_split"][label]), part)
        rows.append({"file": f"{name}/image_{number:04d}.png", "class": name, "split": split})
    return write_table(table, rows, root)


def cmu(packed: Path, root: Path) -> int:
    """Write the faces with identity, pose, expression and sunglasses; of 20 people 12, 3 and 5 in the splits."""
    table = np.load(packed / "cmu_faces_32x30.npz")
    people = np.random.default_rng(0).permutation(len(table["person_names"]))
    split_of = dict(zip(people.tolist(), ["train"] * 12 + ["validation"] * 3 + ["test"] * 5, strict=True))
    rows = []
    for i, person in enumerate(table["person"].tolist()):
        name = str(table["person_names"][person])
        row = {"file": f"{name}/{i:03d}.png", "identity": name}
        row |= {label: str(table[f"{label}_names"][table[label][i]]) for label in ("pose", "expression")}
        row |= {"sunglasses": ("no", "yes")[table["sunglasses"][i]], "split": split_of[person]}
        (root / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(table["images"][i]).save(root / row["file"])
        rows.append(row)
    write_csv(rows, root / "table.csv")
    turns = [{name: row[name] for name in row if name != "split"} for row in rows]
    write_csv(turns, root / "people.csv")  # without splits, so that people can take turns
    return len(rows)


def fer(packed: Path, root: Path) -> int:
    """Write the faces that FER+ calls neutral, happiness or surprise by a majority of votes.

    Train and validation: the training images, nine to one; test: those of the private test.
    """
    table = dict(np.load(packed / "fer2013_48_subset.npz"))
    votes = table["ferplus_votes"].astype(int)
    emotion = np.where(votes.max(1) > votes.sum(1) / 2, votes.argmax(1), -1)
    kept = [i for i, name in enumerate(table["vote_names"]) if name in ("neutral", "happiness", "surprise")]
    held_back = np.random.default_rng(0).random(len(emotion)) < 0.1
    chosen = np.isin(emotion, kept).nonzero()[0]
    rows = [
        {
            "file": f"{i:04d}.png",
            "emotion": str(table["vote_names"][emotion[i]]),
            "split": "test" if table["usage"][i] == 2 else "validation" if held_back[i] else "train",
        }
        for i in chosen.tolist()
    ]
    return write_table(table, rows, root, of=chosen.tolist())


def cifar10(packed: Path, root: Path) -> int:
    """Write the photographs with their class, in the official parts: every class is in both."""
    table = dict(np.load(packed / "cifar10_jpeg_subset.npz"))
    rows = []
    for i, label in enumerate(table["label"].tolist()):
        name = str(table["classes"][label])
        rows.append({"file": f"{name}/{i:04d}.png", "class": name, "split": str(table["part"][i])})
    return write_table(table, rows, root)


def write_table(
    table: dict[str, np.ndarray], rows: list[dict[str, str]], root: Path, of: list[int] | None = None
) -> int:
    """Write pictures without loss, and table.csv; `of`: which picture each row is of, by default all in order."""
    for i, row in zip(of or range(len(rows)), rows, strict=True):
        path, packed = root / row["file"], table["blob"][table["offset"][i] : table["offset"][i + 1]]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.open(io.BytesIO(packed.tobytes())).convert("RGB").save(path)
    write_csv(rows, root / "table.csv")
    return len(rows)


def write_csv(rows: list[dict[str, str]], path: Path) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as opened:
        write_rows(opened, [list(rows[0]), *(row.values() for row in rows)])


UNPACKERS = {each.__name__: each for each in (omniglot, lfw, caltech101, cmu, fer, cifar10)}


def main() -> None:
    """Unpack one data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=UNPACKERS)
    parser.add_argument("packed", type=Path, help="the folder with the packed files")
    parser.add_argument("root", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    done = arguments.root / "complete"
    if not done.exists():
        arguments.root.mkdir(parents=True, exist_ok=True)
        count = UNPACKERS[arguments.data](arguments.packed, arguments.root)
        done.write_text(f"{count} files\n")
    print(f"{arguments.root}: {done.read_text().strip()}")


if __name__ == "__main__":
    main()
