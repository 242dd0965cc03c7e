"""The findings on a folder that somebody protected, apart from naming: one function a finding."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from sfumato.assess.similarity import ssim
from sfumato.audits.findings import Finding, Picture, Table
from sfumato.audits.folder.kinds import Look, compare, look
from sfumato.audits.folder.metadata import metadata_of, read_content, video_metadata
from sfumato.audits.folder.pictures import RELEASES, Listed, cut
from sfumato.device.jobs.footage import footage
from sfumato.device.ledger.fingerprints import fingerprints
from sfumato.device.ledger.near_copies import Fingerprint, near_copies
from sfumato.errors import ImageError
from sfumato.images import to_float
from sfumato.protect.region import Box, overlap

Detect = Callable[[Tensor], list[Box]]
"""Finds the boxes of faces on a (3, H, W) uint8 picture."""

_SHOWN = 6  # pictures of a finding
_ROWS = 20
_UNCHANGED = 3.0  # grey levels, root mean square, within a face
_EVERY, _MOST_FRAMES = 5, 1500  # frames of a video: between two looks, and in all


@dataclass(frozen=True)
class Seen:
    """The picture and the metadata of one file.

    Attributes:
        file: its name below the folder.
        look: the protection that it looks like.
        faces: boxes of faces that a detector finds; None if there is no detector.
        kinds: metadata in words.
        thumbnail: one that shows another picture.
        quality: of a JPEG.
        crops: some of these faces.
        printed: its fingerprint; None if it is flat.
        side: the shorter one in pixels.
    """

    file: str
    look: Look
    faces: list[Box] | None
    kinds: list[str]
    thumbnail: Tensor | None
    quality: int | None
    crops: list[Tensor]
    printed: Fingerprint | None
    side: int


def see(file: Listed, picture: Tensor, detect: Detect | None, original: Tensor | None = None) -> Seen:
    """Look at the picture of one file, and at its original if there is one. Raises ImageError."""
    of_file = file.path.suffix.lower() not in RELEASES
    kinds, thumbnail, quality = metadata_of(read_content(file.path), picture) if of_file else ([], None, None)
    faces = None if detect is None else detect(picture)
    crops = [cut(picture, box) for box in (faces or [])[:_SHOWN]]
    printed = fingerprints(picture[None])[0]
    side = min(picture.shape[1:])
    found = look(picture) if original is None else compare(look(picture), original, picture)
    return Seen(file.name, found, faces, kinds, thumbnail, quality, crops, printed, side)


def protection(seen: Sequence[Seen]) -> Finding:
    """State the kind of protection that the files look like."""
    groups: dict[str, list[Seen]] = {}
    for each in seen:
        groups.setdefault(_KINDS[each.look.kind][bool(each.look.parts)], []).append(each)
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    words, most = ranked[0]
    strengths = sorted(each.look.strength for each in most)
    qualities = sorted(each.quality for each in seen if each.quality)
    jpeg = f" The quality of JPEG is at least {qualities[0]}, at most {qualities[-1]}." if qualities else ""
    return Finding(
        name="protection",
        title="The protection that it looks like",
        verdict="leaks" if most[0].look.kind in ("none", "soft") and 2 * len(most) > len(seen) else None,
        sentence=(
            f"{len(most):,} of {len(seen):,} files look {words}"
            f"{_strength(most[0].look.kind, strengths)}.{jpeg}"
        ),
        table=Table(
            ("looks", "files", "strength (least, middle, most)"),
            tuple(
                (words, f"{len(some)}", _three(sorted(each.look.strength for each in some)))
                for words, some in ranked
            ),
            "In pixels for a cell or a blur, in grey levels for noise. Judged from pixels: differences on a "
            "grid, the fall of the spectrum, the finest detail, areas of one colour.",
        ),
        figures={words: len(some) for words, some in ranked},
    )


# Words for a whole picture, and for parts of one.
_KINDS = {
    "mosaic": ("like a mosaic", "like a mosaic on parts of the picture"),
    "blur": ("blurred as a whole", "blurred"),
    "soft": ("slightly blurred, or out of focus", "slightly blurred"),
    "noise": ("noisy", "noisy"),
    "changed": ("different", "like their originals apart from some parts, which show no known protection"),
    "one colour": ("like one colour", "covered or strongly blurred in boxes or ellipses"),
    "none": ("unprotected, or protected in a way that pixels do not show", "unprotected"),
}


def _strength(kind: str, strengths: Sequence[float]) -> str:
    middle = strengths[len(strengths) // 2]
    units = {"mosaic": ", with cells of {:.0f} pixels", "noise": ", by about {:.0f} grey levels"}
    units |= dict.fromkeys(("blur", "soft"), ", by a radius of about {:.1f} pixels")
    return units[kind].format(middle) if kind in units else ""


def _three(values: Sequence[float]) -> str:
    return f"{values[0]:.3g}, {values[len(values) // 2]:.3g}, {values[-1]:.3g}" if values[-1] else "-"


def faces(seen: Sequence[Seen]) -> Finding:
    """Count the faces that a detector still finds."""
    title = "Faces that remain"
    if any(each.faces is None for each in seen):
        return Finding(
            name="faces",
            title=title,
            verdict="not measured",
            sentence="Nobody looked for faces: install the extra `faces`, or name the weights of MTCNN with "
            "--detector.",
        )
    having = [each for each in seen if each.faces]
    boxes = [(each, box) for each in having for box in each.faces or ()]
    plain = sum(not any(overlap(box, part) for part in each.look.parts) for each, box in boxes)
    crops = [Picture(crop, each.file) for each in having for crop in each.crops]
    return Finding(
        name="faces",
        title=title,
        verdict="leaks" if boxes else "not shown",
        sentence=(
            f"Faces that a detector still finds: {len(boxes):,}, on {len(having):,} of {len(seen):,} files. "
            f"Apart from parts that look hidden: {plain:,}."
            if boxes
            else f"A detector finds no face on any of {len(seen):,} files. It may miss some: look at them."
        ),
        pictures=(tuple(crops[:_SHOWN]),) if crops else (),
        figures={"faces": len(boxes), "files": len(having), "plain": plain},
    )


def metadata(seen: Sequence[Seen], clues: Mapping[str, int]) -> Finding:
    """Count the metadata of files."""
    counted = Counter(kind for each in seen for kind in each.kinds) + Counter(clues)
    differing = [each for each in seen if each.thumbnail is not None]
    if differing:
        counted["a thumbnail of another picture, such as the original"] = len(differing)
    named = "; ".join(f"{words}, in {count:,}" for words, count in counted.most_common())
    return Finding(
        name="metadata",
        title="Metadata",
        verdict="leaks" if counted else "not shown",
        sentence=f"In {len(seen):,} files: {named}."
        if counted
        else "No known kind of metadata is in the files.",
        pictures=(
            tuple(
                Picture(each.thumbnail, f"thumbnail in {each.file}")
                for each in differing[:_SHOWN]
                if each.thumbnail is not None
            ),
        )
        if differing
        else (),
        figures=dict(counted),
    )


def twins(seen: Sequence[Seen], known: Mapping[str, Fingerprint]) -> Finding:
    """Find files that show one scene, and files that show a known photograph."""
    printed = [(each.file, each.printed) for each in seen if each.printed is not None]
    index: dict[int, list[int]] = {}
    every = [*printed, *known.items()]
    for row, (_, print_) in enumerate(every):
        for key in print_.keys:
            index.setdefault(key, []).append(row)
    pairs = []
    for row, (name, print_) in enumerate(printed):
        rows = {other for probe in print_.probes for other in index.get(probe, ()) if other > row}
        pairs += [
            (name, every[other][0], other >= len(printed))
            for other in sorted(rows)
            if near_copies(print_.bits, every[other][1].bits)
        ]
    of_known = sum(is_known for _, _, is_known in pairs)
    return Finding(
        name="twins",
        title="Pictures that show the same",
        verdict="leaks" if of_known else "not shown",
        sentence=(
            f"{of_known:,} times a file shows the same picture as a known photograph, and "
            f"{len(pairs) - of_known:,} times two files show the same."
            + (" Anybody who has one of two knows the other." if pairs else "")
        ),
        table=Table(("file", "shows the same as"), tuple(pair[:2] for pair in pairs[:_ROWS]))
        if pairs
        else None,
        figures={"known": of_known, "files": len(pairs) - of_known},
    )


@dataclass(frozen=True)
class Compared:
    """One file beside its original.

    Attributes:
        ssim: of the two.
        changed: the share of pixels that differ.
        faces: on the original.
        missed: those that are shown as they were.
    """

    ssim: float
    changed: float
    faces: int
    missed: tuple[Picture, ...]


def compare_with(name: str, original: Tensor, released: Tensor, detect: Detect | None) -> Compared:
    """Compare a released picture with its original of the same size."""
    difference = (original.float() - released.float()).square().mean(0)
    boxes = detect(original) if detect else []
    missed = [box for box in boxes if difference[box[0] : box[1], box[2] : box[3]].mean().sqrt() < _UNCHANGED]
    return Compared(
        ssim(to_float(original[None]), to_float(released[None])).item(),
        (difference > 4).double().mean().item(),
        len(boxes),
        tuple(Picture(cut(released, box), f"shown as it was: {name}") for box in missed),
    )


def report_originals(compared: Sequence[Compared], *, detected: bool) -> Finding:
    """Sum up the files that have an original; `detected`: whether faces were looked for."""
    missed = [face for each in compared for face in each.missed]
    total, count = sum(each.faces for each in compared), len(compared)
    words = (
        f"{len(missed):,} of {total:,} faces on the originals are shown as they were."
        if detected
        else "Nobody looked for faces on them."
    )
    return Finding(
        name="originals",
        title="Compared with the originals",
        verdict="leaks" if missed else None,
        sentence=(
            f"{count:,} files have an original of their name and size. {words} On average "
            f"{sum(each.changed for each in compared) / count:.0%} of the pixels of a file differ, and SSIM "
            f"is {sum(each.ssim for each in compared) / count:.2f} (1 for equal pictures)."
        ),
        pictures=(tuple(missed[:_SHOWN]),) if missed else (),
        figures={
            "ssim": [each.ssim for each in compared],
            "changed": [each.changed for each in compared],
            "faces": total,
            "missed": len(missed),
        },
    )


def watch(paths: Sequence[Listed], detect: Detect | None) -> Finding:
    """Look at some frames of each video."""
    rows, leaks, shown = [], False, []
    for video in paths:
        try:
            kinds = video_metadata(video.path)
            with footage(video.path) as clip:
                frames = [
                    torch.from_numpy(each.image) for each in islice(clip.frames(), 0, _MOST_FRAMES, _EVERY)
                ]
        except ImageError as error:
            rows.append((video.name, "cannot be read", str(error), ""))
            continue
        found = [bool(detect(frame)) for frame in frames] if detect else []
        flickers = sum(
            now and not (before and after)
            for before, now, after in zip(found, found[1:], found[2:], strict=False)
        )
        shown += [
            Picture(frame, f"{video.name}, frame {_EVERY * row}")
            for row, frame in enumerate(frames)
            if found and found[row]
        ][:2]
        kind = Counter(look(frame).kind for frame in frames).most_common(1)[0][0] if frames else "none"
        leaks = leaks or any(found) or bool(kinds)
        rows.append(
            (
                video.name,
                _KINDS[kind][0],
                f"{sum(found)} of {len(frames)}, {flickers} at a gap" if detect else "nobody looked",
                "; ".join(kinds) or "none",
            )
        )
    return Finding(
        name="videos",
        title="Videos",
        verdict="leaks" if leaks else "not shown",
        sentence=(
            f"Every {_EVERY}th of the first {_MOST_FRAMES:,} frames of {len(paths):,} videos was looked at."
        ),
        table=Table(
            ("video", "frames look", "frames with a face", "metadata"),
            tuple(rows),
            "A face at a gap is shown next to a frame without a face: the protection misses it between "
            "frames, or the detector does.",
        ),
        pictures=(tuple(shown[:_SHOWN]),) if shown else (),
    )
