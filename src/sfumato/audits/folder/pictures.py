"""The pictures of a folder: released ones and known photographs, with the people on them if that is known."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato import images
from sfumato.audits.findings import Outcome
from sfumato.base.files import below, leads_out, open_regular, read_regular
from sfumato.data.readers.listing import read_rows
from sfumato.device.jobs.video import SUFFIXES as VIDEOS
from sfumato.device.jobs.video import footage
from sfumato.errors import DataError, ImageError, SfumatoError, did_you_mean
from sfumato.images.reading import MAX_PIXELS
from sfumato.protect.region import Box
from sfumato.wire import decode

RELEASES = (".release",)  # of `sfumato protect --format release`
_MOST_RELEASED = 1024  # images of a .release file
_EVERY, _MOST_FRAMES = 10, 1500  # frames of a video: between two looks, and in all
_MANIFEST = frozenset({"spec", "made_of", "outputs"})  # keys of the manifest that `sfumato protect` writes

Source = str | os.PathLike[str]
Release = Callable[[Tensor], Sequence[Tensor]]  # a (3, H, W) uint8 picture -> R releases of it, of this shape


@dataclass(frozen=True)
class Listed:
    """A file to read: its path, its name below its folder, and the person on it ("" if nobody says)."""

    path: Path
    name: str
    person: str = ""


Boxes = Callable[[Listed, Tensor], Sequence[Box]]  # finds the parts of a picture to look at


@dataclass(frozen=True)
class Pictures:
    """Squares of one size from files, in their order."""

    images: Tensor  # (N, 3, S, S) uint8; of codes and features, black ones
    files: tuple[Listed, ...]  # the file of each
    copies: Tensor | None = None  # (R, N, 3, S, S) uint8, R releases of each, made before it was resized
    release: Any = field(default=None, repr=False)  # codes or features as they travelled; None for images

    @property
    def people(self) -> list[str]:
        """The person on each, "" if nobody says."""
        return [each.person for each in self.files]


@dataclass(frozen=True)
class Listing:
    """The files of a folder that hold pictures."""

    files: list[Listed]  # images are recognised by their first bytes
    root: Path  # which no link may leave
    outcome: Outcome = field(default_factory=Outcome)  # counts the others
    by_folder: bool = False  # whether sub-folders name the people
    digest: str = ""  # SHA-256 of the lines that `sha256sum` writes of all files, in the order of their names


def list_files(source: Source, people: Path | None = None, *, every: bool = False) -> Listing:
    """List the images of a folder, or of a CSV with the columns `file` and `person`.

    First sub-folders name people if every image lies in one, unless `people`, such a CSV of names below the
    folder, does. `every` lists videos and hidden files, too, and makes the digest.
    Raises DataError: no such folder, no image in it (with `every`: no file), or a table without columns.
    """
    source = Path(source)
    if source.is_file():
        _, rows = read_rows(source, columns=("file", "person"), of="image")
        root = source.parent
        files = [Listed(below(root, row["file"], line), row["file"], row["person"]) for line, row in rows]
        return Listing(files, root)
    if not source.is_dir():
        raise DataError(f"{source}: no such folder: name one that holds images, or a CSV of file,person")
    shown, outcome, digest = dict[str, Path](), Outcome(), hashlib.sha256()
    for path in _walk(source, outcome):
        name = path.relative_to(source).as_posix()
        if every and not path.is_symlink() and path.is_file():
            words = b"?"  # of a file that nobody may read
            with suppress(OSError), open_regular(path) as opened:
                words = hashlib.file_digest(opened, "sha256").hexdigest().encode()
            digest.update(words + b"  " + os.fsencode(name) + b"\n")
        if not every and any(part.startswith(".") for part in name.split("/")):
            outcome.leave_out("hidden file", name)
        elif leads_out(path, source):
            outcome.leave_out("link out of its folder", name)
        elif path.is_dir():
            continue  # a link to a folder of this one, whose files are listed there
        elif images.is_image(path) or path.suffix.lower() in (RELEASES + VIDEOS if every else RELEASES):
            shown[name] = path
        elif not (every and _is_manifest(path)):
            suffix = path.suffix.lower() or "without a suffix"
            outcome.leave_out(f"file of another kind ({suffix})", name)
    if not shown and not (every and outcome.left_out):
        raise DataError(f"{source}: no images: an audit needs at least one, as a .png, .jpg or .release file")
    by_folder = people is None and all("/" in name for name in shown)
    said = {name: name.split("/")[0] if by_folder else "" for name in shown}
    if people is not None:
        _, rows = read_rows(people, columns=("file", "person"), of="image")
        for line, row in rows:
            if (file := row["file"]) not in said:
                raise DataError(f"{line}: no file {file!r} in {source}: {did_you_mean(file, said)}")
            said[file] = row["person"]
    files = [Listed(path, name, said[name]) for name, path in shown.items()]
    return Listing(files, source, outcome, by_folder, digest.hexdigest() if every else "")


def _walk(source: Path, outcome: Outcome) -> list[Path]:
    """List all but folders, in the order of names; count folders that cannot be opened."""
    refused: list[OSError] = []
    walk = os.walk(source, onerror=refused.append)
    every = [Path(folder, each) for folder, inner, files in walk for each in (*files, *inner)]
    for error in refused:
        name = Path(error.filename).relative_to(source).as_posix()
        outcome.leave_out("folder that cannot be opened", name)
    made = [path for path in every if path.is_symlink() or not path.is_dir()]
    return sorted(made, key=lambda path: os.fsencode(path.relative_to(source)))


def _is_manifest(path: Path) -> bool:
    """Whether a file names the other files of a folder that `sfumato protect` wrote."""
    with suppress(OSError, ValueError):
        said = json.loads(read_regular(path, images.reading.MAX_BYTES)) if path.suffix == ".json" else None
        return isinstance(said, dict) and said.keys() >= _MANIFEST
    return False


def read_all(file: Listed, root: Path) -> Iterator[Tensor | ImageError]:
    """Yield all pictures of a file, each (3, H, W) uint8; the error of a further one that cannot be read.

    A video gives every tenth of its first 1,500 frames. Raises ImageError: for any error of any decoder on
    the first one, and for a link out of its folder.
    """
    if leads_out(file.path, root):
        trusted = f"if you trust it, set SFUMATO_OUTSIDE={Path(os.path.realpath(file.path)).parent}"
        cause = "a link out of its folder"
        raise ImageError(f"{file.path}: is {cause} ({trusted})", cause=cause)
    try:
        if file.path.suffix.lower() in RELEASES:
            released = _decode(file.path, _MOST_RELEASED)
            if not hasattr(released, "images"):
                raise ImageError(f"{file.path}: holds a code or a feature, and no image", cause="no image")
            yield from (pixels.expand(3, -1, -1) for pixels in released.images())
        elif images.is_image(file.path):
            read = 0
            for pixels in images.read_pictures(file.path):
                read += 1
                yield pixels if isinstance(pixels, ImageError) else torch.from_numpy(pixels)
            if images.count_pictures(file.path) > read:
                yield ImageError(f"{file.path}: has more pictures than are read", cause="too many")
        else:
            with footage(file.path) as clip:
                for number, frame in enumerate(clip.frames()):
                    if number == _MOST_FRAMES:
                        words = f"behind the first {_MOST_FRAMES:,} frames of a video"
                        yield ImageError(f"{file.path}: {words}", cause=words)
                        return
                    if number % _EVERY == 0:
                        yield torch.from_numpy(frame.image)
    except ImageError:
        raise
    except Exception as error:  # a damaged file costs itself, never the report
        cause = str(error) if isinstance(error, SfumatoError) else type(error).__name__
        raise ImageError(f"{file.path}: cannot be read ({error})", cause=cause) from error


def _decode(path: Path, most: int = 1) -> Any:
    return decode(read_regular(path, images.reading.MAX_BYTES), most_images=most, most_pixels=MAX_PIXELS)


def reason_of(error: ImageError, what: str = "file") -> str:
    """The reason why a file was not looked at, without folders of this machine."""
    return f"{what} that cannot be read ({error.cause})"


def read_pictures(
    files: Sequence[Listed],
    root: Path,
    *,
    size: int,
    outcome: Outcome,
    boxes: Boxes | None = None,
    release: Release | None = None,
    every: bool = False,
) -> Pictures:
    """Read files as squares of one size; those that cannot be read, or without a box, are counted.

    `boxes` finds the parts to look at, one square each; None for the centre square of each picture. `release`
    protects a square, or the part, in its own size. `every` reads all pictures of a file, and not the first
    alone. Raises DataError: no file can be read.
    """
    squares, kept = [], []
    for file in files:
        try:
            for number, picture in enumerate(read_all(file, root)):
                if number and not every:
                    break
                if isinstance(picture, ImageError):
                    outcome.leave_out(reason_of(picture), file.name)
                    continue
                parts = [picture] if boxes is None else [cut(picture, box) for box in boxes(file, picture)]
                if not parts:
                    raise ImageError(f"{file.path}: no face and no hidden part was found", cause="no face")
                for part in parts:
                    views = [part, *(release(part) if release else ())]
                    squares.append(np.stack([images.resize(view.numpy(), size) for view in views]))
                    # Nobody says who is on which part.
                    kept.append(file if len(parts) == 1 else replace(file, person=""))
        except ImageError as error:
            outcome.leave_out(reason_of(error), file.name)
    if not kept:
        raise DataError(f"{root}: none of its {len(files)} files can be used: {outcome.words}")
    joined = torch.from_numpy(np.stack(squares, 1))  # (1 + R, N, 3, S, S)
    return Pictures(joined[0], tuple(kept), joined[1:] if release else None)


def read_vectors(files: Sequence[Listed], root: Path, *, size: int) -> Pictures:
    """Read codes or features of one protection, one a .release file; their pictures are black."""
    made = []
    for file in files:
        if file.path.suffix.lower() not in RELEASES or leads_out(file.path, root):
            words = "codes and features are read from .release files of this folder alone"
            raise DataError(f"{file.path}: {words}")
        made.append(_decode(file.path))
        first, last = made[0], made[-1]
        if (type(last), last.spec) != (type(first), first.spec):
            raise DataError(f"{file.path}: holds {last.spec}, and the first file {first.spec}: split them")
    joined = replace(made[0], array=np.concatenate([each.array for each in made]))
    black = torch.zeros(len(files), 3, size, size, dtype=torch.uint8)
    return Pictures(black, tuple(files), release=joined)


def cut(picture: Tensor, box: Box) -> Tensor:
    """Cut the square around a box out of a (3, H, W) picture, moved inwards at its edges."""
    side = min(max(box[1] - box[0], box[3] - box[2]), *picture.shape[1:])
    ends = zip(box[::2], box[1::2], picture.shape[1:], strict=True)
    y, x = (min(max(0, (low + high - side) // 2), length - side) for low, high, length in ends)
    return picture[:, y : y + side, x : x + side]
