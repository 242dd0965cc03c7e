"""How often a changed image is noticed as a near copy, and how often two different images are taken for one.

    python studies/near_copies.py ../shared/data

Writes studies/results/near-copies.jsonl. A change is noticed if the copy finds the original in an index and is
decided to be a near copy of it, as in a ledger. Thresholds were chosen on every second image of LFW, Caltech-101,
CIFAR-10 and CMU; here are the others. A burst is two frames of one photograph: the camera and the light change a
little, noise is added, and the subject moves by a share of the side.
"""

import argparse
import io
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from unpack import picture

import sfumato
from sfumato import data
from sfumato.base.proportions import wilson
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints, near_copies
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "near-copies.jsonl"
Picture = Image.Image
Change = Callable[[Picture, np.random.Generator], Picture]
TURNS = [Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270]
MIRROR = Image.Transpose.FLIP_LEFT_RIGHT


def levels(
    change: Callable[[np.ndarray, np.random.Generator], np.ndarray],
    picture: Picture,
    rng: np.random.Generator,
) -> Picture:
    """A picture whose values, 0 to 255, went through a function."""
    return Image.fromarray(np.rint(change(np.array(picture, float), rng)).clip(0, 255).astype(np.uint8))


def pixels(share: float, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A share of the pixels, at least one, of any colour."""
    where = rng.permutation(values.shape[0] * values.shape[1])[: max(1, int(share * values[..., 0].size))]
    values.reshape(-1, values.shape[2])[where] = rng.integers(0, 256, (len(where), values.shape[2]))
    return values


def encoded(name: str, least: int, most: int, picture: Picture, rng: np.random.Generator) -> Picture:
    """A picture as a lossy file shows it, of a quality between two."""
    buffer = io.BytesIO()
    picture.save(buffer, name, quality=int(rng.integers(least, most + 1)))
    return Image.open(buffer).convert("RGB")


def resized(how: Image.Resampling, picture: Picture, rng: np.random.Generator) -> Picture:
    """A picture of half to twice its size."""
    return picture.resize((round(picture.width * 2 ** rng.uniform(-1, 1)),) * 2, how)


def cut(share: float, picture: Picture, rng: np.random.Generator) -> Picture:
    """A square of a share of the side: at the centre, a corner or anywhere; then of 0.6 to 1.7 times its size."""
    kept = round(share * picture.width)
    room = picture.width - kept
    left, top = [(room // 2, room // 2), rng.choice([0, room], 2), rng.integers(0, room + 1, 2)][
        rng.integers(3)
    ]
    return picture.crop((left, top, left + kept, top + kept)).resize(
        (round(kept * rng.uniform(0.6, 1.7)),) * 2
    )


def stretched(picture: Picture, rng: np.random.Generator) -> Picture:
    """A picture of another shape: up to twice as wide as high, or as high as wide."""
    longer = round(picture.width * rng.uniform(1.1, 2))
    return picture.resize((longer, picture.height) if rng.integers(2) else (picture.width, longer))


def framed(picture: Picture, rng: np.random.Generator) -> Picture:
    """A picture in a frame of one colour, of 2 to 25% of its side on each side; a third are wider below."""
    width = round(picture.width * rng.uniform(0.02, 0.25))
    below = width * (1 + 2 * int(rng.integers(3) == 0))
    return ImageOps.expand(picture, (width, width, width, below), tuple(map(int, rng.integers(0, 256, 3))))


def pasted(picture: Picture, rng: np.random.Generator) -> Picture:
    """A black or white box over 5% of the area, one to five times as wide as high."""
    aspect = rng.uniform(1, 5)
    width, height = (round(picture.width * (0.05 * side) ** 0.5) for side in (aspect, 1 / aspect))
    left, top = rng.integers(0, picture.width - width + 1), rng.integers(0, picture.height - height + 1)
    changed = picture.copy()
    changed.paste(tuple([int(rng.choice([0, 255]))] * 3), (left, top, left + width, top + height))
    return changed


def frame(by: float, picture: Picture, rng: np.random.Generator) -> Picture:
    """A frame of a burst, in which what is near the middle moves by a share of the side."""
    values = np.array(picture.convert("RGB"), float)
    side = len(values)
    down, right = np.mgrid[:side, :side].astype(float)
    middle, angle = side * rng.uniform(0.4, 0.6, 2), rng.uniform(0, 2 * np.pi)
    apart = (down - middle[0]) ** 2 + (right - middle[1]) ** 2
    moved = by * side * np.exp(-apart / (2 * (0.18 * side) ** 2))
    nearer = 1 - rng.uniform(0, 0.02)
    at = np.stack([down + np.sin(angle) * moved, right + np.cos(angle) * moved]) - side / 2
    at = at * nearer + side / 2 + rng.uniform(-0.015, 0.015, (2, 1, 1)) * side
    at = at.clip(0, side - 1.001)
    corner = at.astype(int)
    (row, column), (below, beside) = corner, (at - corner)[..., None]
    upper = values[row, column] * (1 - beside) + values[row, column + 1] * beside
    lower = values[row + 1, column] * (1 - beside) + values[row + 1, column + 1] * beside
    exposed = (upper * (1 - below) + lower * below) * rng.uniform(0.85, 1.15)
    exposed += rng.normal(0, rng.uniform(1, 5), exposed.shape)
    return Image.fromarray(np.rint(exposed).clip(0, 255).astype(np.uint8))


MOVED = (0.0, 0.02, 0.05, 0.08, 0.12)
CHANGES: dict[str, Change] = {
    "one pixel": partial(levels, partial(pixels, 0)),
    "1% of the pixels": partial(levels, partial(pixels, 0.01)),
    "JPEG 30": partial(encoded, "JPEG", 30, 30),
    "JPEG 30 to 95": partial(encoded, "JPEG", 30, 95),
    "WebP 50 to 95": partial(encoded, "WEBP", 50, 95),
    "resized by 0.5 to 2, Lanczos": partial(resized, Image.Resampling.LANCZOS),
    "resized by 0.5 to 2, bilinear": partial(resized, Image.Resampling.BILINEAR),
    "mirrored": lambda picture, rng: picture.transpose(MIRROR),
    "mirrored, JPEG 30 to 95": lambda picture, rng: encoded("JPEG", 30, 95, picture.transpose(MIRROR), rng),
    "turned by 90, 180 or 270 degrees": lambda picture, rng: picture.transpose(TURNS[rng.integers(3)]),
    "grey": lambda picture, rng: picture.convert("L"),
    "brightness +-10%": partial(levels, lambda values, rng: values * rng.choice([0.9, 1.1])),
    "contrast +-10%": partial(
        levels, lambda values, rng: (values - values.mean()) * rng.choice([0.9, 1.1]) + values.mean()
    ),
    "cut to 95% a side": partial(cut, 0.95),
    "cut to 90% a side": partial(cut, 0.9),
    "cut to 85% a side": partial(cut, 0.85),
    "cut to 80% a side": partial(cut, 0.8),
    "cut to 75% a side": partial(cut, 0.75),
    "turned by 1 to 3 degrees": lambda picture, rng: picture.rotate(
        rng.choice([-1, 1]) * rng.uniform(1, 3), Image.Resampling.BICUBIC
    ),
    "stretched by 1.1 to 2": stretched,
    "in a frame of one colour": framed,
    "stretched, in a frame, JPEG 30 to 95": lambda picture, rng: encoded(
        "JPEG", 30, 95, framed(stretched(picture, rng), rng), rng
    ),
    "a box over 5%": pasted,
    "gamma 0.8 to 1.25": partial(levels, lambda values, rng: 255 * (values / 255) ** rng.uniform(0.8, 1.25)),
    "Gaussian noise, sigma 5": partial(levels, lambda values, rng: values + rng.normal(0, 5, values.shape)),
    "blurred, radius 1": lambda picture, rng: picture.filter(ImageFilter.GaussianBlur(1)),
}


def fingerprint(picture: Picture) -> Fingerprint | None:
    """The fingerprint of one picture."""
    planes = np.atleast_3d(np.array(picture)).transpose(2, 0, 1)
    return fingerprints(torch.from_numpy(planes.copy())[None])[0]


def noticed(original: Fingerprint | None, copy: Fingerprint | None) -> bool:
    """Whether a ledger that has the original takes the copy for a near copy of it."""
    if original is None or copy is None or not set(original.keys) & set(copy.probes):
        return False
    return near_copies(original.bits, copy.bits)


def second_half(path: Path, label: str | None) -> tuple[list[Picture], np.ndarray]:
    """The second of every two images of a packed set, in a fixed order, and what is named by `label`."""
    table = dict(np.load(path))
    labels = np.arange(len(table["offset"]) - 1) if label is None else table[label]
    if "blob" not in table:
        return [Image.fromarray(image) for image in table["images"][1::2]], labels[1::2]
    rows = np.random.default_rng(0).permutation(len(table["offset"]) - 1)[1::2]
    return [picture(table, row) for row in rows], labels[rows]


def alarms(pictures: list[Picture], labels: np.ndarray) -> dict[str, object]:
    """How many of all pairs are taken for near copies, the labels of two images being different or the same.

    `photographs` is how many images have a near copy of the same label; `refused` how many a new ledger would
    refuse if each leaves once, since 5 that it takes for copies left before.
    """
    printed = [fingerprint(picture) for picture in pictures]
    alike = set()
    earlier = Counter()
    rows = defaultdict(set)
    for row, one in enumerate(printed):
        for key in one.keys if one else ():
            rows[key].add(row)
    found = Counter()
    for row, one in enumerate(printed):
        later = {
            other for probe in (one.probes if one else ()) for other in rows.get(probe, ()) if other < row
        }
        found["compared"] += len(later)
        for other in later:
            if near_copies(one.bits, printed[other].bits):
                same = bool(labels[row] == labels[other])
                found[same] += 1
                earlier[row] += 1
                alike |= {row, other} if same else set()
    _, counts = np.unique(labels, return_counts=True)
    same = int((counts * (counts - 1)).sum()) // 2
    pairs = {False: len(labels) * (len(labels) - 1) // 2 - same, True: same}
    return {
        "images": len(printed),
        "no fingerprint": printed.count(None),
        "compared": found["compared"],
        "photographs": len(alike),
        "refused": sum(count >= 5 for count in earlier.values()),
    } | {
        name: {"pairs": pairs[key], "alarms": found[key], "interval": wilson(found[key], pairs[key])}
        for name, key in (("of different labels", False), ("of the same label", True))
        if pairs[key]
    }


def main() -> None:
    """Measure all changes and all pairs, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of the packed sets")
    parser.add_argument("--count", type=int, default=400, help="images of each set that are changed")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begun = time.time()
    sets = {
        "LFW": second_half(args.data / "lfw_faces_84.npz", "person"),
        "Caltech-101": second_half(args.data / "caltech101_84.npz", "label"),
        "CIFAR-10": second_half(args.data / "cifar10_jpeg_subset.npz", "label"),
    }
    large = [
        picture.resize((512, 512), Image.Resampling.LANCZOS)
        for picture in sets["Caltech-101"][0][: args.count]
    ]
    changed = {name: pictures[: args.count] for name, (pictures, _) in sets.items()} | {
        "Caltech-101 at 512": large
    }
    rates: dict[str, dict[str, object]] = {}
    bursts: dict[str, dict[str, object]] = {}
    for name, pictures in changed.items():
        rng = np.random.default_rng(args.seed)
        originals = [fingerprint(picture) for picture in pictures]
        rates[name] = {}
        for change, apply in CHANGES.items():
            copies = [fingerprint(apply(picture, rng)) for picture in pictures]
            seen = sum(map(noticed, originals, copies))
            rates[name][change] = {"noticed": seen, "of": len(copies), "interval": wilson(seen, len(copies))}
            print(f"{name}: {change}: {seen} of {len(copies)}", flush=True)
    for name in ("LFW", "Caltech-101"):
        rng = np.random.default_rng(args.seed)
        for by in MOVED:
            frames = [
                [fingerprint(frame(part * by / 2, picture, rng)) for part in (-1, 1)]
                for picture in changed[name]
            ]
            seen = sum(noticed(*pair) for pair in frames)
            bursts.setdefault(name, {})[f"{by:g}"] = {
                "noticed": seen,
                "of": len(frames),
                "interval": wilson(seen, len(frames)),
            }
        print(name, "bursts", json.dumps(bursts[name]), flush=True)
    cmu, people = second_half(args.data / "cmu_faces_32x30.npz", "person")
    poses = np.load(args.data / "cmu_faces_32x30.npz")["pose"][1::2]
    photographs, named = sets["LFW"]
    many = np.flatnonzero(np.bincount(named)[named] >= 5)  # of every second photograph
    sets["LFW, people of 10 photographs or more"] = [photographs[row] for row in many], named[many]
    sets["CMU, person and pose"] = cmu, 10 * people.astype(int) + poses
    # The same sittings, 90x96: small pictures are compared by another rule.
    larger = [picture.resize((90, 96), Image.Resampling.BICUBIC) for picture in cmu]
    sets["CMU at 96, person and pose"] = larger, 10 * people.astype(int) + poses
    sets["FER2013"] = second_half(args.data / "fer2013_48_subset.npz", None)
    drawn = np.load(args.data / "omniglot_28.npz")["images"][1::48]
    sets["Omniglot, character"] = (
        [Image.fromarray(255 - ink) for ink in drawn.reshape(-1, 28, 28)],
        np.arange(len(drawn)).repeat(20),
    )
    for name, source in (("drawn faces, identity", "faces"), ("glyphs, character", "glyphs")):
        world = data.load(source)
        rows = torch.randperm(len(world.images), generator=torch.Generator().manual_seed(args.seed))[:800]
        named = world.labels["identity" if source == "faces" else "class"]
        planes = [world.images[row].permute(1, 2, 0).numpy() for row in rows]
        sets[name] = [Image.fromarray(plane.squeeze()) for plane in planes], named.codes[rows].numpy()
    pairs = {}
    for name, (pictures, labels) in sets.items():
        pairs[name] = alarms(pictures, labels)
        print(name, json.dumps(pairs[name]), flush=True)
    record = {
        "noticed": rates,
        "bursts": bursts,
        "pairs": pairs,
        "settings": {"count": args.count, "seed": args.seed},
        "seconds": round(time.time() - begun, 1),
        "sfumato": sfumato.__version__,
    }
    write_rows(RECORD, [record])


if __name__ == "__main__":
    main()
