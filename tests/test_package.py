"""The wheel: it has what a new environment needs, and works away from the checkout."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from PIL import Image

import sfumato

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src" / "sfumato"

PAGE = {f"serve/page/{name}" for name in ("index.html", "assets/main.js", "assets/runtime.wasm")}  # as built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy, so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy / name)
    shutil.copytree(
        SOURCE, copy / "src" / "sfumato", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "page")
    )
    for name in PAGE:
        path = copy / "src" / "sfumato" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the page")
    build = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_has_every_file_of_the_library(unpacked):
    here = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*")
        if path.is_file() and not {"__pycache__", "page"} & set(path.parts)
    }
    there = {
        str(path.relative_to(unpacked / "sfumato"))
        for path in (unpacked / "sfumato").rglob("*")
        if path.is_file()
    }
    assert there == here | PAGE
    assert {"py.typed", "cli/demo.yaml"} <= there
    assert any(name.startswith("networks/") and name.endswith(".safetensors") for name in there)


def test_the_wheel_holds_nothing_but_the_library_and_its_licence(unpacked):
    rest = {
        path.name
        for path in unpacked.rglob("*")
        if path.is_file() and path.relative_to(unpacked).parts[0] != "sfumato"
    }
    assert rest == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "LICENSE"}


def away(unpacked: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """`python -m sfumato` of the wheel, in another folder."""
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        env[name] = str(folder / name)
    return subprocess.run(
        [sys.executable, "-m", "sfumato", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_says_its_version(unpacked, tmp_path):
    said = away(unpacked, tmp_path, "--version")
    assert (said.returncode, said.stdout.strip()) == (0, sfumato.__version__)


def test_the_service_of_a_wheel_has_the_page(unpacked, tmp_path):
    code = "from sfumato.serve.app import page_of_package as page; print(page())"
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert said.stdout.strip() == str(unpacked / "sfumato" / "serve" / "page"), said.stderr


def test_it_protects_a_folder_away_from_the_checkout(unpacked, tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (16, 16), (90, 120, 200)).save(tmp_path / "photos" / "1.png")
    said = away(
        unpacked,
        tmp_path,
        "protect",
        "photos",
        "released",
        "--with",
        "dp-pix:cell=4,epsilon=3",
        "--workers",
        "1",
    )
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "released" / "1.png").is_file()


def test_the_citation_names_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert citation["version"] == project["version"] == sfumato.__version__
    assert citation["license"] == project["license"]
