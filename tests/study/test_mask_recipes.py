"""Masks that a study trains: what decides their artefact, with an adversary and without."""

from typing import Any

import pytest

from sfumato import artefacts, data
from sfumato.errors import SpecError
from sfumato.study import grid, vocabulary
from sfumato.study.lab import lab
from sfumato.study.run import Progress

SPEC = "mask:keep=0.1"
SOURCE: dict[str, Any] = {"identities": 24, "images_per_identity": 4, "headwear": 12, "size": 32}
MASKS = {"epochs": 1, "masker_width": 2, "levels": 1, "batch": 16, "precision": "float32"}


def study(*, sensitive: str | None = "identity", **masks: float) -> grid.StudyConfig:
    return grid.parse(
        {
            "data": {"source": "faces", **SOURCE},
            "task": {"target": "hair_color", "sensitive": sensitive},
            "protections": [SPEC],
            "learners": ["classifier-protected"],
            "attacks": ["reidentify-values"] if sensitive else [],
            "masks": MASKS | masks,
        }
    )


def settings(config: grid.StudyConfig) -> dict[str, Any]:
    (recipe,) = vocabulary.expand(SPEC)
    return recipe.settings(config)


def test_without_a_weight_the_sensitive_label_decides_nothing():
    wanted = {"masks": {**MASKS, "keep": 0.1}, "target": "hair_color", "classes": None}
    assert settings(study()) == settings(study(sensitive=None)) == wanted


def test_with_a_weight_it_does():
    found = settings(study(against=3.0))
    assert (found["masks"]["against"], found["sensitive"]) == (3.0, "identity")


def test_a_weight_against_nothing_is_refused():
    with pytest.raises(SpecError, match=r"mask:keep=0.1: against=3 is against telling a label: name one"):
        settings(study(sensitive=None, against=3.0))


def test_a_spec_has_settings_of_its_own_training():
    listed = vocabulary.expand(SPEC + ",adversarial=yes,no,selection=soft,against=3")
    with_step, without = (each.settings(study())["masks"] for each in listed)
    both = {**MASKS, "keep": 0.1, "selection": "soft", "against": 3.0}
    assert (with_step, without) == (both, {**both, "adversarial": False})
    with pytest.raises(SpecError, match="mask: adversarial=False: write yes or no"):
        vocabulary.expand(SPEC + ",adversarial=False")


def test_the_mask_is_trained_against_people_whom_nobody_looks_for(tmp_path):
    made = lab.Lab(study(against=3.0), data.load("faces", **SOURCE), tmp_path, Progress())
    (recipe,) = vocabulary.expand(SPEC)
    recipe.train(made, 0, tmp_path / "m.safetensors")
    _, card = artefacts.load(tmp_path / "m.safetensors", kind="mask")
    assert (card["sensitive"], card["people"]) == ("identity", made.adversaries.others.digest)
