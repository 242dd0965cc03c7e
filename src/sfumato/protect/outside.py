"""Images that an outside tool anonymised, for tables next to the protections of this library.

A tool such as CIAGAN (Maximov, Elezi & Leal-Taixé 2020) or DeepPrivacy (Hukkelås, Mester & Lindseth 2019)
runs by itself. An index then maps each of its files to its original, and that file is the release.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from sfumato.base.files import MOST_TABLE, below, parse_table, read_regular
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError, ImageError, did_you_mean
from sfumato.images import Images, Pixels, as_array, check_batch, digest, read_array
from sfumato.protect.parameters import check_path
from sfumato.protect.release import FilePath, Protection, Release, artefact_digest


# Keyed by the content: a study makes a protection anew for every batch, and the index may be written anew.
@lru_cache(maxsize=8)
def read_index(index: str, content: bytes) -> Mapping[bytes, tuple[str, Path]]:
    """The digest of each original -> its line, for errors, and the anonymised image; see parse_table.

    Column `file` names an anonymised image, and column `digest` has the digest of the pixels of its original
    (images.digest) in hexadecimal; others are ignored. Paths are relative to the index, and lie below it.
    Raises DataError for another table, no rows, a malformed digest, two rows of one original, or a file
    elsewhere.
    """
    header, lines = parse_table(index, content)
    for column in ("file", "digest"):
        if column not in header:
            raise DataError(f"{index}: no column {column!r}: {did_you_mean(column, header)}")
    if not lines:
        raise DataError(f"{index}: no rows: list at least one image")
    rows: dict[bytes, tuple[str, Path]] = {}
    for place, line in lines:
        original = b""
        with suppress(ValueError):
            original = bytes.fromhex(line["digest"])
        if len(original) != hashlib.sha256().digest_size:
            raise DataError(
                f"{place}: {line['digest']!r} is not a digest, of 64 hexadecimal digits: "
                "write sfumato.images.digest(image).hex()"
            )
        if not line["file"]:
            raise DataError(f"{place}: no value for 'file': fill it in or remove the row")
        if original in rows:
            raise DataError(f"{place}: the same original as {rows[original][0]}: keep one of the two rows")
        rows[original] = place, below(Path(index).absolute().parent, line["file"], place)
    return rows


@dataclass(frozen=True)
class Outside(Protection):
    """The image that an outside tool made of each original, from the files that an index names.

    An image is looked up by its pixels, from any source. Its anonymised image is cut and resized, as a data
    source does it, to the size of the original. Nothing is proved: it may reveal anything. The files must not
    change while a process works with them. `index`: path of a CSV, see read_index.
    """

    index: FilePath

    name = "outside"

    def __post_init__(self) -> None:
        check_path("outside", "index", self.index)

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release. Raises DataError for an image that is not an original of the index.

        Also ImageError and ArtefactError if a file cannot be read; and see read_index.
        """
        check_batch(images)
        rows = read_index(self.index, self._content())
        digests = [digest(image) for image in as_array(images)]
        missing = [each for each in digests if each not in rows]
        if missing:
            raise DataError(
                f"outside: {len(missing)} of {len(images)} images are not originals of {self.index}, the "
                f"first of digest {missing[0].hex()}: anonymise them too and add them to it"
            )
        found = [_read(*rows[each], (*images.shape[1:],)) for each in digests]
        values = np.stack(found) if found else as_array(images)
        return Release(values, self.spec, (images.shape[2], images.shape[3]))

    def _content(self) -> bytes:
        try:
            return read_regular(self.index, MOST_TABLE)
        except OSError as error:
            raise ArtefactError(f"{self.index}: cannot be read ({error.strerror})") from error

    def digest(self) -> str:
        """The SHA-256 over the index and all its files. Raises ArtefactError, and see read_index."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        content = self._content()
        made = hashlib.sha256(content)
        for place, file in read_index(self.index, content).values():
            try:
                made.update(artefact_digest(str(file)).encode())
            except ArtefactError as error:
                raise ArtefactError(f"{place}: {error}") from error
        return made.hexdigest()


def _read(place: str, file: Path, shape: tuple[int, ...]) -> Pixels:
    """The anonymised image at the (C, H, W) of its original. Raises ImageError."""
    channels, height, width = shape
    try:
        image = read_array(file, channels=channels, size=height if height == width else None)
    except ImageError as error:
        raise ImageError(f"{place}: {error}", cause=error.cause) from error
    return fit(image, height, width)


def fit(image: Pixels, height: int, width: int) -> Pixels:
    """(C, h, w) uint8 -> (C, height, width): its centre, resized by Lanczos."""
    if image.shape[1:] == (height, width):
        return image
    planes = (Image.fromarray(plane) for plane in image)
    fitted = [ImageOps.fit(plane, (width, height), Image.Resampling.LANCZOS) for plane in planes]
    return np.stack([np.asarray(plane) for plane in fitted])
