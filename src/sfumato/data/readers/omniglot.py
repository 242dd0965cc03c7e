"""Omniglot in its official layout, split as by Vinyals et al. or by Lake et al.; rotations are classes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from sfumato import images
from sfumato.data.labelled import LabelledImages, label_of
from sfumato.data.readers.folder import Root
from sfumato.errors import DataError

# Vinyals et al. 2016 split the 1,623 characters 1,028 / 172 / 423; Snell et al. 2017 published the list.
# Whole alphabets, except the last four characters of Gurmukhi.
_VALIDATION = frozenset({"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"})
_TEST = frozenset(
    {"Kannada", "Keble", "Malayalam", "Manipuri", "Mongolian", "Old_Church_Slavonic_(Cyrillic)", "Oriya"}
    | {"Sylheti", "Syriac_(Serto)", "Tengwar", "Tibetan", "ULOG"}
)
_TEST_CHARACTERS = frozenset(f"Gurmukhi/character{n}" for n in (42, 43, 44, 45))

_PARTS = ("images_background", "images_evaluation")


def omniglot(
    root: Root,
    *,
    size: int = 28,
    rotations: bool = True,
    split: Literal["vinyals", "lake"] = "vinyals",
) -> LabelledImages:
    """Reads Omniglot (Lake, Salakhutdinov & Tenenbaum 2015), ink 255 on 0.

    Args:
        root: has images_background and images_evaluation, each as ALPHABET/characterNN/*.png.
        size: side in pixels; 28 by nearest neighbour, as in comparisons of prototypical networks.
        rotations: each character turned by 90, 180 and 270 degrees is a class of its own, in the same split.
        split: "vinyals", 1028, 172 and 423 characters, as in comparisons of prototypical networks; some of
            its training alphabets are evaluation alphabets of the release. "lake": 25 and 5 of the background
            alphabets, and the 20 evaluation alphabets for the test, as the authors of Omniglot have it.

    Returns:
        Labels `class` ("Greek/character01/rot090"), `alphabet`, `drawer`, and `original`, the drawing of an
        image, turned or not. Each alphabet has its own 20 drawers: with "lake" drawers have its name
        ("Greek/05"), and nobody is in two splits; with "vinyals" only their number ("05").
    """
    root = Path(root)
    files: list[Path] = []
    for part in _PARTS:
        found = sorted((root / part).glob("*/character*/*.png"))
        if not found:
            cure = f"unpack {part}.zip of the official release there"
            raise DataError(f"{root / part}: no ALPHABET/characterNN/*.png: {cure}")
        files += found
    files.sort(key=lambda path: path.parts[-3:])
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        pixels = np.stack(list(pool.map(lambda path: _ink(path, size), files)))  # (n, H, W)
    characters = ["/".join(path.parts[-3:-1]) for path in files]
    alphabets = [path.parts[-3] for path in files]
    drawers = [path.stem.rsplit("_", 1)[-1] for path in files]
    hands, where = drawers, [_split_of(path, split) for path in files]
    if split == "lake":
        hands = [f"{alphabet}/{drawer}" for alphabet, drawer in zip(alphabets, drawers, strict=True)]
    turns = range(4) if rotations else range(1)
    classes = [f"{name}/rot{90 * turn:03d}" if rotations else name for turn in turns for name in characters]
    splits = np.array(where * len(turns))
    return LabelledImages(
        "omniglot",
        torch.from_numpy(np.concatenate([np.rot90(pixels, turn, axes=(1, 2)) for turn in turns]))[:, None],
        {
            "class": label_of(classes),
            "alphabet": label_of(alphabets * len(turns)),
            "drawer": label_of(hands * len(turns)),
            "original": label_of([f"{c}/{d}" for c, d in zip(characters, drawers, strict=True)] * len(turns)),
        },
        {name: torch.from_numpy((splits == name).nonzero()[0]) for name in ("train", "validation", "test")},
    )


def _ink(path: Path, size: int) -> np.ndarray:
    paper = images.read(path, channels=1)[0].numpy()
    # Not images.read's size=, which is smooth: prototypical networks are compared on nearest neighbours.
    return 255 - np.asarray(Image.fromarray(paper).resize((size, size), Image.Resampling.NEAREST))


def _split_of(path: Path, split: str) -> str:
    part, alphabet, character = path.parts[-4:-1]
    if split == "lake":
        test = part == "images_evaluation"
    else:
        test = alphabet in _TEST or f"{alphabet}/{character}" in _TEST_CHARACTERS
    return "test" if test else "validation" if alphabet in _VALIDATION else "train"
