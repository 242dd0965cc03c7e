"""Video: protect every frame, follow faces from frame to frame, and charge the clip once.

Faces are detected in every frame, so that one which jumps, or is shown for a moment, is covered. A box that
no box of the next frame continues stays covered for a second, at least in the next frame: the detector may
have missed the face. A box that continues none is covered in the frames before, too, for a fifth of a second,
and so is the space between it and each lost box in the frames that found neither.

Sound and metadata are removed: a voice identifies its speaker. Noise is refused: people who have the clip can
average it over frames that show the same.
"""

import hashlib
import math
import os
import struct
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

from sfumato.base.files import open_regular, whole
from sfumato.device.jobs.releasing import square_difference, terms_of
from sfumato.device.ledger import Charge, Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError, needs_extra
from sfumato.images import Pixels
from sfumato.images.reading import MAX_PIXELS
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

# Other formats can refer to further files or addresses: playlists, lists of parts, numbered images.
FORMATS = "mov,matroska,avi"
_FINEST = 100_000  # ticks in a second, the most that an MP4 holds
_BASE = Fraction(1, 90_000)  # replaces a finer time base
_LONGEST = 3600  # seconds that one frame may last
_FLAT = 4  # AV_SPHERICAL_RECTILINEAR
_TRANSPARENT = (
    "partly transparent, so it would show pixels that a player hides: write it without transparency first"
)
_RECORD = "play it, record the screen, and protect that"


# The frames of a video file.


@dataclass(frozen=True)
class Frame:
    """One picture of a video."""

    image: Pixels  # (3, H, W) uint8
    time: int  # ticks of Footage.base since the first
    duration: int  # ticks for which it is shown; if the file does not say, those of an average frame


@contextmanager
def footage(path: Path) -> Iterator["Footage"]:
    """Open a video. Raises ImageError for errors of FFmpeg, MissingExtraError without the extra `video`."""
    with needs_extra("video", "video"):
        import av
    whitelist = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    with open_regular(path) as file:
        with _naming(path):
            opened = av.open(file, container_options=whitelist, metadata_errors="replace")
        with opened:
            yield Footage(opened, path, file)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    import av

    try:
        yield
    except av.FFmpegError as error:
        raise ImageError(
            f"{path}: cannot be read as a video ({error.strerror or error}): it is damaged, or not an MP4, "
            "MOV, MKV, WebM or AVI",
            cause="no video",
        ) from error


