"""Video: every frame protected, faces followed from frame to frame, and one charge for the clip.

Faces are looked for in every few frames. Where a face of one look is near a face of the next, both and all
between them are covered, in all frames between; a face that is found no more stays covered where it was for a
second, and one that is new is covered from the look before. So none is missed in between that was found
before or after.

Sound and metadata are left out: a voice tells who speaks. Noise is refused: whoever has the clip averages it
over frames that show the same.
"""

import hashlib
import math
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.device.charges import Charge
from sfumato.device.ledger import Ledger
from sfumato.device.releasing import squared_difference
from sfumato.device.tables import protection_key
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError, needs_extra
from sfumato.files import whole
from sfumato.images import Pixels
from sfumato.protect.naming import information
from sfumato.protect.parameters import LEAST_DIFFERENCE
from sfumato.protect.region import Box, Region, around, disjoint, overlap
from sfumato.protect.release import kind_of, made_of

SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")

EVERY = 5  # frames from one look for faces to the next
HELD = 1.0  # seconds for which a face that is found no more stays covered
_QUALITY = "20"  # of H.264; lower is better


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
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    protection: Any,
    ledger: Ledger,
    *,
    every: int = EVERY,
) -> Clip:
    """Protect all frames of a clip, or faces in them, into an MP4 (H.264) without sound and metadata.

    The clip is charged once, as one image, before the file appears, which it does whole. Of a clip in which
    no face was found at all, nothing is released where that is to stop; in one that has faces elsewhere,
    frames without a face are shown as they are, or protected wholly where `missing` is "all".

    Args:
        source: a file that FFmpeg reads.
        target: the new file, .mp4.
        protection: of pixels, without noise; of a part of the frames where it is a Region.
        ledger: of this device.
        every: frames from one look for faces to the next.

    Raises:
        ConfigError: a protection with noise or of another kind, another suffix, or `every` below 1.
        ImageError: no video, damaged, without a face, or nearly the same as its release.
        SpecError: a parameter does not fit a frame or a face.
        BudgetExceededError, LedgerError: see Ledger.charge.
        MissingExtraError: the extra `video` is not installed.
    """
    with needs_extra("video", "video"):
        import av
    source, target = Path(source), Path(target)
    _check(protection, target, every)
    spec = protection_key(protection.spec, made_of(protection))
    with source.open("rb") as file:
        name = hashlib.file_digest(file, "sha256").digest()
    judged = _Difference()
    frames = boxes_most = without = 0
    try:
        with av.open(str(source)) as opened, whole(target) as temporary:
            if not opened.streams.video:
                raise ImageError(f"{source}: has no picture", cause="no video")
            stream = opened.streams.video[0]
            stream.thread_type = "AUTO"
            rate = stream.average_rate or 25
            looks = followed(pixels(opened, stream), protection, every, held=HELD * float(rate))
            with av.open(str(temporary), "w", format="mp4") as written:
                out = written.add_stream("libx264", rate=rate)
                out.pix_fmt, out.options = "yuv420p", {"crf": _QUALITY, "preset": "veryfast"}
                size = (0, 0)
                for image, boxes in looks:
                    released, covered = _released(protection, image, boxes)
                    judged.add(image, released, covered)
                    if not frames:
                        size = (image.shape[1], image.shape[2])
                        # H.264 halves its colours: sides are even.
                        out.height, out.width = (side + side % 2 for side in size)
                    elif (image.shape[1], image.shape[2]) != size:
                        raise ImageError(f"{source}: its frames have several sizes", cause="several sizes")
                    frames, without = frames + 1, without + (not boxes)
                    boxes_most = max(boxes_most, len(boxes or ()))
                    for packet in out.encode(_frame(av, released)):
                        written.mux(packet)
                for packet in out.encode():
                    written.mux(packet)
            if not frames:
                raise ImageError(f"{source}: has no frame", cause="no video")
            if isinstance(protection, Region) and not boxes_most and protection.missing == "stop":
                raise ImageError(
                    f"{source}: no face was found in any frame: it is not released: look at it yourself, and "
                    "protect it without --where, or protect such clips wholly (--no-face all)",
                    cause="no face was found",
                )
            judged.check(protection, source)
            shape = (3, *size)
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
    except (av.FFmpegError, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, av.FFmpegError):
            raise
        raise ImageError(f"{source}: cannot be read as a video ({error})", cause="no video") from error
    return Clip(frames, frames / float(rate), size, boxes_most, without, bool(charged))


