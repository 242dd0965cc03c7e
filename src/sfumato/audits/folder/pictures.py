"""The pictures of a folder: released ones and known photographs, with the people on them if that is known."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato import images
from sfumato.audits.findings import Outcome
from sfumato.audits.folder.metadata import sidecar_words
from sfumato.base.files import below, leads_out, open_regular, read_regular
from sfumato.data.readers.listing import read_rows
from sfumato.device.jobs.video import SUFFIXES as VIDEOS
from sfumato.errors import DataError, ImageError, SfumatoError, did_you_mean
from sfumato.images.decoding import MAX_PIXELS
from sfumato.protect.region import Box
from sfumato.wire import decode

RELEASES = (".release",)  # of `sfumato protect --format release`
_PERSON = "person"
_VIDEO = re.compile(rb".{4}(ftyp|moov|mdat|wide|pnot)|\x1aE\xdf\xa3|RIFF.{4}AVI ", re.DOTALL)  # its beginning
_MOST_RELEASED = 1024  # images of a .release file

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
        copies: (R, N, 3, S, S) uint8, R releases of each, made before it was resized; None without any.
        release: codes or features as they travelled; None for images.
    """

    images: Tensor
    files: tuple[Listed, ...]
    copies: Tensor | None = None
    release: Any = field(default=None, repr=False)

    @property
    def people(self) -> list[str]:
        """The person on each, "" if nobody says."""
        return [each.person for each in self.files]


@dataclass(frozen=True)
class Listing:
    """The files of a folder, by what they are.

    Attributes:
        pictures: recognised by their first bytes, with releases.
        videos: of formats that are read.
        sidecars: files with words on pictures.
        outcome: counts the others.
        by_folder: whether sub-folders name the people.
        digest: SHA-256 of the lines that `sha256sum` writes of all files, in the order of their names.
    """

    pictures: list[Listed]
    videos: list[Listed] = field(default_factory=list)
    sidecars: list[Listed] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)
    by_folder: bool = False
    digest: str = ""


def list_files(source: str | os.PathLike[str], people: Path | None = None, *, every: bool = False) -> Listing:
    """List the images of a folder, or of a table.

    Args:
        source: a folder, whose first sub-folders name people if `people` is None and every image lies in
            one; or a CSV with the columns `file` and `person`.
        people: a CSV with these columns, whose files are named below the folder.
        every: lists videos, sidecars and hidden files, too, and makes the digest.

    Raises:
        DataError: no such folder, no image in it (with `every`: no file), or a table without these columns.
    """
    source = Path(source)
    if source.is_file():
        _, rows = read_rows(source, columns=("file", _PERSON), of="image")
        return Listing(
            [Listed(below(source.parent, row["file"], line), row["file"], row[_PERSON]) for line, row in rows]
        )
    if not source.is_dir():
        raise DataError(f"{source}: no such folder: name one that holds images, or a CSV of file,{_PERSON}")
    listing, digest = Listing([]), hashlib.sha256()
    for path in _walk(source, listing.outcome):
        name = path.relative_to(source).as_posix()
        if every and not path.is_symlink() and path.is_file():
            digest.update(_line(path, name))
        if not every and any(part.startswith(".") for part in name.split("/")):
            listing.outcome.leave_out("hidden file", name)
            continue
        kind = _sort(path, source, listing.outcome, name, every=every)
        if kind is not None:
            getattr(listing, kind).append(Listed(path, name))
    shown = listing.pictures
    if not shown and not (every and (listing.videos or listing.sidecars or listing.outcome.left_out)):
        raise DataError(
            f"{source}: no images: an audit needs at least one, such as a .png, .jpg or .release file"
        )
    by_folder = people is None and all("/" in each.name for each in shown)
    said = {each.name: each.name.split("/")[0] if by_folder else "" for each in (*shown, *listing.videos)}
    if people is not None:
        _, rows = read_rows(people, columns=("file", _PERSON), of="image")
        for line, row in rows:
            if row["file"] not in said:
                raise DataError(
                    f"{line}: no file {row['file']!r} in {source}: {did_you_mean(row['file'], said)}"
                )
        said |= {row["file"]: row[_PERSON] for _, row in rows}
    named = [replace(each, person=said[each.name]) for each in shown]
    return replace(listing, pictures=named, by_folder=by_folder, digest=digest.hexdigest() if every else "")


def _walk(source: Path, outcome: Outcome) -> Iterator[Path]:
    """Yield all but folders, in the order of names; count folders that cannot be opened."""

    def refuse(error: OSError) -> None:
        outcome.leave_out("folder that cannot be opened", Path(error.filename).relative_to(source).as_posix())

    made = []
    for folder, inner, files in os.walk(source, onerror=refuse):
        made += [Path(folder, each) for each in files]
        made += [Path(folder, each) for each in inner if Path(folder, each).is_symlink()]
    yield from sorted(made, key=lambda path: os.fsencode(path.relative_to(source)))


