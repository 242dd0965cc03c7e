"""What the pages say of a study of every value of every obfuscation, finished or not."""

import pytest
from results_page import engine, three_models, wording

from sfumato.study.records import parse


def accuracy(spec: str, learner: str, seed: int, value: float) -> dict:
    return {
        "kind": "accuracy",
        "digest": f"{spec}-{learner}-{seed}",
        "cell": {"protection": spec, "seed": seed, "learner": learner},
        "seconds": 1.0,
        "result": {
            "accuracy": value,
            "half_width": 0.01,
            "episodes": 100,
            # Another for each training; of clean images there is one a seed.
            "curve": (0.5 + seed / 100, 0.6 + (learner != "clean") * value / 100, 0.7, 0.7),
        },
    }


def study(known: dict[tuple[str, str], list[float | None]]) -> three_models.Full:
    """A study of (protection, model) -> accuracy, seed by seed."""
    raw = [
        accuracy(spec, learner, seed, value)
        for (spec, learner), values in known.items()
        for seed, value in enumerate(values)
        if value is not None
    ]
    specs = list(dict.fromkeys(spec for spec, _ in known))
    file = {"name": "study", "protections": specs, "cells": raw}
    return three_models.Full([engine.Study("omniglot-full", file, [parse(each) for each in raw])])


WHOLE = {
    ("blur:radius=1", "clean"): [0.8, 0.9],
    ("blur:radius=1", "protected"): [0.9, 0.9],
    ("blur:radius=2", "clean"): [0.8, 0.91],
    ("blur:radius=2", "protected"): [0.7, 0.8],
}


def test_values_of_an_obfuscation_stand_beside_each_other_and_fall_or_not():
    found = study(WHOLE)
    assert [row.value for row in found.kinds["blur"]] == ["1", "2"]
    assert found.learners == ["clean", "protected"]
    assert found.falls("blur", "protected")
    assert not found.falls("blur", "clean")


def test_models_are_compared_in_the_seeds_that_both_have():
    known = {("blur:radius=1", "clean"): [0.5, None, 0.8], ("blur:radius=1", "protected"): [None, 0.9, 0.9]}
    assert study(known).ahead("protected", "clean") == pytest.approx([0.1])


def test_a_gap_is_of_intervals_in_the_seed_where_it_is_least():
    known = {("blur:radius=1", "clean"): [0.5, 0.8], ("blur:radius=1", "protected"): [0.9, 0.9]}
    (models, *_) = three_models.three_models(study(known).studies[0])
    assert models.gap == pytest.approx(0.9 - 0.8 - 2 * 0.01)


def test_what_a_denoiser_gains_is_of_means_over_the_seeds_that_both_have():
    known = {("blur:radius=1", "protected"): [0.4, 0.6, 0.1], ("blur:radius=1", "denoised"): [0.5, 0.6]}
    (models, *_) = three_models.three_models(study(known).studies[0])
    assert models.gain == pytest.approx(1.1 / 1.0 - 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [([0.9], "90.00 ± 1.00"), ([0.9, 0.8], "85.00"), ([0.9, 0.8, 0.7], "80.00 ± 24.84")],
)
def test_one_seed_has_an_interval_over_episodes_and_three_over_seeds(values: list[float], words: str):
    known = {("blur:radius=1", "clean"): values}
    assert wording.accuracies(study(known).studies[0].accuracies("clean", "blur:radius=1")) == words


def test_training_that_still_rose_is_counted_in_all_models():
    assert study(WHOLE).rising == (0, 6)


def test_a_model_that_is_tested_under_several_protections_was_trained_once():
    known = {("blur:radius=1", "clean"): [0.8, 0.9], ("blur:radius=2", "clean"): [0.7, 0.6]}
    assert study(known).rising == (0, 2)


def test_a_model_may_come_from_a_study_of_its_own():
    denoised = {("blur:radius=1", "denoised"): [0.95, 0.93], ("blur:radius=2", "denoised"): [0.75, 0.75]}
    both = three_models.Full(study(WHOLE).studies + study(denoised).studies)
    assert both.learners == ["clean", "protected", "denoised"]
    assert both.ahead("denoised", "protected") == pytest.approx([0.04, 0.0])
