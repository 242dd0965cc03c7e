"""Video: protect every frame, follow faces from frame to frame, and charge the clip once.

Faces are detected in every frame, so that one which jumps, or is shown for a moment, is covered. A box that
no box of the next frame continues stays covered for a second, at least in the next frame: the detector may
have missed the face. A box that continues none is covered in the frames before, too, for a fifth of a second,
and so is the space between it and each lost box in the frames that found neither.

Sound and metadata are removed: a voice identifies its speaker. Noise is refused: people who have the clip can
average it over frames that show the same. sfumato.device.jobs.footage reads the frames.
"""

import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.base.files import whole
from sfumato.device.jobs.footage import Footage, Frame, footage
from sfumato.device.jobs.releasing import square_difference, terms_of
from sfumato.device.ledger import Charge, Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError, needs_extra
from sfumato.images import Pixels
from sfumato.protect.parameters import LEAST_DIFFERENCE
from sfumato.protect.region import Box, Region, around, disjoint
from sfumato.protect.release import kind_of

SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")

BEFORE = 5  # most frames in which a new box is covered before it was found
LOOK = Fraction(1, 5)  # seconds, likewise
HELD = 1.0  # seconds that a face stays covered after it disappeared
_CONTINUES = 0.5  # least intersection over union of a box with its box in the frame before
_QUALITY = "20"  # of H.264; lower is better
_BT709 = 1  # ITU-T H.273: the colours of an ordinary screen


@dataclass(frozen=True)
class Clip:
    """The result for a clip."""

    frames: int
    seconds: float
    size: tuple[int, int]  # (H, W) of a frame
    faces: int  # the most boxes in one frame; 0 without a search for faces
    without: int  # frames without a box
    charged: bool  # now rather than before
    left_out: Counter[str]  # tracks of each kind that are not released


def protect_video(
    source: str | os.PathLike[str], target: str | os.PathLike[str], protection: Any, ledger: Ledger
) -> Clip:
    """Protect all frames of a clip, or faces in them, into an MP4 (H.264) without sound and metadata.

    The clip is charged once, as one image, before the whole file appears. If no frame has a face and
    `missing` is "stop", nothing is released. If some frames have faces, frames without a face are shown
    unprotected, or protected as a whole if `missing` is "all". Each frame keeps its time and its shape.

    Raises ConfigError for a protection with noise or of another kind, ImageError if it has no face or nearly
    equals its release, and as Footage.frames and releasing.charge_and_release do.
    """
    source, target = Path(source), Path(target)
    if target.suffix.lower() != ".mp4":
        raise ConfigError(f"{target}: a protected video is an .mp4: name it so")
    if hasattr(protection, "artefact") or kind_of(protection) != "pixels":
        raise ConfigError(f"{protection.spec}: a video is released as frames: choose blur, pixelize or block")
    if protection.draws_noise:
        raise ConfigError(
            f"{protection.spec}: people who have a video can average its noise over frames that show the "
            "same: choose blur, pixelize or block"
        )
    frames = boxes_most = without = squares = values = 0
    with footage(source) as clip, whole(target) as temporary:
        name = clip.digest()
        with _writer(temporary, clip) as write:
            for frame, boxes in follow(clip.frames(), protection, clip.base):
                released, covered = _protect_frame(protection, frame.image, boxes)
                apart = square_difference(frame.image, released, covered)
                squares, values = squares + apart[0], values + apart[1]
                frames, without = frames + 1, without + (not boxes)
                boxes_most = max(boxes_most, len(disjoint(boxes or ())))
                write(released, frame)
            if not frames:
                raise ImageError(f"{source}: has no frame", cause="no video")
        if clip.digest() != name:
            raise ImageError(f"{source}: changed while it was read: try again", cause="changed meanwhile")
        if isinstance(protection, Region) and not boxes_most and protection.missing == "stop":
            raise ImageError(
                f"{source}: no face was found in any frame, so it is not released: look at it yourself, and "
                "protect it without --where, or protect such clips as a whole (faces:missing=all)",
                cause="no face was found",
            )
        difference = math.sqrt(squares / max(1, values))
        if protection.spec != "none" and difference <= LEAST_DIFFERENCE:
            raise ImageError(
                f"{source}: {protection.spec} would change it by {difference:.2g} grey levels (root mean "
                f"square), and must change more than {LEAST_DIFFERENCE:g}: choose a larger cell or radius",
                cause="its release would be nearly the video itself",
            )
        terms = terms_of(protection, frame.image.shape)
        charged = ledger.charge([Charge(image=name, release=None, **terms)]).new
    seconds = float((frame.time + frame.duration) * clip.base)
    size = frame.image.shape[1:]
    return Clip(frames, seconds, size, boxes_most, without, bool(charged), clip.left_out)


