"""The wheel: it has what a new environment needs, and works away from the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from PIL import Image

import sfumato

REPOSITORY = Path(__file__).parents[1]
SOURCE = REPOSITORY / "src" / "sfumato"

ALSO = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "constraints.txt")  # in an sdist
PAGE = {f"serve/page/{name}" for name in ("index.html", "assets/main.js", "assets/runtime.wasm")}  # as built


# What lies beside the library in a checkout, or in the folder of somebody who works in one.
BESIDE = ("runs/demo/model.safetensors", "data/photos/anna.jpg", "tests/test_planted.py", "build/a.txt")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what makes a package, so that nothing is left in the checkout, and of what must stay out."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", *ALSO):
        shutil.copy(REPOSITORY / name, copy / name)
    beside = shutil.ignore_patterns("__pycache__", "*.egg-info", "page")
    shutil.copytree(SOURCE, copy / "src" / "sfumato", ignore=beside)
    for name in (*(f"src/sfumato/{name}" for name in PAGE), *BESIDE):
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("planted")
    return copy


def built(folder: Path, what: str) -> Path:
    """The path of what setuptools builds in a folder: a wheel or an sdist."""
    code = f"import setuptools.build_meta as backend; print(backend.build_{what}('dist'))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return folder / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(checkout) -> Path:
    return built(checkout, "sdist")


@pytest.fixture(scope="module")
def wheel(checkout) -> Path:
    return built(checkout, "wheel")


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_sdist_holds_the_library_and_neither_data_nor_runs_nor_tests(sdist):
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    own = {name for name in files if not name.startswith(("src/sfumato/", "src/sfumato.egg-info/"))}
    assert own == {"PKG-INFO", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", *ALSO}
    assert {f"src/sfumato/{name}" for name in PAGE} <= files


def test_the_wheel_of_the_sdist_is_the_wheel_of_the_checkout(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert contents(built(source, "wheel")) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """The name of each file of a wheel, and its checksum."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_the_wheel_has_every_file_of_the_library_and_its_licence_and_nothing_else(unpacked):
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    here = {str(path) for path in files if not {"__pycache__", "page"} & set(path.parts)}
    files = [path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()]
    there = {str(path.relative_to("sfumato")) for path in files if path.parts[0] == "sfumato"}
    assert there == here | PAGE
    assert {"py.typed", "cli/demo.yaml"} <= there
    assert any(name.startswith("networks/") and name.endswith(".safetensors") for name in there)
    rest = {path.name for path in files if path.parts[0] != "sfumato"}
    assert rest == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "LICENSE"}


def away(unpacked: Path, folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Python with the wheel, in another folder."""
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    env |= {name: str(folder / name) for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME")}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_says_its_version(unpacked, tmp_path):
    said = away(unpacked, tmp_path, "-m", "sfumato", "--version")
    assert (said.returncode, said.stdout.strip()) == (0, sfumato.__version__)


def test_the_service_of_a_wheel_has_the_page(unpacked, tmp_path):
    code = "from sfumato.serve.http.app import page_of_package as page; print(page())"
    said = away(unpacked, tmp_path, "-c", code)
    assert said.stdout.strip() == str(unpacked / "sfumato" / "serve" / "page"), said.stderr


def test_it_protects_a_folder_away_from_the_checkout(unpacked, tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (16, 16), (90, 120, 200)).save(tmp_path / "photos" / "1.png")
    asked = ("photos", "released", "--with", "dp-pix:cell=4,epsilon=3", "--workers", "2")
    said = away(unpacked, tmp_path, "-m", "sfumato", "protect", *asked)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "released" / "1.png").is_file()


# From each room that reads a file of the package, or makes a process of its own.
CHOSEN = (
    "docs/installed.py",
    "cli/test_card.py",
    "learn/test_start.py::test_the_shipped_start_was_trained_until_its_validation_was_flat",
)


def test_chosen_tests_pass_with_the_wheel_away_from_the_checkout(unpacked, tmp_path):
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    where = ["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(REPOSITORY)]
    env = {**os.environ, "PYTHONPATH": str(unpacked), "SFUMATO_INSTALLED": str(unpacked)}
    for name in [name for name in env if name.startswith("PYTEST_")]:  # of the run that this is a part of
        del env[name]
    files = [str(REPOSITORY / "tests" / name) for name in CHOSEN]
    done = subprocess.run([*words, *where, *files], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_the_citation_names_this_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert citation["version"] == project["version"] == sfumato.__version__
    assert citation["license"] == project["license"]
