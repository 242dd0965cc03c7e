"""`sfumato train classifier`."""

import json
from pathlib import Path

import pytest
from commands import Command, check_mistake
from encoders import Small, write_onnx

from sfumato.learn import classifier


def train(command: Command, *more: str, target: str = "colour", size: int = 16):
    words = ["train", "classifier", "--data", "table:photos/table.csv", "--target", target]
    small = ["--set", "epochs=2", "--set", "batch=8", "--size", str(size)]
    return command(*words, "--out", "c.safetensors", *small, *more)


def test_a_classifier_is_trained_and_said_to_be(command: Command, table: Path, tmp_path: Path):
    said = train(command, "--with", "gaussian:sigma=20")
    assert said.code == 0
    model = classifier.load(tmp_path / "c.safetensors")
    validation, test, guessing, proved, artefact = said.out.splitlines()
    assert validation == f"validation: {100 * model.card['validation_accuracy']:.1f}% (colour)"
    assert test.startswith("test: ")
    assert test.endswith("; 6 images, gaussian:sigma=20)")
    assert guessing.startswith("guessing: 50.0%")
    assert proved.startswith("gaussian:sigma=20: hides any 1 pixel")
    assert artefact == "artefact: c.safetensors"
    assert model.card["spec"] == "gaussian:sigma=20"
    assert not (tmp_path / "c.checkpoint").exists()


def test_a_test_that_is_no_better_than_guessing_says_that_nothing_was_learned(
    command: Command, table: Path, tmp_path: Path
):
    said = train(command, "--with", "gaussian:sigma=100000")  # nothing is left of the colours
    assert "guessing: 50.0%, which the interval of the test is not above: nothing was learned" in said.out
    card = command("show", "c.safetensors").out
    assert "; guessing has 50.0%." in card


def test_as_json_it_says_the_same_to_programs(command: Command, table: Path, tmp_path: Path):
    said = train(command, "--with", "blur:radius=1", "--json", "--licence", "CC-BY-4.0")
    (line,) = said.out.splitlines()
    told = json.loads(line)
    model = classifier.load(tmp_path / "c.safetensors")
    assert told["artefact"] == "c.safetensors"
    assert told["card"]["validation_accuracy"] == model.card["validation_accuracy"]
    assert told["test"]["images"] == 6
    assert told["test"]["low"] <= told["test"]["mean"] <= told["test"]["high"]
    assert told["proved"] == "nothing is proved"
    # And the file says it, to who has nothing else.
    assert model.card["licence"] == "CC-BY-4.0"
    kept = model.card["test"]
    assert [kept[name] for name in ("mean", "low", "high")] == [
        told["test"][name] for name in ("mean", "low", "high")
    ]
    assert (kept["number"], kept["over"]) == (6, "images")


def test_a_licence_that_is_no_spdx_expression_is_refused_before_training(command: Command, table: Path):
    said = train(command, "--licence", "do what you like!")
    assert said.code == 1
    assert "write an SPDX expression, such as CC-BY-4.0" in said.err


def test_a_classifier_stands_on_an_encoder_of_ones_own(command: Command, table: Path, tmp_path: Path):
    encoder = write_onnx(tmp_path / "small.onnx", Small())
    said = train(command, "--encoder", encoder)
    assert said.code == 0, said.err
    (tmp_path / "small.onnx").unlink()
    model = classifier.load(tmp_path / "c.safetensors")
    assert model.card["config"]["network"].startswith("onnx:size=24,mean=0.5/0.4/0.3")
    assert model.card["epochs"] == 0


def test_a_file_that_is_there_is_replaced_only_where_that_is_asked_for(
    command: Command, table: Path, tmp_path: Path
):
    (tmp_path / "c.safetensors").write_bytes(b"the model of last year")
    check_mistake(
        train(command), "c.safetensors: already exists: name another file, or replace it with --force"
    )
    assert (tmp_path / "c.safetensors").read_bytes() == b"the model of last year"
    assert train(command, "--force").code == 0
    classifier.load(tmp_path / "c.safetensors")


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ([], {"target": "color"}, "no label 'color': did you mean 'colour'"),
        ([], {"target": "place"}, "such as 'away', are in no training image: a classifier is tested on new"),
        ([], {"size": 8}, "images of 8x8: "),
        (["--set", "epoch=5"], {}, "no key 'epoch': did you mean 'epochs'"),
        (["--with", "blurr"], {}, "no protection is called 'blurr': did you mean 'blur'"),
    ],
)
def test_a_mistake_is_answered_in_one_line_before_training(
    command: Command, table: Path, tmp_path: Path, more: list[str], settings: dict, message: str
):
    check_mistake(train(command, *more, **settings), message)
    assert not list(tmp_path.glob("*.safetensors"))
