"""Adversaries of a study together, what each keeps for the others, and what several releases tell."""

from pathlib import Path
from typing import Any

import pytest
from tests.study.test_values import cell, lab, portraits

from sfumato.base.files import claim
from sfumato.errors import BusyError
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab
from sfumato.study.parts import kinds
from sfumato.study.parts.attacks import fused, reidentify, values
from sfumato.study.parts.kinds import attack
from sfumato.study.selection import attacks_of

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
    return made, attack.measure(made, cell_of("fused"))


# All together


def test_the_cell_of_all_together_makes_what_it_needs(alone: tuple[Lab, dict[str, Any]]):
    _, result = alone
    typed = attack.Result.model_validate(result)
    assert [score.classifier for score in typed.scores] == ["fusion"]
    assert {name.partition(": ")[0] for chosen in result["members"] for name in chosen} <= {
        "reidentify-adaptive",
        "reidentify-values",
    }
    assert typed.scores[0].top1 > 0.9  # as of PLDA alone


def test_the_cells_of_attacks_read_what_it_made(
    alone: tuple[Lab, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made, _ = alone
    expected = {
        "values": values._compare(lab(tmp_path, **QUICK), cell(SPEC)).result,
        "adaptive": reidentify._compare(lab(tmp_path, **QUICK), cell_of("adaptive")).result,
    }

    def fail(*given: object) -> None:
        raise AssertionError("it is made again")

    monkeypatch.setattr(values, "_compare", fail)
    monkeypatch.setattr(reidentify, "_compare", fail)
    assert values.attack(made, cell_of("values")) == expected["values"]
    assert reidentify.attack(made, cell_of("adaptive")) == expected["adaptive"]


def test_it_is_the_same_whichever_cell_comes_first(alone: tuple[Lab, dict[str, Any]], tmp_path: Path):
    made = study(tmp_path)
    values.attack(made, cell_of("values"))
    assert len(kept(tmp_path)) == 1
    assert fused.attack(made, cell_of("fused")) == alone[1]


def test_while_another_process_makes_one_of_them_it_waits(tmp_path: Path):
    made = study(tmp_path)
    values.attack(made, cell_of("values"))
    (path,) = kept(tmp_path)
    path.unlink()
    with claim(path), pytest.raises(BusyError):
        fused.attack(study(tmp_path), cell_of("fused"))


def test_where_nobody_fuses_nothing_is_kept(tmp_path: Path):
    made = study(tmp_path, "reidentify-adaptive", "reidentify-values")
    values.attack(made, cell_of("values"))
    assert kept(tmp_path) == []


@pytest.mark.parametrize(("change", "repeated"), [({"gallery": 3}, True), ({"steps": 3}, True), ({}, False)])
def test_all_that_decides_one_attack_decides_all_together(
    tmp_path: Path, change: dict[str, int], repeated: bool
):
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


# Several releases of one person


def test_groups_of_a_release_are_named_as_the_release_is(alone: tuple[Lab, dict[str, Any]]):
    made, _ = alone
    for name in ("values", "adaptive"):
        result = attack.Result.model_validate(attack.measure(made, cell_of(name)))
        assert result.groups == {1: (4,) * 20}
        for score in result.scores:
            assert score.groups is not None
            assert score.groups[1].top1 == pytest.approx(score.top1, abs=0.013)  # float32 may break a tie
            assert score.groups[1].low <= score.groups[1].top1 <= score.groups[1].high
            assert set(score.groups[1].tar_at_far) == {"1e-2", "1e-3"}


def test_of_too_few_photographs_the_reason_is_recorded(alone: tuple[Lab, dict[str, Any]]):
    assert alone[1]["no_groups"] == {
        size: f"0 of 20 people have {size} probes; 2 must" for size in ("5", "10")
    }


def test_several_noisy_releases_tell_more_than_one(tmp_path: Path):
    spec = "dp-pix:cell=4,epsilon=0.5"
    made = lab(tmp_path, portraits(120, 24), gallery=12, probes=12)
    result = attack.Result.model_validate(values.attack(made, cell(spec)))
    (plda,) = [score for score in result.scores if score.classifier == "plda"]
    assert plda.groups is not None
    assert result.groups == {1: (12,) * 60, 5: (2,) * 60, 10: (1,) * 60}
    for figure in ("top1", "auc"):
        shares = [getattr(plda.groups[size], figure) for size in (1, 5, 10)]
        assert shares[0] < shares[1] < shares[2]
    assert sum(plda.groups[5].hits) == pytest.approx(plda.groups[5].top1 * 120)
    links = [link for link in result.linking if link.classifier == "plda"]
    assert [(link.releases, link.rounds) for link in links] == [(1, 12), (5, 2), (10, 1)]
    assert links[0].top1 < links[1].top1 < links[2].top1
    assert {link.classifier for link in result.linking} == {"plda", "cosine"}
    assert result.verification_auc is not None
    assert 0.5 < result.verification_auc < plda.groups[1].auc  # of one photograph, and of all of a label


def test_black_images_of_two_services_are_not_linked(tmp_path: Path):
    result = attack.Result.model_validate(values.attack(lab(tmp_path), cell("block:share=1")))
    assert max(link.top1 for link in result.linking) <= 1 / 20
    for score in result.scores:
        assert score.groups is not None
        assert score.groups[1].auc == pytest.approx(0.5)
        assert score.groups[1].tar_at_far["1e-2"] == 0


def test_records_of_earlier_versions_are_read():
    score = {"classifier": "svm", "top1": 0.5, "low": 0.4, "high": 0.6, "hits": [1.0]}
    result = {"scores": [score], "chance": 0.1, "identities": 10, "people": [2], "verification_auc": 0.6}
    typed = attack.Result.model_validate({**result, "tar_at_far_1e-3": 0.1})
    assert typed.scores[0].groups is None
    assert (typed.groups, typed.linking) == (None, ())
