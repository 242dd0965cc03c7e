"""Adversaries of a study together, and what each keeps for the others."""

from pathlib import Path
from typing import Any

import pytest
from tests.study.test_values import cell, lab

from sfumato.base.files import claim
from sfumato.errors import BusyError
from sfumato.study import cells as kinds
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab
from sfumato.study.measure import attack, results
from sfumato.study.vocabulary import attacks_of

SPEC = "pixelize:cell=4"
QUICK = {"steps": 2, "adaptive_steps": 1, "batch": 8}


def study(directory: Path, *attacks: str, **adversary: int) -> Lab:
    """Of the attacks that are named, by recognisers of two steps."""
    made = lab(directory, **{**QUICK, **adversary})
    made.config.attacks[:] = attacks or ["reidentify-adaptive", "reidentify-values", "reidentify-fused"]
    return made


def cell_of(name: str) -> Cell:
    return Cell("attack", SPEC, 0, (("attack", f"reidentify-{name}"),))


def kept(directory: Path) -> list[Path]:
    return sorted((directory / "models").glob("comparison-*.safetensors"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, dict[str, Any]]:
    """A study of which the cell of all together was the only one that ran."""
    made = study(tmp_path_factory.mktemp("fused"))
    return made, kinds.measure(made, cell_of("fused"))


# All together


def test_the_cell_of_all_together_makes_what_it_needs(alone: tuple[Lab, dict[str, Any]]):
    _, result = alone
    typed = results.Attack.model_validate(result)
    assert [score.classifier for score in typed.scores] == ["fusion"]
    members = {name.partition(": ")[0] for chosen in result["members"] for name in chosen}
    assert members <= {"reidentify-adaptive", "reidentify-values"}
    assert typed.scores[0].top1 > 0.9  # as of PLDA alone


def test_the_cells_of_attacks_read_what_it_made(alone, tmp_path, monkeypatch):
    made, _ = alone
    expected = {
        "values": attack.compare_values(lab(tmp_path, **QUICK), cell(SPEC)).result,
        "adaptive": attack._compare_images(lab(tmp_path, **QUICK), cell_of("adaptive")).result,
    }

    def fail(*given: object) -> None:
        raise AssertionError("it is made again")

    monkeypatch.setattr(Lab, "release", fail)
    assert attack.VALUES.measure(made, cell_of("values")) == expected["values"]
    assert attack.RECOGNISER.measure(made, cell_of("adaptive")) == expected["adaptive"]


def test_it_is_the_same_whichever_cell_comes_first_and_waits_while_another_process_makes_one(alone, tmp_path):
    attack.VALUES.measure(study(tmp_path), cell_of("values"))
    (path,) = kept(tmp_path)
    content = path.read_bytes()
    path.unlink()
    with claim(path), pytest.raises(BusyError):
        attack.FUSED.measure(study(tmp_path), cell_of("fused"))
    path.write_bytes(content)
    assert attack.FUSED.measure(study(tmp_path), cell_of("fused")) == alone[1]
    nobody = study(tmp_path / "nobody", "reidentify-adaptive", "reidentify-values")
    attack.VALUES.measure(nobody, cell_of("values"))
    assert kept(tmp_path / "nobody") == []  # where nobody fuses


@pytest.mark.parametrize(("change", "repeated"), [({"known": 3}, True), ({"steps": 3}, True), ({}, False)])
def test_all_that_decides_one_attack_decides_all_together(tmp_path, change, repeated):
    before = kinds.digest(study(tmp_path), cell_of("fused"))
    assert (before != kinds.digest(study(tmp_path, **change), cell_of("fused"))) == repeated


@pytest.mark.parametrize(
    ("attacks", "spec", "fuses"),
    [
        (["reidentify-adaptive", "reidentify-values", "reidentify-fused"], SPEC, True),
        (["reidentify-values", "reidentify-fused"], SPEC, False),
        (["reidentify-static", "reidentify-values", "reidentify-fused"], "answer", False),
        (["reidentify-static", "reidentify-values", "reidentify-fused"], "none", False),
        (None, SPEC, True),
        (None, "answer", True),
    ],
)
def test_two_attacks_at_least_are_fused(attacks: list[str] | None, spec: str, fuses: bool):
    settings = {"data": "portraits", "task": {"sensitive": "identity"}, "protections": [spec]}
    config = grid.parse(settings if attacks is None else {**settings, "attacks": attacks})
    assert ("reidentify-fused" in attacks_of(config, spec)) == fuses
