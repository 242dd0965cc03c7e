"""Video files as strangers write them: what a player shows is what is protected, or nothing is."""

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from av.sidedata.sidedata import Type

from sfumato.device.jobs.video import Frame, footage, obstacle, protect_video
from sfumato.device.ledger import Ledger
from sfumato.errors import ImageError
from sfumato.protect import parse

HEIGHT, WIDTH = 32, 48


def corner(brightness: int = 240, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """(H, W, 3) uint8: dark, but for the upper left quarter, and half as bright in the upper right one."""
    picture = np.full((height, width, 3), 20, np.uint8)
    picture[: height // 2, : width // 2] = brightness
    picture[: height // 2, width // 2 :] = brightness // 2
    return picture


def add(container: Any, codec: str, images: Sequence[np.ndarray], **settings: Any) -> Any:
    """A stream with its packets, which are not in the file yet."""
    format_ = settings.pop("format", "yuv420p")
    times, base = settings.pop("times", None), settings.pop("base", None)
    stream = container.add_stream(codec, rate=settings.pop("rate", 10))
    stream.height, stream.width = images[0].shape[:2]
    stream.pix_fmt, stream.options = format_, settings.pop("options", {})
    if base is not None:
        stream.codec_context.time_base = stream.time_base = base
    for name, value in settings.items():
        setattr(stream.codec_context, name, value)
    packets = []
    for number, image in enumerate(images):
        frame = av.VideoFrame.from_ndarray(image, format="rgba" if image.shape[2] == 4 else "rgb24")
        if times is not None:
            frame.pts, frame.time_base = times[number], base
        packets += stream.encode(frame)
    return stream, [*packets, *stream.encode()]


def write(path: Path, images: Sequence[np.ndarray], codec: str = "libx264", **settings: Any) -> Path:
    with av.open(str(path), "w") as container:
        container.mux(add(container, codec, images, **settings)[1])
    return path


def read(path: Path) -> list[Frame]:
    with footage(path) as clip:
        return list(clip.frames())


def patched(source: Path, box: bytes, skip: int, form: str, change: Callable[..., Sequence[int]]) -> Path:
    """The same file with other numbers some bytes behind the name of a box."""
    data = bytearray(source.read_bytes())
    start = data.index(box) + 4 + skip
    data[start : start + struct.calcsize(form)] = struct.pack(
        form, *change(*struct.unpack_from(form, data, start))
    )
    target = source.with_name("patched" + source.suffix)
    target.write_bytes(data)
    return target


def with_matrix(source: Path, a: int, b: int, c: int, d: int) -> Path:
    one = 1 << 16
    return patched(
        source, b"tkhd", 40, ">9i", lambda *_: (a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    )


def brightest(picture: np.ndarray) -> tuple[bool, bool, bool]:
    """Whether the brightest quarter of a picture lies below and right, and the next one beside it."""
    _, height, width = picture.shape
    quarters = picture.reshape(3, 2, height // 2, 2, width // 2).mean((0, 2, 4))
    (row, column), (next_row, _) = (
        np.unravel_index(place, (2, 2)) for place in np.argsort(-quarters, None)[:2]
    )
    return bool(row), bool(column), row == next_row


TURNS = [(1, 0, 0, 1), (-1, 0, 0, 1), (1, 0, 0, -1), (-1, 0, 0, -1)]
TURNS += [(0, 1, 1, 0), (0, 1, -1, 0), (0, -1, 1, 0), (0, -1, -1, 0)]


def test_each_turn_and_mirror_of_a_display_matrix_is_done_and_another_is_refused(
    tmp_path: Path, ledger: Ledger
):
    source = write(tmp_path / "in.mp4", [corner()] * 2)
    for a, b, c, d in TURNS:
        (frame, *_) = read(with_matrix(source, a, b, c, d))
        # By the standard, x' = a·x + c·y and y' = b·x + d·y; the upper left is (-1, -1) from the middle.
        below, right = -b - d > 0, -a - c > 0
        assert brightest(frame.image) == (below, right, bool(a))
        assert frame.image.shape[1:] == ((HEIGHT, WIDTH) if a else (WIDTH, HEIGHT))
    for a, b, c, d in [(0, 0, 0, 0), (1, 1, -1, 1), (2, 0, 0, 1), (1, 0, 1, 1)]:
        other = with_matrix(source, a, b, c, d)
        with pytest.raises(ImageError, match="frame 1: turned by an angle other than a quarter turn, or"):
            protect_video(other, tmp_path / "out.mp4", parse("blur:radius=3"), ledger)
    assert sorted(path.name for path in tmp_path.glob("*.mp4")) == ["in.mp4", "patched.mp4"]


def turned_from(tmp_path: Path, first: int, degrees: int) -> Path:
    """A clip whose own H.264 says from one frame on that it is turned (ITU-T H.264, D.1.27)."""
    orientation = "000" + format((degrees << 16) // 360, "016b") + "10" + "100"
    message = b"\0\0\0\1" + bytes([6, 47, 3]) + int(orientation, 2).to_bytes(3) + b"\x80"
    path = tmp_path / "in.mp4"
    with av.open(str(path), "w") as container:
        stream, packets = add(container, "libx264", [corner()] * 6, options={"bf": "0", "g": "1"})
        for number, packet in enumerate(packets):
            told = av.Packet(message * (number >= first) + bytes(packet))
            told.pts, told.dts, told.time_base = packet.pts, packet.dts, packet.time_base
            told.is_keyframe, told.stream = True, stream
            container.mux(told)
    return path


def mixed(path: Path, *parts: tuple[str, np.ndarray]) -> Path:
    """A clip of JPEG, in which each frame has a format and a size of its own."""
    with av.open(str(path), "w") as container:
        stream, packets = add(container, "mjpeg", [parts[0][1]], format=parts[0][0])
        for number, (format_, image) in enumerate(parts[1:], 1):
            with av.open(str(path.with_name("other.avi")), "w") as other:
                (packet,) = add(other, "mjpeg", [image], format=format_)[1]
                packet.pts = packet.dts = number
                packets.append(packet)
        for packet in packets:
            packet.stream = stream
            container.mux(packet)
    return path


def test_frames_of_several_sizes_are_refused_and_of_several_formats_or_turns_are_read(tmp_path: Path):
    half = read(turned_from(tmp_path, 3, 180))
    assert [brightest(frame.image)[:2] for frame in half] == [(False, False)] * 3 + [(True, True)] * 3
    with pytest.raises(ImageError, match="frame 4: frames have several sizes: cut it where the size changes"):
        read(turned_from(tmp_path, 3, 90))
    with pytest.raises(ImageError, match="frame 3: frames have several sizes"):
        read(mixed(tmp_path / "in.avi", *[("yuvj420p", corner())] * 2, ("yuvj420p", corner(height=64))))
    frames = read(
        mixed(tmp_path / "in.avi", *((name, corner()) for name in ("yuvj420p", "yuvj444p", "yuvj422p")))
    )
    assert len(frames) == 3
    assert max(abs(frame.image.astype(int) - frames[0].image).mean() for frame in frames) < 3


def test_pixels_that_are_not_square_become_square(tmp_path: Path, ledger: Ledger):
    for aspect, size in ((Fraction(2), (32, 96)), (Fraction(1, 2), (64, 48)), (Fraction(4, 3), (32, 64))):
        source = write(tmp_path / "in.mp4", [corner()] * 2, sample_aspect_ratio=aspect)
        assert read(source)[0].image.shape == (3, *size)
    # The matrix turns what is shown, pixels and all.
    assert read(with_matrix(source, 0, 1, -1, 0))[0].image.shape == (3, 64, 32)
    protect_video(source, tmp_path / "out.mp4", parse("blur:radius=3"), ledger)
    with av.open(str(tmp_path / "out.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.sample_aspect_ratio or 1) == (64, 32, 1)


@pytest.mark.parametrize(
    ("name", "base", "times"),
    [
        ("in.mkv", Fraction(1, 1000), [0, 33, 66, 100, 1000, 2000, 2040]),  # a screen that was recorded
        ("in.mkv", Fraction(1, 1000), [5000, 5033, 7000]),  # a stream that was cut
        ("in.mp4", Fraction(1, 30_000), [0, 1001, 2002, 5005]),
        ("in.mp4", Fraction(1, 1_000_000), [0, 16_683, 33_366, 2_000_000]),
    ],
)
def test_each_frame_is_shown_when_it_was(
    tmp_path: Path, ledger: Ledger, name: str, base: Fraction, times: list[int]
):
    images = [corner(250 - 15 * number) for number in range(len(times))]
    source = write(tmp_path / name, images, times=times, base=base, rate=30)
    clip = protect_video(source, tmp_path / "out.mp4", parse("blur:radius=3"), ledger)
    with av.open(str(tmp_path / "out.mp4")) as container:
        shown = [frame.time for frame in container.decode(video=0)]
    wanted = [float((time - times[0]) * base) for time in times]
    assert shown == pytest.approx(wanted, abs=2e-5 if base == Fraction(1, 1_000_000) else 1e-9)
    assert wanted[-1] < clip.seconds < wanted[-1] + 2.1
    slow = write(tmp_path / "slow.mkv", images[:3], times=[0, 40, 4_000_000], base=Fraction(1, 1000))
    with pytest.raises(ImageError, match=r"frame 3: shown 4e\+03 s after the one before, and 0 to 3600 s"):
        read(slow)


def test_what_an_edit_list_cuts_away_is_not_shown(tmp_path: Path):
    images = [corner(240 if number < 6 else 120) for number in range(12)]  # the first half is cut
    source = write(tmp_path / "in.mp4", images, options={"g": "4", "bf": "0"})
    with av.open(str(source)) as container:
        ticks = int(container.streams.video[0].time_base.denominator)
    assert len(read(source)) == 12
    cut = patched(source, b"elst", 8, ">Ii", lambda length, start: (length // 2, start + 6 * ticks // 10))
    frames = read(cut)
    assert [frame.time for frame in frames] == [number * ticks // 10 for number in range(6)]
    assert max(frame.image.max() for frame in frames) < 160


def test_of_several_videos_in_a_file_none_is_taken_but_a_cover_is_no_video(tmp_path: Path):
    path = tmp_path / "in.mp4"
    for codec, format_ in (("libx264", "yuv420p"), ("mjpeg", "yuvj420p")):
        with av.open(str(path), "w") as container:
            other, packets = add(container, codec, [corner(80)], format=format_)
            if codec == "mjpeg":
                other.disposition = av.stream.Disposition.attached_pic
            packets += add(container, "libx264", [corner()] * 3)[1]
            container.mux(packets)
        if codec == "libx264":
            with pytest.raises(ImageError, match="2 videos in one file: write the one you mean"):
                read(path)
    assert [frame.image.max() > 200 for frame in read(path)] == [True] * 3


def test_transparent_and_interlaced_frames_and_those_for_two_eyes_are_refused(tmp_path: Path):
    clear = np.dstack([corner(), np.zeros((HEIGHT, WIDTH), np.uint8)])
    with pytest.raises(
        ImageError, match="frame 1: partly transparent, so it would show pixels that a player hides"
    ):
        read(write(tmp_path / "in.mov", [clear], "png", format="rgba"))
    fields = {"x264-params": "interlaced=1:bframes=0"}
    with pytest.raises(ImageError, match="frame 1: interlaced, so that one frame shows two moments"):
        read(write(tmp_path / "in.mp4", [corner(height=64)] * 2, options=fields))
    path = tmp_path / "in.mkv"
    for metadata, message in (
        ({"stereo_mode": "left_right"}, "two views in one"),
        ({"alpha_mode": "1"}, "transparent"),
    ):
        with av.open(str(path), "w") as container:
            stream, packets = add(container, "libx264", [corner()] * 2)
            stream.metadata.update(metadata)
            container.mux(packets)
        with pytest.raises(ImageError, match=message):
            read(path)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, None),
        ({"is_corrupt": True}, "damaged: take an undamaged copy"),
        ({"width": 100_000, "height": 1000}, "100000x1000 pixels, more than the 64000000 allowed"),
        ({"side_data": {Type.SPHERICAL: struct.pack("=8i", *[0] * 8)}}, "a view all around"),
        ({"side_data": {Type.SPHERICAL: struct.pack("=8i", 4, *[0] * 7)}}, None),  # a flat one
        ({"side_data": {Type.DOVI_METADATA: b""}}, "Dolby Vision in colours of its own"),
        ({"side_data": {Type.DOVI_METADATA: b""}, "color_trc": 18}, None),  # of a telephone, on top of HLG
    ],
)
def test_what_else_a_frame_says_of_itself(facts: dict[str, Any], message: str | None):
    usual = {"interlaced_frame": False, "is_corrupt": False, "width": 8, "height": 8, "color_trc": 1}
    usual |= {"format": SimpleNamespace(components=()), "side_data": {}}
    reason = obstacle(SimpleNamespace(**usual | facts))
    assert reason is None if message is None else message in str(reason)


def test_hdr_is_shown_as_on_an_ordinary_screen(tmp_path: Path):
    # ITU-R BT.2100, HLG: light E of the scene is coded as sqrt(3·E) up to 1/12 and shown as E^1.2; 26.5% is
    # white on paper. A tenth of that is 0.1^1.2 of the white of an ordinary screen, of gamma 2.4.
    grey = np.full((16, 16, 3), round(255 * (3 * 0.0265) ** 0.5), np.uint8)
    wide = {"color_trc": 18, "color_primaries": 9, "colorspace": 9, "color_range": 1}
    (frame,) = read(write(tmp_path / "in.mp4", [grey], format="yuv420p10le", **wide))
    assert frame.image.mean() == pytest.approx(255 * 0.1 ** (1.2 / 2.4), abs=3)


@pytest.mark.parametrize(
    "text", ["no video", "ffconcat version 1.0\nfile other.mp4\n", "#EXTM3U\n#EXTINF:1,\nother.mp4\n"]
)
def test_a_file_that_is_no_video_or_names_other_files_is_refused(tmp_path: Path, text: str):
    write(tmp_path / "other.mp4", [corner()] * 2)
    (tmp_path / "in.mp4").write_text(text)
    with pytest.raises(ImageError, match=r"in.mp4: cannot be read as a video .* not an MP4, MOV, MKV"):
        read(tmp_path / "in.mp4")


def test_nothing_leaves_but_the_picture(tmp_path: Path, ledger: Ledger):
    source, secret = tmp_path / "in.mkv", "anna-at-home"
    with av.open(str(source), "w") as container:
        container.metadata.update({"title": secret, "location": secret, "comment": secret})
        picture, packets = add(container, "libx264", [corner()] * 4)
        picture.metadata["title"] = secret
        container.add_attachment(f"{secret}.txt", "text/plain", secret.encode())
        container.set_chapters(
            [{"id": 1, "start": 0, "end": 100, "time_base": Fraction(1, 1000), "metadata": {"title": secret}}]
        )
        container.mux(packets)
    assert source.read_bytes().count(secret.encode()) >= 5
    protect_video(source, tmp_path / "out.mp4", parse("blur:radius=3"), ledger)
    assert secret.encode() not in (tmp_path / "out.mp4").read_bytes()
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert [stream.type for stream in container.streams] == ["video"]
        assert (container.chapters(), set(container.metadata)) == (
            [],
            {"major_brand", "minor_version", "compatible_brands", "encoder"},
        )


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv", "avi"])
def test_a_clip_that_was_cut_short_is_refused_and_the_whole_one_is_read(tmp_path: Path, suffix: str):
    """Wherever it was cut, unless all but the last two frames are there."""
    whole = tmp_path / f"whole.{suffix}"
    options = {"movflags": "faststart"} if suffix in ("mp4", "mov") else {}
    with av.open(str(whole), "w", options=options) as container:
        stream = container.add_stream("mpeg4" if suffix == "avi" else "libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        sound = container.add_stream("aac", rate=8000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 24576), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 8000
        pictures = [np.random.default_rng(i).integers(0, 255, (64, 96, 3), np.uint8) for i in range(20)]
        for picture in pictures:  # 2 s, of 3 s of sound
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux([*stream.encode(), *sound.encode(silence), *sound.encode()])
    with footage(whole) as clip:
        assert len(list(clip.frames())) == 20
    data = whole.read_bytes()
    for share in (0.3, 0.6, 0.77, 0.9):
        cut = tmp_path / f"cut.{suffix}"
        cut.write_bytes(data[: int(len(data) * share)])
        with footage(cut) as clip, pytest.raises(ImageError, match="is damaged or cut short"):
            list(clip.frames())
