"""How many images a second one core draws of each procedural world, against reading as many from files.

Usage: python benchmarks/worlds.py

Wanted: 1,000 images of 64x64 a second, tables and labels included. The files are PNGs, in a temporary folder.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from PIL import Image
from timing import Line, in_turn, show

from sfumato import images
from sfumato.data.labelled import LabelledImages
from sfumato.data.worlds.faces import faces
from sfumato.data.worlds.glyphs import glyphs

REQUIRED = 1000  # images of 64x64 a second
SIZE = 64
FILES = 200


def lines(short: bool) -> Iterator[Line]:
    sys.path.append(str(Path(__file__).parents[1] / "studies"))
    from drawn_start import scenes

    torch.set_num_threads(1)
    share = 8 if short else 1
    worlds: dict[str, Callable[[], LabelledImages]] = {
        "glyphs": lambda: glyphs(classes=200 // share, drawers=20, size=SIZE),
        "scenes": lambda: scenes(things=100 // share, images_per_thing=20, size=SIZE),
        "faces": lambda: faces(identities=136 // share, images_per_identity=30, headwear=100, size=SIZE),
    }
    for name, draw in worlds.items():
        drawn = draw()
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.png" for number in range(FILES)]
            for path, image in zip(paths, drawn.images, strict=False):
                Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()).save(path)
            turns = in_turn(
                draw,
                lambda paths=paths: [images.read(path, channels=None) for path in paths],
                seconds=3 if short else 10,
            )
        yield turns.rates(
            f"world {name}, {SIZE}x{SIZE}",
            against="reading PNG files",
            count=len(drawn),
            other_count=FILES,
            unit="images a second",
            limit=REQUIRED,
        )


def main() -> None:
    torch.set_num_threads(1)
    show(lines(short=False))


if __name__ == "__main__":
    main()
