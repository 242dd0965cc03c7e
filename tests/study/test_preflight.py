"""Before a study runs: what its data can show, by the code that judges afterwards; what would show more."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import beta

from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.splitting import in_turns, split_for_task
from sfumato.errors import DataError
from sfumato.study import grid, preflight

OPTIONS = {"": "--at-most ", "folds": "--folds ", "glasses": "--set recommend.inference_at_most.glasses="}


def photographs(people: int, each: int = 10, *, split: bool = True) -> LabelledImages:
    """So many of each person; every other one has gender 1, and every third photograph shows glasses."""
    who = torch.arange(people).repeat_interleave(each)
    names = tuple(f"person {number}" for number in range(people))
    labels = {
        "person": Label(who, names),
        "gender": Label(who % 2, ("female", "male")),
        "glasses": Label((torch.arange(len(who)) % 3 == 0).long(), ("no", "yes")),
    }
    images = torch.zeros(len(who), 1, 64, 64, dtype=torch.uint8)
    data = LabelledImages("folder:x", images, labels, split_by="person")
    return split_for_task(data, target="gender", sensitive="person", episodic=False)[0] if split else data


def study(*protections, at_most=0.1, inferred=None, **task) -> grid.StudyConfig:
    return grid.parse(
        {
            "data": "folder:x",
            "task": {"target": "gender", "sensitive": "person", **task},
            "protections": list(protections) or ["blur:radius=4", "code:bits=1,16", "answer"],
            "learners": ["classifier-clean", "classifier-protected"],
            "recommend": {"reidentification_at_most": at_most, "inference_at_most": inferred or {}},
        }
    )


def said(made: preflight.Preflight) -> str:
    words: list[str] = []
    preflight.show(made, words.append, options=OPTIONS)
    return "\n".join(words)


@pytest.mark.parametrize(
    ("protections", "attacks", "reason"),
    [
        (["blur:radius=4"], ["reidentify-values", "reidentify-static"], "reidentify-adaptive"),
        (["code:bits=8", "blur:radius=4"], [], "reidentify-values and reidentify-adaptive"),
        (["code:bits=8", "blur:radius=4"], ["reidentify-values"], ""),  # the code can be recommended
        (["none"], [], ""),
    ],
)
def test_adversaries_without_whom_nothing_is_recommended_are_named_before_anything_is_trained(
    protections: list[str], attacks: list[str], reason: str
):
    made = preflight.look(replace(study(*protections), attacks=attacks), [photographs(400, 4)])
    assert made.reason == (
        f"the study leaves out {reason}, without which no setting is: add to attacks" if reason else ""
    )
    assert made.fits == (not reason)


def test_of_ten_test_people_a_tenth_cannot_be_shown_and_of_twenty_by_counting_two_outputs():
    made = preflight.look(study(), [photographs(40)])
    (floor,) = made.floors
    assert (floor.people, floor.probes, floor.guessing) == (10, 40, 0.1)
    # Clopper & Pearson 1934, the error shared by five settings: of ten people nobody, or 4 hits of 40 that
    # count as 16 trials (with the four hits of one more person who is named whole).
    assert floor.lowest == pytest.approx(beta.ppf(1 - 0.05 / 5, 2.6, 14.4))
    assert floor.best == pytest.approx(beta.ppf(1 - 0.05 / 5, 1, 10))
    assert not made.fits
    made = preflight.look(study(), [photographs(80)])
    (floor,) = made.floors
    assert (floor.people, floor.proved, floor.by) == (20, 0.1, "code:bits=1 and answer")
    assert floor.lowest > 0.1
    assert made.fits


def test_so_many_people_as_are_asked_for_or_the_bound_that_is_named_can_be_shown_and_no_less():
    short = preflight.look(study("blur:radius=4"), [photographs(40)])
    (floor,) = short.floors
    assert floor.needed is not None
    fewer, enough = (
        preflight.upper_ends([[4] * people], [1 / people], settings=2)[0]
        for people in (floor.needed - 1, floor.needed)
    )
    assert enough <= 0.1 < fewer
    bound = short.as_json()["at_most"]["person"]
    assert f"--at-most {bound:g}" in said(short)
    assert preflight.look(study("blur:radius=4", at_most=bound), [photographs(40)]).fits


def test_turns_are_a_cure_if_they_show_the_bound_and_then_all_people_are_test_people():
    made = preflight.look(study(), [photographs(40)])
    assert made.folds == 2
    assert "--folds 2, by which all 40 people take turns as test people" in said(made)
    folds, _ = in_turns(photographs(40, split=False), target="gender", sensitive="person", folds=2)
    turned = preflight.look(preflight.in_turns(study(), 2), folds)
    assert turned.fits
    assert (turned.floors[0].people, turned.floors[0].guessing, turned.floors[0].proved) == (40, 0.05, 0.1)
    for data in (photographs(6), replace(photographs(40), split_by=None)):  # the source names its splits
        assert preflight.look(study(), [data]).folds is None


def test_an_attribute_has_a_floor_of_its_own_and_a_cure():
    both = {"sensitive": ["person", "glasses"], "inferred": {"glasses": 0.67}}
    made = preflight.look(study("code:bits=1", at_most=0.5, **both), [photographs(40)])
    floor = made.floors[1]
    assert (floor.label, made.fits) == ("glasses", False)
    assert floor.guessing == pytest.approx(2 / 3, abs=0.02)
    assert floor.lowest > 0.67
    assert "--set recommend.inference_at_most.glasses=" in said(made)


@pytest.mark.parametrize(
    ("task", "people", "reason"),
    [
        ({"sensitive": None}, 40, "no secret is looked for"),
        ({"sensitive": "gender"}, 40, "the secret (gender) is what the task itself tells"),
        ({}, 2, "the secret (person) is what the task itself tells"),  # one of each gender
        ({}, 3, "fewer than two of person have two test photographs"),
    ],
)
def test_why_nothing_can_be_recommended_is_known_before_anything_is_trained(task, people, reason):
    made = preflight.look(study(**task), [photographs(people)])
    assert not made.fits
    assert f"nothing can be recommended: {reason}" in said(made)


def test_a_split_that_is_missing_is_named_and_the_study_to_copy_can_recommend():
    for split in ("train", "test"):
        data = photographs(40)
        splits = {name: rows for name, rows in data.splits.items() if name != split}
        with pytest.raises(DataError, match=f"no split '{split}'"):
            preflight.look(study(), [replace(data, splits=splits)])
    config = grid.load(Path(__file__).parents[2] / "studies" / "example.yaml")
    assert preflight.look(config, [photographs(400)]).fits
