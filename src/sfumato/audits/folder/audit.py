"""The audits of a folder of released images: who is on them, and all else that they tell."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

import torch

from sfumato import protect
from sfumato.audits.findings import Finding, Picture, Report
from sfumato.audits.folder.findings import (
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
from sfumato.audits.folder.metadata import name_clues
from sfumato.audits.folder.naming import NamingConfig, name_people, report_names
from sfumato.audits.folder.pictures import (
    Listed,
    Pictures,
    Release,
    list_files,
    read_picture,
    read_pictures,
    read_vectors,
)
from sfumato.audits.risks import Risk
from sfumato.device.jobs.video import SUFFIXES as VIDEOS
from sfumato.device.ledger.fingerprints import fingerprints
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError, ImageError
from sfumato.networks.faces.center_face import WEIGHTS
from sfumato.protect.region import Box, Region, disjoint
from sfumato.protect.release import IMAGES, KINDS, kind_of

_COPIES = 4  # of each known photograph, if a protection draws noise


def audit_names(
    released: str | os.PathLike[str],
    known: str | os.PathLike[str],
    *,
    people: Path | None = None,
    spec: str = "none",
    config: NamingConfig | None = None,
    note: Callable[[str], None] = lambda words: None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Report:
    """Report how often the people on released images are named from known photographs.

    Args:
        released, people: see `list_files`.
        known: see `list_files`; photographs of people by name.
        spec: the protection, if it is known; "none" for adversaries who do not know it.
        config: see NamingConfig.
        note: called with a sentence on files that were left out.
        progress: see name_people.

    Raises:
        DataError: see `list_files`, `read_pictures` and `name_people`.
        SpecError: see protect.parse.
    """
    config = config or NamingConfig()
    protection = protect.parse(spec, takes=KINDS)
    if (shape := getattr(protection, "shape", None)) is not None:  # of the network that was trained
        config = replace(config, size=shape[1])
    files = list_files(released, people)
    if kind_of(protection) in IMAGES:
        asked = read_pictures(files, _root(released), size=config.size)
    else:
        asked = read_vectors(files, _root(released), size=config.size)
    photographs = read_pictures(list_files(known), _root(known), size=config.size, release=_release(spec))
    for pictures in (asked, photographs):
        if pictures.skipped:
            note(f"left out: {len(pictures.skipped)} files, such as {pictures.skipped[0]}")
    named = name_people(photographs, asked, spec=spec, config=config, progress=progress)
    found, risks = report_names(named, photographs, asked, spec=spec, config=config)
    return Report(
        audit="re-identification",
        subject=f"{len(asked.files):,} releases, {len(set(photographs.people)):,} known people",
        sentence=found[0].sentence,
        findings=found,
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
    note: Callable[[str], None] = lambda words: None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Report:
    """Report how a folder looks protected, and who can still be recognised.

    Args:
        released, people: see `list_files`; videos are looked at, too.
        known: see `list_files`; None to name nobody.
        originals: a folder with the originals under the same names, whatever their suffix; None without.
        detector: weights of MTCNN; None for CenterFace, if its extra is installed, or no search for faces.
        config, note, progress: see audit_names.

    Raises:
        DataError: see audit_names.
    """
    config, root, detect = config or NamingConfig(), _root(released), _detector(detector)
    files = list_files(released, people, suffixes=VIDEOS)
    videos = [file for file in files if file.path.suffix.lower() in VIDEOS]
    pictures = [file for file in files if file not in videos]
    raw = {} if originals is None else {_stem(file): file for file in list_files(originals)}
    seen, skipped, compared = [], [], []
    for done, file in enumerate(pictures, 1):
        progress("files", done, len(pictures))
        try:
            picture = read_picture(file, root)
            original = _read_original(raw.get(_stem(file)), originals, picture)
            seen.append(see(file, picture, detect, original))
        except ImageError as error:
            skipped.append(str(error))
            continue
        if original is not None:
            compared.append(compare_with(file.name, original, picture, detect))
    if skipped:
        note(f"left out: {len(skipped)} files, such as {skipped[0]}")
    if not seen and not videos:
        raise DataError(f"{released}: none of its {len(files)} files can be read, such as {skipped[0]}")
    photographs = [] if known is None else list_files(known)
    found: list[Finding] = []
    risks: tuple[Risk, ...] = ()
    if seen:
        clues = name_clues([each.file for each in seen], {each.person for each in photographs})
        prints = {} if known is None else _prints(photographs, _root(known))
        found = [protection(seen), faces(seen), metadata(seen, clues), twins(seen, prints)]
    if videos:
        found.append(watch(videos, detect))
    if compared:
        found.append(report_originals(compared, detected=detect is not None))
    if known is not None and seen:
        spec, boxes = _guess(seen), {each.file: [*each.look.parts, *(each.faces or ())] for each in seen}
        asked = _cut_out(pictures, root, boxes, config.size) if _are_scenes(seen) else None
        whole = asked is None
        asked = asked or read_pictures(pictures, root, size=config.size)
        finder = None if whole or detect is None else partial(_first_face, detect)
        clear = read_pictures(
            photographs, _root(known), size=config.size, boxes=finder, release=_release(spec)
        )
        named = name_people(clear, asked, spec=spec, config=config, progress=progress)
        said, risks = report_names(named, clear, asked, spec=spec, config=config)
        found += said
        if named.restored is not None:
            found.append(_show_restored(asked, named.restored, spec))
    return Report(
        audit="folder",
        subject=f"{len(seen):,} images" + (f" and {len(videos):,} videos" if videos else ""),
        sentence=_sentence(found),
        findings=tuple(found),
        changes=tuple(
            _CHANGES[each.name] for each in found if each.verdict == "leaks" and each.name in _CHANGES
        ),
        limits=(*_FOLDER_LIMITS, *(_LIMITS if known is not None else (_NOBODY,))),
        risks=risks,
    )


_WORDS = {
    "naming": "people are named from it more often than by guessing",
    "originals": "faces are shown as they were",
    "faces": "a detector still finds faces",
    "videos": "videos show faces, or say more than their frames",
    "metadata": "files say more than their pixels",
    "twins": "files show the same as known photographs",
    "protection": "most files look unprotected",
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


def _sentence(found: Sequence[Finding]) -> str:
    leaks = [
        _WORDS[name]
        for name in _WORDS
        if any(each.name == name and each.verdict == "leaks" for each in found)
    ]
    if leaks:
        return f"Do not pass this folder on as it is: {'; '.join(leaks)}."
    return "No attempt found people in this folder, which proves nothing."


def _detector(weights: Path | None) -> Detect | None:
    """Choose the detector of faces; None if none is installed or named."""
    if weights is None and not WEIGHTS.is_installed():
        return None
    region = Region(protect.parse("block"), "faces", file="" if weights is None else str(weights))
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


def _guess(seen: Sequence[Seen]) -> str:
    """Guess the spec of the commonest protection; in shares of a part, if parts are protected."""
    specs = []
    for each in seen:
        spec = each.look.spec
        if spec is not None and each.look.parts:
            sides = sorted(min(box[1] - box[0], box[3] - box[2]) for box in each.look.parts)
            spec = f"pixelize:cell=1/{max(2, round(sides[len(sides) // 2] / each.look.strength))}"
        specs.append(spec or "none")
    return Counter(specs).most_common(1)[0][0]


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
        with suppress(ImageError):
            if (printed := fingerprints(read_picture(file, root)[None])[0]) is not None:
                made[f"{file.person}, {file.name}"] = printed
    return made


def _stem(file: Listed) -> PurePosixPath:
    """The name of a file, whatever its suffix."""
    return PurePosixPath(file.name).with_suffix("")


def _read_original(
    original: Listed | None, folder: Path | None, picture: torch.Tensor
) -> torch.Tensor | None:
    """Read the original of a picture; None if there is none of its size that can be read."""
    if original is None or folder is None:
        return None
    with suppress(ImageError):
        pixels = read_picture(original, folder)
        if pixels.shape == picture.shape:
            return pixels
    return None


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