class Footage:
    """A video that is read once, from its beginning, as a player shows it. State: the position.

    A container also records rotation and mirroring, the width of a pixel, when each frame is shown, and cuts
    at both ends (edit lists, which FFmpeg applies). A detector sees the same as a viewer only if all of this
    is applied. Frames that need something else are refused: several videos in a file, interlaced or
    transparent frames, spheres, two views, sizes that change.
    """

    def __init__(self, opened: Any, path: Path, file: Any) -> None:
        from av.stream import Disposition
        from av.video.reformatter import VideoReformatter

        self._opened, self._path, self._file = opened, path, file
        covers = Disposition.attached_pic | Disposition.timed_thumbnails  # stored pictures, which are ignored
        streams = [stream for stream in opened.streams.video if not stream.disposition & covers]
        if not streams:
            raise ImageError(f"{path}: has no picture", cause="no video")
        if len(streams) > 1:
            found = f"{len(streams)} videos in one file"
            raise ImageError(f"{path}: {found}: write the one you mean into a file of its own", cause=found)
        self._stream = streams[0]
        # Other tracks: sound, subtitles, covers and the like.
        self.left_out = Counter(stream.type for stream in opened.streams if stream is not self._stream)
        marks = {name.lower(): value for name, value in self._stream.metadata.items()}
        if marks.get("alpha_mode", "0") != "0":  # WebM stores transparency apart from the frames
            raise ImageError(f"{path}: {_TRANSPARENT}", cause="partly transparent")
        self._stream.thread_type = "AUTO"
        base = self._stream.time_base
        self.base = base if base and base.denominator <= _FINEST else _BASE  # seconds of a tick
        rate = self._stream.average_rate
        self.rate = rate if rate and 1 <= rate <= 1000 else Fraction(25)
        self._square = self._stream.sample_aspect_ratio or Fraction(1)
        self._reformatter = VideoReformatter()  # which caches its tables

    def digest(self) -> bytes:
        """Return the SHA-256 of the file that is read."""
        position = self._file.tell()
        self._file.seek(0)
        found = hashlib.file_digest(self._file, "sha256").digest()
        self._file.seek(position)
        return found

    def frames(self) -> Iterator[Frame]:
        """Yield all frames, of one size.

        Raises ImageError if one is damaged, of another size or needs an unsupported conversion, if times run
        backwards, or the file ends before the time that its container states.
        """
        size: tuple[int, ...] = ()
        pixel = None
        start, last = None, -1
        for number, frame in enumerate(self._decode()):
            codec = self._stream.codec_context
            pixel = pixel or codec.sample_aspect_ratio
            if (reason := obstacle(frame, self._square)) is None:
                image = self._upright(frame)
                size = size or image.shape
                seconds = number / self.rate if frame.pts is None else frame.pts * self._stream.time_base
                start = seconds if start is None else start
                time = round((seconds - start) / self.base)
                if image.shape != size or codec.sample_aspect_ratio != pixel:
                    reason = "frames have several sizes: cut it where the size changes"
                elif not 0 < (time - last if number else 1) <= _LONGEST / self.base:
                    reason = (
                        f"shown {float((time - last) * self.base):.3g} s after the one before, and 0 to "
                        f"{_LONGEST} s are allowed: write the video again by a program for videos"
                    )
            if reason is not None:
                raise ImageError(f"{self._path}: frame {number + 1}: {reason}", cause=reason.split(":")[0])
            last = time
            shown = (frame.duration or 0) * (self._stream.time_base or 0) or 1 / self.rate
            yield Frame(image, time, max(1, round(min(shown, _LONGEST) / self.base)))

    def _upright(self, frame: Any) -> Pixels:
        """Convert a frame to (3, H, W) uint8: upright, square pixels, in the colours of BT.709."""
        from av.sidedata.sidedata import Type
        from av.video.reformatter import ColorPrimaries, Colorspace, ColorTrc

        width, height = _size_of(frame, self._square)
        wide = frame.color_trc in (ColorTrc.SMPTE2084, ColorTrc.ARIB_STD_B67)  # HDR: PQ and HLG
        screen = {"dst_color_trc": ColorTrc.BT709, "dst_color_primaries": ColorPrimaries.BT709}
        # Players assume BT.709 for unnamed colours in a picture of this height.
        unnamed = frame.colorspace == 2 and not frame.format.is_rgb and frame.height >= 720
        rgb = self._reformatter.reformat(
            frame,
            width=width,
            height=height,
            format="rgb24",
            src_colorspace=Colorspace.ITU709 if unnamed else None,
            **(screen if wide else {}),
        )
        image = rgb.to_ndarray().transpose(2, 0, 1)
        matrix = frame.side_data.get(Type.DISPLAYMATRIX)
        if matrix is not None and (turn := read_turn(bytes(matrix))) is not None:
            transposed, columns, rows = turn
            image = image.transpose(0, 2, 1) if transposed else image
            image = image[:, :: -1 if rows else 1, :: -1 if columns else 1]
        return np.ascontiguousarray(image)

    def _decode(self) -> Iterator[Any]:
        """Yield the decoded frames. Raises ImageError as frames does."""
        ends: dict[int, Fraction] = {}  # of each track, in seconds
        step = last = Fraction(0)
        packets = self._opened.demux()
        while True:
            with _naming(self._path):
                packet = next(packets, None)
                if packet is None:
                    break
                ours = packet.stream.index == self._stream.index
                frames = packet.decode() if ours else ()
            if packet.pts is not None and packet.time_base:
                end = (packet.pts + (packet.duration or 0)) * packet.time_base
                ends[packet.stream.index] = max(end, ends.get(packet.stream.index, end))
            if packet.is_corrupt:  # of any track: it ends in the middle
                break
            for frame in frames:
                if frame.pts is not None:
                    now = frame.pts * frame.time_base
                    step, last = max(step, now - last), now
                yield frame
        # The seconds that the container states for the video and the file, and those read.
        stream, stated = self._stream, dict[str, Fraction]()
        begin = Fraction((stream.start_time or 0) * (stream.time_base or 0))
        if stream.duration is not None:
            stated["video"] = stream.duration * stream.time_base
        if self._opened.format.name == "avi":  # whose duration is that of the frames found
            stated["video"] = max(stated.get("video", Fraction(0)), stream.frames / self.rate)
        if self._opened.duration:
            stated["file"] = Fraction(self._opened.duration, 1_000_000)
        start = Fraction(self._opened.start_time or 0, 1_000_000)
        read = {"video": ends.get(stream.index, begin) - begin}
        read["file"] = max(ends.values(), default=start) - start
        # A last frame without a duration may be shown as long as any other.
        longest = max(step, 1 / self.rate) * 3 / 2
        if packet is not None or any(read[part] + longest < stated[part] for part in stated):
            raise ImageError(
                f"{self._path}: is damaged or cut short: it states "
                f"{float(max(stated.values(), default=0)):.1f} s, and can be read to "
                f"{float(read['video']):.1f} s: take a whole copy. To release the rest, write it into a file "
                f"of its own first: ffmpeg -i {self._path.name} -c copy rest.mkv",
                cause="cut short",
            )


