"""`sfumato train code`, and what every training looks at before it begins."""

import hashlib
import json
import shutil
from pathlib import Path

import onnx
import pytest
from commands import Command, check_mistake

QUICK = ("epochs=1", "episodes_per_epoch=2", "validation_episodes=4", "way=2", "shot=1", "queries=1")


def train(command: Command, data: Path, *more: str):
    words = ["--data", f"table:{data}", "--target", "colour", "--bits", "4", "--size", "16", "--known"]
    small = [word for each in QUICK for word in ("--set", each)]
    return command("train", "code", *words, "--out", "c.safetensors", "--episodes", "4", *small, *more)


@pytest.mark.parametrize("more", [(), ("--licence", "CC-BY-4.0"), ("--json",)])
def test_the_exported_code_has_the_digest_and_the_mode_of_the_artefact(
    command: Command, table: Path, tmp_path: Path, more: tuple[str, ...]
):
    said = train(command, table, *more)
    assert said.code == 0, said.err
    artefact, exported = tmp_path / "c.safetensors", tmp_path / "c.onnx"
    card = {each.key: each.value for each in onnx.load(exported).metadata_props}["sfumato"]
    assert json.loads(card)["artefact"] == hashlib.sha256(artefact.read_bytes()).hexdigest()
    assert exported.stat().st_mode == artefact.stat().st_mode


def test_pictures_and_people_in_two_splits_are_said_by_every_command_and_by_the_card(
    command: Command, table: Path, tmp_path: Path
):
    """Each test picture is one of training under another name, and one of its people is in both."""
    photos = table.parent
    for row in range(18, 24):
        shutil.copy(photos / f"{row - 18}.png", photos / f"{row}.png")
    table.write_text(table.read_text().replace(",p6,", ",p0,"))
    pictures = "6 of 6 images of test are the same pictures as in train"
    info = command("data", "info", f"table:{table}").out
    assert f"{pictures} (such as 18.png and 0.png): what is measured on test is too high" in info
    assert "label person: 7 values, 1 of them in more than one split" in info
    assert "3 pictures occur under two values of 'person'" in info
    said = train(command, table)
    assert f"{pictures} (such as" in said.err
    card = command("show", "c.safetensors").out
    assert f"Of its data, {pictures}: what is measured" in card
    assert "18.png" not in card
    asked = ("--target", "colour", "--sensitive", "person")
    check = command("demo", "--data", f"table:{table}", *asked, "--check")
    assert f"{pictures} (such as" in check.out + check.err
    assert "1 of 7 people ('person') are in more than one split (such as 'p0')" in check.out + check.err


METHODS = {
    "classifier": ("--data", "faces", "--target", "hat"),
    "code": ("--data", "faces", "--target", "hat", "--bits", "4"),
    "few-shot": ("--data", "faces", "--with", "none"),
    "mask": ("--data", "faces", "--target", "hat"),
    "feature": ("--data", "faces", "--target", "hat", "--sensitive", "identity"),
    "meta": ("--data", "faces"),
    "semsim": ("--judgements", "gone.csv"),
    "semsim-perceptual": ("--judgements", "gone.csv", "--squeezenet", "gone.npz"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("out", ["file/c.safetensors", "/proc/c.safetensors", "folder"])
def test_a_place_that_cannot_be_written_is_noticed_before_the_training(
    command: Command, tmp_path: Path, method: str, out: str
):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    said = command("train", method, *METHODS[method], "--out", out, "--force")
    check_mistake(said, "is a folder: name a file" if out == "folder" else "cannot be written (")


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "protection", "blur:radius=3", "--html", "file/report.html"),
        ("audit", "vectors", "gone.npz", "--pdf", "file/report.pdf"),
        ("demo", "--data", "table:photos/table.csv", "--target", "colour", "--out", "file/run", "--yes"),
        ("assess", "images", "photos", "photos", "--out", "/proc/leaks"),
        ("convert", "squeezenet", "gone.npz", "file/weights.safetensors"),
    ],
)
def test_other_commands_notice_it_as_early(
    command: Command, table: Path, tmp_path: Path, words: tuple[str, ...]
):
    (tmp_path / "file").touch()
    said = command(*words)
    assert said.code == 1
    assert "cannot be written (" in said.err
