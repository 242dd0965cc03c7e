"""The promised small install: `enrol` and `classify` of pixels where PyTorch is not installed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sfumato

# A service that answers by the mean colour, and the commands against it, in one process without PyTorch.
COMMANDS = """
import importlib.util, json, sys
from fastapi import FastAPI, Request
from sfumato import wire
from sfumato.base.server import running
from sfumato.cli import main
from sfumato.wire import labelled

assert importlib.util.find_spec("torch") is None
app, spec, seen = FastAPI(), sys.argv[1], []
model = {"name": "m", "kind": "few-shot", "spec": spec, "made_of": None, "shape": [3, 32, 32]}
model |= {"dimension": 3, "refusal": None}
made = {"id": "1", "name": "people", "model": model, "created": "2026-01-01T00:00:00Z"}
made |= {"version": 1, "classes": 1}

@app.get("/v1/classifiers/people")
async def classifier(): return made

@app.post("/v1/classifiers/1/examples")
async def enrol(request: Request):
    labels, data = labelled.split(await request.body())
    seen.append(wire.header(data).count)
    count = {"new": 1, "known": 0, "total": 1}
    return {"classes": [count | {"label": each.label, "examples": [each.id]} for each in labels]}

@app.post("/v1/classifiers/1/classify")
async def classify(request: Request):
    seen.append(wire.header(await request.body()).count)
    guess = {"label": "anna", "probability": 1.0, "distance": 0.0}
    return {"images": [{"guesses": [guess], "none_of_these": None}]}

def run(*words):
    sys.argv = ["sfumato", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words

with running(app) as url:
    run("enrol", url, "people", "photos", "--with", spec, "--people", "--ledger", "ledger.db")
    run("classify", url, "people", "query.png", "--ledger", "ledger.db")
assert seen == [2, 1], seen
"""


@pytest.fixture
def small(tmp_path: Path) -> dict[str, str]:
    """The environment of an installation that has all packages of this one but PyTorch's."""
    site = tmp_path / "site"
    site.mkdir()
    for path in (
        path for folder in sys.path if folder.endswith("-packages") for path in Path(folder).iterdir()
    ):
        link = site / path.name
        if (
            not path.name.startswith(("torch", "triton", "functorch", "__editable__"))
            and path.suffix != ".pth"
        ):
            link.exists() or link.symlink_to(path)
    source = Path(sfumato.__file__).parents[1]
    return os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{site}", "SFUMATO_KEY": "k" * 20}


@pytest.mark.parametrize("spec", ["dp-pix:cell=8,epsilon=3", "pixelize:cell=8"])
def test_pixels_are_enrolled_and_classified_without_pytorch(
    small: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("photos/anna/a.png", "photos/ben/b.png", "query.png"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 44, 3), np.uint8)).save(name)
    ran = subprocess.run(
        [sys.executable, "-S", "-c", COMMANDS, spec], env=small, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "in all: 2 files: 2 enrolled now" in ran.stdout
    assert ran.stdout.endswith("query.png: anna 100.0%\n")
