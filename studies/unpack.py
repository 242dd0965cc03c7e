"""Unpack the packed data sets of shared/data into the layouts that the library reads.

    python studies/unpack.py omniglot ../shared/data runs/data/omniglot

The packed files are not part of the library; what it reads are the layouts in which the data sets are
published. An unpacked folder that is complete is left as it is.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image


def omniglot(packed: Path, root: Path) -> int:
    """Write the 32,460 drawings as images_{background,evaluation}/ALPHABET/characterNN/ID_DRAWER.png."""
    table = np.load(packed / "omniglot_28.npz")
    ink = np.unpackbits(np.load(packed / "omniglot_105_bits.npz")["bits"], axis=-1, count=105)
    for i, character in enumerate(table["characters"]):
        part = "images_background" if table["background"][i] else "images_evaluation"
        folder = root / part / str(character)
        folder.mkdir(parents=True, exist_ok=True)
        for drawer, drawing in enumerate(ink[i], 1):
            name = f"{table['character_id'][i]:04d}_{drawer:02d}.png"
            Image.fromarray(255 * (1 - drawing)).convert("1").save(folder / name)
    return ink.shape[0] * ink.shape[1]


def main() -> None:
    """Unpack one data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["omniglot"])
    parser.add_argument("packed", type=Path, help="the folder with the packed files")
    parser.add_argument("root", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    done = arguments.root / "complete"
    if not done.exists():
        count = omniglot(arguments.packed, arguments.root)
        done.write_text(f"{count} files\n")
    print(f"{arguments.root}: {done.read_text().strip()}")


if __name__ == "__main__":
    main()
