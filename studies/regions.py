"""How many faces `--where faces` covers, in images and in a video: LFW photographs in scenes of Caltech-101.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101
    OMP_NUM_THREADS=1 python studies/regions.py                         # three minutes on one core

Two finders, CenterFace of the extra `faces` and MTCNN of a file: 100 scenes of 640x480 with one to four faces of 48 to
200 pixels; the same in grey; and 12 scenes of 4000x3000, 12 megapixels, of which the faces have 300 to 1250 pixels. A
face is covered if boxes hold all that is between its brows, its ears and its chin: the middle of the crop, 60% of its
height and half of its width. A box that touches no face is a false alarm. Neither finder was adjusted to these scenes.
The video, by CenterFace, has ten seconds at 25 frames of 640x480: one face moves from left to right, another comes after
three seconds. Writes studies/results/regions.jsonl.
"""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import sfumato
from sfumato.base.proportions import wilson
from sfumato.data.readers.listing import read_rows
from sfumato.device.jobs.video import follow, footage, protect_video
from sfumato.device.ledger import Ledger
from sfumato.images import as_tensor, read
from sfumato.protect import parse
from sfumato.protect.region import Region, overlap
from sfumato.study.records import write_rows

ROOT = Path(__file__).parents[1]
DATA = ROOT / "runs" / "data"
DETECTOR = ROOT.parent / "shared" / "data" / "weights" / "mtcnn.safetensors"
FINDERS = {"CenterFace": "missing=all", "MTCNN": f"file={DETECTOR},missing=all"}
SCENES, HEIGHT, WIDTH = 100, 480, 640
LARGE_SCENES, TIMES = 12, 6.25  # as many of so many times the sides
INNER = (0.25, 0.85, 0.25, 0.75)  # of a crop: top, bottom, left, right


def scene(
    draw: random.Random, scenes: list[Path], faces: list[Path], times: float = 1
) -> tuple[Tensor, list[tuple[int, ...]]]:
    """A scene with faces, and for each what must be covered: top, bottom, left and right edge in pixels."""
    height, width = round(times * HEIGHT), round(times * WIDTH)
    image = _resized(read(draw.choice(scenes)), height, width)
    wanted: list[tuple[int, ...]] = []
    taken: list[tuple[int, int, int]] = []
    for _ in range(draw.randint(1, 4)):
        for _ in range(50):
            side = round(48 * times * (200 / 48) ** draw.random())
            top, left = draw.randint(0, height - side), draw.randint(0, width - side)
            if all(abs(top - t) >= max(side, s) or abs(left - m) >= max(side, s) for t, m, s in taken):
                break
        else:
            continue
        taken.append((top, left, side))
        image[:, top : top + side, left : left + side] = _resized(read(draw.choice(faces)), side, side)
        edges = [round(share * side) for share in INNER]
        wanted.append((top + edges[0], top + edges[1], left + edges[2], left + edges[3]))
    return image, wanted


def found(finder: str, scenes: list[tuple[Tensor, list[tuple[int, ...]]]]) -> dict[str, Any]:
    """How many faces of scenes a finder covers, what it covers for nothing, and how long it takes."""
    region = parse(f"pixelize:cell=1/4@faces:{FINDERS[finder]}")
    assert isinstance(region, Region)
    region.boxes(scenes[0][0])  # its weights are read
    hits, sizes, shares, seconds, alarms = [], [], [], 0.0, 0
    for image, wanted in scenes:
        start = time.process_time()
        boxes = region.boxes(image)
        seconds += time.process_time() - start
        covered = torch.zeros(image.shape[1:], dtype=torch.bool)
        for top, bottom, left, right in boxes:
            covered[top:bottom, left:right] = True
        shares.append(covered.double().mean().item())
        alarms += sum(not any(overlap(box, face) for face in wanted) for box in boxes)
        for top, bottom, left, right in wanted:
            hits.append(bool(covered[top:bottom, left:right].all()))
            sizes.append(round((bottom - top) / 0.6))
    low, high = wilson(sum(hits), len(hits))
    return {
        "scenes": len(scenes),
        "faces": len(hits),
        "covered": sum(hits) / len(hits),
        "low": low,
        "high": high,
        "missed_sizes": sorted(size for size, hit in zip(sizes, hits, strict=True) if not hit),
        "false_alarms": alarms,
        "area": sum(shares) / len(shares),
        "milliseconds": round(1000 * seconds / len(scenes), 1),
    }


