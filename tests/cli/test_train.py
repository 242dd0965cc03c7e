"""`sfumato train`: what each method writes and says, and what it looks at before it begins."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Command, check_mistake
from encoders import Small, write_onnx
from PIL import Image
from safetensors.torch import save_file

from sfumato import images, wire
from sfumato.learn import adversarial_mask, classifier, meta, private_feature
from sfumato.protect.code import load_encoder

TABLE = ("--data", "table:photos/table.csv")
STAGES = [f"{stage}_epochs=1" for stage in ("attribute", "simple", "private")]
COLOUR = (*TABLE, "--target", "colour", "--size", "16")
# Small trainings of each method on the photographs of `table`: words, and settings.
SMALL: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "classifier": (COLOUR, ["epochs=2", "batch=8"]),
    "code": (
        (*COLOUR, "--known", "--episodes", "4"),
        ["bits=4", "epochs=1", "episodes_per_epoch=2", "validation_episodes=4"],
    ),
    "mask": (COLOUR, ["epochs=2", "masker_width=4", "levels=1", "batch=8"]),
    "feature": (
        (*TABLE, "--target", "shape", "--target", "colour", "--sensitive", "person"),
        ["widths=[2,2,4,4,4,4,4]", "dimension=3", "batch=8", "pairs=2", *STAGES],
    ),
    "meta": (
        ("--data", "glyphs", "--queries", "2", "--episodes", "3", "--size", "16"),
        ["way=3", "queries=3", "steps=3", "tasks=2"],
    ),
}
PRIVATE = [f"--set=private.{each}" for each in ("epsilon=8", "delta=1e-3", "settings.start=1")]


def train(command: Command, method: str, *more: str):
    words, settings = SMALL[method]
    return command(
        "train", method, *words, "--out", "m.safetensors", *(f"--set={each}" for each in settings), *more
    )


def test_a_classifier_is_trained_and_said_to_be(command: Command, table: Path, tmp_path: Path):
    said = train(command, "classifier", "--with", "gaussian:sigma=20")
    assert said.code == 0
    model = classifier.load(tmp_path / "m.safetensors")
    validation, test, guessing, proved, artefact = said.out.splitlines()
    assert validation == f"validation: {100 * model.card['validation_accuracy']:.1f}% (colour)"
    assert test.startswith("test: ")
    assert test.endswith("; 6 images, gaussian:sigma=20)")
    assert guessing.startswith("guessing: 50.0%")
    assert proved.startswith("gaussian:sigma=20: hides any 1 pixel")
    assert artefact == "artefact: m.safetensors"
    assert model.card["spec"] == "gaussian:sigma=20"
    assert not (tmp_path / "m.checkpoint").exists()
    # Over the old file, by --force alone; of these colours nothing is left.
    again = train(command, "classifier", "--with", "gaussian:sigma=100000")
    check_mistake(again, "m.safetensors: already exists: name another file, or replace it with --force")
    assert classifier.load(tmp_path / "m.safetensors").card["spec"] == "gaussian:sigma=20"
    said = train(command, "classifier", "--with", "gaussian:sigma=100000", "--force")
    assert "guessing: 50.0%, which the interval of the test is not above: nothing was learned" in said.out
    assert "; guessing has 50.0%." in command("show", "m.safetensors").out


def test_as_json_and_on_the_card_it_says_the_same_to_programs(command: Command, table: Path, tmp_path: Path):
    said = train(command, "classifier", "--with", "blur:radius=1", "--json", "--licence", "CC-BY-4.0")
    told = json.loads(said.out)
    model = classifier.load(tmp_path / "m.safetensors")
    assert told["artefact"] == "m.safetensors"
    assert told["card"]["validation_accuracy"] == model.card["validation_accuracy"]
    assert told["test"]["images"] == 6
    assert told["test"]["low"] <= told["test"]["mean"] <= told["test"]["high"]
    assert told["proved"] == "nothing is proved"
    kept = model.card["test"]
    assert model.card["licence"] == "CC-BY-4.0"
    assert {name: kept[name] for name in ("mean", "low", "high")}.items() <= told["test"].items()
    assert (kept["number"], kept["over"]) == (6, "images")


def test_a_classifier_stands_on_an_encoder_of_ones_own(command: Command, table: Path, tmp_path: Path):
    encoder = write_onnx(tmp_path / "small.onnx", Small())
    said = train(command, "classifier", "--encoder", encoder)
    assert said.code == 0, said.err
    (tmp_path / "small.onnx").unlink()
    model = classifier.load(tmp_path / "m.safetensors")
    assert model.card["config"]["network"].startswith("onnx:size=24,mean=0.5/0.4/0.3")
    assert model.card["epochs"] == 0


def test_a_mask_is_trained_and_said_to_be_also_for_shapes_and_against_a_label(command, table, tmp_path):
    said = train(command, "mask", "--set", "keep=0.3")
    assert said.code == 0
    model = adversarial_mask.load(tmp_path / "m.safetensors")
    validation, test, proved, _ = said.out.splitlines()
    assert validation == f"validation: {model.card['validation_accuracy']:.1%} (colour)"
    assert test.startswith("test: ")
    assert test.endswith("% (colour, 30% of the pixels shown, 6 images)")
    assert proved == "mask:artefact=m.safetensors: nothing is proved"
    assert model.card["config"]["keep"] == 0.3
    hidden = ("--set=values=shape", "--set=adversarial=false", "--sensitive", "person", "--force")
    said = train(command, "mask", *hidden)
    assert "mask:artefact=m.safetensors,values=shape: nothing is proved" in said.out
    model = adversarial_mask.load(tmp_path / "m.safetensors")
    assert (model.card["sensitive"], model.card["config"]["against"]) == ("person", 3.0)
    assert "Trained to hide: person." in command("show", "m.safetensors").out


def test_a_feature_is_trained_and_exported_with_its_own_test_images(command, table, tmp_path):
    said = train(command, "feature")
    assert said.code == 0, said.err
    model = private_feature.load(tmp_path / "m.safetensors")
    assert model.classes == {"colour": ("green", "red"), "shape": ("a", "b")}
    labels = ("colour", "shape")
    lines, accuracies = said.out.splitlines(), model.card["accuracies"]
    assert lines[:2] == [f"validation: {accuracies[each]:.1%} ({each}, without noise)" for each in labels]
    assert [line.partition("%")[2] for line in lines[2:4]] == [f" ({each}, without noise)" for each in labels]
    assert lines[4:] == [
        "feature:artefact=m.safetensors,noise=0: 3 numbers an image; nothing is proved",
        "artefact: m.safetensors",
    ]
    for side, file in (("device", "m.onnx"), ("cloud", "m-cloud.onnx")):
        said = command("export", "m.safetensors", "--side", side, "--check", "table:photos/table.csv")
        assert said.code == 0, said.err
        assert "checked on 6 images of table:photos/table.csv, test split" in said.out
        assert (tmp_path / file).exists()


def test_a_code_of_words_says_what_it_costs_to_enrol_by_one(command: Command, tmp_path: Path):
    glyphs = ("--data", "glyphs", "--target", "class", "--size", "16", "--episodes", "4")
    asked = [f"--set={each}" for each in (*SMALL["code"][1], "codebook=means", "way=5")]
    said = command("train", "code", *glyphs, "--out", "m.safetensors", *asked)
    assert said.code == 0, said.err
    assert "test, if a device enrols a class by one word, not by examples: " in said.out
    assert load_encoder("m.safetensors").network.codebook is not None
    shown = command("show", "m.safetensors").out
    assert "Its bits are the number of a word, which a service decodes" in shown


def test_no_device_sends_a_code_that_few_of_a_reference_have(command: Command, tmp_path: Path):
    """From the training to the released files, by commands alone."""
    for name, more in {"hats": "images_per_identity: 9, identities: 24", "people": "identities: 200"}.items():
        seed = f"images_per_identity: 1, seed: {len(name)}, " if name == "people" else ""
        source = f"{{source: faces, {seed}{more}, headwear: 18, size: 16}}"
        Path(f"{name}.yaml").write_text(f"data: {source}\nprotections: []\nlearners: [clean]\n")
    asked = ["bits=5", "common=0.03", "codebook=means", *SMALL["code"][1][1:], "way=4", "shot=2", "queries=2"]
    words = ("--data", "hats.yaml", "--target", "headwear", "--out", "m.safetensors", "--episodes", "4")
    words = (*words, *(f"--set={each}" for each in asked))
    check_mistake(command("train", "code", *words), "common=0.03 and no reference of people: give both")
    mistaken = command("train", "code", *words, "--reference", "hats.yaml")
    check_mistake(mistaken, "hats.yaml: has images of the training: name those of other people")
    said = command("train", "code", *words, "--reference", "people.yaml")
    assert said.code == 0, said.err
    (kept,) = re.findall(
        r"each of the (\d+) codes that leave is that of β = [\d.]+% of people or more", said.out
    )
    assert "the reference of 200 people is a random sample" in command("show", "m.safetensors").out
    command("data", "write", "hats.yaml", "shown")
    words = ("shown", "released", "--with", "code:artefact=m.safetensors", "--workers", "1")
    assert command("protect", *words).code == 0
    sent = [file.read_bytes() for file in Path("released").rglob("*.release")]
    codes = {wire.decode(each, most_images=1, most_pixels=1000).numbers().tobytes() for each in sent}
    assert len(sent) > 200
    assert 1 < len(codes) <= int(kept) < 32


def test_a_start_is_learned_and_said_how(command: Command, tmp_path: Path):
    said = train(command, "meta")
    assert said.code == 0, said.err
    assert "(3-way 1-shot, 3 episodes, none)" in said.out
    assert "nothing is promised to the images that it was trained on" in said.out
    assert "computed: vectorised, float32" in said.out
    assert meta.load(tmp_path / "m.safetensors").card["privacy"] is None


def test_a_private_artefact_is_not_trained_again_which_would_spend_anew(command: Command, tmp_path: Path):
    said = train(command, "meta", *PRIVATE)
    assert said.code == 0, said.err
    assert "at delta = 0.001 for one task of the pool" in said.out
    assert re.search(r"clipping norm: 1 in the first step, [\d.]+ in the last", said.out)
    before = (tmp_path / "m.safetensors").read_bytes()
    again = train(command, "meta", *PRIVATE, "--force")
    check_mistake(again, "m.safetensors already exists, and to train it again would spend its budget")
    assert (tmp_path / "m.safetensors").read_bytes() == before


def test_only_a_training_without_a_promise_is_fitted_to_its_data(command: Command):
    Path("few.yaml").write_text("data: {source: glyphs, classes: 12}\nprotections: []\nlearners: [clean]\n")
    said = train(command, "meta", "--data", "few.yaml")
    assert "test episodes: 2-way 1-shot" in said.err
    assert "2-way 1-shot" in said.out
    said = train(command, "meta", "--data", "few.yaml", "--out", "p.safetensors", *PRIVATE)
    assert said.code == 1
    assert "images: 2 classes have 3 images" in said.err
    assert "(--queries, and --set way= and shot=; a private training is not fitted to its data)" in said.err
    assert "meta-steps" not in said.err  # said before anything was trained


def test_pictures_and_people_in_two_splits_are_said_by_every_command_and_by_the_card(command, table):
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
    said = train(command, "code")
    assert f"{pictures} (such as" in said.err
    card = command("show", "m.safetensors").out
    assert f"Of its data, {pictures}: what is measured" in card
    assert "18.png" not in card
    asked = ("--target", "colour", "--sensitive", "person")
    check = command("demo", "--data", f"table:{table}", *asked, "--check")
    assert f"{pictures} (such as" in check.out + check.err
    assert "1 of 7 people ('person') are in more than one split (such as 'p0')" in check.out + check.err


# Before the training


@pytest.mark.parametrize(
    "words",
    [
        "train classifier --data faces --target hat --out file/c.safetensors --force",
        "train semsim-perceptual --judgements gone.csv --squeezenet gone.npz --out /proc/c.safetensors",
        "audit protection blur:radius=3 --html file/report.html",
        "audit vectors gone.npz --pdf file/report.pdf",
        "demo --data table:photos/table.csv --target colour --out file/run --yes",
        "assess images photos photos --out /proc/leaks",
    ],
)
def test_a_place_that_cannot_be_written_is_noticed(command, table, tmp_path, words: str):
    (tmp_path / "file").touch()
    said = command(*words.split())
    assert said.code == 1
    assert "cannot be written (" in said.err


def test_a_folder_as_file_and_a_gpu_that_is_not_there_are_one_line(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = ("train", "mask", "--data", "faces", "--target", "hat")
    check_mistake(command(*asked, "--out", ".", "--force"), "is a folder: name a file")
    said = command(*asked, "--out", "m", "--device", "cuda")
    check_mistake(said, "no GPU can be used here: install a PyTorch with CUDA, or choose cpu")


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("classifier", ["--target", "color"], "no label 'color': did you mean 'colour'"),
        ("classifier", ["--target", "place"], "such as 'away', are in no training image: a classifier"),
        ("classifier", ["--size", "8"], "images of 8x8: "),
        ("classifier", ["--licence", "do what you like!"], "write an SPDX expression, such as CC-BY-4.0"),
        ("classifier", ["--known"], "--known: train classifier does not take it: leave it out"),
        ("mask", ["--sensitive", "colour"], "'colour' is target and sensitive: a mask cannot both"),
        ("mask", ["--set", "against=2"], "against=2 and sensitive=None: give both, a weight and"),
        ("mask", ["--set", "keep=0.001"], "keep=0.001 of 16x16 pixels is less than one: choose at least"),
        ("mask", ["--out", "a,b.safetensors"], "a path has no commas"),
        ("feature", ["--target", "person"], "'person' is a target and sensitive"),
        ("feature", ["--sensitive", "place"], "--sensitive: train feature takes one label: leave out"),
        ("feature", ["--set", "cut=conv9"], "no layer 'conv9'"),
    ],
)
def test_a_mistake_is_answered_in_one_line(command, table, tmp_path, method: str, more, message: str):
    words, settings = SMALL[method]
    if more[0] == "--target" and method != "feature":  # which keeps several
        words, more = tuple(more[1] if each == "colour" else each for each in words), []
    settings = [f"--set={each}" for each in settings]
    said = command("train", method, *words, "--out", "m.safetensors", *settings, *more)
    check_mistake(said, message)
    assert not list(tmp_path.glob("*.safetensors"))


# What was trained, in use


def test_a_folder_is_protected_by_what_was_trained_and_trained_again_is_another_run(command, table, tmp_path):
    train(command, "mask")
    words = ["protect", "photos", "out", "--with", "mask:artefact=m.safetensors", "--workers", "1"]
    said = command(*words)
    assert said.code == 0
    assert "24 of 3x16x16: nothing is proved about its pixels; nothing is proved about who" in said.out
    with Image.open(tmp_path / "out" / "0.png") as opened:
        assert opened.mode == "RGBA"
        assert (np.asarray(opened)[..., 3] == 255).sum() == 64
    for places in (("photos", "jpeg"), ("photos/0.png", "0.jpg")):
        said = command("protect", *places, *words[3:5], "--format", "jpeg")
        check_mistake(said, "JPEG cannot say which pixels are hidden: write a mask as PNG or WEBP")
        assert not (tmp_path / places[1]).exists()
    digest = hashlib.sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["made_of"] == digest
    assert command(*words).code == 0  # goes on
    assert train(command, "mask", "--seed", "1", "--force").code == 0
    check_mistake(command(*words), f"holds a run with files of the protection {digest}, not ")


def test_images_are_drawn_from_its_numbers_by_a_decoder(command: Command, table: Path, tmp_path: Path):
    assert train(command, "feature", "--size", "16").code == 0
    released = ("--protection", "feature:artefact=m.safetensors,noise=0.1", *TABLE)
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
    said = command("audit", "feature", *released, "--out", "few", "--count", "23")
    check_mistake(said, "24 images, and 23 of them are to be drawn: give at least")
