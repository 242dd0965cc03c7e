"""Images that an outside tool anonymised, for tables next to the protections of this library.

A tool such as CIAGAN (Maximov, Elezi & Leal-Taixé 2020) or DeepPrivacy (Hukkelås, Mester & Lindseth 2019)
runs by itself. An index then maps each of its files to its original, and that file is the release.
"""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from sfumato.base.files import MOST_TABLE, below, parse_table, read_regular
from sfumato.base.hardware import thread_count
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError, ImageError, did_you_mean
from sfumato.images import Images, Pixels, as_array, check_batch, digest, read_array
from sfumato.protect.parameters import check_path
from sfumato.protect.release import FilePath, Protection, Release, artefact_digest

_DIGEST_BYTES = 32


class Row(NamedTuple):
    """One line of an index."""

    place: str  # the index and the number of the line, for errors
    file: Path  # of the anonymised image
    original: Path | bytes  # the file of the original, or the digest of its pixels: see images.digest


def read_index(name: str, content: bytes, folder: Path) -> list[Row]:
    """The rows of an index, for `name` in errors; see parse_table.

    Column `file` names an anonymised image, and column `original` its original; or column `digest` has the
    digest of the original, in hexadecimal. Other columns are ignored. Paths are relative to the folder:
    anonymised images lie below it, since they are released; originals may lie anywhere.

    Raises DataError for another file, no rows, an empty value, a malformed digest, or a file elsewhere.
    """
    header, lines = parse_table(name, content)
    if "file" not in header:
        raise DataError(f"{name}: no column 'file': {did_you_mean('file', header)}")
    if ("original" in header) == ("digest" in header):
        found = "both are" if "original" in header else "neither is"
        raise DataError(
            f"{name}: of the columns 'original' and 'digest' one is needed, and {found} there: "
            "give the file of each original, or the digest of its pixels"
        )
    if not lines:
        raise DataError(f"{name}: no rows: list at least one image")
    key = "original" if "original" in header else "digest"
    for place, line in lines:
        for column in ("file", key):
            if not line[column]:
                raise DataError(f"{place}: no value for {column!r}: fill it in or remove the row")
    return [
        Row(
            place,
            below(folder, line["file"], place),
            folder / line[key] if key == "original" else _digest_of(line[key], place),
        )
        for place, line in lines
    ]


def _digest_of(text: str, place: str) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != _DIGEST_BYTES:
        raise DataError(
            f"{place}: {text!r} is not a digest, of 64 hexadecimal digits: "
            "write what sfumato.images.digest(image).hex() gives"
        )
    return value


# Keyed by the index's content, not only by its name: a study makes a protection anew for every batch.
@lru_cache(maxsize=8)
def _rows_by_digest(
    name: str, content: bytes, folder: Path, channels: int, size: int | None
) -> Mapping[bytes, Row]:
    """Maps the digest of each original's pixels, as images.read gives them at a size, to its row.

    Raises DataError for two rows of one original and as read_index does; ImageError as images.read does.
    """
    rows = read_index(name, content, folder)

    def key(row: Row) -> bytes:
        if isinstance(row.original, bytes):
            return row.original
        with _naming_line(row):
            return digest(read_array(row.original, channels=channels, size=size))

    with ThreadPoolExecutor(thread_count()) as pool:
        keys = list(pool.map(key, rows))
    found: dict[bytes, Row] = {}
    for each, row in zip(keys, rows, strict=True):
        if each in found:
            raise DataError(
                f"{row.place}: the same original as {found[each].place}: keep one of the two rows"
            )
        found[each] = row
    return found


def _read_anonymised(row: Row, shape: tuple[int, int, int]) -> Pixels:
    """The anonymised image at the (C, H, W) of its original. Raises ImageError."""
    channels, height, width = shape
    with _naming_line(row):
        if height == width:
            return read_array(row.file, channels=channels, size=height)
        image = read_array(row.file, channels=channels)
    planes = [
        ImageOps.fit(Image.fromarray(plane), (width, height), Image.Resampling.LANCZOS) for plane in image
    ]
    return np.stack([np.asarray(plane) for plane in planes])


@contextmanager
def _naming_line(row: Row) -> Iterator[None]:
    """Adds the line that names a file to errors about it."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{row.place}: {error}", cause=error.cause) from error
    except ArtefactError as error:
        raise ArtefactError(f"{row.place}: {error}") from error


@dataclass(frozen=True)
class Outside(Protection):
    """The image that an outside tool made of each original, from the files that an index names.

    An image is looked up by its pixels, from any source. The files of originals are read as a data source
    reads them: for square images, the largest centre square, resized; for others, the whole. An image that
    was cropped or turned afterwards is in no file, and only its digest finds it. The anonymised image is
    cut and resized in the same way, to the size of its original.

    Nothing is proved: an outside tool made the images, and they may reveal anything.

    The files must not change while a process works with them: it reads the originals once for each size, and
    computes `digest` once. `index`: path of a CSV, see read_index.
    """

    index: FilePath

    name = "outside"

    def __post_init__(self) -> None:
        check_path("outside", "index", self.index)

    def digest(self) -> str:
        """The SHA-256 over the index and all its files. Raises ArtefactError, and see read_index."""
        return self._digest

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release. Raises DataError for an image that is not an original of the index.

        Also ImageError and ArtefactError if a file cannot be read; and see read_index.
        """
        check_batch(images)
        channels, height, width = images.shape[1:]
        size = height if height == width else None
        rows = _rows_by_digest(self.index, self._content(), self._folder(), channels, size)
        digests = [digest(image) for image in as_array(images)]
        missing = [each for each in digests if each not in rows]
        if missing:
            raise DataError(
                f"outside: {len(missing)} of {len(images)} images are not originals of {self.index}, the "
                f"first of digest {missing[0].hex()}: anonymise them too and add them to it; those that were "
                "cropped or turned after reading are named by their digest"
            )
        with ThreadPoolExecutor(thread_count()) as pool:
            found = list(
                pool.map(lambda each: _read_anonymised(rows[each], (channels, height, width)), digests)
            )
        values = np.stack(found) if found else as_array(images)
        return Release(values, self.spec, (height, width))

    def _folder(self) -> Path:
        return Path(self.index).absolute().parent

    def _content(self) -> bytes:
        try:
            return read_regular(self.index, MOST_TABLE)
        except OSError as error:
            raise ArtefactError(f"{self.index}: cannot be read ({error.strerror})") from error

    @cached_property
    def _digest(self) -> str:
        content = self._content()
        made = hashlib.sha256(content)
        for row in read_index(self.index, content, self._folder()):
            with _naming_line(row):
                for path in (row.file, row.original):
                    if isinstance(path, Path):
                        made.update(artefact_digest(str(path)).encode())
        return made.hexdigest()
