"""The metadata of files: blocks that no picture needs, sidecars, and the files' names."""

import json
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image
from torch import Tensor

from sfumato import images
from sfumato.audits.folder.blocks import BEHIND, SHOWN_TAGS, blocks_of
from sfumato.device.jobs.footage import FORMATS
from sfumato.errors import ImageError, needs_extra
from sfumato.images.decoding import open_picture

_BASE = ExifTags.Base
_GPS = "a position (GPS)"
# The kinds of metadata, by the tags of EXIF that hold them.
_TAGS = {
    "the camera's model": (_BASE.Make, _BASE.Model, _BASE.LensMake, _BASE.LensModel, _BASE.UniqueCameraModel),
    "the camera's or the lens's serial number": (_BASE.BodySerialNumber, _BASE.LensSerialNumber),
    "an owner or an author": (_BASE.CameraOwnerName, _BASE.Artist, _BASE.Copyright, _BASE.XPAuthor),
    "the time of the exposure": (_BASE.DateTime, _BASE.DateTimeOriginal, _BASE.DateTimeDigitized),
    "a comment": (_BASE.ImageDescription, _BASE.UserComment, _BASE.XPComment, _BASE.XPTitle),
    "keywords": (_BASE.XPKeywords, _BASE.XPSubject),
    "the name of the device": (_BASE.HostComputer,),
    "the program that wrote it": (_BASE.Software, _BASE.ProcessingSoftware),
    "the maker's note (serial numbers, faces)": (_BASE.MakerNote,),
    "a thumbnail that was not read": (_BASE.StripOffsets,),
}
_WORDS = {int(tag): words for words, tags in _TAGS.items() for tag in tags}
_NAMED = {
    "xmp": "XMP, which programs write their history to",
    "iptc": "IPTC, in which programs note people, places and captions",
    "photoshop": "Photoshop's blocks, with IPTC or a thumbnail",
    "credentials": "Content Credentials (C2PA), which hold the picture's history",
    "text": "a text",
    "time": "the time of a change",
}
# What encoders write of themselves alone; it tells nothing of people.
_TOOLS = re.compile(
    r"(Lav[cf][\d.]*( lib[\w-]+| \w+)?|GIMP [\d.]+|Created with (The )?GIMP|(libvips|Pillow) [\d.]+|ASCII"
    r"|CREATOR: gd-jpeg v[\d.]+ \(using IJG JPEG v\d+\)(, (default )?quality( = \d+)?)?|tifffile\.py"
    r"|{\"shape\": \[[\d, ]*\]}|Matplotlib version[\d.]+, https?://matplotlib.org/"
    r"|(Video|Sound|Subtitle|Core Media (Video|Audio)|L-SMASH (Video|Audio)) ?Handler)?[\s\0]*"
)
_PROFILES = re.compile(
    r"(?i)(e-|u|c2|nc?)?(sRGB|Display P3|P3|Adobe RGB|ProPhoto|ROMM|Rec\.? ?\d|ITU-R|BT\.|Gr[ae]y|Dot Gain)"
    r"[\w .:()-]*|Generic [\w .]+|GIMP built-in [\w .-]+|Apple Wide Color Sharing Profile|c2(ci)?|u1?RGB"
)
_DATE = re.compile(r"(19|20)\d\d[-_.]?(0[1-9]|1[0-2])[-_.]?([0-2]\d|3[01])")
_DIFFERS = 12.0  # grey levels between a thumbnail and the picture, root mean square
_TRIES = 8  # pictures that are looked for in a block
_LUMINANCE = 3688  # the sum of the published luminance table of JPEG, of quality 50


