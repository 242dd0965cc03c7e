"""Stanford Dogs in its official layout: a folder per breed below Images, and the split as .mat files."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, assemble
from sfumato.data.readers.layout import class_splits, classes_in, part
from sfumato.errors import DataError, ImageError, needs_extra

_WHAT = "the content of images.tar"
_LISTS = "the content of lists.tar"


def stanford_dogs(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    split: Literal["classes", "images"] = "classes",
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads Stanford Dogs (Khosla et al. 2011).

    Args:
        root: the folder with Images, and for split="images" with train_list.mat and test_list.mat, in it or
            in its folder lists.
        size, channels, skip_unreadable: see `folder`.
        split: "classes" gives whole breeds to train, validation and test (60, 15 and 25 in 100, by seed 0),
            for few-shot tasks; "images" is the official split of 12,000 and 8,580 images, in which every
            breed is in both parts and there is no validation. Its lists are MATLAB files, which SciPy reads;
            it comes with the extra `study`.

    Returns:
        Label `class`: the breed ("Chihuahua", "golden retriever").

    Raises:
        DataError: a part of the layout is missing, or an image is in no list.
        ImageError: a file that is not an image.
        MissingExtraError: split="images" without SciPy.
    """
    root = Path(root)
    directory = part("stanford_dogs", root, "Images", what=_WHAT)
    left_out = Counter[str]()
    found = classes_in("stanford_dogs", directory, left_out, what=_WHAT)
    files = [path for path, _ in found]
    breeds = [folder.partition("-")[2].replace("_", " ") or folder for _, folder in found]
    return assemble(
        "stanford_dogs",
        files,
        {"class": breeds},
        class_splits(breeds) if split == "classes" else _official_splits(root, files),
        size=size,
        channels=channels,
        left_out=left_out,
        skip_unreadable=skip_unreadable,
    )


def _official_splits(root: Path, files: list[Path]) -> list[str]:
    split_of = {}
    for split in ("train", "test"):
        name = f"{split}_list.mat"
        path = part("stanford_dogs", root, f"lists/{name}", name, what=_LISTS)
        for listed in _file_list(path):
            split_of[listed] = split
    names = ["/".join(path.parts[-2:]) for path in files]
    strays = [name for name in names if name not in split_of]
    if strays:
        raise DataError(
            f"{root}: {len(strays)} images are in neither list ({strays[0]}): "
            "remove files that are not of the official release, or pass split='classes'"
        )
    return [split_of[name] for name in names]


def _file_list(path: Path) -> list[str]:
    """The "BREED/IMAGE.jpg" of a list: a MATLAB cell array, n x 1, of strings."""
    with needs_extra("the official split of Stanford Dogs", "study"):
        from scipy.io import loadmat  # type: ignore[import-untyped]
    try:
        return [str(cell.item()) for cell in loadmat(path)["file_list"].flat]
    except Exception as error:  # SciPy raises nearly anything on a damaged file
        raise DataError(f"{path}: no MATLAB file with a file_list ({error}): download it again") from error
