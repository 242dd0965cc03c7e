"""Reconstructions sorted by each measure, and measures against the share that judges recognise."""

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rows import Rows

from reconstructed.judged import folder_of
from reconstructed.learned import CHOSEN, present, record_of
from reconstructed.sources import RUNS
from reconstructed.tables import columns
from reconstructed.victims import READ
from sfumato import images

LEARNED = f"semsim-perceptual, {CHOSEN}"
SHOWN = {
    "psnr": "PSNR",
    "ssim": "SSIM",
    "squeezenet": "SqueezeNet\ndistance",
    "semsim": "SemSim",
    LEARNED: "semsim-\nperceptual",
}


def draw(names: Sequence[str], records: Rows, runs: Path = RUNS, folder: Path | None = None) -> None:
    """All pictures."""
    folder = folder or runs / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        draw_sorted(name, records, runs, folder / f"reconstruction-{name}.png")
    draw_scatter(names, records, folder / "reconstruction-metrics.png")


def draw_sorted(name: str, records: Rows, runs: Path, path: Path) -> None:
    """One original, and its reconstructions in the order in which each measure has their victims (Fig. 6).

    The original is the first of those of which about half of the reconstructions are recognised.
    """
    record = record_of(name, READ, records)
    victims = list(record["victims"])
    who = torch.tensor([record["victims"][one]["who"] for one in victims])  # (victims, images)
    place = int((who.double().mean(0) - 0.5).abs().argmin())
    files = [runs / name / "originals", *(folder_of(name, READ, one, runs) for one in victims)]
    shown = [
        images.to_float(images.read(folder / f"{place:02d}.png", channels=3)[None])[0] for folder in files
    ]
    scores = columns(name, READ, records)
    figure = Figure(figsize=(1 + 0.6 * len(shown), 0.75 * len(SHOWN)), dpi=64, layout="constrained")
    grid = figure.subplots(len(SHOWN), len(shown))
    for row, (measure, words) in zip(grid, SHOWN.items(), strict=True):
        order = sorted(range(len(victims)), key=lambda at: -scores[measure][0][at])
        for column, axes in enumerate(row):
            at = order[column - 1] if column else None
            axes.imshow(shown[0 if at is None else at + 1].permute(1, 2, 0).numpy())
            axes.set_xticks([])
            axes.set_yticks([])
            colour = "black" if at is None else "tab:green" if who[at, place] else "tab:red"
            for side in axes.spines.values():
                side.set(color=colour, linewidth=2)
        row[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(path, metadata={"Software": None})


def draw_scatter(names: Sequence[str], records: Rows, path: Path) -> None:
    """A row a data set, a column a measure, a dot a victim."""
    figure = Figure(figsize=(10, 2.2 * len(names)), dpi=80, layout="constrained")
    grid = figure.subplots(len(names), len(SHOWN), sharey=True, squeeze=False)
    for row, name in zip(grid, names, strict=True):
        for marker, attack in zip("o^", present(names, records), strict=False):
            victims = records[f"{name}-{attack}"]["victims"].values()
            shares = [each["recognised"] / each["items"] for each in victims]
            scores = columns(name, attack, records)
            for axes, (measure, words) in zip(row, SHOWN.items(), strict=True):
                values = [value if measure in ("psnr", "ssim") else -value for value in scores[measure][0]]
                axes.plot(values, shares, marker, markersize=5, alpha=0.7, label=attack)
                axes.tick_params(labelsize=7)
                if name == names[0]:
                    axes.set_title(words.replace("-\n", "-").replace("\n", " "), fontsize=9)
        row[0].set_ylabel(f"{name}\nrecognised by judges", fontsize=8)
    grid[0][0].legend(fontsize=7, frameon=False)
    figure.savefig(path, metadata={"Software": None})
