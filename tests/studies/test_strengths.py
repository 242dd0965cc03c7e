"""What the pages say of masks beside several strengths of an obfuscation, at equal naming."""

import pytest
from results_page import engine, masks
from results_page.reading import Row

from sfumato.study.records import parse

BLUR = {"blur:radius=4": (0.1, 0.6), "blur:radius=1": (0.5, 0.9)}


@pytest.mark.parametrize(
    ("named", "accuracy"),
    [(0.05, None), (0.1, 0.6), (0.3, 0.75), (0.5, 0.9), (0.8, 0.9)],
    ids=["less", "strongest", "between", "weakest", "more"],
)
def test_between_two_strengths_accuracy_is_on_the_straight_line(named: float, accuracy: float | None):
    expected = None if accuracy is None else pytest.approx(accuracy)
    assert masks.accuracy_at(named, BLUR.values()) == expected


@pytest.mark.parametrize("named", [0.2, 0.25])
def test_a_weaker_setting_that_is_less_accurate_takes_nothing_away(named: float):
    assert masks.accuracy_at(named, [(0.1, 0.8), (0.2, 0.7), (0.3, 0.9)]) == 0.8


def test_a_mask_leads_by_its_accuracy_beyond_that_at_its_own_naming():
    found = masks.Strengths({"mask": (0.3, 0.8)}, {"blur": BLUR, "noise": {"n": (0.4, 0.99)}})
    assert found.leads("mask") == {"blur": pytest.approx(0.05), "noise": None}


def test_a_mask_may_let_fewer_be_named_than_any_obfuscation_at_any_strength():
    noise = {"noise": {"n": (0.4, 0.99), "m": (0.2, 0.6)}}
    found = masks.Strengths({"mask": (0.1, 0.8), "shape": (0.15, 0.8)}, noise)
    assert found.quietest == "m"
    assert found.quieter
    assert not masks.Strengths({"mask": (0.1, 0.8), "shape": (0.2, 0.8)}, noise).quieter


def test_seeds_are_counted_in_which_a_mask_is_ahead_of_every_obfuscation():
    kinds = {"noise": {"n": (0.1, 0.75)}, "blur": BLUR}
    behind, ahead = (masks.Strengths({"mask": (0.2, accuracy)}, kinds) for accuracy in (0.7, 0.8))
    both = masks.over_seeds(engine.Study("study", {}, []), ahead, [behind, ahead])
    assert (both.seeds, both.ahead["mask"], both.quieter) == (2, 1, 0)
    assert both.points["mask"] == ((0.2, 0.2), (0.7, 0.8))


def test_a_study_of_one_of_its_seeds_has_the_cells_and_the_records_of_that_seed():
    cells = [{"kind": "accuracy", "digest": str(seed), "cell": {"seed": seed}} for seed in (0, 1)]
    known = [
        parse(
            {
                **cell,
                "cell": {"protection": "none", "learner": "clean", **cell["cell"]},
                "seconds": 1.0,
                "result": {"accuracy": 0.9, "half_width": 0.01, "episodes": 100},
            }
        )
        for cell in cells
    ]
    alone = engine.Study("study", {"seeds": [0, 1], "cells": cells}, known).of_seed(1)
    assert alone.file == {"seeds": [1], "cells": [cells[1]]}
    assert [record.cell.seed for record in alone.records] == [1]


def test_masks_against_a_person_are_held_against_those_without_seed_by_seed():
    def setting(accuracy: float, *named: float) -> dict:
        attacks = ("reidentify-adaptive", "reidentify-values")
        return {"classifier-protected": {"accuracy": accuracy, "chance": 0.5}} | {
            attack: {"top1": top1, "chance": 0.02} for attack, top1 in zip(attacks, named, strict=True)
        }

    records = [
        Row(settings={"without": setting(0.9, 0.1, 0.2), "against": setting(accuracy, *named)})
        for accuracy, *named in [(0.9, 0.1, 0.05), (0.9, 0.05, 0.12), (0.7, 0.05, 0.05)]
    ]
    found = masks.Against(masks.Task("lfw-32", "smile", records), "pixels")
    assert found.shares == pytest.approx([0.5, 0.6, 0.25])
    assert found.lost == pytest.approx([0.0, 0.0, 0.2])
    assert (found.halved, found.chance) == (1, pytest.approx(0.02))  # not where it costs accuracy
