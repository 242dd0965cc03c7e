"""How many faces `--where faces` covers: LFW photographs pasted into scenes of Caltech-101.

    python studies/unpack.py lfw ../shared/data runs/data/lfw          # and caltech101
    python studies/regions.py                                           # a minute of one core

100 scenes of 640x480 with one to four faces, 48 to 200 pixels high. A face is covered where boxes hold all of what is
between its brows, its ears and its chin: the middle of the crop, 60% of its height and half of its width. Writes
studies/results/regions.json.
"""

import json
import random
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import sfumato
from sfumato.data.listing import read_rows
from sfumato.files import whole
from sfumato.images import read
from sfumato.proportions import wilson
from sfumato.protect import parse
from sfumato.protect.region import Region

ROOT = Path(__file__).parents[1]
DATA = ROOT / "runs" / "data"
DETECTOR = ROOT.parent / "shared" / "data" / "weights" / "mtcnn.safetensors"
SCENES, HEIGHT, WIDTH = 100, 480, 640
INNER = (0.25, 0.85, 0.25, 0.75)  # of a crop: top, bottom, left, right


def scene(draw: random.Random, scenes: list[Path], faces: list[Path]) -> tuple[Tensor, list[tuple[int, ...]]]:
    """A scene with faces, and for each what must be covered: top, bottom, left and right edge in pixels."""
    image = _resized(read(draw.choice(scenes)), HEIGHT, WIDTH)
    wanted: list[tuple[int, ...]] = []
    taken: list[tuple[int, int, int]] = []
    for _ in range(draw.randint(1, 4)):
        for _ in range(50):
            side = round(48 * (200 / 48) ** draw.random())
            top, left = draw.randint(0, HEIGHT - side), draw.randint(0, WIDTH - side)
            if all(abs(top - t) >= max(side, s) or abs(left - m) >= max(side, s) for t, m, s in taken):
                break
        else:
            continue
        taken.append((top, left, side))
        image[:, top : top + side, left : left + side] = _resized(read(draw.choice(faces)), side, side)
        edges = [round(share * side) for share in INNER]
        wanted.append((top + edges[0], top + edges[1], left + edges[2], left + edges[3]))
    return image, wanted


def _resized(image: Tensor, height: int, width: int) -> Tensor:
    pixels = functional.interpolate(image[None].float(), (height, width), mode="bicubic", antialias=True)[0]
    return pixels.round().clamp(0, 255).to(torch.uint8)


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
    region = parse(f"pixelize:cell=1/4@faces:file={DETECTOR},missing=all")
    assert isinstance(region, Region)
    found, sizes, shares, seconds = [], [], [], 0.0
    for _ in range(SCENES):
        image, wanted = scene(draw, scenes, faces)
        start = time.perf_counter()
        boxes = region.boxes(image)
        seconds += time.perf_counter() - start
        covered = torch.zeros(HEIGHT, WIDTH, dtype=torch.bool)
        for top, bottom, left, right in boxes:
            covered[top:bottom, left:right] = True
        shares.append(covered.double().mean().item())
        for top, bottom, left, right in wanted:
            found.append(bool(covered[top:bottom, left:right].all()))
            sizes.append(round((bottom - top) / 0.6))
    low, high = wilson(sum(found), len(found))
    record = {
        "scenes": SCENES,
        "size": [HEIGHT, WIDTH],
        "faces": len(found),
        "covered": sum(found) / len(found),
        "low": low,
        "high": high,
        "missed_sizes": sorted(size for size, hit in zip(sizes, found, strict=True) if not hit),
        "area": sum(shares) / len(shares),
        "milliseconds": round(1000 * seconds / SCENES, 1),
        "seed": 0,
        "version": sfumato.__version__,
    }
    with whole(ROOT / "studies" / "results" / "regions.json") as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
