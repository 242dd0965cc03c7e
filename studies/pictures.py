"""Draw the pictures of the docs: contact sheets of the worlds, and faces under every protection.

python studies/pictures.py
"""

from pathlib import Path

import torch

from sfumato import data, images
from sfumato.data.labelled import contact_sheet
from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse

PICTURES = Path(__file__).parents[1] / "docs" / "images"
SPECS = ("none", "blur:radius=3", "pixelize:cell=8", "gaussian:sigma=80", "dp-pix:cell=8,epsilon=1")


def main() -> None:
    """Write docs/images/*.png."""
    PICTURES.mkdir(exist_ok=True)
    faces = data.load("faces", identities=60, headwear=60, size=64)
    glyphs = data.load("glyphs", classes=10, drawers=14, size=56)
    images.write(PICTURES / "faces.png", contact_sheet(faces, "identity", rows=6, columns=12))
    images.write(PICTURES / "headwear.png", contact_sheet(faces, "headwear", rows=6, columns=12))
    images.write(PICTURES / "glyphs.png", contact_sheet(glyphs, "class", rows=10, columns=14))
    six = faces.images[:180:30]
    rows = [torch.cat(list(parse(spec).release(six, seeded_noise(0)).images()), dim=2) for spec in SPECS]
    sheet = torch.cat(rows, dim=1).repeat_interleave(2, 1).repeat_interleave(2, 2)
    images.write(PICTURES / "protections.png", sheet)


if __name__ == "__main__":
    main()