def _size_of(frame: Any, square: Fraction) -> tuple[int, int]:
    """Return width and height on a screen, by the shape of a pixel: one grows, so that no pixels are lost."""
    if square > 1:
        return round(frame.width * square), frame.height
    return frame.width, round(frame.height / square)


def obstacle(frame: Any, square: Fraction = Fraction(1)) -> str | None:
    """Say why a frame is refused and what to do; None if it is accepted."""
    from av.sidedata.sidedata import Type
    from av.video.reformatter import ColorTrc

    beside = frame.side_data
    if frame.interlaced_frame:
        return "interlaced, so that one frame shows two moments: deinterlace it first"
    if any(component.is_alpha for component in frame.format.components):
        return _TRANSPARENT
    if frame.is_corrupt:
        return "damaged: take an undamaged copy"
    width, height = _size_of(frame, square)
    if width * height > MAX_PIXELS:
        return f"{width}x{height} pixels, more than the {MAX_PIXELS} allowed: make it smaller"
    if (data := beside.get(Type.SPHERICAL)) is not None and struct.unpack_from("=i", bytes(data)) != (_FLAT,):
        return f"a view all around, which a flat picture distorts: {_RECORD}"
    if (data := beside.get(Type.STEREO3D)) is not None and struct.unpack_from("=i", bytes(data)) != (0,):
        return f"two views in one, for both eyes: {_RECORD}"
    if (data := beside.get(Type.DISPLAYMATRIX)) is not None and read_turn(bytes(data)) is None:
        return f"turned by an angle other than a quarter turn, or skewed: {_RECORD}"
    dolby = Type.DOVI_METADATA in beside or Type.DOVI_RPU_BUFFER in beside
    if dolby and frame.color_trc not in (ColorTrc.SMPTE2084, ColorTrc.ARIB_STD_B67):
        return "Dolby Vision in colours of its own: convert it to SDR first"
    return None


def read_turn(matrix: bytes) -> tuple[bool, bool, bool] | None:
    """Read whether to transpose a picture, then to reverse its columns and its rows; None for other turns.

    Source: ISO/IEC 14496-12, 6.2.2: x' = a·x + c·y and y' = b·x + d·y, of the matrix a b u c d v x y w.
    """
    a, b, u, c, d, v, _, _, w = struct.unpack("=9i", matrix)
    if u or v or w <= 0 or abs(a) != abs(d) or abs(b) != abs(c) or bool(a) == bool(b):
        return None
    return (not a, (a or c) < 0, (d or b) < 0)


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
    inner = [min(one[i + 1], other[i + 1]) - max(one[i], other[i]) for i in (0, 2)]
    common = max(0, inner[0]) * max(0, inner[1])
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (one, other)]
    return common / (sum(areas) - common)
