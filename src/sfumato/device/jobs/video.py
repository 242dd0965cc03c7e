"""Video: every frame protected, faces followed from frame to frame, and one charge for the clip.

Faces are looked for in every few frames. Where a face of one look is near a face of the next, both and all
between them are covered, in all frames between; a face that is found no more stays covered where it was for a
second, and at the next look in any case; and one that is new is covered from the look before. So none is
missed in between that was found before or after.

Sound and metadata are left out: a voice tells who speaks. Noise is refused: whoever has the clip averages it
over frames that show the same. How frames are read is in sfumato.device.jobs.footage.
"""

import hashlib
import math
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.base.files import open_regular, whole
from sfumato.device.jobs.footage import Footage, Frame, footage
from sfumato.device.jobs.releasing import squared_difference
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.charges import Charge
from sfumato.device.ledger.tables import protection_key
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError, needs_extra
from sfumato.images import Pixels
from sfumato.protect.naming import information
from sfumato.protect.parameters import LEAST_DIFFERENCE
from sfumato.protect.region import Box, Region, around, disjoint, overlap
from sfumato.protect.release import file_digest_of, kind_of

SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")

EVERY = 5  # frames from one look for faces to the next, at most
LOOK = Fraction(1, 5)  # seconds likewise
HELD = 1.0  # seconds for which a face that is found no more stays covered
_QUALITY = "20"  # of H.264; lower is better
_BT709 = 1  # ITU-T H.273: what an ordinary screen shows


@dataclass(frozen=True)
class Clip:
    """What became of a clip.

    Attributes:
        frames: how many it has.
        seconds: its length.
        size: (H, W) of a frame.
        faces: the most boxes in one frame; 0 where no faces were looked for.
        without: frames in which no box was.
        charged: whether it was charged now, and not before.
    """

    frames: int
    seconds: float
    size: tuple[int, int]
    faces: int
    without: int
    charged: bool


def protect_video(
    source: str | os.PathLike[str], target: str | os.PathLike[str], protection: Any, ledger: Ledger
) -> Clip:
    """Protect all frames of a clip, or faces in them, into an MP4 (H.264) without sound and metadata.

    The clip is charged once, as one image, before the file appears, which it does whole. Of a clip in which
    no face was found at all, nothing is released where that is to stop; in one that has faces elsewhere,
    frames without a face are shown as they are, or protected wholly where `missing` is "all". Each frame is
    shown when it was, and in its shape.

    Args:
        source: a file that FFmpeg reads.
        target: the new file, .mp4.
        protection: of pixels, without noise; of a part of the frames where it is a Region.
        ledger: of this device.

    Raises:
        ConfigError: a protection with noise or of another kind, or another suffix.
        ImageError: no video, damaged, without a face, nearly the same as its release, or with frames that are
            not shown as they are stored: see footage.Footage.frames.
        SpecError: a parameter does not fit a frame or a face.
        BudgetExceededError, LedgerError: see Ledger.charge.
        MissingExtraError: the extra `video` is not installed.
    """
    source, target = Path(source), Path(target)
    _check(protection, target)
    spec = protection_key(protection.spec, file_digest_of(protection))
    with open_regular(source) as file:
        name = hashlib.file_digest(file, "sha256").digest()
    judged = _Difference()
    frames = boxes_most = without = 0
    with footage(source) as clip, whole(target) as temporary, _Writer(temporary, clip) as written:
        for frame, boxes in followed(clip.frames(), protection, clip.base):
            released, covered = _released(protection, frame.image, boxes)
            judged.add(frame.image, released, covered)
            frames, without = frames + 1, without + (not boxes)
            boxes_most = max(boxes_most, len(boxes or ()))
            written.write(released, frame)
        if not frames:
            raise ImageError(f"{source}: has no frame", cause="no video")
        if isinstance(protection, Region) and not boxes_most and protection.missing == "stop":
            raise ImageError(
                f"{source}: no face was found in any frame: it is not released: look at it yourself, and "
                "protect it without --where, or protect such clips wholly (--no-face all)",
                cause="no face was found",
            )
        judged.check(protection, source)
        written.close()
        shape = frame.image.shape
        charge = Charge(
            image=name,
            spec=spec,
            shape=shape,
            guarantee=partial(protection.guarantee, shape),
            release=None,
            folder=source.resolve().parent,
            information=information(protection),
        )
        charged = ledger.charge([charge]).new
    seconds = float((frame.time + frame.duration) * clip.base)
    return Clip(frames, seconds, (shape[1], shape[2]), boxes_most, without, bool(charged))


def _check(protection: Any, target: Path) -> None:
    if target.suffix.lower() != ".mp4":
        raise ConfigError(f"{target}: a protected video is an .mp4: name it so")
    if hasattr(protection, "artefact") or kind_of(protection) != "pixels":
        raise ConfigError(
            f"{protection.spec}: of a video, frames are released: choose blur, pixelize or block"
        )
    if protection.draws_noise:
        raise ConfigError(
            f"{protection.spec}: whoever has a video averages its noise over frames that show the same: "
            "choose blur, pixelize or block"
        )


