"""What the pages suppose: photographs by person, a table of them, a study file; and who runs a page there."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from blocks import SMALLER, Shell, of

from sfumato import data, images
from sfumato.data import faces as _faces  # noqa: F401  # the reader, before it is made smaller
from sfumato.study import grid

SMALL_STUDY = {
    "data": {"source": "folder:photos", "size": 16},
    "task": {
        "target": "class",
        "sensitive": "class",
        "way": 3,
        "shot": 2,
        "queries": 2,
        "episodes": 5,
        "other_shots": [],
    },
    "protections": ["pixelize:cell=4"],
    "learners": ["clean"],
    "attacks": ["reidentify-values"],
    "measures": ["ssim"],
    "training": {
        **{"way": 3, "shot": 2, "queries": 2, "epochs": 1, "episodes_per_epoch": 2, "denoiser_depth": None},
        **{"validation_way": 3, "validation_shot": 2, "validation_queries": 2, "validation_episodes": 2},
    },
    "adversary": {"steps": 2, "adaptive_steps": 2, "known": 3, "probes": 3, "copies": 1},
    "pictures": 0,
    "tells": False,
}
PEOPLE = ("anna", "ben", "carla", "dan", "eva", "finn", "gia", "hugo", "ida", "jon", "kim", "lea")


@pytest.fixture(scope="module")
def album(tmp_path_factory) -> Path:
    """What the pages suppose: photographs by person, a table of them, and a study file."""
    folder = tmp_path_factory.mktemp("album")
    world = data.load("faces", identities=len(PEOPLE), images_per_identity=8, headwear=6, size=32)
    rows = []
    for number, (image, person) in enumerate(zip(world.images, world.labels["identity"].codes, strict=True)):
        file = f"photos/{PEOPLE[person]}/{number % 8 + 1}.png"
        gender = ("female", "male")[int(person) % 2]
        images.write(folder / file, image)
        rows.append((file, gender, world.labels["headwear"].codes[number].item(), PEOPLE[person]))
    with (folder / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "gender", "hat", "person"), *rows])
    with (folder / "pairs.csv").open("w", newline="") as file:
        pairs = [
            (row[0], rows[number - 1][0], row[3], "dp-pix", "photos") for number, row in enumerate(rows[:12])
        ]
        csv.writer(file).writerows([("original", "reconstruction", "class", "model", "source"), *pairs])
    shutil.copy(folder / "photos/anna/1.png", folder / "new.png")
    (folder / "mine.yaml").write_text(yaml.safe_dump(SMALL_STUDY))
    return folder


@pytest.fixture
def world(album, tmp_path, monkeypatch) -> Path:
    """A copy of the album to work in, a home of its own, and small worlds and counts by default."""
    folder = tmp_path / "work"
    shutil.copytree(album, folder)
    for room in ("var/lib/sfumato", "var/backups"):  # of a machine that serves
        (folder / room).mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("SFUMATO_STORE", "SFUMATO_KEY"):  # so that what a page sets is unset again
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    smaller = {
        data.faces: {"seed": 0, "identities": 60, "images_per_identity": 6, "headwear": 40, "size": 32},
        data.glyphs: {"classes": 250},
    }
    for function, values in smaller.items():
        for key, value in values.items():
            monkeypatch.setitem(function.__kwdefaults__, key, value)
    return folder


@pytest.fixture
def run_page(world, capfd) -> Callable[[str], None]:
    """Runs the blocks of a page from its first to its last, in this process."""

    def run(page: str) -> None:
        shell = Shell(SMALLER)
        names: dict[str, object] = {"__name__": "page"}
        threads = torch.get_num_threads()
        try:
            for block in of(page):
                if not block.runs:
                    continue
                where = f"{page}:{block.line}"
                if block.language == "python":
                    exec(compile(shell.adapted(block.text), where, "exec"), names)
                elif block.language == "yaml":
                    wanted = yaml.safe_load(block.text)
                    grid.parse({**SMALL_STUDY, **wanted}, where)
                else:
                    shell.run(block.text, capfd.readouterr)
        finally:
            shell.close()
            torch.set_num_threads(threads)

    return run
