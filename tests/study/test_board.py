"""The board: rows of runs with fixed settings, and the reasons why some do not count."""

import json
from dataclasses import dataclass

import pytest
import torch
from tests.study import synthetic
from typer.testing import CliRunner

from sfumato import data
from sfumato.base import registry
from sfumato.cli.app import app
from sfumato.errors import ConfigError, DataError
from sfumato.protect import Release, parse
from sfumato.protect.pixels import Clear
from sfumato.study import board, grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab, Progress
from sfumato.study.measure import checks
from sfumato.study.records import write_rows

SPEC = "blur:radius=3"
SOUND = {"milliseconds": 0.5, "images": 200, "unchanged": 0.0}
SOUND |= {"repeats": True, "depends": 0.0, "own_type": False}
SOUND |= dict.fromkeys(("bytes_of_image", "bytes_declared", "bytes_most"), 3072)


def attack(share):
    score = {"classifier": "plda", "top1": share, "low": share - 0.04, "high": share + 0.04}
    sizes = {"identities": 50, "gallery": 500, "probes": 500, "people": [10] * 50}
    return {"scores": [{**score, "hits": [round(share * 10)] * 50}], "chance": 1 / 50, **sizes}


def packed(path, *, control=0.9, named=0.4, digest="a", board_of="board", without=(), **changed):
    """A file of rows of a run with one protection: what adversaries name, and what its checks are."""
    shares = {"reidentify-static": 0.1, "reidentify-values": 0.6, "reidentify-sorted": 0.1}
    shares |= changed.pop("attacks", {})
    told = {"accuracy": 0.8, "low": 0.7, "high": 0.9, "guessing": 0.5}
    told |= {"classes": 2, "images": 9, "adversary": "forest"}
    accuracy = {"accuracy": 0.7, "low": 0.6, "high": 0.8, "images": 1500, "chance": 0.25}
    rows = []
    for spec in ("none", SPEC):
        clear = spec == "none"
        curve = dict.fromkeys((1, 10, 100), [control if clear else named] * 50)
        results = [
            ("accuracy", {"learner": "classifier-clean"}, accuracy),
            *(("attack", {"attack": name}, attack(0.9 if clear else each)) for name, each in shares.items()),
            ("many", {}, synthetic.many(spec, curve)["result"]),
            ("tells", {}, {"labels": {"glasses": told, "identity": told}}),
            ("proved", {}, {"release": "pixels", "bytes_per_image": 3072}),
            ("checks", {}, {**SOUND, "unchanged": 1.0} if clear else SOUND | changed),
        ]
        rows += [
            {"kind": kind, "digest": f"{digest}{number}", "result": result, "seconds": 2.0}
            | {"cell": {"protection": spec, "seed": 0, **which}}
            for number, (kind, which, result) in enumerate(results, len(rows))
        ]
    study = {
        **synthetic.study(),
        "name": board_of,
        "board": board_of == "board",
        "task": {**synthetic.study()["task"], "target": "expression"},
        "protections": ["none", SPEC],
        "learners": ["classifier-clean"],
        "seeds": [0],
        "cells": [{name: row[name] for name in ("digest", "kind", "cell")} for row in rows],
    }
    write_rows(path, [study, *(row for row in rows if row["kind"] not in without)])
    return path


def row_of(path, *others):
    """The row of the protection in the last of these files."""
    return [row for row in board.join([path, *others]) if row.protection == SPEC][-1]


def marks(*paths):
    return [mark for row in board.join(paths) if row.protection == SPEC for mark in row.marks]


def test_a_row_has_the_figures_of_its_records_and_rows_stand_by_how_rarely_they_name(tmp_path):
    row = row_of(packed(tmp_path / "first.jsonl"))
    assert row.marks == ()
    tasks = {name: round(made.value, 9) for name, made in row.tasks.items()}
    assert tasks == {"expression": 0.7, "glasses": 0.8}
    assert {count: round(made.value, 9) for count, made in row.named.items()} == {1: 0.4, 10: 0.4, 100: 0.4}
    assert (row.had.people, row.surest, row.strongest.top1.value) == (25, None, 0.6)
    assert (row.proof, row.bytes, row.milliseconds, row.seconds) == ("", 3072, 0.5, 16.0)
    more, less = (
        packed(tmp_path / "second.jsonl", named=0.7),
        packed(tmp_path / "third.jsonl", named=0.3, unchanged=0.5),
    )
    rows = [(row.protection, round(row.named[10].value, 9)) for row in board.join([more, less])]
    assert rows == [(SPEC, 0.3), (SPEC, 0.7), ("none", 0.9)]
    with pytest.raises(DataError, match="a run of the study 'demo', which is no board: run `sfumato study"):
        board.join([packed(tmp_path / "demo.jsonl", board_of="demo")])


@pytest.mark.parametrize(
    ("changed", "mark"),
    [
        ({"control": 0.2}, "weak adversaries: on unprotected images they name 20.0% from one release"),
        ({"attacks": {"reidentify-static": 0.9}}, "masked: an adversary who knows clean photographs only"),
        ({"attacks": {"reidentify-sorted": 0.9}}, "masked: an adversary who ignores the order of the values"),
        ({"unchanged": 0.25}, "25.0% of the releases are the original image"),
        ({"repeats": False}, "releases differ by more than the given noise"),
        ({"depends": 0.5}, "50.0% of the releases depend on other images of the batch"),
        ({"own_type": True}, "a release of its own type"),
        ({"bytes_most": 3100}, "a release of 3,100 bytes, and 3,072 are declared"),
        ({"bytes_most": 9000, "bytes_declared": 9000}, "a release of 9,000 bytes, and the image has 3,072"),
        ({"without": ["accuracy"]}, f"not measured: accuracy {SPEC} classifier-clean 0"),
    ],
)
def test_a_row_that_does_not_count_says_why(changed, mark, tmp_path):
    (said,) = marks(packed(tmp_path / "row.jsonl", **changed))
    assert said.startswith(mark)