@dataclass
class Metadata:
    """The metadata of one file.

    Attributes:
        kinds: in words, with the bytes of blocks that were not read, and 0 of others.
        thumbnail: a picture in a block that differs from the file's own.
        quality: of a JPEG.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    thumbnail: Tensor | None = None
    quality: int | None = None

    def add(self, *words: str) -> None:
        """Note kinds of metadata."""
        for word in words:
            self.kinds[word] += 0


def metadata_of(kind: str, content: bytes, picture: Tensor) -> Metadata:
    """Read all blocks of an image that its pixels do not need.

    Args:
        kind: see `blocks_of`.
        content: of the file.
        picture: (3, H, W) uint8, its first picture.
    """
    found = Metadata()
    try:
        for name, body in blocks_of(kind, content):
            if name in ("exif", "tags"):
                found.add(*_read_exif(body, is_page=name == "tags"))
            elif name == "profile":
                found.add(*_read_profile(body))
            elif name in _NAMED:
                found.add(*_read_named(name, body))
            elif name == BEHIND and re.search(rb"ftyp(mp4|iso|qt|M4V|3gp|avc)", body):
                found.add("a video behind the picture")
            else:
                found.kinds[f"a block that was not read ({name})"] += len(body)
            if found.thumbnail is None:
                found.thumbnail = _find_thumbnail(body if name != "tags" else b"", picture)
    except Exception:  # Pillow raises any kind of error at a damaged block; the picture itself was read
        found.add("a block that cannot be read")
    if kind == "JPEG":
        scale = 100 * sum(open_picture(content).quantization[0]) / _LUMINANCE
        found.quality = max(1, round((200 - scale) / 2 if scale <= 100 else 5000 / scale))
    return found


def _read_exif(block: bytes, *, is_page: bool) -> Iterator[str]:
    """Name the tags that sizes, turns and versions do not need; a page of a TIFF has no thumbnail."""
    exif = Image.Exif()
    exif.load(block)
    if any(value for tag, value in exif.get_ifd(ExifTags.IFD.GPSInfo).items() if tag):
        yield _GPS
    own, thumbnail = (
        {**exif, **exif.get_ifd(ExifTags.IFD.Exif)},
        {} if is_page else exif.get_ifd(ExifTags.IFD.IFD1),
    )
    tags = {tag for tag, value in own.items() if tag not in SHOWN_TAGS and _tells(value)}
    tags |= {tag for tag in thumbnail if tag not in SHOWN_TAGS or tag == _BASE.StripOffsets}
    tags -= {700, 33723, 34377, 34675, int(ExifTags.IFD.Interop)}  # blocks of a TIFF by themselves
    order = list(_WORDS.values()).index
    words = {_WORDS.get(tag) or _other(tag) for tag in tags}
    yield from sorted(words, key=lambda each: order(each) if each in _WORDS.values() else len(_WORDS))
    if not tags and not thumbnail and len(block) > 1024 and not is_page:
        yield "a block of EXIF longer than its tags"


def _other(tag: int) -> str:
    if tag in ExifTags.TAGS:
        return "further tags of EXIF, such as the camera's settings"
    return f"a block that was not read (tag {tag})"


def _tells(value: Any) -> bool:
    """Whether a value is more than blank, or the name of an encoder."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return _TOOLS.fullmatch(text) is None if isinstance(text, str) else True


def _read_named(name: str, body: bytes) -> Iterator[str]:
    if name == "text" and not _tells(body):
        return
    yield _NAMED[name]
    if b"GPSLatitude" in body or b"GPSLongitude" in body:
        yield _GPS


def _read_profile(body: bytes) -> Iterator[str]:
    """Name an unusual profile of colours: those of displays bear owners' names."""
    (count,) = struct.unpack_from(">I", body, 128)
    places = range(132, 132 + 12 * min(count, 99), 12)
    tags = {body[at : at + 4]: struct.unpack_from(">II", body, at + 4) for at in places}
    start, length = tags.get(b"desc", (0, 0))
    text = body[start : start + length]
    if text[:4] == b"mluc":
        size, place = struct.unpack_from(">II", text, 20)
        name = text[place : place + size].decode("utf-16-be", "replace").strip("\0 ")
    else:
        name = text[12 : 12 + int.from_bytes(text[8:12])].decode("ascii", "replace").strip("\0 ")
    end = max((sum(place) for place in tags.values()), default=0)
    if not _PROFILES.fullmatch(name) or b"mmod" in tags or len(body.rstrip(b"\0")) > end:
        yield f"a profile of colours named {name[:40]!r}, as of a device"


def _find_thumbnail(block: bytes, picture: Tensor) -> Tensor | None:
    """Find a JPEG or PNG in a block that shows another picture; None if there is none."""
    for _, match in zip(range(_TRIES), re.finditer(rb"\xff\xd8\xff|\x89PNG\r", block), strict=False):
        try:
            thumbnail = images.read(block[match.start() :])
        except ImageError:
            continue
        side = min(64, *thumbnail.shape[1:], *picture.shape[1:])
        small, shown = (images.resize(each.numpy(), side).astype(float) for each in (thumbnail, picture))
        if np.sqrt(((small - shown) ** 2).mean()) > _DIFFERS:
            return thumbnail
    return None


# Sidecars of pictures, by the end of their names.
_SIDECARS = {
    ".xmp": "a sidecar with XMP",
    ".aae": "a sidecar with the edits of a phone",
    ".json": "a sidecar with words, as Google's",
    ".thm": "a sidecar with a thumbnail",
    "thumbs.db": "thumbnails that Windows keeps",
    ".ds_store": "names of files that macOS keeps",
}


