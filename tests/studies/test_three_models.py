"""What the pages say of three models of protected images, and of training that ended as validation rose."""

import pytest
from results_page import engine, three_models

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


def study(known: dict[str, list[float | None]], spec: str = "blur:radius=1") -> engine.Study:
    """A study of model -> accuracy, seed by seed."""
    whole = {"clean": [0.5], "protected": [0.5], "denoised": [0.5]} | known
    raw = [
        accuracy(spec, learner, seed, value)
        for learner, values in whole.items()
        for seed, value in enumerate(values)
        if value is not None
    ]
    return engine.Study(
        "study", {"name": "study", "protections": ["none", spec]}, [parse(each) for each in raw]
    )


def test_a_gap_is_of_intervals_in_the_seed_in_which_it_is_least():
    (models,) = three_models.three_models(study({"clean": [0.5, 0.8], "protected": [0.9, 0.9]}))
    assert models.gap == pytest.approx(0.9 - 0.8 - 2 * 0.01)


def test_what_a_denoiser_gains_is_of_means_over_the_seeds_that_both_have():
    (models,) = three_models.three_models(study({"protected": [0.4, 0.6, 0.1], "denoised": [0.5, 0.6]}))
    assert models.gain == pytest.approx(1.1 / 1.0 - 1)


@pytest.mark.parametrize(
    ("curve", "rises"),
    [
        ((0.5, 0.6, 0.7, 0.8), True),
        ((0.5, 0.8, 0.80, 0.804), False),
        ((0.5, 0.6, 0.7, 0.70, 0.69, 0.71, 0.70, 0.708), False),  # 0.700 to 0.704
        ((0.5, 0.6, 0.7), None),
        ((), None),
    ],
)
def test_training_is_said_to_rise_by_more_than_half_a_point_over_its_last_quarter(curve, rises):
    assert engine.rises(curve) == rises


def test_a_model_that_is_tested_under_several_protections_was_trained_once():
    known = study({"clean": [0.8, 0.9]}).records + study({"clean": [0.7, 0.6]}, "blur:radius=2").records
    clean = [record.result for record in known if record.cell.learner == "clean"]
    assert engine.rising(clean) == (0, 2)


def test_a_study_with_fewer_seeds_than_it_says_has_them_in_its_title():
    whole = study({})
    said = engine.Study(
        "study", whole.file | {"title": "Faces, three seeds", "seeds": [0, 1, 2]}, whole.records
    )
    assert said.title == "Faces, three seeds (1 of 3 seeds)"
    assert engine.Study("study", said.file | {"seeds": [0]}, whole.records).title == "Faces, three seeds"