@contextmanager
def _writer(path: Path, clip: Footage) -> Iterator[Callable[[Pixels, Frame], None]]:
    """Yield a function that adds a (3, H, W) uint8 picture to an MP4 at the time of a frame."""
    with needs_extra("video", "video"):
        import av
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=clip.rate)
        stream.pix_fmt, stream.options = "yuv420p", {"crf": _QUALITY, "preset": "veryfast"}
        codec = stream.codec_context
        codec.time_base = stream.time_base = clip.base
        codec.colorspace = codec.color_primaries = codec.color_trc = _BT709
        codec.color_range = 1  # of video: 16 to 235

        def write(image: Pixels, like: Frame) -> None:
            _, height, width = image.shape
            # H.264 halves its colours: odd sides repeat the last row or column.
            even = np.pad(image.transpose(1, 2, 0), ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            if not codec.is_open:
                stream.height, stream.width = even.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24").reformat(
                format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG"
            )
            frame.pts, frame.time_base, frame.duration = like.time, clip.base, like.duration
            file.mux(stream.encode(frame))

        yield write
        file.mux(stream.encode())  # the frames that wait


def _protect_frame(
    protection: Any, image: Pixels, boxes: list[Box] | None
) -> tuple[Pixels, NDArray[np.bool_] | None]:
    """Protect a frame. Returns it and its protected pixels (None: all)."""
    if not isinstance(protection, Region):
        return protection.release(image[None], fresh_noise()).pictures()[0], None
    if not boxes and protection.missing == "stop" and protection.place != "background":
        return image, np.zeros((1, *image.shape[1:]), bool)
    return protection.apply(image, boxes or [], fresh_noise())


def follow(
    frames: Iterator[Frame], protection: Any, base: Fraction
) -> Iterator[tuple[Frame, list[Box] | None]]:
    """Yield each frame with its boxes, which may overlap; None without a search. A tick is `base` seconds."""
    if not isinstance(protection, Region):
        yield from ((frame, None) for frame in frames)
        return
    known: dict[Box, Fraction] = {}  # box -> when it was last found, in seconds
    waiting: deque[tuple[Frame, list[Box]]] = deque()
    before = Fraction(0)
    for frame, found in _search(frames, protection):
        now = frame.time * base
        lost, new = match_boxes(known, found)
        for earlier, covered in waiting:
            since = [box for box in lost if known[box] < earlier.time * base]
            covered += [*new, *(around([old, box]) for old in since for box in new)]
        held = {box: known[box] for box in lost if known[box] == before or now - known[box] <= HELD}
        known, before = {**held, **dict.fromkeys(found, now)}, now
        waiting.append((frame, list(known)))
        while len(waiting) > BEFORE or now - waiting[0][0].time * base > LOOK:
            earlier, covered = waiting.popleft()
            yield earlier, covered
    yield from waiting


def _search(frames: Iterator[Frame], protection: Region) -> Iterator[tuple[Frame, list[Box]]]:
    """Yield each frame and the boxes found in it; a thread searches the next one meanwhile."""
    with ThreadPoolExecutor(1) as looking:
        ahead: deque[tuple[Frame, Future[list[Box]]]] = deque()
        for frame in frames:
            ahead.append((frame, looking.submit(protection.find, frame.image)))
            if len(ahead) > 1:
                earlier, found = ahead.popleft()
                yield earlier, found.result()
        yield from ((frame, found.result()) for frame, found in ahead)


def match_boxes(known: Iterable[Box], found: Iterable[Box]) -> tuple[list[Box], list[Box]]:
    """Match the boxes of two frames one to one, the closest first. Returns those of each without a match.

    Two boxes match if they share at least half of what they cover together: a box that only touches another
    does not stand for it.
    """
    lost, new = list(known), list(dict.fromkeys(found))
    for _, one, other in sorted(((_likeness(a, b), a, b) for a in lost for b in new), reverse=True):
        if one in lost and other in new and _likeness(one, other) >= _CONTINUES:
            lost.remove(one)
            new.remove(other)
    return lost, new


def _likeness(one: Box, other: Box) -> float:
    """Compute the intersection over union of two boxes."""
    inner = [min(one[i + 1], other[i + 1]) - max(one[i], other[i]) for i in (0, 2)]
    common = max(0, inner[0]) * max(0, inner[1])
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (one, other)]
    return common / (sum(areas) - common)
