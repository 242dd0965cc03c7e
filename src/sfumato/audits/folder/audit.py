"""The audits of a folder of released images: who is on them, and all else that they tell."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from sfumato import images, protect
from sfumato.audits.findings import Finding, Outcome, Picture, Report
from sfumato.audits.folder.findings import (
    SHOWN,
    Compared,
    Detect,
    Seen,
    compare_with,
    faces,
    metadata,
    protection,
    report_originals,
    see,
    twins,
    watch,
)
from sfumato.audits.folder.metadata import name_clues, sidecar_words
from sfumato.audits.folder.naming import NamingConfig, name_people, report_names
from sfumato.audits.folder.pictures import (
    RELEASES,
    Listed,
    Listing,
    Pictures,
    Release,
    list_files,
    read_all,
    read_picture,
    read_pictures,
    read_vectors,
    reason_of,
)
from sfumato.audits.risks import Risk
from sfumato.base.files import read_regular
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError, ImageError
from sfumato.networks.faces.finding import WEIGHTS
from sfumato.protect.region import Box, Region, disjoint
from sfumato.protect.release import IMAGES, KINDS, kind_of

_COPIES = 4  # of each known photograph, if a protection draws noise
_SAME_SHAPE = 0.02  # of the ratio of an original's sides


def audit_names(
    released: str | os.PathLike[str],
    known: str | os.PathLike[str],
    *,
    people: Path | None = None,
    spec: str = "none",
    config: NamingConfig | None = None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Report:
    """Report how often the people on released images are named from known photographs.

    Args:
        released, people: see `list_files`.
        known: see `list_files`; photographs of people by name.
        spec: the protection, if it is known; "none" for adversaries who do not know it.
        config: see NamingConfig.
        progress: see name_people.

    Raises:
        DataError: see `list_files`, `read_pictures` and `name_people`.
        SpecError: see protect.parse.
    """
    config = config or NamingConfig()
    protection = protect.parse(spec, takes=KINDS)
    if (shape := getattr(protection, "shape", None)) is not None:  # of the network that was trained
        config = replace(config, size=shape[1])
    listing, clear = list_files(released, people), list_files(known)
    outcome = listing.outcome
    if kind_of(protection) in IMAGES:
        asked = read_pictures(
            listing.pictures, _root(released), size=config.size, outcome=outcome, every=True
        )
    else:
        asked = read_vectors(listing.pictures, _root(released), size=config.size)
    photographs = read_pictures(
        clear.pictures, _root(known), size=config.size, release=_release(spec), outcome=clear.outcome
    )
    named = name_people(photographs, asked, spec=spec, config=config, progress=progress)
    found, risks = report_names(named, photographs, asked, spec=spec, config=config)
    _join(outcome, clear.outcome)
    return Report(
        audit="re-identification",
        subject=f"{len(asked.files):,} releases, {len(set(photographs.people)):,} known people",
        sentence=f"{found[0].sentence}{_add(outcome)}",
        findings=(*found, *outcome.findings()),
        limits=_LIMITS + (() if spec != "none" else (_UNKNOWN,)),
        risks=risks,
    )


def audit_folder(
    released: str | os.PathLike[str],
    *,
    known: Path | None = None,
    originals: Path | None = None,
    people: Path | None = None,
    detector: Path | None = None,
    config: NamingConfig | None = None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Report:
    """Report how a folder looks protected, and who can still be recognised.

    Args:
        released, people: see `list_files`; videos are looked at, too.
        known: see `list_files`; None to name nobody.
        originals: a folder with the originals under the same names, whatever their suffix; None without.
        detector: weights of MTCNN; None for CenterFace, if its extra is installed, or no search for faces.
        config, progress: see audit_names.

    Raises:
        DataError: see audit_names.
    """
    config, root, detect = config or NamingConfig(), _root(released), _detector(detector)
    listing = list_files(released, people, every=True)
    outcome, pictures, videos = listing.outcome, listing.pictures, listing.videos
    raw = {} if originals is None else {_stem(file): file for file in list_files(originals).pictures}
    seen, compared = list[Seen](), list[Compared]()
    crops = missed = SHOWN
    for done, file in enumerate(pictures, 1):
        progress("files", done, len(pictures))
        try:
            number = -1
            for number, picture in enumerate(read_all(file, root)):
                if isinstance(picture, ImageError):
                    outcome.leave_out(reason_of(picture, "further picture of a file"), file.name)
                    continue
                original = None
                if number == 0 and originals is not None:
                    original = _read_original(raw.get(_stem(file)), originals, picture, outcome)
                if original is not None:
                    compared.append(compare_with(file.name, original, picture, detect, missed))
                    missed -= len(compared[-1].pictures)
                seen.append(see(file, number, picture, detect, original, crops))
                crops -= len(seen[-1].crops)
            if file.path.suffix.lower() not in RELEASES:
                rest = images.count_pictures(file.path) - number - 1
                if rest > 0:
                    outcome.leave_out("further picture of a file", file.name, rest)
        except ImageError as error:
            outcome.leave_out(reason_of(error), file.name)
    beside, films = _read_sidecars(listing.sidecars, outcome), []
    if not seen and not videos and not beside:
        raise DataError(f"{released}: none of its files can be read: {outcome.words}")
    if videos:
        films = [watch(videos, detect, outcome, progress)]
    clear = Listing([]) if known is None else list_files(known)
    photographs = clear.pictures
    # Sub-folders of people are the auditor's own words, as a table of people is.
    every = (*pictures, *videos)
    names = [each.name.partition("/")[2] if listing.by_folder else each.name for each in every]
    beside += name_clues(names, {each.person for each in photographs})
    found = [protection(seen), faces(seen)] if seen else []
    found.append(metadata(seen, beside, _SUB_FOLDERS if listing.by_folder else ""))
    if seen:
        found.append(twins(seen, _prints(photographs, _root(known)) if known is not None else {}))
    found += films
    risks: tuple[Risk, ...] = ()
    if compared:
        found.append(report_originals(compared, detected=detect is not None))
    if known is not None and seen:
        spec, release = _guess(seen)
        boxes = {each.file: [*each.look.parts, *(each.faces or ())] for each in seen if each.number == 0}
        asked = _cut_out(pictures, root, boxes, config.size) if _are_scenes(seen) else None
        whole = asked is None
        asked = asked or read_pictures(pictures, root, size=config.size, every=True)
        finder = None if whole or detect is None else partial(_first_face, detect)
        known_pictures = read_pictures(
            photographs, _root(known), size=config.size, boxes=finder, release=release, outcome=clear.outcome
        )
        named = name_people(known_pictures, asked, spec=spec, config=config, progress=progress)
        said, risks = report_names(named, known_pictures, asked, spec=spec, config=config)
        found += [*said]
        if named.restored is not None:
            found.append(_show_restored(asked, named.restored, spec))
    _join(outcome, clear.outcome)
    files = len({each.file for each in seen})
    further = f" with {len(seen):,} pictures" if len(seen) > files else ""
    others = f" and {len(videos):,} videos" if videos else ""
    left = f", {outcome.left_out.total():,} not looked at" if outcome.left_out else ""
    return Report(
        audit="folder",
        subject=f"{root.resolve().name}: {files:,} images{further}{others}{left}",
        sentence=_sentence(found, outcome),
        findings=(*found, *outcome.findings()),
        changes=tuple(
            _CHANGES[each.name] for each in found if each.verdict == "leaks" and each.name in _CHANGES
        ),
        limits=(*_FOLDER_LIMITS, *(_LIMITS if known is not None else (_NOBODY,))),
        risks=risks,
        origin=(("SHA-256 of the lines of sha256sum, by name", listing.digest),) if listing.digest else (),
    )


_WORDS = {
    "naming": "people are named from it more often than by guessing",
    "originals": "faces are shown as they were",
    "faces": "a detector still finds faces",
    "videos": "videos show faces, or say more than their frames",
    "metadata": "files say more than their pixels",
    "twins": "files show the same as known photographs",
    "protection": "pictures look unprotected",
}
_CHANGES = {
    "protection": "Protect the pictures, as with `sfumato protect IN OUT --with block --where faces`.",
    "naming": "Protect more strongly, or release codes of a few bits. Then audit with the same photographs.",
    "originals": "Let the face detector be more sensitive, and protect the faces shown below by hand.",
    "faces": "Look at the faces below. Widen or strengthen the protection until a detector finds none.",
    "metadata": "Write the files anew from their pixels, under new names: `sfumato protect --rename` does.",
    "twins": "Release each scene once, and no picture that others have in clear.",
    "videos": "Cover faces between two detections, remove the sound, and write the metadata anew.",
}
_FOLDER_LIMITS = (
    "The kind of protection is judged from pixels: a blurred part without a sharp edge looks as a smooth "
    "background does, a replaced face as a face, and noise in the cells of a mosaic was not looked for.",
    "A detector misses faces. A clean file may show people by clothes, tattoos, places or text.",
)
_NOBODY = "Nobody was named: give known photographs as --known."


_SUB_FOLDERS = (
    " Its sub-folders were taken as the true people, whom you name: pass the files on without these names."
)


def _sentence(found: Sequence[Finding], outcome: Outcome) -> str:
    leaks = [
        _WORDS[name]
        for name in _WORDS
        if any(each.name == name and each.verdict == "leaks" for each in found)
    ]
    if any(each.name == "faces" and each.verdict == "not measured" for each in found):
        leaks += ["nobody looked for faces"] if leaks else []
    if leaks:
        return f"Do not pass this folder on as it is: {'; '.join(leaks)}{_add(outcome)}."
    blind = any(each.verdict == "not measured" for each in found)
    faces_of = ", where nobody looked for faces," if blind else ""
    if outcome.left_out or blind:
        return (
            f"In what was looked at{faces_of} no attempt found people, which proves nothing{_add(outcome)}."
        )
    return "No attempt found people in this folder, which proves nothing."


def _add(outcome: Outcome) -> str:
    return f"; {outcome.words}" if outcome.left_out else ""


def _join(outcome: Outcome, known: Outcome) -> None:
    """Count known photographs that were left out."""
    for reason, number in known.left_out.items():
        outcome.leave_out(f"known photograph: {reason}", known.names[reason], number)


def _read_sidecars(sidecars: Sequence[Listed], outcome: Outcome) -> Counter[str]:
    """Count the metadata in sidecars."""
    kinds = Counter[str]()
    for file in sidecars:
        try:
            words = sidecar_words(file.path.name, read_regular(file.path, images.reading.MAX_BYTES))
        except OSError:
            outcome.leave_out("file that cannot be opened", file.name)
            continue
        if words is None:
            outcome.leave_out("sidecar of an unknown kind", file.name)
        kinds.update(words or ())
    return kinds


def _detector(weights: Path | None) -> Detect | None:
    """Choose the detector of faces; None if none is installed or named."""
    if weights is None and not WEIGHTS.is_installed():
        return None
    region = Region(protect.parse("block"), "faces", file="" if weights is None else str(weights))
    region.find(torch.zeros(3, 64, 64, dtype=torch.uint8))  # its own errors end the audit
    return lambda picture: disjoint(region.find(picture))


def _first_face(detect: Detect, picture: torch.Tensor) -> list[Box]:
    """Find the largest face; the whole picture if there is none."""
    boxes = detect(picture) or [(0, picture.shape[1], 0, picture.shape[2])]
    return [max(boxes, key=lambda box: box[1] - box[0])]


def _are_scenes(seen: Sequence[Seen]) -> bool:
    """Whether people are parts of most pictures: hidden parts, or faces of less than half a side."""
    small = [
        bool(each.look.parts) or any(2 * (box[1] - box[0]) < each.side for box in each.faces or ())
        for each in seen
    ]
    return 2 * sum(small) > len(small)


def _guess(seen: Sequence[Seen]) -> tuple[str, Release | None]:
    """Guess the spec of the commonest protection, and how to protect a photograph in the same way.

    Its strength is the middle one, in shares of a side: photographs of another size get as many cells.
    """
    kind, is_part = Counter((each.look.kind, bool(each.look.parts)) for each in seen).most_common(1)[0][0]
    alike = [each for each in seen if (each.look.kind, bool(each.look.parts)) == (kind, is_part)]
    middle = sorted(alike, key=lambda each: each.look.strength)[len(alike) // 2]
    side = middle.side
    if is_part:
        sides = sorted(min(box[1] - box[0], box[3] - box[2]) for box in middle.look.parts)
        side = sides[len(sides) // 2]
    spec = middle.look.spec
    if spec is None:
        return "none", None
    if kind == "mosaic" and (is_part or middle.look.strength % 1):
        spec = f"pixelize:cell=1/{max(2, round(side / middle.look.strength))}"
    share = middle.look.strength / side

    def release(picture: torch.Tensor) -> Sequence[torch.Tensor]:
        """Protect as the files look, with fractional cells if theirs are."""
        own = min(picture.shape[1:])
        strength = share * own
        if kind == "mosaic" and (is_part or own != side or middle.look.strength % 1):
            return [_shrink(picture, strength)]
        return (_release(spec if kind == "noise" or own == side else f"blur:radius={strength:.3g}") or _none)(
            picture
        )

    return spec, release


def _shrink(picture: torch.Tensor, cell: float) -> torch.Tensor:
    """Make a mosaic as programs do: shrink by means, enlarge by the nearest."""
    height, width = picture.shape[1:]
    small = max(1, round(width / cell)), max(1, round(height / cell))
    planes = [Image.fromarray(plane.numpy()).resize(small, Image.Resampling.BOX) for plane in picture]
    large = [np.asarray(plane.resize((width, height), Image.Resampling.NEAREST)) for plane in planes]
    return torch.from_numpy(np.stack(large))


def _none(picture: torch.Tensor) -> list[torch.Tensor]:
    return [picture]


def _cut_out(
    files: Sequence[Listed], root: Path, boxes: Mapping[str, list[Box]], size: int
) -> Pictures | None:
    """Cut hidden parts and faces out of scenes; several of one file have no true name. None without any."""
    some = [file for file in files if boxes.get(file.name)]
    if not some:
        return None
    parts = []
    for file in some:
        of_file = disjoint(boxes[file.name])
        plain = file if len(of_file) == 1 else replace(file, person="")
        parts.append(read_pictures([plain], root, size=size, boxes=partial(_same, of_file)))
    return Pictures(
        torch.cat([each.images for each in parts]), tuple(f for each in parts for f in each.files)
    )


def _same(boxes: list[Box], picture: torch.Tensor) -> list[Box]:
    return boxes


def _prints(files: Sequence[Listed], root: Path) -> dict[str, Fingerprint]:
    """Compute fingerprints of known photographs."""
    made = {}
    for file in files:
        with suppress(ImageError):  # which the naming counts
            if (printed := fingerprints(read_picture(file, root)[None])[0]) is not None:
                made[f"{file.person}, {file.name}"] = printed
    return made


def _stem(file: Listed) -> PurePosixPath:
    """The name of a file, whatever its suffix."""
    return PurePosixPath(file.name).with_suffix("")


def _read_original(
    original: Listed | None, folder: Path, picture: torch.Tensor, outcome: Outcome
) -> torch.Tensor | None:
    """Read the original of a picture, in its size; None if there is none of its shape that can be read."""
    if original is None:
        return None
    try:
        pixels = read_picture(original, folder)
    except ImageError as error:
        outcome.leave_out(reason_of(error, "original"), original.name)
        return None
    (height, width), (tall, wide) = pixels.shape[1:], picture.shape[1:]
    if abs(width * tall / (height * wide) - 1) > _SAME_SHAPE:
        outcome.leave_out("original of another shape", original.name)
        return None
    if (height, width) == (tall, wide):
        return pixels
    resized = functional.interpolate(pixels[None].float(), (tall, wide), mode="bilinear", antialias=True)
    return resized[0].round().to(torch.uint8)


def _show_restored(asked: Pictures, restored: torch.Tensor, spec: str) -> Finding:
    return Finding(
        name="restored",
        title="Restored by an adversary",
        sentence=(
            f"A network that learned from the known photographs, protected by {spec} as these files look, "
            "undoes what it can. It draws a likely face, which need not be the right one."
        ),
        pictures=(
            tuple(Picture(image, "released") for image in asked.images[:6]),
            tuple(Picture(image, "restored") for image in restored[:6]),
        ),
    )


_LIMITS = (
    "Adversaries with more photographs, larger networks or more time name more.",
    "Every person on a release is taken for one of the known people; among more people fewer are named.",
)
_UNKNOWN = (
    "No protection was given, so no adversary protected their photographs in the same way. Those who know "
    "the protection, or guess it, name more: give it as --protection."
)


def _root(source: str | os.PathLike[str]) -> Path:
    return Path(source).parent if Path(source).is_file() else Path(source)


def _release(spec: str) -> Release | None:
    """Make releases of one picture in its own size; None for no copies, and for networks of a fixed size."""
    if spec == "none":
        return None
    protection = protect.parse(spec, takes=KINDS)
    if hasattr(protection, "artefact"):
        return None

    def release(picture: torch.Tensor) -> list[torch.Tensor]:
        return [
            protection.release(picture[None], seeded_noise(0, number)).images()[0]
            for number in range(_COPIES if protection.draws_noise else 1)
        ]

    return release
