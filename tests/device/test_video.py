"""Video: every frame protected, faces followed, one charge, no sound."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pictures import photographs

from sfumato.device.jobs.video import Frame, follow, match_boxes, protect_video
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import BudgetExceededError, ConfigError, ImageError
from sfumato.images import Images
from sfumato.protect import parse
from sfumato.protect.region import Box, Region

DETECTOR = "weights/mtcnn.safetensors"


def write(path: Path, frames: list[np.ndarray], *, sound: bool = False) -> Path:
    """A clip of (H, W, 3) uint8 frames, 10 a second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "1"}
        tone = container.add_stream("aac", rate=8000) if sound else None
        if tone is not None:
            samples = av.AudioFrame.from_ndarray(
                np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
            )
            samples.sample_rate = 8000
            for packet in [*tone.encode(samples), *tone.encode()]:
                container.mux(packet)
        for frame in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def read(path: Path) -> torch.Tensor:
    """(N, 3, H, W) uint8 of a clip."""
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return torch.from_numpy(np.stack(frames)).movedim(-1, 1)


def scene(count: int = 12, height: int = 64, width: int = 96) -> list[np.ndarray]:
    """Smooth frames that H.264 keeps nearly as they are; a bright square moves in the lower half."""
    ramp = np.linspace(40, 160, width)[None, :, None] + np.zeros((height, 1, 3))
    frames = []
    for number in range(count):
        frame = ramp.copy()
        frame[40:56, 4 * number : 4 * number + 16] = 240
        frames.append(frame.astype(np.uint8))
    return frames


@pytest.fixture
def lower(tmp_path: Path) -> str:
    """The lower half of the frame."""
    path = tmp_path / "lower.csv"
    path.write_text("left,top,right,bottom\n0,0.5,1,1\n")
    return f"pixelize:cell=16@box:file={path}"


def test_a_box_is_protected_in_every_frame_and_all_else_is_shown(tmp_path: Path, ledger: Ledger, lower: str):
    source = write(tmp_path / "in.mp4", scene())
    clip = protect_video(source, tmp_path / "out.mp4", parse(lower), ledger)
    assert (clip.frames, clip.size, clip.faces, clip.without, clip.charged) == (12, (64, 96), 1, 0, True)
    assert clip.seconds == pytest.approx(1.2)
    before, after = read(source).float(), read(tmp_path / "out.mp4").float()
    assert (before - after)[:, :, :30].abs().mean() < 4
    cells = (
        torch.nn.functional.avg_pool2d(before[:, :, 32:], 16)
        .repeat_interleave(16, 2)
        .repeat_interleave(16, 3)
    )
    assert (after[:, :, 32:] - cells).abs().mean() < 4
    assert (after[:, :, 32:] - before[:, :, 32:]).abs().mean() > 10


def test_whole_frames_are_protected_if_no_part_is_named_without_sound_and_with_even_sides(
    tmp_path: Path, ledger: Ledger
):
    source = write(tmp_path / "in.mkv", [frame[:, :94] for frame in scene(4)], sound=True)
    with av.open(str(source)) as container:
        assert [stream.type for stream in container.streams] == ["video", "audio"]
    clip = protect_video(source, tmp_path / "out.mp4", parse("pixelize:cell=32"), ledger)
    assert (clip.faces, clip.left_out) == (0, {"audio": 1})
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert [stream.type for stream in container.streams] == ["video"]
    values = read(tmp_path / "out.mp4").float()
    assert values.shape == (4, 3, 64, 94)
    assert values[:, :, :32, :32].std((2, 3)).max() < 4


def test_the_same_clip_is_charged_once_and_budgets_hold(tmp_path: Path, ledger: Ledger, lower: str):
    source = write(tmp_path / "in.mp4", scene(4))
    ledger.set_budget(Budget.parse("releases=1"))
    assert protect_video(source, tmp_path / "one.mp4", parse(lower), ledger).charged
    assert not protect_video(source, tmp_path / "two.mp4", parse(lower), ledger).charged
    with pytest.raises(BudgetExceededError):
        protect_video(source, tmp_path / "three.mp4", parse("blur:radius=6"), ledger)
    assert sorted(path.name for path in tmp_path.glob("*.mp4")) == ["in.mp4", "one.mp4", "two.mp4"]


def test_a_face_is_covered_in_all_frames(tmp_path: Path, ledger: Ledger, shared_data: Path):
    photograph = photographs(shared_data, "lfw_faces_84", 1)[0].permute(1, 2, 0).numpy()
    frames, inner = [], []
    for number in range(17):
        frame = np.full((160, 240, 3), 110, np.uint8)
        left = 20 + 6 * number
        if number >= 3:
            frame[40:124, left : left + 84] = photograph
        frames.append(frame)
        inner.append(slice(left + 25, left + 59))
    source = write(tmp_path / "in.mp4", frames)
    spec = f"pixelize:cell=1/3@faces:file={shared_data / DETECTOR}"
    clip = protect_video(source, tmp_path / "out.mp4", parse(spec), ledger)
    assert clip.faces == 1
    before, after = read(source).float(), read(tmp_path / "out.mp4").float()
    for number in range(3, 17):
        part = (number, slice(None), slice(40 + 24, 40 + 66), inner[number])
        assert (before[part] - after[part]).abs().mean() > 8, number