def _check(protection: Any, target: Path, every: int) -> None:
    if every < 1:
        raise ConfigError(f"every={every}: at least 1 frame")
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


def pixels(opened: Any, stream: Any) -> Iterator[Pixels]:
    """(3, H, W) uint8 of each frame, upright."""
    for frame in opened.decode(stream):
        image = frame.to_ndarray(format="rgb24").transpose(2, 0, 1)
        turns = round((getattr(frame, "rotation", 0) or 0) / 90)
        yield np.ascontiguousarray(np.rot90(image, turns, (1, 2)))


def _frame(av: Any, image: Pixels) -> Any:
    """A frame of (3, H, W) uint8, its sides made even by repeating the last row or column."""
    pixels = image.transpose(1, 2, 0)
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")


def _released(
    protection: Any, image: Pixels, boxes: list[Box] | None
) -> tuple[Pixels, NDArray[np.bool_] | None]:
    """A protected frame, and where it is protected; None for all of it."""
    if not isinstance(protection, Region):
        return protection.release(image[None], fresh_noise()).pictures()[0], None
    if not boxes and protection.missing == "stop" and protection.place != "background":
        return image, np.zeros((1, *image.shape[1:]), bool)
    values, covered = protection.applied(image, boxes or [], fresh_noise())
    return values, covered


def followed(
    images: Iterator[Pixels], protection: Any, every: int, *, held: float
) -> Iterator[tuple[Pixels, list[Box] | None]]:
    """Each frame with its boxes; None where none are looked for.

    Args:
        images: the frames.
        protection: whose boxes they are, where it is a Region.
        every: frames from one look to the next.
        held: frames for which a box that is found no more stays.
    """
    if not isinstance(protection, Region):
        yield from ((image, None) for image in images)
        return
    first = next(images, None)
    if first is None:
        return
    known = dict.fromkeys(protection.found(first), 0.0)  # box -> frames since it was found
    waiting = [first]
    # One looks ahead while frames of the window before are protected and encoded.
    with ThreadPoolExecutor(1) as looking:

        def window() -> tuple[list[Pixels], Future[list[Box]] | None]:
            more = list(islice(images, every))
            return more, looking.submit(protection.found, more[-1]) if more else None

        more, look = window()
        while look is not None:
            found = look.result()
            covered, known = between(known, found, len(more), held)
            ready, waiting = [*waiting, *more[:-1]], [more[-1]]
            more, look = window()
            yield from ((image, covered) for image in ready)
    yield from ((image, disjoint(known)) for image in waiting)


def between(
    known: dict[Box, float], found: list[Box], frames: int, held: float
) -> tuple[list[Box], dict[Box, float]]:
    """What is covered from one look to the next, and the boxes known at the next.

    Args:
        known: boxes at the first look, with the frames since each was found.
        found: at the next look.
        frames: between them.
        held: see _followed.
    """
    covered = [around([box, *(each for each in found if overlap(box, each))]) for box in known]
    later = dict.fromkeys(found, 0.0)
    for box, since in known.items():
        if not any(overlap(box, each) for each in found) and since + frames <= held:
            later[box] = since + frames
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
        if protection.spec != "none" and self._values and difference <= LEAST_DIFFERENCE:
            raise ImageError(
                f"{source}: {protection.spec} would change it by {difference:.2g} grey levels (root mean "
                f"square), and it leaves only above {LEAST_DIFFERENCE:g}: choose a larger cell or radius",
                cause="its release would be nearly the video itself",
            )
