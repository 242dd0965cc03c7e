"""The findings on a folder that somebody protected, apart from naming: one function a finding."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.assess.similarity import ssim
from sfumato.audits.findings import Finding, Outcome, Picture, Table
from sfumato.audits.folder.kinds import Look, area_of, compare, look
from sfumato.audits.folder.metadata import Metadata, metadata_of, video_metadata
from sfumato.audits.folder.pictures import RELEASES, Listed, cut, naming, reason_of
from sfumato.base.files import read_regular
from sfumato.device.jobs.footage import footage
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints, near_copies
from sfumato.errors import ImageError
from sfumato.images import resize, to_float
from sfumato.images.decoding import kind_of
from sfumato.images.reading import MAX_BYTES
from sfumato.protect.region import Box, overlap

Detect = Callable[[Tensor], list[Box]]
"""Finds the boxes of faces on a (3, H, W) uint8 picture."""

SHOWN, _SIDE = 6, 192  # pictures of a finding, and the longest side of each
_ROWS = 20
_FLAT = 4.0  # grey levels from the middle one: a colour
_COARSE = 16  # cells, or widths of a blur, along a side: fewer do not tell one picture from another
_EVERY, _MOST_FRAMES = 5, 1500  # frames of a video: between two looks, and in all
_JUDGED = 4  # every fourth of these frames is judged for its protection

Progress = Callable[[str, int, int], None]
"""Is called with a step in words, the number of its parts that are done, and that of all."""


@dataclass(frozen=True)
class Seen:
    """One picture of a file, and the metadata of the file with its first picture.

    Attributes:
        file: its name below the folder.
        number: 0 for the first picture of a file.
        look: the protection that it looks like.
        faces: boxes of faces that a detector finds, but for those of one colour; None without a detector.
        metadata: of the file; None for further pictures, and releases.
        crops: some of these faces.
        printed: its fingerprint; None if it is flat or coarse.
        side: the shorter one in pixels.
    """

    file: str
    number: int
    look: Look
    faces: list[Box] | None
    metadata: Metadata | None
    crops: list[Tensor]
    printed: Fingerprint | None
    side: int


def see(
    file: Listed, number: int, picture: Tensor, detect: Detect | None, original: Tensor | None, crops: int
) -> Seen:
    """Look at one picture of a file, and at its original if there is one.

    Args:
        file: of the picture.
        number: of the picture in its file, from 0.
        picture: (3, H, W) uint8.
        detect: see Detect.
        original: of the same shape.
        crops: how many pictures of faces are kept at most.

    Raises:
        OSError: the file cannot be read.
    """
    metadata = None
    if number == 0 and file.path.suffix.lower() not in RELEASES:
        content = read_regular(file.path, MAX_BYTES)
        metadata = metadata_of(kind_of(content), content, picture)
    faces = None if detect is None else [box for box in detect(picture) if _shows(picture, box)]
    shown = [_reduce(cut(picture, box)) for box in (faces or [])[:crops]]
    found, side = look(picture), min(picture.shape[1:])
    if original is not None:
        found = compare(found, original, picture)
    grain = {"mosaic": found.strength, "blur": 12**0.5 * found.strength}.get(found.kind, 0)
    hidden = 2 * sum(map(area_of, found.parts)) > picture[0].numel() or not found.parts
    coarse = hidden and (found.kind == "one colour" or _COARSE * grain > side)
    printed = None if coarse else fingerprints(picture[None])[0]
    return Seen(file.name, number, found, faces, metadata, shown, printed, side)


def _shows(picture: Tensor, box: Box) -> bool:
    """Whether the middle of a box has several colours. A detector takes some black boxes for faces."""
    top, bottom, left, right = box
    down, across = (bottom - top) // 4, (right - left) // 4
    middle = picture[:, top + down : bottom - down, left + across : right - across].flatten(1).float()
    alike = (
        (middle - middle.median(1, keepdim=True).values).abs().amax(0) <= _FLAT if middle.numel() else middle
    )
    return bool(alike.float().mean() < 0.5) if middle.numel() else True


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
    strengths = sorted(each.look.strength for each in most)
    qualities = sorted(each.metadata.quality for each in seen if each.metadata and each.metadata.quality)
    jpeg = f" The quality of JPEG is at least {qualities[0]}, at most {qualities[-1]}." if qualities else ""
    first = {each.file: each.look.kind for each in seen if each.number == 0}
    bare = [each for each in seen if each.look.kind in ("none", "soft")]
    behind = [each.file for each in bare if each.number and first.get(each.file) not in ("none", "soft")]
    further = (
        f" {len(behind):,} further pictures look unprotected, behind a protected first one" if behind else ""
    )
    further += f", such as in {behind[0]}." if behind else ""
    return Finding(
        name="protection",
        title="The protection that it looks like",
        verdict="leaks" if behind or 2 * len(bare) > len(seen) else None,
        sentence=(
            f"{len(most):,} of {len(seen):,} pictures look {words}"
            f"{_strength(most[0].look.kind, strengths)}.{further}{jpeg}"
        ),
        table=Table(
            ("looks", "pictures", "strength (least, middle, most)"),
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
    "one colour": (
        "like one colour, which shows nothing",
        "covered or strongly blurred in boxes or ellipses",
    ),
    "none": ("unprotected, or protected in a way that pixels do not show", "unprotected"),
}


def _strength(kind: str, strengths: Sequence[float]) -> str:
    middle = strengths[len(strengths) // 2]
    units = {"mosaic": ", with cells of {:.3g} pixels", "noise": ", by about {:.0f} grey levels"}
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
            f"Faces that a detector still finds: {len(boxes):,}, on {len(having):,} of {len(seen):,} pictures"
            f". Apart from parts that look hidden: {plain:,}."
            if boxes
            else f"A detector finds no face on any of {len(seen):,} pictures. It may miss some: look at them."
        ),
        pictures=(tuple(crops[:SHOWN]),) if crops else (),
        figures={"faces": len(boxes), "files": len(having), "plain": plain},
    )


def metadata(seen: Sequence[Seen], beside: Mapping[str, int], words: str) -> Finding:
    """Count the metadata of files.

    Args:
        seen: pictures, with the metadata of their files.
        beside: number of each kind of metadata in names and sidecars.
        words: a further sentence, or "".
    """
    files = [(each.file, each.metadata) for each in seen if each.metadata is not None]
    counted = Counter(kind for _, made in files for kind in made.kinds) + Counter(beside)
    unread = Counter[str]()
    for _, made in files:
        unread.update(made.kinds)
    differing = [(name, made.thumbnail) for name, made in files if made.thumbnail is not None]
    if differing:
        counted["a thumbnail of another picture, such as the original"] = len(differing)
    named = [
        f"{kind}{f' of {unread[kind]:,} bytes' if unread[kind] else ''}, in {count:,}"
        for kind, count in counted.most_common(_ROWS)
    ]
    named += [f"{len(counted) - _ROWS} further kinds"] if len(counted) > _ROWS else []
    return Finding(
        name="metadata",
        title="Metadata",
        verdict="leaks" if counted else "not shown",
        sentence=(
            f"In {len(files):,} files and their sidecars: {'; '.join(named)}."
            if counted
            else f"The {len(files):,} files hold what shows their pictures, and nothing else."
        )
        + words,
        pictures=(tuple(Picture(image, f"thumbnail in {name}") for name, image in differing[:SHOWN]),)
        if differing
        else (),
        figures=dict(counted),
    )


def twins(seen: Sequence[Seen], known: Mapping[str, Fingerprint]) -> Finding:
    """Find files that show one scene, and files that show a known photograph."""
    printed = [(each.file, each.printed) for each in seen if each.printed is not None]
    coarse = len(seen) - len(printed)
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
            if every[other][0] != name and near_copies(print_.bits, every[other][1].bits)
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
            + (f" {coarse:,} pictures are too coarse to compare." if coarse else "")
        ),
        table=Table(("file", "shows the same as"), tuple(pair[:2] for pair in pairs[:_ROWS]))
        if pairs
        else None,
        figures={"known": of_known, "files": len(pairs) - of_known},
    )


@dataclass(frozen=True)
class Compared:
    """A file compared with its original.

    Attributes:
        ssim: of the two.
        changed: the share of pixels that differ.
        faces: on the original.
        missed: the number of those that are shown as they were.
        pictures: some of them.
    """

    ssim: float
    changed: float
    faces: int
    missed: int
    pictures: tuple[Picture, ...]


def compare_with(
    name: str, original: Tensor, released: Tensor, detect: Detect | None, crops: int = SHOWN
) -> Compared:
    """Compare a released picture with its original of the same size, and keep some missed faces."""
    difference = (original.float() - released.float()).square().mean(0)
    boxes = detect(original) if detect else []
    missed = [box for box in boxes if _is_shown(original, released, box)]
    return Compared(
        ssim(to_float(original[None]), to_float(released[None])).item(),
        (difference > 4).double().mean().item(),
        len(boxes),
        len(missed),
        tuple(Picture(_reduce(cut(released, box)), f"shown as it was: {name}") for box in missed[:crops]),
    )


_FACE, _MOVED, _PATCH = 64, 4, 16  # pixels: of the middle of a face, of shifts, of a patch
_ALIKE, _GAIN, _MOST_PATCHES = 0.7, 0.4, 0.6  # correlation and contrast left in a patch; share of patches


def _is_shown(original: Tensor, released: Tensor, box: Box) -> bool:
    """Whether a face shows the same structure as on the original, whatever compression or light changed.

    The middle of the box is compared at 64 x 64 pixels, without slow changes, in 16 patches and under shifts:
    a patch is alike if the two correlate, and the release keeps its contrast.
    """
    from scipy import ndimage  # type: ignore[import-untyped]

    top, bottom, left, right = box
    down, across = (bottom - top) // 8, (right - left) // 8
    views = []
    for picture, more in ((original, 0), (released, _MOVED)):
        y, x = (
            -(-more * (stop - start - 2 * off) // _FACE)
            for start, stop, off in ((top, bottom, down), (left, right, across))
        )
        grey = functional.pad(picture.float().mean(0)[None, None], (x, x, y, y), mode="replicate")
        part = grey[..., top + down : bottom - down + 2 * y, left + across : right - across + 2 * x]
        side = (_FACE + 2 * more, _FACE + 2 * more)
        face = functional.interpolate(part, side, mode="bilinear", antialias=True)[0, 0].numpy()
        views.append(ndimage.gaussian_filter(face, 0.7) - ndimage.gaussian_filter(face, 5))

    def patches(view: Any) -> Any:
        rows = view.reshape(_FACE // _PATCH, _PATCH, _FACE // _PATCH, _PATCH)
        return rows.transpose(0, 2, 1, 3).reshape(-1, _PATCH**2)

    own = patches(views[0])
    energy = (own**2).sum(1)
    textured = energy > _PATCH**2  # a grey level, root mean square
    best = 0.0
    for y in range(2 * _MOVED + 1):
        for x in range(2 * _MOVED + 1):
            other = patches(views[1][y : y + _FACE, x : x + _FACE])
            joint = (own * other).sum(1)
            alike = joint >= _ALIKE * np.sqrt(energy * (other**2).sum(1) + 1e-9)
            best = max(
                best, float((alike & (joint >= _GAIN * energy))[textured].mean()) if textured.any() else 0.0
            )
    return best >= _MOST_PATCHES


def report_originals(compared: Sequence[Compared], *, detected: bool) -> Finding:
    """Sum up the files that have an original; `detected`: whether faces were looked for."""
    shown = [face for each in compared for face in each.pictures]
    missed, total = (
        sum(counts) for counts in zip(*((each.missed, each.faces) for each in compared), strict=True)
    )
    count = len(compared)
    words = (
        f"{missed:,} of {total:,} faces on the originals are shown as they were."
        if detected
        else "Nobody looked for faces on them."
    )
    return Finding(
        name="originals",
        title="Compared with the originals",
        verdict="leaks" if missed else None,
        sentence=(
            f"{count:,} files have an original of their name and shape. {words} On average "
            f"{sum(each.changed for each in compared) / count:.0%} of the pixels of a file differ, and SSIM "
            f"is {sum(each.ssim for each in compared) / count:.2f} (1 for equal pictures)."
        ),
        pictures=(tuple(shown[:SHOWN]),) if shown else (),
        figures={
            "ssim": [each.ssim for each in compared],
            "changed": [each.changed for each in compared],
            "faces": total,
            "missed": missed,
        },
    )


def watch(videos: Sequence[Listed], detect: Detect | None, outcome: Outcome, progress: Progress) -> Finding:
    """Look at some frames of each video, one by one; those that are not looked at are counted."""
    rows, leaks, shown = [], False, list[Picture]()
    for video in videos:
        found, kinds, words = list[bool](), Counter[str](), list[str]()
        try:
            with naming(video):
                words = video_metadata(video.path)
            for number, image in _frames(video):
                if number >= _MOST_FRAMES:
                    outcome.leave_out(f"video behind its first {_MOST_FRAMES:,} frames", video.name)
                    break
                if number % _EVERY:
                    continue
                progress(f"frames of {video.name}", number, 0)
                if number % (_JUDGED * _EVERY) == 0:
                    kinds[look(image).kind] += 1
                boxes = [box for box in detect(image) if _shows(image, box)] if detect else []
                found.append(bool(boxes))
                if boxes and sum(found) <= 2 and len(shown) < SHOWN:
                    shown.append(Picture(_reduce(cut(image, boxes[0])), f"{video.name}, frame {number}"))
        except ImageError as error:  # what was seen before counts
            outcome.leave_out(reason_of(error, "video"), video.name)
        flickers = sum(
            now and not (before and after)
            for before, now, after in zip(found, found[1:], found[2:], strict=False)
        )
        leaks = leaks or any(found) or bool(words)
        rows.append(
            (
                video.name,
                _KINDS[kinds.most_common(1)[0][0]][0] if kinds else "cannot be read",
                f"{sum(found)} of {len(found)}, {flickers} at a gap" if detect else "nobody looked",
                "; ".join(words) or "none",
            )
        )
    return Finding(
        name="videos",
        title="Videos",
        verdict="leaks" if leaks else "not shown" if detect else "not measured",
        sentence=(
            f"Every {_EVERY}th of the first {_MOST_FRAMES:,} frames of {len(videos):,} videos was looked at."
        ),
        table=Table(
            ("video", "frames look", "frames with a face", "metadata"),
            tuple(rows),
            "A face at a gap is shown next to a frame without a face: the protection misses it between "
            "frames, or the detector does.",
        ),
        pictures=(tuple(shown),) if shown else (),
    )


def _frames(video: Listed) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each frame, and its picture: (3, H, W) uint8. Raises ImageError."""
    with naming(video), footage(video.path) as clip:
        for number, frame in enumerate(clip.frames()):
            yield number, torch.from_numpy(frame.image)
