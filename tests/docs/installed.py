"""The README, done with an installed wheel away from the checkout: tests/test_package.py runs this file."""

import copy
import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from blocks import SMALLER, Shell
from PIL import Image

from sfumato import data, images
from sfumato.base.engines import EngineConfig
from sfumato.cli import demo

SHARED = Path(__file__).parents[3] / "shared" / "data"

# The settings of the demo, so that it takes seconds: what it prints at its end is what is run here.
DEMO = {
    "name": "demo",
    "protections": ["pixelize:cell=4", "code:bits=1"],
    "learners": ["classifier-clean", "classifier-protected"],
    "classifier": {"network": "conv4", "patience": 20},
    "codes": {"side": 16, "way": 2, "shot": 2, "queries": 2, "epochs": 20, "episodes_per_epoch": 10},
    "attacks": ["reidentify-values"],
    "measures": ["ssim"],
    "adversary": {"steps": 2, "adaptive_steps": 2, "batch": 16, "copies": 1},
    "pictures": 0,
    "tells": False,
}


@pytest.fixture
def small_demo(monkeypatch) -> None:
    monkeypatch.setattr(demo, "_settings", lambda name: copy.deepcopy(DEMO))
    monkeypatch.setitem(EngineConfig.__init__.__kwdefaults__, "workers", 1)  # this process


def test_the_readme_runs_from_its_first_block_to_its_last(small_demo, photographs, run_page):
    run_page("README.md")


@pytest.fixture
def photographs(world) -> None:
    """Of things, or of drawn people where there are no photographs: 40 of one; and a table of grey faces."""
    shutil.rmtree(world / "photos")
    classes: dict[str, Iterator[Image.Image]] = {}
    people: list[tuple[str, str, Iterator[Image.Image]]] = []  # their names, genders and pictures
    if SHARED.is_dir():
        packed = dict(np.load(SHARED / "caltech101_84.npz"))
        for label in np.flatnonzero(np.bincount(packed["label"]) >= 40)[:6]:
            classes[str(packed["classes"][label])] = images_of(packed, packed["label"] == label)
        packed = dict(np.load(SHARED / "lfw_faces_84.npz"))
        for person in np.flatnonzero((np.bincount(packed["person"]) >= 8) & (packed["gender"] < 2))[:12]:
            pictures = images_of(packed, packed["person"] == person)
            people.append((str(person), ("female", "male")[packed["gender"][person]], pictures))
    else:
        drawn = data.load("faces", identities=18, images_per_identity=40, headwear=6, size=84)
        genders = [drawn.label("gender").names[code] for code in drawn.label("gender").codes[::40].tolist()]
        pixels = drawn.images.unflatten(0, (18, 40)).permute(0, 1, 3, 4, 2).numpy()
        drawings = [(str(n), genders[n], map(Image.fromarray, each)) for n, each in enumerate(pixels)]
        classes, people = {f"person-{name}": each for name, _, each in drawings[:6]}, drawings[6:]
    # More than a person may have by default; enough for episodes; and few, which take less time.
    for count, (name, pictures) in zip((40, 24, 24, 8, 8, 8), classes.items(), strict=True):
        folder = world / "photos" / name
        folder.mkdir(parents=True)
        for number, image in zip(range(count), pictures, strict=False):
            image.save(folder / f"{number}.jpg", quality=92)
    image.save(world / "new.png")
    (world / "grey").mkdir()
    rows = [("file", "gender", "person")]
    for name, gender, pictures in people:
        for number, image in zip(range(8), pictures, strict=False):
            image.convert("L").save(world / "grey" / f"{name}_{number}.png")
            rows.append((f"grey/{name}_{number}.png", gender, f"p{name}"))
    with (world / "photos.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def images_of(packed: dict[str, np.ndarray], chosen: np.ndarray) -> Iterator[Image.Image]:
    """The photographs of some rows of a packed set."""
    for row in np.flatnonzero(chosen):
        low, high = packed["offset"][row : row + 2]
        yield Image.open(io.BytesIO(packed["blob"][low:high].tobytes())).convert("RGB")


@pytest.fixture
def tinted(world):
    """The album, with a colour for each gender, so that a network learns it in seconds."""
    for row in csv.DictReader((world / "photos.csv").read_text().splitlines()):
        path = world / row["file"]
        image = images.read(path)
        image[2] = image[2] // 2 + (128 if row["gender"] == "female" else 0)
        images.write(path, image)
    return world


def test_the_commands_that_a_demo_ends_with_enrol_a_folder_and_look_up_a_prediction(
    small_demo, tinted, capfd
):
    shell = Shell(SMALLER)
    try:
        shell.run("sfumato demo --data table:photos.csv --target gender --sensitive person", capfd.readouterr)
        printed = capfd.readouterr().out
        assert printed.startswith("recommended: code:bits=1, looked up in an answer table\n"), printed
        query, cloud, enrol = re.findall(
            r"^(?:queries, which send nothing|in a cloud|the few images that are sent): (.*)$",
            printed,
            re.MULTILINE,
        )
        query, enrol = (
            words.replace("URL", "http://127.0.0.1:8000").replace("CLASSIFIER", "people")
            for words in (query, enrol)
        )
        commands = [
            "export SFUMATO_KEY=$(sfumato -q keys create me laptop --new-tenant)",
            f"{cloud} &",
            enrol.replace("PHOTOS", "photos"),
            query.replace("PHOTO", "new.png"),
        ]
        for command in commands:
            shell.run(command, capfd.readouterr)
        assert capfd.readouterr().out.splitlines()[-1].startswith("new.png: ")
        assert (tinted / "people.table").exists()
    finally:
        shell.close()
