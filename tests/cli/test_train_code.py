"""`sfumato train code`, and what every training looks at before it begins."""

import hashlib
import json
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
