"""The findings on a folder that somebody protected, apart from naming: one function a finding."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import ExifTags, Image
from torch import Tensor

from sfumato.audits.findings import Finding, Picture, Table, shown
from sfumato.audits.folder.look import Look, look
from sfumato.audits.folder.pictures import Listed, cut
from sfumato.base.files import read_regular
from sfumato.images import is_image, resize
from sfumato.images.reading import MAX_BYTES, open_picture
from sfumato.protect.region import Box, overlap

Detect = Callable[[Tensor], list[Box]]
"""Finds the boxes of faces on a (3, H, W) uint8 picture."""

SHOWN, _SIDE = 6, 192  # pictures of a finding, and the longest side of each
_FLAT = 4.0  # grey levels from the middle one: a colour


@dataclass(frozen=True)
class Seen:
    """One picture of a file, and the metadata of the file with its first picture."""

    file: str  # its name below the folder
    number: int  # 0 for the first picture of a file
    look: Look  # the protection that it looks like
    faces: list[Box] | None  # that a detector finds, but for those of one colour; None without a detector
    metadata: list[str] | None  # in words; None for further pictures, releases and videos
    crops: list[Tensor]  # some of the faces
    side: int  # the shorter one in pixels


def see(file: Listed, number: int, picture: Tensor, detect: Detect | None, crops: int) -> Seen:
    """Look at one picture of a file, and keep `crops` pictures of faces at most."""
    first = number == 0 and is_image(file.path)
    metadata = metadata_of(read_regular(file.path, MAX_BYTES)) if first else None
    faces = None if detect is None else [box for box in detect(picture) if _shows(picture, box)]
    shown = [_reduce(cut(picture, box)) for box in (faces or [])[:crops]]
    return Seen(file.name, number, look(picture), faces, metadata, shown, min(picture.shape[1:]))


_BASE = ExifTags.Base
_GPS = "a position (GPS)"
# The kinds of metadata, by the tags of EXIF that hold them.
_TAGS = {
    "the camera's model": (_BASE.Make, _BASE.Model, _BASE.LensMake, _BASE.LensModel, _BASE.UniqueCameraModel),
    "a serial number": (_BASE.BodySerialNumber, _BASE.LensSerialNumber, _BASE.ImageUniqueID),
    "an owner or an author": (_BASE.CameraOwnerName, _BASE.Artist, _BASE.Copyright, _BASE.XPAuthor),
    "the time of the exposure": (_BASE.DateTime, _BASE.DateTimeOriginal, _BASE.DateTimeDigitized),
    "a comment": (_BASE.ImageDescription, _BASE.UserComment, _BASE.XPComment, _BASE.XPTitle),
    "keywords": (_BASE.XPKeywords, _BASE.XPSubject),
    "the name of the device": (_BASE.HostComputer,),
    "the program that wrote it": (_BASE.Software, _BASE.ProcessingSoftware),
    "the maker's note (serial numbers, faces)": (_BASE.MakerNote,),
}
_BLOCKS = {
    "xmp": "XMP, which programs write their history to",
    "photoshop": "Photoshop's blocks, with IPTC or a thumbnail",
    "comment": "a text",
}
# Encoders write these of themselves: they tell nothing of people.
_TOOLS = re.compile(
    r"(Lav[cf][\d.]*( lib[\w-]+| \w+)?|GIMP [\d.]+|Created with (The )?GIMP|(libvips|Pillow) [\d.]+"
    r"|tifffile\.py|CREATOR: gd-jpeg v[\d.]+ \(using IJG JPEG v\d+\)(, (default )?quality( = \d+)?)?"
    r"|Matplotlib version[\d.]+, https?://matplotlib.org/)?[\s\0]*"
)


def metadata_of(content: bytes) -> list[str]:
    """Name the metadata of an image file: EXIF with positions, XMP, IPTC, texts; once each."""
    try:
        return list(dict.fromkeys(_read_metadata(open_picture(content))))
    except Exception:  # Pillow raises any kind of error at a damaged block; the picture itself was read
        return ["a block that cannot be read"]


def _read_metadata(picture: Any) -> Iterator[str]:
    exif = picture.getexif() if hasattr(picture, "getexif") else Image.Exif()
    if not exif:  # of a HEIC, whose decoder leaves it packed
        exif.load(picture.info.get("exif") or b"")
    if any(value for tag, value in exif.get_ifd(ExifTags.IFD.GPSInfo).items() if tag):
        yield _GPS
    tags = {tag for tag, value in {**exif, **exif.get_ifd(ExifTags.IFD.Exif)}.items() if _tells(value)}
    yield from (words for words, some in _TAGS.items() if tags.intersection(some))
    if exif.get_ifd(ExifTags.IFD.IFD1):
        yield "a thumbnail in EXIF, which was not looked at"
    blocks = [(words, picture.info.get(name)) for name, words in _BLOCKS.items()]
    for name, value in getattr(picture, "text", {}).items():  # of a PNG
        blocks.append((_BLOCKS["xmp" if "xmp" in name.lower() else "comment"], value))
    for words, value in blocks:
        if value and _tells(value):
            yield words
            if "GPSLatitude" in str(value):
                yield _GPS


def _tells(value: Any) -> bool:
    """Whether a value is more than blank, or the name of an encoder."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return _TOOLS.fullmatch(text) is None if isinstance(text, str) else True


