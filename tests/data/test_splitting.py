"""Splits of a source that names none: what a task and its secret ask for."""

from dataclasses import replace

import pytest
import torch
from layouts import by_split, photograph

from sfumato.data import table
from sfumato.data.labelled import Label, LabelledImages, label_of
from sfumato.data.splitting import in_turns, split_for_task, stratify
from sfumato.errors import DataError

SPLITS = ("train", "validation", "test")
EVERY_CLASS = {split: {"no", "yes"} for split in SPLITS}


def photographs(smile: list[str], people: list[str], *, split_by: str | None = "smile") -> LabelledImages:
    labels: dict[str, Label] = {"smile": label_of(smile), "person": label_of(people)}
    images = torch.zeros(len(smile), 3, 4, 4, dtype=torch.uint8)
    splits = {"train": torch.arange(len(smile))}
    return LabelledImages("table:photos.csv", images, labels, splits, split_by=split_by)


def of_60_people() -> LabelledImages:
    """Three photographs of each, one in three with a smile."""
    return photographs(["yes", "no", "no"] * 60, [f"person {row // 3}" for row in range(180)])


def assert_apart(data: LabelledImages) -> None:
    """All 60 people are in a split, and nobody is in two."""
    parts = by_split(data, "person").values()
    assert sum(map(len, parts)) == len(set.union(*parts)) == 60


@pytest.mark.parametrize("episodic", [False, True])
def test_with_a_secret_beside_the_task_nobody_is_in_two_splits_and_every_class_is_in_all(episodic):
    data, words = split_for_task(of_60_people(), target="smile", sensitive="person", episodic=episodic)
    assert_apart(data)
    assert by_split(data, "smile") == EVERY_CLASS
    assert words == (
        "splits: table:photos.csv names none, so 108 images are for training, 27 for validation and 45 for "
        "the test; nobody ('person') is in two of them"
    )


def test_people_who_differ_in_the_task_are_spread_evenly():
    smiles = ["yes"] * 12 + ["no"] * 48  # of each person all photographs are alike
    data = photographs([smile for smile in smiles for _ in range(3)], [f"{row // 3}" for row in range(180)])
    data, _ = split_for_task(data, target="smile", sensitive="person", episodic=False)
    for name in SPLITS:
        smiling = data.split(name).label("smile").codes.double().mean()
        assert smiling == pytest.approx(0.2, abs=0.04)


def test_a_classifier_without_a_secret_beside_the_task_learns_every_class():
    data = of_60_people()
    alias = replace(data, labels={**data.labels, "grin": data.label("smile")})
    for sensitive in (None, "smile", "grin"):
        split, words = split_for_task(alias, target="smile", sensitive=sensitive, episodic=False)
        assert by_split(split, "smile") == EVERY_CLASS
        assert sorted(torch.cat(list(split.splits.values())).tolist()) == list(range(180))
        assert words.endswith("each class of 'smile' is in all of them")


def test_episodes_without_a_secret_are_tested_on_classes_that_are_new_or_on_the_same_if_they_are_few():
    data, words = split_for_task(of_60_people(), target="person", sensitive="person", episodic=True)
    assert_apart(data)
    assert words.endswith("no class of 'person' is in two of them")
    data, words = split_for_task(of_60_people(), target="smile", sensitive=None, episodic=True)
    assert by_split(data, "smile") == EVERY_CLASS
    assert words.endswith(
        "each class of 'smile' is in all of them, since 2 classes are too few for a test of new ones"
    )


def test_splits_that_were_asked_for_or_that_a_source_names_stay(tmp_path):
    for number in range(12):
        photograph(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{'yes' if number % 3 else 'no'},{number // 2}" for number in range(12)]
    (tmp_path / "photos.csv").write_text("\n".join(["file,smile,person", *rows]))
    asked = table(tmp_path / "photos.csv", split_by="person")
    assert split_for_task(asked, target="smile", sensitive=None, episodic=False) == (asked, "")
    assert table(tmp_path / "photos.csv").split_by == "smile"
    named = photographs(["yes", "no"], ["a", "b"], split_by=None)
    assert split_for_task(named, target="smile", sensitive="person", episodic=False) == (named, "")
    with pytest.raises(DataError, match="names its splits, and is to be split by 'person': leave out"):
        split_for_task(named, target="smile", sensitive=None, episodic=False, split_by="person")


def test_a_label_that_there_is_not_is_named():
    with pytest.raises(DataError, match="no label 'persons': did you mean 'person'"):
        split_for_task(of_60_people(), target="smile", sensitive="persons", episodic=False)


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, (1, 0, 0)), (2, (1, 0, 1)), (4, (2, 1, 1)), (20, (12, 3, 5)), (30, (18, 4, 8))]
)
def test_every_class_gives_its_share_and_small_ones_what_they_can(count, sizes):
    splits = stratify(torch.zeros(count, dtype=torch.int64), seed=0)
    assert tuple(len(splits[name]) for name in SPLITS) == sizes


def test_a_label_to_split_by_comes_before_the_secret_and_the_task():
    data = of_60_people()
    for sensitive in ("smile", None):
        split, words = split_for_task(
            data, target="smile", sensitive=sensitive, episodic=False, split_by="person"
        )
        assert_apart(split)
        assert words.endswith("nobody ('person') is in two of them")
    _, words = split_for_task(data, target="smile", sensitive="person", episodic=False, split_by="smile")
    assert words.endswith("no class of 'smile' is in two of them")


def test_a_class_that_is_missing_in_a_split_is_said_with_a_cure():
    data = photographs(["yes"] * 3 + ["no"] * 9, [f"person {row // 3}" for row in range(12)])
    _, words = split_for_task(data, target="smile", sensitive="person", episodic=False)
    assert ". Class 'yes' is missing in " in words
    assert words.endswith(
        ": add images of it by others ('person'), or name another label to split by with --split-by"
    )


@pytest.mark.parametrize("folds", [2, 3, 4, 7])
def test_people_take_turns_as_test_people_and_are_in_one_split_of_each_fold(folds):
    made, words = in_turns(of_60_people(), target="smile", sensitive="person", folds=folds)
    assert len(made) == folds
    tests = [part.split("test").classes("person") for part in made]
    assert torch.cat(tests).sort().values.tolist() == list(range(60))
    assert [*map(len, tests)] == sorted(
        [60 // folds, -(-60 // folds)][fold < 60 % folds] for fold in range(folds)
    )
    for part in made:
        assert_apart(part)
        for name in SPLITS:
            smiles = part.split(name).label("smile").codes.double().mean().item()
            assert smiles == pytest.approx(1 / 3)
    each = "8 or 9" if folds == 7 else 60 // folds
    assert words == (
        f"folds: 60 people ('person') take {folds} turns as the people of the test, {each} at a time; "
        "nobody is in two splits of a fold"
    )


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({"split_by": None}, {}, "names its splits, so that people cannot take turns: leave out folds"),
        ({}, {"sensitive": None}, "people take turns only if they are the secret and not the task"),
        ({}, {"sensitive": "smile"}, "people take turns only if they are the secret and not the task"),
        ({}, {"folds": 31}, r"60 people \('person'\) cannot take 31 turns: 2 are needed for each test"),
    ],
)
def test_where_people_cannot_take_turns_the_reason_is_named(changes, task, message):
    with pytest.raises(DataError, match=message):
        in_turns(
            replace(of_60_people(), **changes),
            **{"target": "smile", "sensitive": "person", "folds": 2, **task},
        )