class _Writer:
    """An MP4 that is written frame by frame. State: the file."""

    def __init__(self, path: Path, clip: Footage) -> None:
        with needs_extra("video", "video"):
            import av
        self._av, self._base = av, clip.base
        self._file = av.open(str(path), "w", format="mp4")
        self._stream = self._file.add_stream("libx264", rate=clip.rate)
        self._stream.pix_fmt, self._stream.options = "yuv420p", {"crf": _QUALITY, "preset": "veryfast"}
        codec = self._stream.codec_context
        codec.time_base = self._stream.time_base = clip.base
        codec.colorspace = codec.color_primaries = codec.color_trc = _BT709
        codec.color_range = 1  # of video: 16 to 235

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, image: Pixels, like: Frame) -> None:
        """Add a (3, H, W) uint8 picture, shown when another is."""
        _, height, width = image.shape
        # H.264 halves its colours: sides are even, by repeating the last row or column.
        even = np.pad(image.transpose(1, 2, 0), ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if not self._stream.codec_context.is_open:
            self._stream.height, self._stream.width = even.shape[:2]
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="rgb24").reformat(
            format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG"
        )
        frame.pts, frame.time_base, frame.duration = like.time, self._base, like.duration
        self._file.mux(self._stream.encode(frame))

    def close(self) -> None:
        """Write what is left."""
        self._file.mux(self._stream.encode())
        self._file.close()


def _released(
    protection: Any, image: Pixels, boxes: list[Box] | None
) -> tuple[Pixels, NDArray[np.bool_] | None]:
    """A protected frame, and where it is protected; None for all of it."""
    if not isinstance(protection, Region):
        return protection.release(image[None], fresh_noise()).pictures()[0], None
    if not boxes and protection.missing == "stop" and protection.place != "background":
        return image, np.zeros((1, *image.shape[1:]), bool)
    values, covered = protection.apply(image, boxes or [], fresh_noise())
    return values, covered


def followed(
    frames: Iterator[Frame], protection: Any, base: Fraction
) -> Iterator[tuple[Frame, list[Box] | None]]:
    """Each frame with its boxes; None where none are looked for.

    Args:
        frames: of a video.
        protection: whose boxes they are, where it is a Region.
        base: seconds of a tick of their times.
    """
    if not isinstance(protection, Region):
        yield from ((frame, None) for frame in frames)
        return
    first = next(frames, None)
    if first is None:
        return
    known = dict.fromkeys(protection.find(first.image), 0.0)  # box -> seconds since it was found
    waiting = [first]
    # One looks ahead while frames of the window before are protected and encoded.
    with ThreadPoolExecutor(1) as looking:

        def window(since: Frame) -> tuple[list[Frame], Future[list[Box]] | None]:
            more: list[Frame] = []
            for frame in frames:
                more.append(frame)
                if len(more) == EVERY or (frame.time - since.time) * base >= LOOK:
                    break
            return more, looking.submit(protection.find, more[-1].image) if more else None

        more, look = window(first)
        while look is not None:
            found = look.result()
            passed = float((more[-1].time - waiting[0].time) * base)
            covered, known = between(known, found, passed, HELD)
            ready, waiting = [*waiting, *more[:-1]], [more[-1]]
            more, look = window(more[-1])
            yield from ((frame, covered) for frame in ready)
    yield from ((frame, disjoint(known)) for frame in waiting)


def between(
    known: dict[Box, float], found: list[Box], passed: float, held: float
) -> tuple[list[Box], dict[Box, float]]:
    """What is covered from one look to the next, and the boxes known at the next.

    Args:
        known: boxes at the first look, with the seconds since each was found.
        found: at the next look.
        passed: seconds between them.
        held: seconds for which a box that is found no more stays; it stays to the next look in any case.
    """
    covered = [around([box, *(each for each in found if overlap(box, each))]) for box in known]
    later = dict.fromkeys(found, 0.0)
    for box, since in known.items():
        if not any(overlap(box, each) for each in found) and (not since or since + passed <= held):
            later[box] = since + passed
    return disjoint([*covered, *found]), later


class _Difference:
    """How far releases are from frames, over all that is protected. State: sums."""

    def __init__(self) -> None:
        self._squares, self._values = 0, 0

    def add(self, image: Pixels, released: Pixels, covered: NDArray[np.bool_] | None) -> None:
        """Count a frame."""
        squares, values = squared_difference(image, released, covered)
        self._squares, self._values = self._squares + squares, self._values + values

    def check(self, protection: Any, source: Path) -> None:
        """Raise ImageError where the release of a clip is nearly the clip, unless that was asked for."""
        difference = math.sqrt(self._squares / max(1, self._values))
        if protection.spec != "none" and difference <= LEAST_DIFFERENCE:
            raise ImageError(
                f"{source}: {protection.spec} would change it by {difference:.2g} grey levels (root mean "
                f"square), and it leaves only above {LEAST_DIFFERENCE:g}: choose a larger cell or radius",
                cause="its release would be nearly the video itself",
            )