def _resized(image: Tensor, height: int, width: int) -> Tensor:
    pixels = functional.interpolate(image[None].float(), (height, width), mode="bicubic", antialias=True)[0]
    return pixels.round().clamp(0, 255).to(torch.uint8)


def _grey(image: Tensor) -> Tensor:
    """(3, H, W) -> (1, H, W)."""
    return image.double().mean(0, keepdim=True).round().to(torch.uint8)


def clip(
    draw: random.Random, scenes: list[Path], faces: list[Path], path: Path
) -> list[list[tuple[int, ...]]]:
    """Write a video; for each frame, what must be covered."""
    import av

    ground = _resized(read(draw.choice(scenes)), HEIGHT, WIDTH)
    first, second = (_resized(read(draw.choice(faces)), side, side) for side in (110, 80))
    wanted = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(250):
            frame = ground.clone()
            placed = [(first, 100, 10 + 2 * number)] + ([(second, 30 + number, 540)] if number >= 75 else [])
            wanted.append([])
            for face, top, left in placed:
                side = face.shape[1]
                frame[:, top : top + side, left : left + side] = face
                edges = [round(share * side) for share in INNER]
                wanted[-1].append((top + edges[0], top + edges[1], left + edges[2], left + edges[3]))
            picture = av.VideoFrame.from_ndarray(frame.permute(1, 2, 0).numpy(), format="rgb24")
            for packet in stream.encode(picture):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return wanted


def video(draw: random.Random, scenes: list[Path], faces: list[Path]) -> dict[str, Any]:
    """How many faces of how many frames are covered, and how long a clip takes."""
    protection = parse("pixelize:cell=1/4@faces")
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        path = Path(folder) / "clip.mp4"
        wanted = clip(draw, scenes, faces, path)
        start = time.process_time()
        done = protect_video(path, Path(folder) / "out.mp4", protection, ledger)
        seconds = time.process_time() - start
        covered = []
        for frame, (_, boxes) in zip(wanted, covered_boxes(path, protection), strict=True):
            for top, bottom, left, right in frame:
                covered.append(
                    any(b[0] <= top and bottom <= b[1] and b[2] <= left and right <= b[3] for b in boxes)
                )
    return {
        "seconds_of_video": done.seconds,
        "seconds": round(seconds, 1),
        "faces": len(covered),
        "covered": sum(covered) / len(covered),
    }


def covered_boxes(path: Path, protection: Region) -> Iterator[tuple[Tensor, list[Any]]]:
    """The frames of a clip with the boxes that are covered."""
    with footage(path) as clip:
        for frame, boxes in follow(clip.frames(), protection, clip.base):
            yield as_tensor(frame.image), boxes or []


def main() -> None:
    """Measure, and write the record."""
    draw = random.Random(0)
    _, rows = read_rows(DATA / "caltech101" / "table.csv", columns=("file",), of="image")
    # Classes without people: what is found there for nothing is found in a scene.
    scenes = [
        DATA / "caltech101" / row["file"]
        for _, row in rows
        if not row["file"].lower().startswith(("faces", "buddha"))
    ]
    _, rows = read_rows(DATA / "lfw" / "table.csv", columns=("file",), of="image")
    faces = [DATA / "lfw" / row["file"] for _, row in rows]
    small = [scene(draw, scenes, faces) for _ in range(SCENES)]
    large = [scene(draw, scenes, faces, TIMES) for _ in range(LARGE_SCENES)]
    kinds = {"colour": small, "grey": [(_grey(image), wanted) for image, wanted in small], "large": large}
    record = {
        "finders": {
            finder: {kind: found(finder, listed) for kind, listed in kinds.items()} for finder in FINDERS
        },
        "video": video(draw, scenes, faces),
        "threads": torch.get_num_threads(),
        "seed": 0,
        "version": sfumato.__version__,
    }
    write_rows(ROOT / "studies" / "results" / "regions.jsonl", [record])
    print(json.dumps(record))


if __name__ == "__main__":
    main()
