"""The audits of a folder of released images: who is on them, and all else that they tell."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import ExifTags, Image
from torch import Tensor

from sfumato import protect
from sfumato.audits.findings import Finding, Outcome, Picture, Report, Risk, Table, shown
from sfumato.audits.folder import pictures
from sfumato.audits.folder.look import Look, look
from sfumato.audits.folder.naming import NamingConfig, Tell, name_people
from sfumato.audits.folder.pictures import Boxes, Listed, Listing, Pictures, Release, Source, cut, list_files
from sfumato.base.files import read_regular
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError, ImageError
from sfumato.images import is_image, resize
from sfumato.images.reading import MAX_BYTES, open_picture
from sfumato.networks.faces.finding import WEIGHTS
from sfumato.protect.region import Box, Region, disjoint, overlap
from sfumato.protect.release import IMAGES, KINDS, kind_of

Detect = Callable[[Tensor], list[Box]]  # finds the boxes of faces on a (3, H, W) uint8 picture
_COPIES = 4  # of each known photograph, if a protection draws noise
_SHOWN, _SIDE = 6, 192  # pictures of a finding, and the longest side of each
_FLAT = 4.0  # grey levels from the middle one: a colour


@dataclass(frozen=True)
class Seen:
    """One picture of a file, and the metadata of the file with its first picture."""

    file: str  # its name below the folder
    number: int  # 0 for the first picture of a file
    look: Look  # the protection that it looks like
    faces: list[Box] | None  # that a detector finds, but for those of one colour; None without a detector
    metadata: list[str] | None  # in words; None for further pictures, releases and videos
    crops: list[Tensor]  # some of the faces, small copies: a part of a picture holds all of it in memory
    side: int  # the shorter one in pixels


def audit_folder(
    released: Source,
    *,
    known: Source | None = None,
    people: Path | None = None,
    spec: str | None = None,
    detector: Path | None = None,
    config: NamingConfig | None = None,
    progress: Tell = lambda words, done, total: None,
) -> Report:
    """Report how a folder looks protected, and who can still be recognised; frames of videos count, too.

    Without `known` photographs nobody is named. With a `spec`, people are named and nothing else is looked
    at, by adversaries who know this protection; "none": they do not know it. `detector` has weights of MTCNN;
    None for CenterFace, if its extra is installed, or no search for faces.
    """
    config = config or NamingConfig()
    if spec is not None:
        if known is None:
            words = "people are named, and nothing else is looked at: give --known"
            raise ConfigError(f"--protection {spec}: {words}")
        return _audit_names(list_files(released, people), known, spec, config, progress)
    detect, listing = _detector(detector), list_files(released, people, every=True)
    outcome, seen = listing.outcome, list[Seen]()
    for done, file in enumerate(listing.files, 1):
        progress("files", done, len(listing.files))
        try:
            for number, picture in enumerate(pictures.read_all(file, listing.root)):
                if isinstance(picture, ImageError):
                    outcome.leave_out(pictures.reason_of(picture, "further picture of a file"), file.name)
                else:
                    crops = _SHOWN - sum(len(each.crops) for each in seen)
                    seen.append(see(file, number, picture, detect, crops))
        except ImageError as error:
            outcome.leave_out(pictures.reason_of(error), file.name)
    if not seen:
        raise DataError(f"{released}: none of its files can be read: {outcome.words}")
    found = [protection(seen), faces(seen), metadata(seen, _SUB_FOLDERS if listing.by_folder else "")]
    risks: tuple[Risk, ...] = ()
    if known is not None:
        photographs, asked, spec = _read_both(seen, listing, known, detect, config)
        named, risks = name_people(photographs, asked, spec=spec, config=config, progress=progress)
        found += named
    count = len({each.file for each in seen})
    subject = f"{listing.root.resolve().name}: {count:,} files"
    subject += f" with {len(seen):,} pictures" if len(seen) > count else ""
    subject += f", {outcome.left_out.total():,} not looked at" if outcome.left_out else ""
    leaks = [each.name for each in found if each.verdict == "leaks"]
    return Report(
        audit="folder",
        subject=subject,
        sentence=_sentence(leaks, detect is None, outcome),
        findings=(*found, *outcome.findings()),
        changes=tuple(_LEAKS[name][1] for name in leaks if name in _LEAKS),
        limits=(*_FOLDER_LIMITS, *(_LIMITS if known is not None else (_NOBODY,))),
        risks=risks,
        origin=(("SHA-256 of the lines of sha256sum, by name", listing.digest),) if listing.digest else (),
    )


def _audit_names(listing: Listing, known: Source, spec: str, config: NamingConfig, progress: Tell) -> Report:
    parsed, outcome = protect.parse(spec, takes=KINDS), listing.outcome
    if (shape := getattr(parsed, "shape", None)) is not None:  # of the network that was trained
        config = replace(config, size=shape[1])
    files, root, size = listing.files, listing.root, config.size
    if kind_of(parsed) in IMAGES:
        asked = pictures.read_pictures(files, root, size=size, outcome=outcome, every=True)
    else:
        asked = pictures.read_vectors(files, root, size=size)
    photographs = _read_known(known, spec, config, outcome)
    found, risks = name_people(photographs, asked, spec=spec, config=config, progress=progress)
    return Report(
        audit="re-identification",
        subject=f"{len(asked.files):,} releases, {len(set(photographs.people)):,} known people",
        sentence="; ".join(filter(None, (found[0].sentence, outcome.words))),
        findings=(*found, *outcome.findings()),
        limits=_LIMITS + (() if spec != "none" else (_UNKNOWN,)),
        risks=risks,
    )


def _read_known(
    known: Source, spec: str, config: NamingConfig, outcome: Outcome, boxes: Boxes | None = None
) -> Pictures:
    clear = list_files(known)
    settings: dict[str, Any] = {"size": config.size, "boxes": boxes, "release": _release(spec)}
    photographs = pictures.read_pictures(clear.files, clear.root, outcome=clear.outcome, **settings)
    for reason, number in clear.outcome.left_out.items():
        outcome.leave_out(f"known photograph: {reason}", clear.outcome.names[reason], number)
    return photographs


def _read_both(
    seen: Sequence[Seen], listing: Listing, known: Source, detect: Detect | None, config: NamingConfig
) -> tuple[Pictures, Pictures, str]:
    """Read known photographs, protected as the files look, and the files: in scenes, part by part."""
    spec, files, outcome = _guess(seen), listing.files, listing.outcome
    common: dict[str, Any] = {"size": config.size, "outcome": Outcome()}  # they were counted before
    parts = {each.file: disjoint([*each.look.parts, *(each.faces or ())]) for each in seen if not each.number}
    some = [file for file in files if parts.get(file.name)] if _are_scenes(seen) else []
    find: Boxes | None = (lambda file, _: parts[file.name]) if some else None
    asked = pictures.read_pictures(some or files, listing.root, boxes=find, every=not some, **common)

    def first_face(_: Listed, picture: Tensor) -> list[Box]:
        found = detect(picture) if detect else []
        return [max(found or [(0, picture.shape[1], 0, picture.shape[2])], key=lambda box: box[1] - box[0])]

    return _read_known(known, spec, config, outcome, first_face if some and detect else None), asked, spec


# By findings that leak, the worst first: the words of the first sentence, and the cure.
_LEAKS = {
    "naming": (
        "people are named from it more often than by guessing",
        "Protect more strongly, or release codes of a few bits. Then audit with the same photographs.",
    ),
    "faces": (
        "a detector still finds faces",
        "Look at the faces below. Widen or strengthen the protection until a detector finds none.",
    ),
    "metadata": (
        "files say more than their pixels",
        "Write the files anew from their pixels, under new names: `sfumato protect --rename` does.",
    ),
    "protection": (
        "pictures look unprotected",
        "Protect the pictures, as with `sfumato protect IN OUT --with block --where faces`.",
    ),
}
_FOLDER_LIMITS = (
    "The kind of protection is judged from pixels: a blurred part without a sharp edge looks as a smooth "
    "background does, a replaced face as a face, and noise in the cells of a mosaic was not looked for.",
    "A detector misses faces. A clean file may show people by clothes, tattoos, places or text.",
    "Not looked for: names and dates in file names, further blocks of a file, bytes behind its picture, and "
    "the sound and metadata of a video.",
)
_NOBODY = "Nobody was named: give known photographs as --known."
_LIMITS = (
    "Adversaries with more photographs, larger networks or more time name more.",
    "Every person on a release is taken for one of the known people; among more people fewer are named.",
)
_UNKNOWN = (
    "No protection was given, so no adversary protected their photographs in the same way. Those who know "
    "the protection, or guess it, name more: give it as --protection."
)
_SUB_FOLDERS = (
    " Its sub-folders were taken as the true people, whom you name: pass the files on without these names."
)


def _sentence(leaks: Sequence[str], blind: bool, outcome: Outcome) -> str:
    worst = [words for name, (words, _) in _LEAKS.items() if name in leaks]
    rest = f"; {outcome.words}" if outcome.left_out else ""
    if worst:
        worst += ["nobody looked for faces"] if blind else []
        return f"Do not pass this folder on as it is: {'; '.join(worst)}{rest}."
    if not rest and not blind:
        return "No attempt found people in this folder, which proves nothing."
    faces_of = ", where nobody looked for faces," if blind else ""
    return f"In what was looked at{faces_of} no attempt found people, which proves nothing{rest}."


def _detector(weights: Path | None) -> Detect | None:
    if weights is None and not WEIGHTS.is_installed():
        return None
    region = Region(protect.parse("block"), "faces", file="" if weights is None else str(weights))
    region.find(torch.zeros(3, 64, 64, dtype=torch.uint8))  # its own errors end the audit
    return lambda picture: disjoint(region.find(picture))


def _are_scenes(seen: Sequence[Seen]) -> bool:
    """Whether people are parts of most pictures: hidden parts, or faces of less than half a side."""
    faces = [(each, each.faces or ()) for each in seen]
    small = [each.look.parts or any(2 * (b - a) < each.side for a, b, _, _ in boxes) for each, boxes in faces]
    return 2 * sum(map(bool, small)) > len(small)


def _guess(seen: Sequence[Seen]) -> str:
    """Guess the spec of the commonest protection, with its middle strength; of a mosaic by cells a side."""
    kind, is_part = Counter((each.look.kind, bool(each.look.parts)) for each in seen).most_common(1)[0][0]
    alike = [each for each in seen if (each.look.kind, bool(each.look.parts)) == (kind, is_part)]
    middle = sorted(alike, key=lambda each: each.look.strength)[len(alike) // 2]
    if kind == "noise":
        return f"gaussian:sigma={middle.look.strength:.3g}"
    if kind != "mosaic":
        return "none"
    sides = sorted(min(box[1] - box[0], box[3] - box[2]) for box in middle.look.parts) or [middle.side]
    return f"pixelize:cell=1/{max(2, round(sides[len(sides) // 2] / middle.look.strength))}"


def _release(spec: str) -> Release | None:
    """Make releases of one picture in its own size; None for no copies, and for networks of a fixed size."""
    parsed = protect.parse(spec, takes=KINDS)
    if spec == "none" or hasattr(parsed, "artefact"):
        return None
    copies = range(_COPIES if parsed.draws_noise else 1)
    return lambda one: [parsed.release(one[None], seeded_noise(0, copy)).images()[0] for copy in copies]


def see(file: Listed, number: int, picture: Tensor, detect: Detect | None, crops: int) -> Seen:
    """Look at one picture of a file, and keep `crops` pictures of faces at most."""
    first = number == 0 and is_image(file.path)
    metadata = metadata_of(read_regular(file.path, MAX_BYTES)) if first else None
    faces = None if detect is None else [box for box in detect(picture) if _shows(picture, box)]
    parts = [cut(picture, box) for box in (faces or [])[:crops]]
    shown = [torch.from_numpy(resize(part.numpy(), min(_SIDE, part.shape[1]))) for part in parts]
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
    if not middle.numel():
        return True
    differs = (middle - middle.median(1, keepdim=True).values).abs().amax(0) > _FLAT
    return bool(differs.float().mean() > 0.5)


def protection(seen: Sequence[Seen]) -> Finding:
    """State the kind of protection that the files look like."""
    groups: dict[str, list[Seen]] = {}
    for each in seen:
        groups.setdefault(_LOOKS[each.look.kind][bool(each.look.parts)], []).append(each)
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
_LOOKS = {
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
    pictures = (tuple(crops[:_SHOWN]),) if crops else ()
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