def test_a_clip_in_which_no_face_is_found_is_not_released(tmp_path: Path, ledger: Ledger, shared_data: Path):
    source = write(tmp_path / "in.mp4", scene(6))
    spec = f"blur:radius=6@faces:file={shared_data / DETECTOR}"
    with pytest.raises(ImageError, match="no face was found in any frame, so it is not released"):
        protect_video(source, tmp_path / "out.mp4", parse(spec), ledger)
    assert not (tmp_path / "out.mp4").exists()
    clip = protect_video(source, tmp_path / "out.mp4", parse(f"{spec},missing=all"), ledger)
    assert clip.without == 6
    assert (read(tmp_path / "out.mp4").float() - read(source).float())[:, :, 40:56].abs().mean() > 5


class Watcher(Region):
    """Finds the boxes that `script` has for a frame, which the frame's first pixel numbers."""

    def find(self, image: Images) -> list[Box]:
        return self.__dict__["script"][int(image[0, 0, 0])]


def followed(lower: str, script: list[list[Box]], ticks: int = 4) -> list[list[Box]]:
    """The boxes covered in each frame of a clip of 100 ticks a second, by the boxes found in each."""
    region = parse(lower)
    watcher = Watcher(region.inner, "box", region.file)
    watcher.__dict__["script"] = script
    frames = [Frame(np.full((3, 8, 8), i, np.uint8), ticks * i, ticks) for i in range(len(script))]
    covered = list(follow(iter(frames), watcher, Fraction(1, 100)))
    assert [frame.time for frame, _ in covered] == [frame.time for frame in frames]
    return [boxes or [] for _, boxes in covered]


edges = st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(0, 40), st.integers(1, 20))
boxes_of_a_frame = st.lists(edges.map(lambda e: (e[0], e[0] + e[1], e[2], e[2] + e[3])), max_size=3)


@given(script=st.lists(boxes_of_a_frame, min_size=1, max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_each_face_is_covered_in_its_frame_and_for_a_second_if_the_next_frame_does_not_continue_it(
    lower: str, script: list[list[Box]]
):
    covered = followed(lower, script)
    for i, found in enumerate(script):
        assert set(found) <= set(covered[i])  # also if it is shown in this frame alone, or jumps
        lost, _ = match_boxes(found, script[i + 1] if i + 1 < len(script) else [])
        for box in lost:
            for j in range(i, min(i + 26, len(script))):
                if any(not match_boxes([box], [each])[0] for each in script[j] if j > i):
                    break  # it continues there
                assert box in covered[j]
        _, new = match_boxes(covered[i - 1] if i else [], found)
        assert all(set(new) <= set(covered[j]) for j in range(max(0, i - 5), i))


def test_a_lost_face_beside_another_and_the_way_of_a_face_stay_covered(lower: str):
    one, beside = (10, 60, 10, 60), (10, 60, 55, 110)  # their margins touch
    assert all(beside in boxes for boxes in followed(lower, [[one, beside]] + [[one]] * 20))
    here, there = (0, 10, 0, 10), (0, 10, 50, 60)
    covered = followed(lower, [[here], [], [], [there], []])
    assert all((0, 10, 0, 60) in boxes for boxes in covered[1:3])
    assert (0, 10, 0, 60) not in covered[0] + covered[3]


@pytest.mark.parametrize(("ticks", "frames"), [(4, 26), (20, 6), (100, 2), (500, 2)])
def test_a_face_that_is_lost_stays_covered_for_a_second_and_in_the_next_frame(
    lower: str, ticks: int, frames: int
):
    boxes = [bool(boxes) for boxes in followed(lower, [[(0, 4, 0, 4)]] + [[]] * 39, ticks)]
    assert boxes == [True] * frames + [False] * (40 - frames)


def test_a_block_hides_all_of_a_box_of_several_faces(lower: str):
    region = parse("block@faces:file=unused")
    image = np.full((3, 60, 100), 200, np.uint8)
    values, covered = region.apply(image, [(10, 40, 10, 40), (15, 45, 35, 65)], fresh_noise())
    assert (values[:, covered[0]] == 0).all()


@pytest.mark.parametrize(
    ("spec", "name", "error", "message"),
    [
        (
            "dp-pix:cell=8,epsilon=3",
            "a.mp4",
            ConfigError,
            "can average its noise over frames that show the same",
        ),
        ("blur:radius=4", "out.avi", ConfigError, "a protected video is an .mp4"),
        ("blur:radius=4", "a.mp4", ImageError, "would change it by 0 grey levels"),
    ],
)
def test_what_cannot_be_released_is_refused(
    tmp_path: Path, ledger: Ledger, spec: str, name: str, error: type[Exception], message: str
):
    source = write(tmp_path / "grey.mp4", [np.full((32, 32, 3), 90, np.uint8)] * 3)
    with pytest.raises(error, match=message):
        protect_video(source, tmp_path / name, parse(spec), ledger)
    assert not (tmp_path / name).exists()
