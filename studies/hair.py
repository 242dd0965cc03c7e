"""A proxy for hair colour on LFW, which has no labels of it: whether it is dark above the forehead, by a rule.

    python studies/unpack.py lfw ../shared/data runs/data/lfw
    python studies/hair.py ../shared/data runs/data/lfw                        # writes hair.csv beside table.csv
    python studies/hair.py ../shared/data runs/data/lfw --sheets runs/hair     # 200 photographs, to check it by eye

The mask paper's Table II keeps the colour of hair of CelebA, which is not here. This rule looks at six patches above the
forehead, which it finds by the landmarks, beside the skin below the eyes: `dark` where all are dark, `other` where none is
(grey and fair hair, bald heads, light hats), `unknown` in between, where the patches lie outside the picture, and
where the face is turned away or in the dark. It is a proxy: hats, shadows and dark skin mislead it. What two hundred photographs
look like to the eye is in studies/results/hair.jsonl, by hand: which of those that the sheets show are named wrongly.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from unpack import picture, write_csv

DARK, OTHER, UNKNOWN = "dark", "other", "unknown"
LUMINANCE = np.array([0.299, 0.587, 0.114])
UP, ASIDE = (1.35, 1.6), (-0.45, 0.0, 0.45)  # of patches, from between the eyes, in lengths of the face
HALF = (0.2, 0.12)  # of a patch: width and height
FRONTAL = (0.75, 1.25)  # between the eyes, of the way from eyes to mouth, of faces that are not turned away
LEAST_SKIN = 90  # grey levels: below, all is dark
CHECKED, SEED = 100, 7  # photographs of each verdict on the sheets
ACROSS, SIDE = 10, 120


def patch(photograph: np.ndarray, centre: np.ndarray, width: float, height: float) -> np.ndarray:
    """The pixels around a point, (N, 3); without those outside."""
    x, y = centre
    top, left = max(round(y - height), 0), max(round(x - width), 0)
    return photograph[top : max(round(y + height), 0), left : max(round(x + width), 0)].reshape(-1, 3)


def luminance(pixels: np.ndarray) -> float:
    """Of the median colour of (N, 3) pixels."""
    return float(np.median(pixels, 0) @ LUMINANCE)


def verdict(photograph: np.ndarray, landmarks: np.ndarray) -> str:
    """Whether it is dark above the forehead: DARK, OTHER or UNKNOWN.

    Args:
        photograph: (H, W, 3) uint8, the face upright.
        landmarks: (5, 2) x, y: eyes, nose, corners of the mouth.
    """
    eyes, mouth = landmarks[:2].mean(0), landmarks[3:].mean(0)
    length, between = np.linalg.norm(mouth - eyes), np.linalg.norm(landmarks[1] - landmarks[0])
    if not FRONTAL[0] <= between / length <= FRONTAL[1]:
        return UNKNOWN
    down, size = (mouth - eyes) / length, (length + between) / 2
    across = np.array([down[1], -down[0]])
    cheeks = [patch(photograph, (landmarks[k] + landmarks[k + 3]) / 2, *2 * [0.15 * size]) for k in (0, 1)]
    skin = luminance(np.concatenate(cheeks))
    centres = [eyes + size * (aside * across - up * down) for up in UP for aside in ASIDE]
    patches = [patch(photograph, at, HALF[0] * size, HALF[1] * size) for at in centres if at[1] >= 1]
    above = np.array([luminance(pixels) for pixels in patches if len(pixels) >= 9]) / max(skin, 1)
    if len(above) < len(ASIDE) or skin <= LEAST_SKIN:
        return UNKNOWN
    if np.median(above) < 0.42 and above.max() < 0.6:
        return DARK
    return OTHER if np.median(above) > 0.65 and above.min() > 0.55 else UNKNOWN


def drawn(verdicts: list[str], which: str) -> list[int]:
    """The rows that are checked by eye, of those of a verdict."""
    rows = np.flatnonzero(np.array(verdicts) == which)
    return sorted(np.random.default_rng(SEED).permutation(rows)[:CHECKED].tolist())


def sheet(table: dict[str, np.ndarray], rows: list[int]) -> Image.Image:
    """Photographs with their rows."""
    found = Image.new("RGB", (ACROSS * SIDE, -(-len(rows) // ACROSS) * (SIDE + 12)), "white")
    pen = ImageDraw.Draw(found)
    for number, row in enumerate(rows):
        x, y = number % ACROSS * SIDE, number // ACROSS * (SIDE + 12)
        found.paste(picture(table, row).resize((SIDE - 2, SIDE - 2)), (x, y))
        pen.text((x + 2, y + SIDE - 2), str(row), fill="black")
    return found


def main() -> None:
    """Write the table, and the sheets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packed", type=Path, help="the folder with the packed files")
    parser.add_argument("root", type=Path, help="the folder of the photographs, where attributes.csv is")
    parser.add_argument("--sheets", type=Path, help="a folder for pictures of those that are checked by eye")
    given = parser.parse_args()
    table = dict(np.load(given.packed / "lfw_faces_84.npz"))
    verdicts = [
        verdict(np.array(picture(table, row)), table["landmarks"][row]) for row in range(len(table["person"]))
    ]
    with (given.root / "attributes.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    about = [
        {"file": row["file"], "identity": row["identity"], "hair": hair, "split": row["split"]}
        for row, hair in zip(rows, verdicts, strict=True)
    ]
    write_csv(about, given.root / "hair.csv")
    print({name: verdicts.count(name) for name in (DARK, OTHER, UNKNOWN)})
    if given.sheets is not None:
        given.sheets.mkdir(parents=True, exist_ok=True)
        for which in (DARK, OTHER):
            chosen = drawn(verdicts, which)
            for half in (0, 1):
                part = chosen[half * CHECKED // 2 : (half + 1) * CHECKED // 2]
                sheet(table, part).save(given.sheets / f"{which}-{half}.png")


if __name__ == "__main__":
    main()
