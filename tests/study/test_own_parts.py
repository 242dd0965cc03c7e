"""A package outside the tree adds a protection and an adversary: the guide's own, installed as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

GUIDE = Path(__file__).parents[2] / "docs/guides/own-parts.md"
STUDY = {
    "data": {"source": "faces", "identities": 12, "images_per_identity": 8, "headwear": 6, "size": 16},
    "task": {"target": "expression", "sensitive": "identity"},
    "learners": ["classifier-clean"],
    "classifier": {"epochs": 1},
    "measures": [],
    "adversary": {"steps": 2, "adaptive_steps": 2, "gallery": 3, "probes": 3, "copies": 1},
    "recommend": {"reidentification_at_most": 0.5},
    "tells": False,
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
    (toml,) = blocks("text")
    (source / "pyproject.toml").write_text(toml)
    (code,) = blocks("python")
    (source / "eyes.py").write_text(code)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(folder / "packages"), str(source)], check=True)
    return folder / "packages"


@pytest.fixture(scope="module")
def run(packages: Path) -> Path:
    """The folder of a study of both, by two workers."""
    (own,) = blocks("yaml")
    folder = packages.parent
    (folder / "mine.yaml").write_text(yaml.safe_dump(STUDY | yaml.safe_load(own)))
    done = sfumato(folder, "study", "run", "mine.yaml", "--workers", "2", "--yes", packages=packages)
    assert done.returncode == 0, done.stderr
    return folder / "runs/mine"


def test_workers_measure_an_own_protection_by_an_own_adversary(run: Path):
    from sfumato.study import report

    study, records = report.load(run)
    assert study["protections"] == ["none", "stripes:width=1", "stripes:width=2"]
    attacked = {record.cell.protection for record in records if record.cell.attack == "brightness"}
    assert attacked == {"stripes:width=1", "stripes:width=2"}


def test_the_report_says_what_the_package_says_of_them(run: Path):
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "compares how bright releases are" in page
    assert "Stripes, by rows of a stripe" in page


def test_a_folder_is_protected_by_it(packages: Path, run: Path, tmp_path: Path):
    from sfumato import images

    images.write(tmp_path / "photos/one.png", torch.full((3, 8, 8), 200, dtype=torch.uint8))
    done = sfumato(tmp_path, "protect", "photos", "released", "--with", "stripes:width=2", packages=packages)
    assert done.returncode == 0, done.stderr
    (released,) = (tmp_path / "released").glob("*.png")
    assert (images.read(released)[:, 2:4] == 0).all()


def test_an_unknown_name_is_answered_with_those_of_packages(packages: Path, tmp_path: Path):
    done = sfumato(tmp_path, "protect", "photos", "released", "--with", "stripe:width=2", packages=packages)
    assert "did you mean 'stripes'? Known: answer, block, blur" in " ".join(done.stderr.split())


def test_a_package_that_cannot_be_imported_is_named(packages: Path, tmp_path: Path):
    (tmp_path / "eyes.py").write_text("import no_such_library\n")
    done = sfumato(tmp_path, "protect", "photos", "released", "--with", "stripes:width=2", packages=packages)
    said = " ".join(done.stderr.split())
    assert "protection 'stripes' of the package eyes 1.0 cannot be imported from eyes:Stripes" in said
    assert "No module named 'no_such_library'" in said