def test_a_row_of_other_settings_or_another_control_is_marked(tmp_path):
    first = packed(tmp_path / "first.jsonl")
    assert marks(first, packed(tmp_path / "same.jsonl")) == []
    (said,) = marks(first, packed(tmp_path / "other.jsonl", digest="b"))
    assert said.startswith(
        "other settings, data or version than first.jsonl: accuracy none classifier-clean 0"
    )
    (said,) = marks(first, packed(tmp_path / "edited.jsonl", control=0.7))
    assert said == "adversaries name 70.0% on unprotected images, and 90.0% in first.jsonl"


def test_the_table_prints_rows_and_marks(tmp_path):
    path = packed(tmp_path / "row.jsonl", unchanged=0.25)
    said = CliRunner().invoke(app, ["study", "board", str(path)])
    assert "25.0% of the releases are the original image" in said.stdout
    odd, other = packed(tmp_path / "\x1b[2J.jsonl"), packed(tmp_path / "other.jsonl", digest="b")
    assert "\x1b" not in CliRunner().invoke(app, ["study", "board", str(odd), str(other)]).stdout
    rows = json.loads(CliRunner().invoke(app, ["study", "board", str(path), "--json"]).stdout)
    assert [row["protection"] for row in rows] == [SPEC, "none"]


def test_the_file_of_the_board_comes_with_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert grid.load("board") == grid.load("board.yaml") == grid.load(grid.BOARD)
    assert grid.load("board").board


# What a protection does to images


@dataclass(frozen=True)
class _Own(Clear):
    """As it is, but for one trick."""

    trick: str = "none"

    @property
    def spec(self):
        return f"own:trick={self.trick}"

    def release(self, images, noise):
        images = torch.as_tensor(images)
        if self.trick == "packs":
            return _Packs(images, self.spec, tuple(images.shape[2:]))
        if self.trick == "batch":
            images = images.float().mean(0, keepdim=True).expand(len(images), -1, -1, -1).byte()
        if self.trick == "time":
            images = torch.randint(256, images.shape).byte()
        if self.trick == "noise":
            images = torch.from_numpy(noise.discrete_gaussian(tuple(images.shape), variance=99)).byte()
        return Release(images, "other" if self.trick == "says" else self.spec, tuple(images.shape[2:]))


class _Packs(Release):
    def pack(self):
        return [2 * packet for packet in super().pack()]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    drawn = {"identities": 8, "images_per_identity": 4, "headwear": 3, "size": 16}
    task = {"target": "expression", "sensitive": "identity"}
    config = grid.parse({"data": {"source": "faces", **drawn}, "task": task, "protections": []})
    return Lab(config, data.load("faces", **drawn), tmp_path_factory.mktemp("lab"), Progress())


@pytest.mark.parametrize(
    ("trick", "expected"),
    [
        ("none", {"unchanged": 1.0, "repeats": True, "depends": 0.0, "own_type": False, "bytes_most": 768}),
        ("packs", {"own_type": True, "bytes_most": 1536, "bytes_declared": 768}),
        ("says", {"own_type": True}),
        ("batch", {"unchanged": 0.0, "repeats": True, "depends": 1.0}),
        ("time", {"repeats": False}),
        ("noise", {"repeats": False}),
    ],
)
def test_tricks_of_a_protection_are_seen(trick, expected, lab, monkeypatch):
    monkeypatch.setitem(registry._TABLES["protections"], "own", _Own)
    result = checks.CHECKS.measure(lab, Cell("checks", f"own:trick={trick}", 0))
    assert {name: result[name] for name in expected} == expected


# Folders that another tool protected


@pytest.fixture
def small(tmp_path):
    """A study file of few small images."""
    path = tmp_path / "small.yaml"
    drawn = "{source: faces, identities: 3, images_per_identity: 2, headwear: 3, size: 16}"
    path.write_text(f"data: {drawn}\nprotections: []\n")
    return path


def test_a_folder_of_another_tool_is_a_protection_if_it_has_the_images_of_the_study(small, tmp_path):
    with pytest.raises(ConfigError, match="6 of 6 images are missing, the first 000000: protect all"):
        board.compare(grid.load(small), [str(tmp_path)])
    said = CliRunner().invoke(app, ["data", "write", str(small), str(tmp_path / "copy")])
    assert said.exit_code == 0, said.output
    released = tmp_path / "tool"
    (tmp_path / "copy/images").rename(released)  # a tool that changes nothing
    config = grid.load(small)
    specs = ["none", "blur:radius=3", f"outside:index={released / 'tool.csv'}"]
    assert board.compare(config, ["blur:radius=3", str(released)]).specs == specs
    images = data.load(**config.data).images
    assert torch.equal(parse(specs[-1]).release(images, None).images(), images)
    assert board.compare(config, [str(released)]).specs == specs[::2]  # by the index that is there now
