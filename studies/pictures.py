"""Draw the pictures of the docs: the worlds, faces under protections, and what is kept at what risk.

python studies/pictures.py
"""

from pathlib import Path

import torch
from results_page import engine

from sfumato import data, images
from sfumato.data.labelled import contact_sheet
from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse
from sfumato.study import vocabulary
from sfumato.study.report.charts.drawing import axes_of, style
from sfumato.study.report.charts.labels import place_labels

PICTURES = Path(__file__).parents[1] / "docs" / "images"
SPECS = ("none", "blur:radius=3", "pixelize:cell=8", "gaussian:sigma=80", "dp-pix:cell=8,epsilon=1")


# What leaves a device -> its colour in the picture of a frontier.
COLOURS = {"image": vocabulary.VERMILION, "bits": vocabulary.BLUE, "numbers": vocabulary.GREEN}


def frontier_picture(name: str, path: Path) -> None:
    """Accuracy against how many are named, from one release and from ten, of every setting of a study."""
    study = engine.study(name)
    assert study is not None
    with style():
        figure, axes = axes_of(8.4, 4.6)
        labels, arrows = [], []
        for setting in study.settings:
            if not (setting.risk and setting.accuracy):
                continue
            spec = setting.protection
            kind = vocabulary.release_kind(spec)
            colour = COLOURS.get("image" if kind in vocabulary.IMAGES else kind, vocabulary.BLACK)
            x, y = 100 * setting.risk.top1.value, 100 * setting.accuracy.value
            axes.plot(x, y, "o", color=colour, markersize=6)
            ten = study.several[spec].named.get(10) if spec in study.several else None
            if ten is not None:
                arrow = {"arrowstyle": "->", "color": colour, "alpha": 0.35}
                axes.annotate("", (100 * ten.value, y), (x, y), arrowprops=arrow)
                arrows.append((x, y, 100 * ten.value, y))
            labels.append((x, y, spec, colour, 4.0))
        axes.set_xlabel("people named by the strongest adversary, % (arrow: from ten releases)")
        axes.set_ylabel("answers that stay right, %")
        axes.set_xlim(0, 105)
        axes.margins(y=0.12)
        place_labels(figure, axes, labels, arrows)
        figure.savefig(path, facecolor="white", metadata={"Date": None})


def main() -> None:
    """Write docs/images/*."""
    PICTURES.mkdir(exist_ok=True)
    faces = data.load("faces", identities=60, headwear=60, size=64)
    glyphs = data.load("glyphs", classes=10, drawers=14, size=56)
    images.write(PICTURES / "faces.png", contact_sheet(faces, "identity", rows=6, columns=12))
    images.write(PICTURES / "headwear.png", contact_sheet(faces, "headwear", rows=6, columns=12))
    images.write(PICTURES / "glyphs.png", contact_sheet(glyphs, "class", rows=10, columns=14))
    scenes = data.load("scenes", things=10, images_per_thing=12)
    images.write(PICTURES / "scenes.png", contact_sheet(scenes, "class", rows=8, columns=12))
    six = faces.images[:180:30]
    rows = [torch.cat(list(parse(spec).release(six, seeded_noise(0)).images()), dim=2) for spec in SPECS]
    sheet = torch.cat(rows, dim=1).repeat_interleave(2, 1).repeat_interleave(2, 2)
    images.write(PICTURES / "protections.png", sheet)
    frontier_picture("lfw-hats", PICTURES / "frontier.svg")


if __name__ == "__main__":
    main()
