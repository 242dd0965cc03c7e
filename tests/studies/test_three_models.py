"""What the pages say of a study of every value of every obfuscation, finished or not."""

from pathlib import Path

import pytest
from results_page import engine, three_models, wording

from sfumato.study.records import parse

SPECS = ("blur:radius=1", "blur:radius=2", "dp-pix:cell=2,epsilon=3")


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
    """A study of (protection, model) -> accuracy, seed by seed; two seeds of three specs are planned."""
    raw = [
        accuracy(spec, learner, seed, value)
        for (spec, learner), values in known.items()
        for seed, value in enumerate(values)
        if value is not None
    ]
    planned = [
        {"kind": "accuracy", "digest": f"{spec}-{learner}-{seed}"}
        for spec in SPECS
        for learner in ("clean", "protected")
        for seed in (0, 1)
    ]
    cells = planned + [each for each in raw if each["cell"]["learner"] == "denoised"]
    file = {"name": "study", "protections": ["none", *SPECS], "cells": cells}
    return three_models.Full([engine.Study(Path("omniglot-full"), file, [parse(each) for each in raw])])


HALF = {
    ("blur:radius=1", "clean"): [0.8, 0.9],
    ("blur:radius=1", "protected"): [0.9, 0.9],
    ("blur:radius=2", "protected"): [0.7],
}


def test_a_study_that_is_not_finished_says_how_far_it_is():
    assert study(HALF).done == (5, 12)


def test_what_is_missing_has_no_figures_and_no_verdict():
    found = study(HALF)
    assert [row.value for row in found.kinds["blur"]] == ["1", "2"]
    assert found.kinds["blur"][1].values("clean") == []
    assert found.learners == ["clean", "protected"]
    assert found.falls("blur", "clean") is None
    assert found.falls("blur", "protected") is True
    assert found.falls("dp-pix", "protected") is None


def test_models_are_compared_where_both_are_known():
    assert study(HALF).ahead("protected", "clean") == pytest.approx([0.05])
    assert study(HALF).ahead("denoised", "protected") == []
    one_seed = study({("blur:radius=1", "clean"): [0.8, 0.2], ("blur:radius=1", "protected"): [0.9]})
    assert one_seed.ahead("protected", "clean") == pytest.approx([0.1])


def test_models_are_compared_in_the_seeds_that_both_have():
    known = {("blur:radius=1", "clean"): [0.5, None, 0.8], ("blur:radius=1", "protected"): [None, 0.9, 0.9]}
    assert study(known).ahead("protected", "clean") == pytest.approx([0.1])


def test_a_gap_is_of_intervals_in_the_seed_where_it_is_least():
    known = {("blur:radius=1", "clean"): [0.5, 0.8], ("blur:radius=1", "protected"): [0.9, 0.9]}
    (models, *_) = three_models.three_models(study(known).studied)
    assert models.gap == pytest.approx(0.9 - 0.8 - 2 * 0.01)


def test_what_a_denoiser_gains_is_of_means_over_the_seeds_that_both_have():
    known = {("blur:radius=1", "protected"): [0.4, 0.6, 0.1], ("blur:radius=1", "denoised"): [0.5, 0.6]}
    (models, *_) = three_models.three_models(study(known).studied)
    assert models.gain == pytest.approx(1.1 / 1.0 - 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [([0.9], "90.00 ± 1.00"), ([0.9, 0.8], "85.00"), ([0.9, 0.8, 0.7], "80.00 ± 24.84")],
)
def test_one_seed_has_an_interval_over_episodes_and_three_over_seeds(values: list[float], words: str):
    known = {("blur:radius=1", "clean"): values}
    assert wording.accuracies(study(known).studied.accuracies("clean", "blur:radius=1")) == words


def test_training_that_still_rose_is_counted_in_all_models():
    assert study(HALF).rising == (0, 5)


def test_a_model_that_is_tested_under_several_protections_was_trained_once():
    known = {("blur:radius=1", "clean"): [0.8, 0.9], ("blur:radius=2", "clean"): [0.7, 0.6]}
    assert study(known).rising == (0, 2)


def test_a_model_may_come_from_a_study_of_its_own():
    own, denoised = study(HALF), study({("blur:radius=1", "denoised"): [0.95, 0.93]})
    both = three_models.Full(own.studies + denoised.studies)
    assert both.learners == ["clean", "protected", "denoised"]
    assert both.ahead("denoised", "protected") == pytest.approx([0.04])
    assert both.done == (5 + 2, 12 + 14)


@pytest.mark.parametrize("denoised", [[], [0.95, 0.93]])
def test_the_page_is_made_of_what_there_is(monkeypatch: pytest.MonkeyPatch, denoised: list[float]):
    known = HALF | {("none", "clean"): [0.99, 0.98]}
    if denoised:
        known[("blur:radius=1", "denoised")] = denoised
    templates = wording.environment(
        {"full": {"Omniglot": study(known)}, "study": lambda name: None, "sizes": lambda kind: {}}
    )
    text = templates.from_string(SECTION).render()
    assert "| protected | 90.0 | 70.0 | yes |" in text
    assert "| clean-trained | 85.0 |  |  |" in text
    assert "On clean images the clean-trained model has 98.5%." in text
    assert ("| gain of the denoiser, points | +4.0 |" in text) == bool(denoised)


def _section() -> str:
    """The part of the page's template that is about this study, without the sentence of its settings."""
    page = Path(three_models.__file__).parents[2] / "docs" / "templates" / "results" / "three-models.md.jinja"
    text = page.read_text(encoding="utf-8")
    begin = text.index("{% set words =")
    section = text[begin : text.index("{% if in_other_tests %}", begin)].replace("{{ setting(studied) }}", "")
    return '{% from "macros.jinja" import still_rose %}' + section


SECTION = _section()