def sidecar_words(name: str, content: bytes) -> list[str] | None:
    """Name the metadata in a sidecar; None if its kind is not known."""
    words = next((words for end, words in _SIDECARS.items() if name.lower().endswith(end)), None)
    if words is None:
        return None
    if name.lower().endswith(".json"):
        try:
            said = json.loads(content)
        except ValueError:
            return None
        if isinstance(said, dict) and {"spec", "made_of", "outputs"} <= said.keys():
            return []  # the manifest of `sfumato protect`, which names the files
    kinds = [words]
    if re.search(rb'GPSL(at|ong)itude|"(latitude|longitude)": *-?[1-9\d]*\.?\d*[1-9]', content):
        kinds.append(_GPS)
    if re.search(rb'"people": *\[\s*[{"]', content):
        kinds.append("names of people")
    return kinds


# Keys that containers and encoders need or write of themselves.
_KEYS = frozenset(
    {"major_brand", "minor_version", "compatible_brands", "vendor_id", "language", "duration", "alpha_mode"}
    | {"stereo_mode", "bps", "number_of_frames", "number_of_bytes", "rotate"}
)
_MARKS = {"location": _GPS, "date": "the time of the recording", "creation_time": "the time of the recording"}
_MARKS |= dict.fromkeys(("make", "model"), "the camera's model")
_MARKS |= dict.fromkeys(("artist", "author"), "an owner or an author")
_MARKS |= dict.fromkeys(("comment", "title"), "a comment")
_TRACKS = {
    "audio": "sound: a voice identifies its speaker",
    "subtitle": "subtitles",
    "data": "a track of data, such as positions",
    "attachment": "an attached file",
}
_BOXES = frozenset(b"ftyp moov mdat free skip wide moof mfra sidx styp".split())
_INNER = frozenset(b"mvhd trak mvex iods tkhd mdia edts tref udta meta load free skip".split())


def video_metadata(path: Path) -> list[str]:
    """Name the metadata of a video.

    Raises:
        av.FFmpegError: it cannot be opened.
        MissingExtraError: the extra `video` is not installed.
    """
    with needs_extra("video", "video"):
        import av
    kinds, whitelist = set[str](), {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    with av.open(f"file:{path}", container_options=whitelist, metadata_errors="replace") as opened:
        marks = [*opened.metadata.items()]
        for stream in opened.streams:
            marks += stream.metadata.items()
            kinds |= {_TRACKS[stream.type]} if stream.type in _TRACKS else set()
            disposition = getattr(stream, "disposition", 0)
            if any(
                getattr(type(disposition), name, 0) & disposition
                for name in ("attached_pic", "timed_thumbnails")
            ):
                kinds.add("a cover picture, which nobody looked at")
    for key, value in marks:
        bare = key.lower().removesuffix("-eng")
        own = bare in _KEYS or (bare in ("handler_name", "encoder", "software") and not _tells(value))
        if not own and value.strip():
            kinds.add(next((said for word, said in _MARKS.items() if word in bare), f"a note ({bare[:40]})"))
    return sorted(kinds | {f"a block that was not read ({name})" for name in _boxes(path)})


def _boxes(path: Path) -> Iterator[str]:
    """Name the boxes of an MP4 that frames do not need."""
    with path.open("rb") as file:
        yield from _boxes_in(file, 0, path.stat().st_size, _BOXES)


def _boxes_in(file: Any, start: int, end: int, known: frozenset[bytes]) -> Iterator[str]:
    while start + 8 <= end:
        file.seek(start)
        length, name = struct.unpack(">I4s", file.read(8))
        head = 8
        if length == 1:
            (length,), head = struct.unpack(">Q", file.read(8)), 16
        length = length or end - start
        if start == 0 and name not in _BOXES:
            return  # of another format
        if not head <= length <= end - start:
            yield f"bytes behind the video, {end - start:,}"
            return
        if name in (b"moov", b"trak", b"udta"):
            yield from _boxes_in(file, start + head, start + length, _INNER)
        elif name in (b"free", b"skip") and file.read(min(length - head, 1 << 20)).strip(b"\0"):
            yield f"filled box {name.decode()}, {length:,} bytes"
        elif name not in known and name[0] != 0xA9:  # which is a note
            yield f"box {name.decode('latin-1')}, {length:,} bytes"
        start += length


def name_clues(names: Iterable[str], people: Iterable[str]) -> Counter[str]:
    """Count the file names that hold a date, the number of a camera, or the name of a known person."""
    plain = [_letters(person) for person in people]
    found: Counter[str] = Counter()
    for name in names:
        base = name.rsplit("/", 1)[-1]
        found["a date in the name"] += bool(_DATE.search(base))
        found["the camera's number in the name"] += bool(re.match(r"(?i)(img|dsc|dscn|pxl|p)_?\d{4}", base))
        words = re.split(r"[\W_]+", name.casefold())  # a short name or a number has to be a whole word
        found["the name of a known person in the name"] += any(
            (person in words and not (person.isdigit() and len(person) < 3))
            or (len(person) > 2 and not person.isdigit() and person in _letters(name))
            for person in plain
            if person
        )
    return +found


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
