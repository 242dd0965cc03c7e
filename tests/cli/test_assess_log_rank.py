"""`sfumato assess log-rank`: what it prints of private features, beside blind guessing."""

import json
from pathlib import Path

import pytest
import torch
from cloud import encoder
from commands import Command, check_mistake

from sfumato import images
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureConfig

PEOPLE = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People of eight photographs each, in whose corner stands who it is; an extractor of others."""
    from sfumato import data

    folder = tmp_path_factory.mktemp("world")
    generator = torch.Generator().manual_seed(0)
    for person in range(PEOPLE):
        for number in range(8):
            image = torch.randint(0, 60, (3, 16, 16), generator=generator)
            image[:, 2 * person : 2 * person + 4, :8] += 180
            images.write(folder / "photos" / f"p{person}" / f"{number}.png", image.to(torch.uint8))
    drawn = data.load("faces", identities=12, images_per_identity=6, headwear=10, size=16)
    epochs = dict.fromkeys(("attribute_epochs", "simple_epochs", "private_epochs"), 1)
    config = FeatureConfig(widths=(2, 2, 4, 4, 4, 4, 4), dimension=3, batch=8, pairs=2, **epochs)
    sides = {"targets": ["gender"], "sensitive": "identity", "validation": drawn.split("validation")}
    model = private_feature.train(drawn.split("train"), config, **sides)
    model.save(folder / "f.safetensors")
    return folder


def assessed(command: Command, world: Path, *more: str, noise: str = "0,100", spec: str | None = None):
    spec = spec or f"feature:artefact={world}/f.safetensors,noise={noise}"
    asked = ("--label", "class", "--split", "all", "--known", "5", "--asked", "3")
    return command("assess", "log-rank", f"folder:{world}/photos", "--with", spec, *asked, *more)


def test_each_amount_of_noise_is_a_line_beside_blind_guessing(command: Command, world: Path):
    said = assessed(command, world)
    assert said.code == 0, said.err
    lines = [line for line in said.out.splitlines() if "feature:artefact" in line]
    assert ["noise=0 " in lines[0], "noise=100" in lines[1], len(lines)] == [True, True, 2]
    assert "18 photographs of 6 people" in said.out
    # ln 6! / (6 ln 6); 5/6; 7/12
    assert "log-rank privacy 0.612, 1-NN error 83.3%, mean rank 0.58" in said.out


def test_with_the_attributes_of_the_feature_each_noise_has_its_accuracy(command: Command, world: Path):
    (clear,) = json.loads(assessed(command, world, "--json", noise="0").out)["protections"]
    assert clear["accuracies"] == {}  # nobody says who is a man
    model = private_feature.load(world / "f.safetensors")
    table = ["file,class,gender"]
    for photo in sorted(world.glob("photos/*/*.png")):  # all are of the gender that the model names
        guess = int(model.classify(images.read(photo)[None])["gender"].argmax())
        table.append(f"{photo},{photo.parent.name},{model.classes['gender'][guess]}")
    (world / "t.csv").write_text("\n".join(table))
    spec = f"feature:artefact={world}/f.safetensors,noise=0,1000"
    common = ["--label", "class", "--split", "all", "--json"]
    said = command("assess", "log-rank", f"table:{world}/t.csv", "--with", spec, *common)
    clear, noisy = json.loads(said.out)["protections"]
    assert clear["accuracies"] == {"gender": 1.0}
    assert noisy["accuracies"]["gender"] < 0.9


def test_json_has_every_adversary_and_the_strongest_leaves_least(command: Command, world: Path):
    (clear, noisy) = json.loads(assessed(command, world, "--json").out)["protections"]
    for found in (clear, noisy):
        assert set(found["adversaries"]) == {"density", "discriminant", "network"}
        least = min(found["adversaries"].values(), key=lambda each: each["lrp"])
        assert found["adversaries"][found["strongest"]] == least
        assert found["nearest_neighbour_chance"] == pytest.approx(1 - 1 / PEOPLE)
    assert clear["adversaries"]["density"]["lrp"] < 0.5 < noisy["adversaries"]["density"]["lrp"]
    errors = [found["adversaries"]["density"]["nearest_neighbour_error"] for found in (clear, noisy)]
    assert errors[0] < errors[1]


def test_no_adversary_is_below_what_is_proved_of_a_code_and_the_surest_namings_are_shown(command, world):
    artefact = encoder(world / "code.safetensors", bits=2)
    lines = assessed(command, world, spec=f"code:artefact={artefact}").out.splitlines()
    (row,) = [line for line in lines if "at least" in line and "after" not in line]
    assert "at least 0.128" in row  # six people by four codes: 2·ln 2! / (6 ln 6)
    assert not any("after 100 releases" in line for line in lines)  # nothing is proved of so many
    specs = f"code:artefact={artefact},flip=0.2,0.4"
    found = json.loads(assessed(command, world, "--json", "--releases", "2", spec=specs).out)["protections"]
    for each in found:
        assert 0 < each["proved"] <= min(adversary["lrp"] for adversary in each["adversaries"].values())
        assert each["proved_of_many"]["exchangeable"] >= each["proved_of_many"]["none"]
        assert 1 / PEOPLE <= each["named"]["on_average"] <= each["named"]["surest_hundredth"] <= 1
    clear = json.loads(assessed(command, world, "--json", spec=f"code:artefact={artefact}").out)
    assert clear["protections"][0]["named"]["on_average"] <= 4 / PEOPLE


def test_too_few_photographs_and_pixels_are_refused(command: Command, world: Path):
    said = assessed(command, world, "--known", "4", "--least", "5")
    check_mistake(said, "0 people have 5 photographs for the adversary: add")
    check_mistake(assessed(command, world, spec="blur:radius=2"), "blur:radius=2")
