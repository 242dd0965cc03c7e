"""The pictures of a folder: released ones and known photographs, with the people on them if that is known."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato import images
from sfumato.base.files import below, leads_out, read_regular
from sfumato.data.readers.listing import read_rows
from sfumato.errors import DataError, ImageError, did_you_mean
from sfumato.images.decoding import MAX_PIXELS
from sfumato.protect.region import Box
from sfumato.wire import decode

RELEASES = (".release",)  # of `sfumato protect --format release`
_PERSON = "person"

Release = Callable[[Tensor], Sequence[Tensor]]
"""Maps a (3, H, W) uint8 picture to R releases of it, of the same shape."""


@dataclass(frozen=True)
class Listed:
    """A file to read: its path, its name below its folder, and the person on it ("" if nobody says)."""

    path: Path
    name: str
    person: str = ""


@dataclass(frozen=True)
class Pictures:
    """Squares of one size from files, in their order.

    Attributes:
        images: (N, 3, S, S) uint8; of codes and features, black ones.
        files: the file of each.
        skipped: the problem of each file that was left out.
        copies: (R, N, 3, S, S) uint8, R releases of each, made before it was resized; None without any.
        release: codes or features as they travelled; None for images.
    """

    images: Tensor
    files: tuple[Listed, ...]
    skipped: tuple[str, ...] = ()
    copies: Tensor | None = None
    release: Any = field(default=None, repr=False)

    @property
    def people(self) -> list[str]:
        """The person on each, "" if nobody says."""
        return [each.person for each in self.files]


def list_files(
    source: str | os.PathLike[str], people: Path | None = None, *, suffixes: Sequence[str] = ()
) -> list[Listed]:
    """List the images of a folder, or of a table.

    Args:
        source: a folder, whose first sub-folders name people if `people` is None and every image lies in
            one; or a CSV with the columns `file` and `person`.
        people: a CSV with these columns, whose files are named below the folder.
        suffixes: of further files.

    Raises:
        DataError: no such folder, no image in it, or a table without these columns.
    """
    source = Path(source)
    if source.is_file():
        _, rows = read_rows(source, columns=("file", _PERSON), of="image")
        return [
            Listed(below(source.parent, row["file"], line), row["file"], row[_PERSON]) for line, row in rows
        ]
    if not source.is_dir():
        raise DataError(f"{source}: no such folder: name one that holds images, or a CSV of file,{_PERSON}")
    wanted = {*images.SUFFIXES, *RELEASES, *suffixes}
    files = [path for path in sorted(source.rglob("*")) if path.suffix.lower() in wanted]
    names = [path.relative_to(source).as_posix() for path in files]
    shown = [(path, name) for path, name in zip(files, names, strict=True) if not _is_hidden(name)]
    if not shown:
        raise DataError(
            f"{source}: no images: an audit needs at least one, such as a .png, .jpg or .release file"
        )
    if people is not None:
        _, rows = read_rows(people, columns=("file", _PERSON), of="image")
        said = {row["file"]: row[_PERSON] for _, row in rows}
        known = {name for _, name in shown}
        for line, row in rows:
            if row["file"] not in known:
                raise DataError(
                    f"{line}: no file {row['file']!r} in {source}: {did_you_mean(row['file'], known)}"
                )
        return [Listed(path, name, said.get(name, "")) for path, name in shown]
    by_folder = all("/" in name for _, name in shown)
    return [Listed(path, name, name.split("/")[0] if by_folder else "") for path, name in shown]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def read_picture(file: Listed, root: Path) -> Tensor:
    """Read a picture in its own size: (3, H, W) uint8. Raises ImageError, for links out of the folder too."""
    if leads_out(file.path, root):
        raise ImageError(
            f"{file.path}: is a link out of its folder (if you trust it, set "
            f"SFUMATO_OUTSIDE={Path(os.path.realpath(file.path)).parent})",
            cause="a link out of its folder",
        )
    if file.path.suffix.lower() not in RELEASES:
        return images.read(file.path)
    try:
        pixels: Tensor = _decode(file.path).images()[0]
    except AttributeError as error:
        raise ImageError(f"{file.path}: holds a code or a feature, and no image", cause="no image") from error
    return pixels.expand(3, -1, -1)


def _decode(path: Path) -> Any:
    return decode(read_regular(path, images.reading.MAX_BYTES), most_images=1, most_pixels=MAX_PIXELS)


def read_pictures(
    files: Sequence[Listed],
    root: str | os.PathLike[str],
    *,
    size: int,
    boxes: Callable[[Tensor], Sequence[Box]] | None = None,
    release: Release | None = None,
) -> Pictures:
    """Read files as squares of one size; files that cannot be read, or without a box, are left out and named.

    Args:
        files: see `list_files`.
        root: the folder that no link may leave.
        size: the side of a square in pixels.
        boxes: finds the parts to look at, one square each; None for the centre square of each picture.
        release: protects a square, or with parts the part, in its own size; None for no copies.

    Raises:
        DataError: no file can be read.
    """
    squares, kept, skipped = [], [], []
    for file in files:
        try:
            picture = read_picture(file, Path(root))
            parts = [picture] if boxes is None else [cut(picture, box) for box in boxes(picture)]
            if not parts:
                raise ImageError(f"{file.path}: no face and no hidden part was found", cause="no face")
            for part in parts:
                views = [part, *(release(part) if release else ())]
                squares.append(np.stack([images.resize(view.numpy(), size) for view in views]))
                kept.append(file)
        except ImageError as error:
            skipped.append(str(error))
    if not kept:
        raise DataError(f"{root}: none of its {len(files)} files can be used, such as {skipped[0]}")
    every = torch.from_numpy(np.stack(squares, 1))  # (1 + R, N, 3, S, S)
    return Pictures(every[0], tuple(kept), tuple(skipped), every[1:] if release else None)


def read_vectors(files: Sequence[Listed], root: str | os.PathLike[str], *, size: int) -> Pictures:
    """Read codes or features, one a .release file; their pictures are black.

    Raises:
        DataError: a file is something else, or of another protection than the first.
    """
    made = []
    for file in files:
        if file.path.suffix.lower() not in RELEASES or leads_out(file.path, root):
            raise DataError(
                f"{file.path}: codes and features are read from .release files of this folder alone"
            )
        made.append(_decode(file.path))
        if (type(made[-1]), made[-1].spec) != (type(made[0]), made[0].spec):
            raise DataError(
                f"{file.path}: holds {made[-1].spec}, and the first file {made[0].spec}: split them"
            )
    joined = replace(made[0], array=np.concatenate([each.array for each in made]))
    black = torch.zeros(len(files), 3, size, size, dtype=torch.uint8)
    return Pictures(black, tuple(files), release=joined)


def cut(picture: Tensor, box: Box) -> Tensor:
    """Cut the square around a box out of a (3, H, W) picture, moved inwards at its edges."""
    top, bottom, left, right = box
    side = min(max(bottom - top, right - left), *picture.shape[1:])
    y, x = (
        min(max(0, (low + high - side) // 2), length - side)
        for low, high, length in ((top, bottom, picture.shape[1]), (left, right, picture.shape[2]))
    )
    return picture[:, y : y + side, x : x + side]
