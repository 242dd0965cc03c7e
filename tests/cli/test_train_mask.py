"""`sfumato train mask`, and `sfumato protect` with what it wrote."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Command, check_mistake
from PIL import Image

from sfumato.learn import adversarial_mask

SMALL = ["--set", "epochs=2", "--set", "masker_width=4", "--set", "levels=1", "--set", "batch=8"]


def train(command: Command, *more: str, target: str = "colour", size: int = 16):
    words = ["train", "mask", "--data", "table:photos/table.csv", "--target", target, "--size", str(size)]
    return command(*words, "--out", "m.safetensors", *SMALL, *more)


def test_a_mask_is_trained_and_said_to_be(command: Command, table: Path, tmp_path: Path):
    said = train(command, "--set", "keep=0.3")
    assert said.code == 0
    model = adversarial_mask.load(tmp_path / "m.safetensors")
    validation, test, proved, artefact = said.out.splitlines()
    accuracy = 100 * model.card["validation_accuracy"]
    assert validation == f"validation: {accuracy:.1f}% (colour, 30% of the pixels shown)"
    assert test.startswith("test: ")
    assert test.endswith("% (colour, 30% of the pixels shown, 6 images)")
    assert proved == "mask:artefact=m.safetensors: nothing is proved"
    assert artefact == "artefact: m.safetensors"
    assert model.keep == 0.3
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_folder_is_protected_by_what_was_trained(command: Command, table: Path, tmp_path: Path):
    train(command)
    said = command("protect", "photos", "out", "--with", "mask:artefact=m.safetensors", "--workers", "1")
    assert said.code == 0
    assert (
        "24 of 3x16x16: nothing is proved about its pixels; nothing is proved about who it shows\n"
        in said.out
    )
    with Image.open(tmp_path / "out" / "0.png") as opened:
        assert opened.mode == "RGBA"
        assert (np.asarray(opened)[..., 3] == 255).sum() == 64


def test_a_folder_of_a_mask_that_was_trained_again_is_another_run(
    command: Command, table: Path, tmp_path: Path
):
    train(command)
    words = ["protect", "photos", "out", "--with", "mask:artefact=m.safetensors", "--workers", "1"]
    assert command(*words).code == 0
    digest = hashlib.sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["made_of"] == digest
    assert command(*words).code == 0  # goes on
    assert train(command, "--seed", "1", "--force").code == 0
    said = command(*words)
    assert said.code == 1
    assert f"holds a run with files of the protection {digest}, not " in said.err


def test_a_mask_against_telling_a_label_says_so_on_its_card(command: Command, table: Path, tmp_path: Path):
    assert train(command, "--sensitive", "person").code == 0
    model = adversarial_mask.load(tmp_path / "m.safetensors")
    assert (model.card["sensitive"], model.card["config"]["against"]) == ("person", 3.0)
    assert "Trained to hide: person." in command("show", "m.safetensors").out


def test_a_mask_trained_for_its_shape_is_named_with_it(command: Command, table: Path, tmp_path: Path):
    said = train(command, "--set", "values=shape", "--set", "adversarial=false")
    assert said.out.splitlines()[2] == "mask:artefact=m.safetensors,values=shape: nothing is proved"
    spec = "mask:artefact=m.safetensors,values=shape"
    assert command("protect", "photos", "out", "--with", spec, "--workers", "1").code == 0


def test_jpeg_is_refused_with_the_cure(command: Command, table: Path, tmp_path: Path):
    train(command)
    spec = ["--with", "mask:artefact=m.safetensors", "--format", "jpeg"]
    for places in (("photos", "out"), ("photos/0.png", "0.jpg")):
        said = command("protect", *places, *spec)
        assert said.code == 1
        assert said.err.endswith(
            "sfumato: JPEG cannot say which pixels are hidden: write a mask as PNG or WEBP\n"
        )
        assert not (tmp_path / places[1]).exists()


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ([], {"target": "color"}, "no label 'color': did you mean 'colour'"),
        ([], {"size": 8}, "images of 8x8: "),
        (
            ["--sensitive", "colour"],
            {},
            "'colour' is target and sensitive: a mask cannot both show and hide it",
        ),
        (["--set", "against=2"], {}, "against=2 and sensitive=None: give both, a weight and the label that"),
        (["--set", "values=shape"], {}, "set adversarial=false and selection=straight-through"),
        (["--set", "keep=2"], {}, "keep=2: a share of the pixels, above 0 and below 1"),
        (["--set", "keep=0.001"], {}, "keep=0.001 of 16x16 pixels is less than one: choose at least"),
        (["--set", "kept=0.5"], {}, "no key 'kept': did you mean 'keep'"),
        (["--out", "a,b.safetensors"], {}, "a path has no commas"),
    ],
)
def test_a_mistake_is_answered_in_one_line_before_training(
    command: Command, table: Path, tmp_path: Path, more: list[str], settings: dict, message: str
):
    check_mistake(train(command, *more, **settings), message)
    assert not list(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("method", ["few-shot", "mask", "feature"])
def test_a_gpu_that_is_not_there_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch, method: str):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    options = {
        "few-shot": ["--with", "none"],
        "mask": ["--target", "class"],
        "feature": ["--target", "class", "--sensitive", "identity"],
    }
    words = ["train", method, "--data", "glyphs", "--out", "m", *options[method], "--device", "cuda"]
    check_mistake(command(*words), "no GPU can be used here: install a PyTorch with CUDA, or choose cpu")
