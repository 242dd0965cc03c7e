"""`sfumato train meta`."""

import re

from commands import Command

from sfumato.learn import meta

SMALL = ["--set", "way=3", "--set", "queries=3", "--set", "steps=3", "--set", "tasks=2"]
SMALL += ["--queries", "2", "--episodes", "3", "--size", "16"]
PRIVATE = ["--epsilon", "8", "--delta", "1e-3", "--clip", "start=1"]


def train(command: Command, *more: str):
    return command("train", "meta", "--data", "glyphs", "--out", "m.safetensors", *SMALL, *more)


def test_a_start_is_learned_and_said_how(command: Command, tmp_path):
    said = train(command)
    assert said.code == 0, said.err
    assert "(3-way 1-shot, 3 episodes, none)" in said.out
    assert "nothing is promised to the images that it was trained on" in said.out
    assert "computed: factored, float32" in said.out
    assert meta.load(tmp_path / "m.safetensors").card["privacy"] is None


def test_a_private_artefact_is_not_trained_again_which_would_spend_anew(command: Command, tmp_path):
    said = train(command, *PRIVATE)
    assert said.code == 0, said.err
    assert "at delta = 0.001 for one task of the pool" in said.out
    assert re.search(r"clipping norm: 1 [▁-█]{3} [\d.]+, step by step", said.out)
    before = (tmp_path / "m.safetensors").read_bytes()
    again = train(command, *PRIVATE)
    assert again.code == 1
    assert "m.safetensors already exists, and to train it again would spend its budget" in again.err
    assert (tmp_path / "m.safetensors").read_bytes() == before


def test_the_source_takes_settings(command: Command):
    said = train(command, "--source", "classes=12")
    assert said.code == 0
    assert "test episodes: 2-way 1-shot" in said.err
    assert "2-way 1-shot" in said.out


def test_a_private_training_is_not_fitted_to_data_that_its_promise_hides(command: Command):
    said = train(command, *PRIVATE, "--source", "classes=12")
    assert said.code == 1
    assert "images: 2 classes have 3 images" in said.err
    assert "(--queries, and --set way= and shot=; a private training is not fitted to its data)" in said.err
    assert "meta-steps" not in said.err  # said before anything was trained


def test_a_setting_that_the_source_has_not_is_an_error(command: Command):
    said = train(command, "--source", "clases=300")
    assert said.code == 1
    assert "did you mean 'classes'" in said.err
