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


def sfumato(folder: Path, *arguments: str, packages: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose path has the packages."""
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "sfumato", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_DATA_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )


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
def run(packages: Path) -> Path:
    """The folder of a study of all three, by two workers."""
    (own,) = map(yaml.safe_load, blocks("yaml"))
    folder = packages.parent
    own["training"] |= STUDY["training"]
    (folder / "mine.yaml").write_text(yaml.safe_dump(STUDY | own))
    done = sfumato(folder, "study", "run", "mine.yaml", "--workers", "2", "--yes", packages=packages)
    assert done.returncode == 0, done.stderr
    return folder / "runs/mine"


def test_workers_measure_an_own_protection_by_an_own_adversary_and_train_an_own_encoder(run: Path):
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


def test_an_own_protection_has_a_row_of_the_board(packages: Path, run: Path):
    done = sfumato(run, "study", "board", ".", "--json", packages=packages)
    assert done.returncode == 0, done.stderr
    rows = {row["protection"]: row for row in json.loads(done.stdout)}
    assert rows.keys() == {"stripes:width=1", "stripes:width=2", "none"}
    assert rows["stripes:width=1"]["bytes"] == 3 * 16 * 16
    assert 0 <= rows["stripes:width=1"]["named"]["1"]["value"] <= 1


def test_a_folder_is_protected_by_it(packages: Path, run: Path, tmp_path: Path):
    images.write(tmp_path / "photos/one.png", torch.full((3, 8, 8), 200, dtype=torch.uint8))
    done = sfumato(tmp_path, "protect", "photos", "released", "--with", "stripes:width=2", packages=packages)
    assert done.returncode == 0, done.stderr
    (released,) = (tmp_path / "released").glob("*.png")
    assert (images.read(released)[:, 2:4] == 0).all()


def test_an_unknown_name_and_a_package_that_cannot_be_imported_are_named(packages: Path, tmp_path: Path):
    def said(spec: str) -> str:
        done = sfumato(tmp_path, "protect", "photos", "released", "--with", spec, packages=packages)
        return " ".join(done.stderr.split())

    assert "did you mean 'stripes'? Known: answer, avatar, block, blur" in said("stripe:width=2")
    (tmp_path / "eyes.py").write_text("import no_such_library\n")
    broken = said("stripes:width=2")
    assert "protection 'stripes' of the package eyes 1.0 cannot be imported from eyes:Stripes" in broken
    assert "No module named 'no_such_library'" in broken
