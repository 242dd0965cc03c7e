"""`sfumato train feature`, and what can be done with its artefact."""

from pathlib import Path

import pytest
import torch
from commands import Command, check_mistake
from safetensors.torch import save_file

from sfumato import images
from sfumato.learn import private_feature


def train(command: Command, *more: str, targets: tuple[str, ...] = ("shape", "colour"), who: str = "person"):
    words = ["train", "feature", "--data", "table:photos/table.csv", "--sensitive", who]
    words += [word for target in targets for word in ("--target", target)]
    epochs = [f"{stage}_epochs=1" for stage in ("attribute", "simple", "private")]
    small = ["widths=[2,2,4,4,4,4,4]", "dimension=3", "batch=8", "pairs=2", *epochs]
    return command(*words, "--out", "f.safetensors", *(f"--set={each}" for each in small), *more)


def test_a_feature_is_trained_and_said_to_be(command: Command, table: Path, tmp_path: Path):
    said = train(command)
    assert said.code == 0, said.err
    model = private_feature.load(tmp_path / "f.safetensors")
    assert model.classes == {"colour": ("green", "red"), "shape": ("a", "b")}
    lines = said.out.splitlines()
    accuracies = model.card["accuracies"]
    assert lines[:2] == [
        f"validation: {100 * accuracies[target]:.1f}% ({target}, without noise)"
        for target in ("colour", "shape")
    ]
    assert [line.partition("%")[2] for line in lines[2:4]] == [
        " (colour, without noise)",
        " (shape, without noise)",
    ]
    assert lines[4:] == [
        "feature:artefact=f.safetensors,noise=0: 3 numbers an image; nothing is proved",
        "artefact: f.safetensors",
    ]
    assert not (tmp_path / "f.checkpoint").exists()


def test_what_was_trained_is_exported_with_its_own_test_images(command: Command, table: Path, tmp_path: Path):
    assert train(command).code == 0
    for side, file in (("device", "f.onnx"), ("cloud", "f-cloud.onnx")):
        said = command("export", "f.safetensors", "--side", side, "--check", "table:photos/table.csv")
        assert said.code == 0, said.err
        assert "checked on 6 images of table:photos/table.csv, test split" in said.out
        assert (tmp_path / file).exists()


@pytest.mark.parametrize(
    ("more", "settings", "message"),
    [
        ([], {"targets": ("color",)}, "no label 'color': did you mean 'colour'"),
        ([], {"who": "colour"}, "'colour' is a target and sensitive"),
        (["--set", "cut=conv9"], {}, "no layer 'conv9'"),
        (["--set", "variant=dfpe"], {}, "variant=dfpe: choose network, simple, dpfe"),
        (["--size", "8"], {}, "images of 8x8: "),
    ],
)
def test_a_mistake_is_answered_in_one_line_before_training(
    command: Command, table: Path, tmp_path: Path, more: list[str], settings: dict, message: str
):
    check_mistake(train(command, *more, **settings), message)
    assert not list(tmp_path.glob("*.safetensors"))


def test_images_are_drawn_from_its_numbers_by_a_decoder(command: Command, table: Path, tmp_path: Path):
    assert train(command, "--size", "16").code == 0
    released = (
        "--protection",
        "feature:artefact=f.safetensors,noise=0.1",
        "--data",
        "table:photos/table.csv",
    )
    quick = ("--size", "16", "--set", "steps=3", "--set", "width=2", "--set", "batch=4")
    said = command("audit", "feature", *released, "--out", "back", "--count", "4", *quick)
    assert said.code == 0, said.err
    assert said.out.startswith("No image came back, which proves nothing.\n")
    assert "4 images are drawn from 3 numbers each, by a decoder that learned from 20 others." in said.out
    assert said.err.endswith("originals above, images that came back: back/feature.png\n")
    assert images.read(tmp_path / "back" / "feature.png").shape == (3, 2 * 16 + 2, 4 * 16 + 3 * 2)
    numbers = torch.zeros(2, 3)
    save_file({"features": numbers}, "seen.safetensors")
    said = command("audit", "feature", *released, "--out", "own", "--released", "seen.safetensors", *quick)
    assert "2 images are drawn from 3 numbers each, by a decoder that learned from 24 others." in said.out
    save_file({"x": numbers}, "other.safetensors")
    said = command("audit", "feature", *released, "--out", "other", "--released", "other.safetensors", *quick)
    check_mistake(said, "other.safetensors: has no `features`: give the numbers this name")


def test_numbers_are_drawn_from_and_pixels_are_not(command: Command, table: Path):
    asked = ("--protection", "blur:radius=2", "--data", "table:photos/table.csv", "--out", "back")
    check_mistake(
        command("audit", "feature", *asked),
        "blur:radius=2: its releases are pixels, and only numbers can be used here",
    )
    numbers = ("--protection", "feature:artefact=f.safetensors,noise=0", *asked[2:], "--count", "23")
    check_mistake(
        command("audit", "feature", *numbers), "24 images, and 23 of them are to be drawn: give at least"
    )
