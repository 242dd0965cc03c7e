"""What a unit of work of a study costs: the constants of sfumato.study.cost, by which a pre-flight forecasts.

    python benchmarks/forecast.py

Two studies, those of `sfumato demo` with less training, run here on one core; the constants are the least
squares over their cells that are not negative. Seconds are of the processor, which is not busy
with other programs then.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from scipy.optimize import nnls

import sfumato.cli
from sfumato.study import cost, grid, preflight, run
from sfumato.study.cells import Cell

CLASSES = {
    "data": {"source": "faces", "identities": 40, "images_per_identity": 10, "headwear": 40, "size": 64},
    "task": {"target": "gender", "sensitive": "identity"},
    "classifier": {"epochs": 6},
    "codes": {"pretraining_epochs": 1, "epochs": 2},
    "masks": {"epochs": 2},
    "restoration": {"steps": 8},
    "inversion": {"steps": 25},
    "adversary": {"steps": 25, "adaptive_steps": 6},
}
EPISODES = {
    "data": {"source": "faces", "identities": 80, "images_per_identity": 15, "headwear": 60, "size": 32},
    "task": {"target": "headwear", "sensitive": "identity", "episodes": 600},
    "training": {"epochs": 2, "episodes_per_epoch": 10},
    "codes": {"pretraining_epochs": 1, "epochs": 2},
    "masks": {"epochs": 2},
    "features": {"attribute_epochs": 1, "simple_epochs": 1, "private_epochs": 1},
    "restoration": {"steps": 12},
    "inversion": {"steps": 40},
    "adversary": {"steps": 40, "adaptive_steps": 8},
}
STUDIES = (("demo_classes.yaml", CLASSES), ("demo.yaml", EPISODES))


def settings(name: str, shorter: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a demo, with less training."""
    own: dict[str, Any] = yaml.safe_load(
        (Path(sfumato.cli.__file__).parent / name).read_text(encoding="utf-8")
    )
    for group, values in shorter.items():
        own[group] = {**own.get(group, {}), **values}
    return own


def rows(name: str, shorter: Mapping[str, Any]) -> Iterator[tuple[Cell, dict[str, float], float]]:
    """Run a study. -> each cell, its work and the seconds that it took."""
    prepared = run.prepare(grid.parse(settings(name, shorter)), fit=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = run.run(prepared, folder, progress=run.Progress.printed())
        records = [json.loads(path.read_text()) for path in (directory / "records").glob("*.json")]
    taken = {
        (record["kind"], *sorted(map(str, record["cell"].values()))): record["processor_seconds"]
        for record in records
    }
    for cell, work in cost.units(prepared.config, preflight.sizes(prepared.config, prepared.data)):
        yield cell, work, taken[cell.kind, *sorted(map(str, cell.coordinates.values()))]


def main() -> None:
    """Measure."""
    torch.set_num_threads(1)
    step = preflight.step_seconds(os.cpu_count() or 1)
    studies = [list(rows(name, shorter)) for name, shorter in STUDIES]
    every = [row for study in studies for row in study]
    names = sorted({name for _, work, _ in every for name in work} - {"encoder"})
    amounts = np.array([[work.get(name, 0.0) for name in names] for _, work, _ in every])
    taken = np.array([seconds for *_, seconds in every])
    constants, _ = nnls(amounts, taken)
    print(f"STEP = {step:.2e}")
    for name, constant in zip(names, constants, strict=True):
        print(f'    "{name}": {constant:.2e},')
    for (name, _), study in zip(STUDIES, studies, strict=True):
        fitted = sum(
            constants[names.index(each)] * much for _, work, _ in study for each, much in work.items()
        )
        print(f"{name}: {sum(seconds for *_, seconds in study):.0f} s, fitted {fitted:.0f} s")
    worst = sorted(zip(taken - amounts @ constants, taken, every, strict=True), key=lambda row: -abs(row[0]))
    for off, seconds, (cell, *_) in worst[:8]:
        print(f"{cell}: {seconds:.1f} s, fitted {seconds - off:.1f} s")


if __name__ == "__main__":
    main()
