"""The metadata of files: positions, cameras, owners, times, thumbnails, and their names."""

import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image
from torch import Tensor

from sfumato import images
from sfumato.base.files import read_regular
from sfumato.errors import ImageError

_BASE = ExifTags.Base
# The kinds of metadata, by the tags of EXIF that hold them.
_TAGS = {
    "the camera's model": (_BASE.Make, _BASE.Model),
    "the camera's or the lens's serial number": (_BASE.BodySerialNumber, _BASE.LensSerialNumber),
    "an owner or an author": (_BASE.CameraOwnerName, _BASE.Artist, _BASE.Copyright, _BASE.XPAuthor),
    "the time of the exposure": (_BASE.DateTime, _BASE.DateTimeOriginal, _BASE.DateTimeDigitized),
    "a comment": (_BASE.ImageDescription, _BASE.UserComment, _BASE.XPComment, _BASE.XPTitle),
}
_DATE = re.compile(r"(19|20)\d\d[-_.]?(0[1-9]|1[0-2])[-_.]?([0-2]\d|3[01])")
_DIFFERS = 12.0  # grey levels between a thumbnail and the picture, root mean square
_LUMINANCE = 3688  # the sum of the published luminance table of JPEG, of quality 50


def metadata_of(content: bytes, picture: Tensor) -> tuple[list[str], Tensor | None, int | None]:
    """Read the metadata of an image.

    Returns:
        kinds of metadata in words, a thumbnail that differs from the picture, and the quality of a JPEG.
    """
    try:
        with Image.open(io.BytesIO(content)) as opened:
            exif, info = opened.getexif(), dict(opened.info)
            tables = getattr(opened, "quantization", None)
    except Exception:  # Pillow raises any kind of error at a damaged block; the picture itself was read
        return ["a block that cannot be read"], None, None
    tags = {**exif, **exif.get_ifd(ExifTags.IFD.Exif)}
    kinds = [words for words, names in _TAGS.items() if any(tags.get(name) for name in names)]
    if exif.get_ifd(ExifTags.IFD.GPSInfo):
        kinds.insert(0, "a position (GPS)")
    if any("xmp" in str(key).lower() for key in info):
        kinds.append("XMP, which programs write their history to")
    if any(key not in ("xmp", "exif") and isinstance(value, str) and value for key, value in info.items()):
        kinds.append("a text")
    quality = None
    if tables:
        scale = 100 * sum(tables[0]) / _LUMINANCE
        quality = max(1, round((200 - scale) / 2 if scale <= 100 else 5000 / scale))
    return kinds, _thumbnail(exif, info.get("exif", b""), picture), quality


def _thumbnail(exif: Image.Exif, block: bytes, picture: Tensor) -> Tensor | None:
    """Read the thumbnail of an EXIF block; None if there is none, or if it shows the same picture."""
    directory = exif.get_ifd(ExifTags.IFD.IFD1)
    start, length = (directory.get(tag) for tag in (_BASE.JpegIFOffset, _BASE.JpegIFByteCount))
    if not isinstance(start, int) or not isinstance(length, int):
        return None
    start += 6 * block.startswith(b"Exif\0\0")
    try:
        thumbnail = images.read(block[start : start + length])
    except ImageError:
        return None
    side = min(64, *thumbnail.shape[1:])
    small, shown = (images.resize(each.numpy(), side).astype(float) for each in (thumbnail, picture))
    return thumbnail if np.sqrt(((small - shown) ** 2).mean()) > _DIFFERS else None


def video_metadata(path: Path) -> list[str]:
    """Read the metadata of a video, in words."""
    import av

    with av.open(str(path), options={"protocol_whitelist": "file"}) as opened:
        marks = {key.lower(): value for key, value in opened.metadata.items() if value}
        sound = bool(opened.streams.audio)
    kinds = ["sound: a voice identifies its speaker"] if sound else []
    for word, said in (("location", "a position (GPS)"), ("creation_time", "the time of the recording")):
        if any(word in key for key in marks):
            kinds.append(said)
    if any("make" in key or "model" in key for key in marks):
        kinds.append("the camera's model")
    return kinds


def name_clues(names: Iterable[str], people: Iterable[str]) -> Counter[str]:
    """Count the file names that hold a date, the number of a camera, or the name of a known person."""
    plain = [_letters(person) for person in people]
    found: Counter[str] = Counter()
    for name in names:
        base = name.rsplit("/", 1)[-1]
        found["a date in the name"] += bool(_DATE.search(base))
        found["the camera's number in the name"] += bool(re.match(r"(?i)(img|dsc|dscn|pxl|p)_?\d{4}", base))
        found["the name of a known person in the name"] += any(
            person and person in _letters(name) for person in plain
        )
    return +found


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def read_content(path: Path) -> bytes:
    """Read the bytes of an image file."""
    return read_regular(path, images.reading.MAX_BYTES)