def _line(path: Path, name: str) -> bytes:
    try:
        with open_regular(path) as file:
            words = hashlib.file_digest(file, "sha256").hexdigest().encode()
    except OSError:
        words = b"?"  # of a file that nobody may read
    return words + b"  " + os.fsencode(name) + b"\n"


def _sort(path: Path, root: Path, outcome: Outcome, name: str, *, every: bool) -> str | None:
    """Name the list of a file by its first bytes; None if it is counted as left out."""
    suffix = path.suffix.lower()
    if leads_out(path, root):
        outcome.leave_out("link out of its folder", name)
        return None
    if path.is_dir():
        return None  # a link to a folder of this one, whose files are listed there
    if suffix in RELEASES or images.is_image(path):
        return "pictures"
    try:
        with open_regular(path) as file:
            head = file.read(16)
    except OSError:
        outcome.leave_out("file that cannot be opened", name)
        return None
    if every and (suffix in VIDEOS or _VIDEO.match(head)):
        return "videos"
    if every and sidecar_words(path.name, b"{}") is not None:
        return "sidecars"
    outcome.leave_out(f"file of another kind ({suffix or 'without a suffix'})", name)
    return None


def read_all(file: Listed, root: Path) -> Iterator[Tensor | ImageError]:
    """Yield all pictures of a file, each (3, H, W) uint8; the error of a further one that cannot be read.

    Raises:
        ImageError: for any error of any decoder on the first one, and for a link out of its folder.
    """
    if leads_out(file.path, root):
        raise ImageError(
            f"{file.path}: is a link out of its folder (if you trust it, set "
            f"SFUMATO_OUTSIDE={Path(os.path.realpath(file.path)).parent})",
            cause="a link out of its folder",
        )
    with naming(file):
        if file.path.suffix.lower() not in RELEASES:
            for pixels in images.read_pictures(file.path):
                yield pixels if isinstance(pixels, ImageError) else torch.from_numpy(pixels)
            return
        released = _decode(file.path, _MOST_RELEASED)
        if not hasattr(released, "images"):
            raise ImageError(f"{file.path}: holds a code or a feature, and no image", cause="no image")
        yield from (pixels.expand(3, -1, -1) for pixels in released.images())


@contextmanager
def naming(file: Listed) -> Iterator[None]:
    """Turn any error of a decoder into an ImageError: a damaged file costs itself, never the report."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        cause = str(error) if isinstance(error, SfumatoError) else type(error).__name__
        raise ImageError(f"{file.path}: cannot be read ({error})", cause=cause) from error


def read_picture(file: Listed, root: Path) -> Tensor:
    """Read the first picture of a file; see `read_all`."""
    picture = next(read_all(file, root))
    assert isinstance(picture, Tensor)  # an error of the first one is raised
    return picture


def _decode(path: Path, most: int = 1) -> Any:
    return decode(read_regular(path, images.reading.MAX_BYTES), most_images=most, most_pixels=MAX_PIXELS)


def reason_of(error: ImageError, what: str = "file") -> str:
    """The reason why a file was not looked at, without folders of this machine."""
    return f"{what} that cannot be read ({error.cause})"


def read_pictures(
    files: Sequence[Listed],
    root: str | os.PathLike[str],
    *,
    size: int,
    boxes: Callable[[Tensor], Sequence[Box]] | None = None,
    release: Release | None = None,
    outcome: Outcome | None = None,
    every: bool = False,
) -> Pictures:
    """Read files as squares of one size; files that cannot be read, or without a box, are counted.

    Args:
        files: see `list_files`.
        root: the folder that no link may leave.
        size: the side of a square in pixels.
        boxes: finds the parts to look at, one square each; None for the centre square of each picture.
        release: protects a square, or with parts the part, in its own size; None for no copies.
        outcome: counts those that are left out.
        every: reads all pictures of a file, and not the first alone.

    Raises:
        DataError: no file can be read.
    """
    squares, kept, outcome = [], [], Outcome() if outcome is None else outcome
    for file in files:
        try:
            for number, picture in enumerate(read_all(file, Path(root))):
                if number and not every:
                    break
                if isinstance(picture, ImageError):
                    outcome.leave_out(reason_of(picture), file.name)
                    continue
                parts = [picture] if boxes is None else [cut(picture, box) for box in boxes(picture)]
                if not parts:
                    raise ImageError(f"{file.path}: no face and no hidden part was found", cause="no face")
                for part in parts:
                    views = [part, *(release(part) if release else ())]
                    squares.append(np.stack([images.resize(view.numpy(), size) for view in views]))
                    kept.append(file)
        except ImageError as error:
            outcome.leave_out(reason_of(error), file.name)
    if not kept:
        raise DataError(f"{root}: none of its {len(files)} files can be used: {outcome.words}")
    joined = torch.from_numpy(np.stack(squares, 1))  # (1 + R, N, 3, S, S)
    return Pictures(joined[0], tuple(kept), joined[1:] if release else None)


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