def _shows(picture: Tensor, box: Box) -> bool:
    """Whether the middle of a box has several colours. A detector takes some black boxes for faces."""
    top, bottom, left, right = box
    down, across = (bottom - top) // 4, (right - left) // 4
    middle = picture[:, top + down : bottom - down, left + across : right - across].flatten(1).float()
    differs = (
        (middle - middle.median(1, keepdim=True).values).abs().amax(0) > _FLAT if middle.numel() else None
    )
    return differs is None or bool(differs.float().mean() > 0.5)


def _reduce(picture: Tensor) -> Tensor:
    """Copy a square picture for a page: a part of a large one would hold all of it in memory."""
    return torch.from_numpy(resize(picture.numpy(), _SIDE)) if picture.shape[1] > _SIDE else picture.clone()


def protection(seen: Sequence[Seen]) -> Finding:
    """State the kind of protection that the files look like."""
    groups: dict[str, list[Seen]] = {}
    for each in seen:
        groups.setdefault(_KINDS[each.look.kind][bool(each.look.parts)], []).append(each)
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    words, most = ranked[0]
    middle = sorted(each.look.strength for each in most)[len(most) // 2]
    units = {"mosaic": f", with cells of {middle:.3g} pixels", "noise": f", by {middle:.0f} grey levels"}
    sentence = f"{len(most):,} of {len(seen):,} pictures look {words}{units.get(most[0].look.kind, '')}."
    first = {each.file: each.look.kind for each in seen if each.number == 0}
    bare = [each for each in seen if each.look.kind == "none"]
    behind = [each.file for each in bare if each.number and first.get(each.file) != "none"]
    if behind:
        hidden = f"behind a protected first one, such as in {behind[0]}"
        sentence += f" {len(behind):,} further pictures look unprotected, {hidden}."
    figures = {words: len(some) for words, some in ranked}
    rows = tuple((words, f"{count:,}") for words, count in figures.items())
    caption = "Judged from pixels: differences on a grid, ramps, the finest detail, areas of one colour."
    table, title = Table(("looks", "pictures"), rows, caption), "The protection that it looks like"
    verdict = shown(True) if behind or 2 * len(bare) > len(seen) else None
    return Finding("protection", title, verdict, sentence, table, figures=figures)


# Words for a whole picture, and for parts of one.
_KINDS = {
    "mosaic": ("like a mosaic", "like a mosaic on parts of the picture"),
    "blur": ("blurred as a whole, or out of focus", "blurred"),
    "noise": ("noisy", "noisy"),
    "one colour": (
        "like one colour, which shows nothing",
        "covered or strongly blurred in boxes or ellipses",
    ),
    "none": ("unprotected, or protected in a way that pixels do not show", "unprotected"),
}


def faces(seen: Sequence[Seen]) -> Finding:
    """Count the faces that a detector still finds."""
    title, having = "Faces that remain", [each for each in seen if each.faces]
    if any(each.faces is None for each in seen):
        cure = "install the extra `faces`, or name the weights of MTCNN with --detector"
        return Finding("faces", title, "not measured", f"Nobody looked for faces: {cure}.")
    boxes = [(each, box) for each in having for box in each.faces or ()]
    plain = sum(not any(overlap(box, part) for part in each.look.parts) for each, box in boxes)
    crops = [Picture(crop, each.file) for each in having for crop in each.crops]
    count = f"{len(seen):,} pictures"
    words = f"A detector finds no face on any of {count}. It may miss some: look at them."
    if boxes:
        found = f"{len(boxes):,}, on {len(having):,} of {count}. Apart from parts that look hidden: {plain:,}"
        words = f"Faces that a detector still finds: {found}."
    pictures = (tuple(crops[:SHOWN]),) if crops else ()
    figures = {"faces": len(boxes), "files": len(having), "plain": plain}
    return Finding("faces", title, shown(bool(boxes)), words, None, pictures, figures)


def metadata(seen: Sequence[Seen], words: str) -> Finding:
    """Count the metadata of files, and add `words`."""
    files = [each.metadata for each in seen if each.metadata is not None]
    counted = Counter(kind for kinds in files for kind in kinds)
    said = f"The {len(files):,} files hold no EXIF, XMP, IPTC or text."
    if counted:
        named = "; ".join(f"{kind}, in {count:,}" for kind, count in counted.most_common())
        said = f"In {len(files):,} files: {named}."
    return Finding("metadata", "Metadata", shown(bool(counted)), said + words, figures=dict(counted))
