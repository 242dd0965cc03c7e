"""Draw the pictures of the docs; those of embeddings, features, norms, masks and reconstructions are of commit 2f64c651.

python studies/pictures.py [the Chromium or Chrome that photographs the report; default: chromium]
"""

import base64
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import results
import torch
from drawn_start import scenes
from matplotlib.figure import Figure
from PIL import Image

from sfumato import data, images, protect
from sfumato.cli.data import contact_sheet
from sfumato.dp.mechanisms import seeded_noise
from sfumato.study import report, vocabulary
from sfumato.study.choose.results import Results
from sfumato.study.report.charts import axes_of, place_labels, style

PICTURES = Path(__file__).parents[1] / "docs" / "images"
# One face of the demo: as it is, at three strengths of protections of pixels, and as a code.
STRENGTHS = ("none", "blur:radius=3", "pixelize:cell=8", "dp-pix:cell=8,epsilon=0.5", "code:bits=16")
FACE = 3  # of the examples that a study records
REPORT = (1100, 1212)  # pixels of the report that are shown


# What leaves a device -> its colour in the picture of a frontier.
COLOURS = {"image": vocabulary.VERMILION, "bits": vocabulary.BLUE, "numbers": vocabulary.GREEN}


def frontier_picture(name: str, path: Path) -> None:
    """Accuracy against how many are named, from one release and from ten, of every setting of a study."""
    study = results.study(name)
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
            last = study.curves[spec].points[-1] if spec in study.curves else None
            if last is not None:
                arrow = {"arrowstyle": "->", "color": colour, "alpha": 0.35}
                end = 100 * last.named.value
                axes.annotate("", (end, y), (x, y), arrowprops=arrow)
                arrows.append((x, y, end, y))
                axes.annotate(str(last.releases), (end, y), fontsize=7, color=colour, va="bottom")
            labels.append((x, y, spec, colour, 4.0))
        arrow_says = "arrow: from as many releases as it says"
        axes.set_xlabel(f"people named by the strongest adversary, % ({arrow_says})")
        axes.set_ylabel("answers that stay right, %")
        axes.set_xlim(0, 105)
        axes.margins(y=0.12)
        place_labels(figure, axes, labels, arrows)
        figure.savefig(path, facecolor="white", metadata={"Date": None})


def strengths_picture(name: str, path: Path) -> None:
    """One face under protections, each above how many people are named and how many answers stay right."""
    study = results.study(name)
    assert study is not None
    settings = {setting.protection: setting for setting in study.settings}
    (shown,) = (record for record in study.records if record.kind == "examples")
    code, face = STRENGTHS[-1], shown.result.examples[FACE]
    clear = Image.open(io.BytesIO(base64.b64decode(face.original.partition(",")[2]))).convert("RGB")
    with style():
        figure = Figure(figsize=(12.4, 2.9))
        *places, looked_up = figure.subplots(1, len(STRENGTHS) + 1)
        for axes, spec in zip(places, STRENGTHS, strict=True):
            _draw(axes, None if spec == code else released(clear, spec), face.words)
            accuracy = settings[spec].accuracy
            assert accuracy is not None
            axes.set_title("original" if spec == "none" else spec, fontsize=9.5)
            named, guessed = _named(study, spec)
            _write(axes, -0.08, named, vocabulary.BLUE if guessed else vocabulary.VERMILION)
            kept = f"{100 * accuracy.value:.0f}% of hats right"
            _write(axes, -0.31, kept)
        _frame(looked_up)
        looked_up.set_box_aspect(1)
        looked_up.set_title("that code in an answer table", fontsize=9.5)
        _write(looked_up, 0.55, "nothing is sent")
        _write(looked_up, -0.08, "named as by guessing,\nfrom any number", vocabulary.BLUE)
        _write(looked_up, -0.31, kept)
        figure.subplots_adjust(left=0.01, right=0.99, top=0.92, bottom=0.26, wspace=0.06)
        figure.savefig(path, dpi=160, facecolor="white", metadata={"Software": None})


def _write(axes: Any, height: float, words: str, colour: str = vocabulary.BLACK) -> None:
    axes.text(0.5, height, words, transform=axes.transAxes, ha="center", va="top", color=colour)


def _named(study: Results, spec: str) -> tuple[str, bool]:
    """How often people are named from one release and from the most, and whether one tells no more than guessing."""
    if spec not in study.curves:
        return "it shows who it is", False
    first, *_, last = study.curves[spec].points
    share = f"{first.named.value:.0%} of people named\nfrom one, {last.named.value:.0%} from {last.releases}"
    return share, first.named.low <= first.chance


def _frame(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
    axes.grid(visible=False)


def released(clear: Image.Image, spec: str) -> Image.Image:
    """A picture as it leaves under a protection without training."""
    batch = torch.from_numpy(np.array(clear)).permute(2, 0, 1)[None]
    sent = protect.parse(spec).release(batch, seeded_noise(0)).images()
    return Image.fromarray(sent[0].permute(1, 2, 0).numpy())


def _draw(axes: Any, picture: Image.Image | None, words: str) -> None:
    """An image; or a code as a square for each of its bits."""
    _frame(axes)
    if picture is not None:
        axes.imshow(picture, interpolation="nearest")
        return
    bits = [int(bit) for bit in words.replace(" ", "")]
    side = round(len(bits) ** 0.5)
    axes.imshow(torch.tensor(bits).view(side, side).numpy(), cmap="gray", interpolation="nearest")


def report_picture(name: str, path: Path, browser: str) -> None:
    """The head of a study's report, as a browser shows it."""
    with tempfile.TemporaryDirectory() as folder:
        page = report.write(shutil.copy(results.RESULTS / f"{name}.jsonl", folder))
        size = ",".join(map(str, REPORT))
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        flags += [f"--user-data-dir={folder}/profile", f"--window-size={size}", f"--screenshot={path}"]
        subprocess.run([browser, *flags, page.as_uri()], check=True, capture_output=True, timeout=120)


def main() -> None:
    """Write docs/images/*."""
    browser = sys.argv[1] if len(sys.argv) > 1 else "chromium"
    PICTURES.mkdir(exist_ok=True)
    faces = data.load("faces", identities=60, headwear=60, size=64)
    glyphs = data.load("glyphs", classes=10, drawers=14, size=56)
    images.write(PICTURES / "faces.png", contact_sheet(faces, "identity", rows=6, columns=12))
    images.write(PICTURES / "headwear.png", contact_sheet(faces, "headwear", rows=6, columns=12))
    images.write(PICTURES / "glyphs.png", contact_sheet(glyphs, "class", rows=10, columns=14))
    things = scenes(things=10, images_per_thing=12)
    images.write(PICTURES / "scenes.png", contact_sheet(things, "class", rows=8, columns=12))
    frontier_picture("lfw-hats-many", PICTURES / "frontier.svg")
    strengths_picture("demo", PICTURES / "strengths.png")
    report_picture("demo", PICTURES / "report.png", browser)


if __name__ == "__main__":
    main()
