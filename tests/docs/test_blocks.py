"""Every code block of the README and of the pages that teach: run here, or marked with why it is not."""

import csv
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from blocks import NOT_CODE, REPOSITORY, Block, Shell, blocks

from sfumato import data, images
from sfumato.data import faces as _faces  # noqa: F401  # the reader, before it is made smaller
from sfumato.study import grid

PAGES = ["README.md", "docs/start.md"]
PAGES += sorted(
    str(path.relative_to(REPOSITORY))
    for room in ("guides", "concepts")
    for path in REPOSITORY.glob(f"docs/{room}/*.md")
)

EPISODES = ["--set", "epochs=1", "--set", "episodes_per_epoch=2", "--set", "validation_episodes=2"]
SHAPE = ["--set", "way=3", "--set", "shot=2", "--set", "queries=2", "--set", "validation_way=3"]
SHAPE += ["--set", "validation_shot=2", "--set", "validation_queries=2"]
# What is added to a command, so that it takes seconds: a page's settings are those of who wants an answer.
SMALLER = {
    "train few-shot": [
        *EPISODES,
        *SHAPE,
        "--size",
        "32",
        "--episodes",
        "5",
        "--way",
        "3",
        "--shot",
        "2",
        "--queries",
        "2",
    ],
    "train code": [*EPISODES, *SHAPE],
    "train mask": ["--set", "epochs=1"],
    "train feature": [f"--set={name}_epochs=1" for name in ("attribute", "simple", "private")],
    "train meta": ["--set", "steps=2", "--episodes", "3"],
    "demo": ["--print-config"],
    "audit protection": ["--trials", "10000"],
    "edge profile": ["--images", "3"],
}
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
    "adversary": {"steps": 2, "adaptive_steps": 2, "gallery": 3, "probes": 3, "copies": 1},
    "pictures": 0,
    "embeddings": False,
    "tells": False,
}
PEOPLE = ("anna", "ben", "carla", "dan", "eva", "finn", "gia", "hugo", "ida", "jon", "kim", "lea")


def of(page: str) -> list[Block]:
    return list(blocks(page, (REPOSITORY / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_says_why(page):
    for block in of(page):
        if block.reason is not None:
            assert len(block.reason.split()) >= 4, f"{page}:{block.line}: say why it cannot be run"
            assert block.language not in NOT_CODE, f"{page}:{block.line}: nobody would run this"
        assert block.language in ("sh", "python", "yaml", *NOT_CODE), f"{page}:{block.line}: {block.language}"


def test_a_block_is_found_with_its_mark():
    text = "words\n\n    first\n    line\n\n<!-- not run: it takes a week -->\n\n"
    text += "```python\nx = 1\n```\n\n    last\n"
    assert [(each.line, each.language, each.text, each.reason) for each in blocks("page", text)] == [
        (3, "sh", "first\nline", None),
        (8, "python", "x = 1", "it takes a week"),
        (12, "sh", "last", None),
    ]


@pytest.fixture(scope="module")
def album(tmp_path_factory) -> Path:
    """What the pages suppose: photographs by person, a table of them, and a study file."""
    folder = tmp_path_factory.mktemp("album")
    world = data.load("faces", identities=len(PEOPLE), images_per_identity=8, headwear=6, size=32)
    rows = []
    for number, (image, person) in enumerate(zip(world.images, world.labels["identity"].codes, strict=True)):
        file = f"photos/{PEOPLE[person]}/{number % 8 + 1}.png"
        images.write(folder / file, image)
        gender = ("female", "male")[int(person) % 2]
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
    """A copy of the album to work in, a home of its own, and drawn worlds that are small."""
    folder = tmp_path / "work"
    shutil.copytree(album, folder)
    monkeypatch.chdir(folder)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("SFUMATO_STORE", "SFUMATO_KEY"):  # so that what a page sets is unset again
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    small = {"identities": 60, "images_per_identity": 6, "headwear": 40, "size": 32}
    monkeypatch.setitem(data.faces.__kwdefaults__, "seed", 0)
    for key, value in small.items():
        monkeypatch.setitem(data.faces.__kwdefaults__, key, value)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.reason is None for block in of(page))])
def test_a_page_runs_from_its_first_block_to_its_last(page, world, monkeypatch, capfd):
    shell = Shell(SMALLER)
    names: dict[str, object] = {"__name__": "page"}
    threads = torch.get_num_threads()
    try:
        for block in of(page):
            if block.reason is not None or block.language in NOT_CODE:
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
