"""A package outside the tree adds a protection, an adversary and an encoder: the guide's, installed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from sfumato import images
from sfumato.artefacts import read_card
from sfumato.study.records import read_run

GUIDE = Path(__file__).parents[2] / "docs/guides/own-parts.md"
STUDY = {
    "data": {"source": "faces", "identities": 16, "images_per_identity": 8, "headwear": 12, "size": 16},
    "task": {"target": "headwear", "sensitive": "identity", "way": 2, "shot": 1, "queries": 2, "episodes": 5},
    "learners": ["protected"],
    "training": {"epochs": 1, "episodes_per_epoch": 2, "validation_episodes": 2},
    "board": True,
    "measures": [],
    "adversary": {"steps": 2, "adaptive_steps": 2, "known": 3, "probes": 3, "copies": 1},
    "recommend": {"reidentification_at_most": 0.5},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


PROGRAM = """
import shlex, sys
from sfumato.cli.app import app
for words in sys.argv[1:]:
    app(shlex.split(words), standalone_mode=False)
    print("end of command", flush=True)
"""


def sfumato(folder: Path, packages: Path, *commands: str) -> tuple[list[str], str]:
    """What commands print until one fails, and the errors, in a process whose path has the packages."""
    paths = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths, "XDG_DATA_HOME": str(folder / "home")}
    words = [sys.executable, "-c", PROGRAM, *commands]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout.split("end of command\n"), " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip installed the package of the guide."""
    folder = tmp_path_factory.mktemp("own")
    source = folder / "eyes"
    source.mkdir()
    (toml,), (code,) = blocks("text"), blocks("python")
    (source / "pyproject.toml").write_text(toml)
    (source / "eyes.py").write_text(code)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "packages"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, source], check=True)
    return folder / "packages"


@pytest.fixture(scope="module")
def said(packages: Path) -> tuple[list[str], str]:
    """A study of all three by two workers, its board, a folder that is protected, and a mistake."""
    (own,) = map(yaml.safe_load, blocks("yaml"))
    folder = packages.parent
    own["training"] |= STUDY["training"]
    (folder / "mine.yaml").write_text(yaml.safe_dump(STUDY | own))
    images.write(folder / "photos/one.png", torch.full((3, 8, 8), 200, dtype=torch.uint8))
    protect = "protect photos released --workers 1 --with"
    study = ("study run mine.yaml --workers 2 --yes", "study board runs/mine --json")
    said = sfumato(folder, packages, *study, f"{protect} stripes:width=2", f"{protect} stripe:width=2")
    assert len(said[0]) == 1 + 3, said[1]  # all commands but the last one ended well
    return said


def test_workers_measure_an_own_protection_by_an_own_adversary_and_train_an_own_encoder(packages, said):
    run = packages.parent / "runs/mine"
    (_, study), *records = read_run(run)
    assert study["protections"] == ["none", "stripes:width=1", "stripes:width=2"]
    cells = [record["cell"] for _, record in records]
    attacked = {cell["protection"] for cell in cells if cell.get("attack") == "brightness"}
    assert attacked == {"none", "stripes:width=1", "stripes:width=2"}
    cards = [read_card(path)["config"] for path in (run / "models").glob("few-shot-*.safetensors")]
    assert {card["encoder"] for card in cards} == {"tiny"}
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "compares how bright releases are" in page
    assert "Stripes, by rows of a stripe" in page


def test_an_own_protection_has_a_row_of_the_board_and_protects_a_folder(packages: Path, said):
    rows = {row["protection"]: row for row in json.loads(said[0][1])}
    assert rows.keys() == {"stripes:width=1", "stripes:width=2", "none"}
    assert rows["stripes:width=1"]["bytes"] == 3 * 16 * 16
    assert 0 <= rows["stripes:width=1"]["named"]["1"]["value"] <= 1
    (released,) = (packages.parent / "released").glob("*.png")
    assert (images.read(released)[:, 2:4] == 0).all()


def test_an_unknown_name_and_a_package_that_cannot_be_imported_are_named(packages, said, tmp_path: Path):
    assert "did you mean 'stripes'? Known: answer, avatar, block, blur" in said[1]
    (tmp_path / "eyes.py").write_text("import no_such_library\n")
    _, broken = sfumato(tmp_path, packages, "protect photos released --with stripes:width=2")
    assert "protection 'stripes' of the package eyes 1.0 cannot be imported from eyes:Stripes" in broken
    assert "No module named 'no_such_library'" in broken
