"""The audits of a folder of released images: who is on them, and all else that they tell."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sfumato import protect
from sfumato.audits.findings import Outcome, Report, Risk
from sfumato.audits.folder import pictures
from sfumato.audits.folder.findings import SHOWN, Detect, Seen, faces, metadata, protection, see
from sfumato.audits.folder.naming import NamingConfig, Tell, name_people
from sfumato.audits.folder.pictures import Boxes, Listed, Listing, Pictures, Release, Source, list_files
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError, ImageError
from sfumato.networks.faces.finding import WEIGHTS
from sfumato.protect.region import Box, Region, disjoint
from sfumato.protect.release import IMAGES, KINDS, kind_of

_COPIES = 4  # of each known photograph, if a protection draws noise


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
                    crops = SHOWN - sum(len(each.crops) for each in seen)
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
        sentence=f"{found[0].sentence}{_add(outcome)}",
        findings=(*found, *outcome.findings()),
        limits=_LIMITS + (() if spec != "none" else (_UNKNOWN,)),
        risks=risks,
    )


def _read_known(
    known: Source, spec: str, config: NamingConfig, outcome: Outcome, boxes: Boxes | None = None
) -> Pictures:
    """Read the known photographs, and protect them by a spec; those that are left out are counted."""
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
    if not some:
        asked = pictures.read_pictures(files, listing.root, every=True, **common)
        return _read_known(known, spec, config, outcome), asked, spec

    def first_face(_: Listed, picture: torch.Tensor) -> list[Box]:
        boxes = detect(picture) if detect else []
        return [max(boxes or [(0, picture.shape[1], 0, picture.shape[2])], key=lambda box: box[1] - box[0])]

    asked = pictures.read_pictures(some, listing.root, boxes=lambda file, _: parts[file.name], **common)
    return _read_known(known, spec, config, outcome, first_face if detect else None), asked, spec


# Of a finding that leaks, the worst first: the words of the first sentence, and the cure.
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
    worst, rest = [words for name, (words, _) in _LEAKS.items() if name in leaks], _add(outcome)
    if worst:
        worst += ["nobody looked for faces"] if blind else []
        return f"Do not pass this folder on as it is: {'; '.join(worst)}{rest}."
    if not rest and not blind:
        return "No attempt found people in this folder, which proves nothing."
    faces_of = ", where nobody looked for faces," if blind else ""
    return f"In what was looked at{faces_of} no attempt found people, which proves nothing{rest}."


def _add(outcome: Outcome) -> str:
    return f"; {outcome.words}" if outcome.left_out else ""


def _detector(weights: Path | None) -> Detect | None:
    """Choose the detector of faces; None if none is installed or named."""
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
    """Guess the spec of the commonest protection, with its middle strength.

    A mosaic has as many cells along a side as there: photographs of another size, too.
    """
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
    if spec == "none":
        return None
    parsed = protect.parse(spec, takes=KINDS)
    if hasattr(parsed, "artefact"):
        return None

    def release(picture: torch.Tensor) -> list[torch.Tensor]:
        draws = [seeded_noise(0, number) for number in range(_COPIES if parsed.draws_noise else 1)]
        return [parsed.release(picture[None], noise).images()[0] for noise in draws]

    return release
