"""What a study recommends, and when it must not."""

from typing import Any

import pytest
import synthetic

from sfumato.study import estimates, grid, recommend, vocabulary
from sfumato.study.records import Record

STATIC, ADAPTIVE, DENOISED = "reidentify-static", "reidentify-adaptive", "reidentify-denoised"


def small_study(*protections: str, **changes: Any) -> dict[str, Any]:
    """A study of "none" and the given protections, by one learner, whose adversaries see no denoiser."""
    settings = {"protections": ["none", *protections], "learners": ["protected"]}
    return synthetic.study(**{**settings, **changes})


def accuracy(*of: Any, **more: Any) -> Record:
    (record,) = synthetic.typed([synthetic.accuracy(*of, **more)])
    return record


def attack(*of: Any, **more: Any) -> Record:
    (record,) = synthetic.typed([synthetic.attack(*of, **more)])
    return record


def recent_attack(*of: Any, **more: Any) -> Record:
    (record,) = synthetic.typed([synthetic.recent_attack(*of, **more)])
    return record


def found(protection: str, value: float, static: float, adaptive: float, **more: Any) -> list[Record]:
    """The accuracy and attack records of one setting."""
    return [
        accuracy(protection, "protected", value, **more),
        attack(protection, STATIC, static, **more),
        attack(protection, ADAPTIVE, adaptive, **more),
    ]


CLEAR = [accuracy("none", "clean", 0.95), attack("none", STATIC, 0.68)]


def test_the_most_accurate_setting_under_the_bound_is_recommended():
    study = small_study("blur:radius=1", "blur:radius=3", "blur:radius=5")
    records = [
        *CLEAR,
        *found("blur:radius=1", 0.93, 0.05, 0.30),
        *found("blur:radius=3", 0.90, 0.04, 0.09),
        *found("blur:radius=5", 0.80, 0.03, 0.05),
    ]
    advice = recommend.recommend(study, records)
    assert advice.setting is not None
    assert advice.setting.protection == "blur:radius=3"
    assert advice.runner_up is not None
    assert advice.runner_up.protection == "blur:radius=5"
    assert advice.lines[0] == "recommended: blur:radius=3"
    assert "Accuracy 90.0% (95% interval 89.6 to 90.4)" in advice.lines[1]
    assert "re-identification 9.0%" in advice.lines[1]
    assert "adaptive adversary, linear classifier, chance 2.0%" in advice.lines[1]


def test_the_bound_itself_is_accepted():
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.04, 0.1)]
    advice = recommend.recommend(small_study("blur:radius=3"), records)
    assert advice.setting is not None


def test_clear_images_are_recommended_where_even_they_stay_under_the_bound():
    study = small_study("blur:radius=3", recommend={"reidentification_at_most": 0.9})
    advice = recommend.recommend(study, [*CLEAR, *found("blur:radius=3", 0.9, 0.04, 0.1)])
    assert advice.headline == "recommended: none"


def test_the_strongest_classifier_of_the_strongest_adversary_counts():
    study = small_study("blur:radius=3")
    stronger = attack("blur:radius=3", STATIC, 0.2, weaker=1.5)
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.04, 0.25)[::2], stronger]
    risk = recommend.frontier(study, records)[1].risk
    assert risk is not None
    assert (risk.attack, risk.classifier, risk.top1.value) == (STATIC, "1-nn", pytest.approx(0.3))


def test_the_best_learner_counts_and_is_named():
    study = small_study("blur:radius=3", learners=["clean", "protected"])
    records = [*CLEAR, *found("blur:radius=3", 0.8, 0.1, 0.1)]
    records.append(accuracy("blur:radius=3", "clean", 0.85))
    setting = recommend.frontier(study, records)[1]
    assert setting.learner == "clean"
    assert setting.accuracy is not None
    assert setting.accuracy.value == 0.85


def test_the_frontier_is_what_no_setting_beats_in_both():
    study = small_study("blur:radius=1", "blur:radius=3", "blur:radius=5")
    records = [
        *CLEAR,
        *found("blur:radius=1", 0.90, 0.1, 0.30),
        *found("blur:radius=3", 0.90, 0.1, 0.40),  # as accurate as radius 1, and easier to re-identify
        *found("blur:radius=5", 0.80, 0.1, 0.10),
    ]
    on = {one.protection: one.on_frontier for one in recommend.frontier(study, records)}
    assert on == {"none": True, "blur:radius=1": True, "blur:radius=3": False, "blur:radius=5": True}


def test_of_equal_settings_both_are_on_the_frontier():
    study = small_study("blur:radius=1", "blur:radius=3")
    records = [*found("blur:radius=1", 0.9, 0.1, 0.3), *found("blur:radius=3", 0.9, 0.1, 0.3)]
    on = [one.on_frontier for one in recommend.frontier(study, records)]
    assert on == [False, True, True]


def test_where_nothing_stays_under_the_bound_the_lowest_is_named():
    study = small_study("blur:radius=1", "blur:radius=3")
    records = [*CLEAR, *found("blur:radius=1", 0.9, 0.1, 0.3), *found("blur:radius=3", 0.8, 0.1, 0.2)]
    advice = recommend.recommend(study, records)
    assert advice.setting is None
    assert advice.headline == (
        "no recommendation: no setting keeps the strongest re-identification at or under 10.0%"
    )
    assert advice.details[0].startswith("The lowest is blur:radius=3, at 20.0%")


def test_overlapping_accuracies_of_the_first_two_are_said():
    study = small_study("blur:radius=3", "blur:radius=5")
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05), *found("blur:radius=5", 0.894, 0.02, 0.04)]
    lines = " ".join(recommend.recommend(study, records).lines)
    assert "cannot be told from the runner-up's: blur:radius=5 has 89.4%" in lines


def test_accuracies_apart_are_not_said_to_overlap():
    study = small_study("blur:radius=3", "blur:radius=5")
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05), *found("blur:radius=5", 0.88, 0.02, 0.04)]
    assert "runner-up" not in " ".join(recommend.recommend(study, records).lines)


def test_a_risk_whose_interval_passes_the_bound_is_said():
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.09)]
    lines = recommend.recommend(small_study("blur:radius=3"), records).lines
    assert any("under the bound by estimate only: the interval reaches 11.0%" in line for line in lines)


def test_a_setting_that_an_attack_is_missing_of_is_not_recommended():
    study = small_study("blur:radius=3", "blur:radius=5")
    records = [
        *CLEAR,
        *found("blur:radius=3", 0.9, 0.02, 0.05)[:2],  # the adaptive adversary did not run
        *found("blur:radius=5", 0.8, 0.02, 0.04),
    ]
    advice = recommend.recommend(study, records)
    assert advice.headline == "recommended: blur:radius=5"
    assert "Not considered, since records are missing: blur:radius=3." in advice.lines
    assert [one.complete for one in recommend.frontier(study, records)] == [True, False, True]


def test_a_setting_that_a_seed_is_missing_of_is_not_recommended():
    study = small_study("blur:radius=3", seeds=[0, 1])
    records = [*found("blur:radius=3", 0.9, 0.02, 0.05), *found("blur:radius=3", 0.9, 0.02, 0.05, seed=1)[:2]]
    assert recommend.recommend(study, records).setting is None


def test_where_there_is_a_denoiser_its_output_is_attacked_too():
    study = small_study("blur:radius=3", learners=["protected", "denoised"])
    assert estimates.attacks_on(study, "blur:radius=3") == [STATIC, ADAPTIVE, DENOISED]
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)]
    assert recommend.recommend(study, records).setting is None
    records.append(attack("blur:radius=3", DENOISED, 0.3))
    assert "The lowest is blur:radius=3, at 30.0%" in recommend.recommend(study, records).details[0]


def test_clear_images_are_attacked_by_the_static_adversary_only():
    assert estimates.attacks_on(synthetic.study(), "none") == [STATIC]


def test_no_recommendation_where_the_secret_is_the_task():
    task = {**synthetic.study()["task"], "target": "identity", "secret_is_task": True}
    study = small_study("blur:radius=3", task=task)
    advice = recommend.recommend(study, [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)])
    assert advice.setting is None
    assert "the secret (identity) is what the task itself tells" in advice.headline
    assert "no setting is both useful and safe" in advice.details[0]


def test_no_recommendation_without_a_secret():
    task = {**synthetic.study()["task"], "sensitive": None}
    advice = recommend.recommend(small_study("blur:radius=3", task=task), CLEAR[:1])
    assert advice.setting is None
    assert "names no secret" in advice.headline


def test_no_recommendation_without_attacks():
    records = [accuracy("blur:radius=3", "protected", 0.9)]
    advice = recommend.recommend(small_study("blur:radius=3"), records)
    assert advice.setting is None
    assert "no attack is recorded" in advice.headline


def test_no_recommendation_without_a_bound():
    study = small_study("blur:radius=3", recommend={})
    advice = recommend.recommend(study, [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)])
    assert "the study sets no bound" in advice.headline


def test_no_recommendation_of_an_empty_run():
    assert recommend.recommend(synthetic.study(), []).setting is None


def test_a_recommendation_without_an_adaptive_adversary_says_so():
    study = small_study("blur:radius=3", attacks=[STATIC])
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)[:2]]
    lines = recommend.recommend(study, records).lines
    assert "No adaptive adversary was tried, who is the one to fear: the risk may be higher." in lines


@pytest.mark.parametrize("adaptive", ["reidentify-denoised-adaptive", "reidentify-restored-adaptive"])
def test_any_adaptive_adversary_counts_as_one(adaptive):
    study = small_study("blur:radius=3", attacks=[STATIC, adaptive], learners=["protected", "denoised"])
    records = [*CLEAR, accuracy("blur:radius=3", "protected", 0.9)]
    for name in estimates.attacks_on(study, "blur:radius=3"):
        records.append(attack("blur:radius=3", name, 0.05))
    advice = recommend.recommend(study, records)
    assert advice.headline == "recommended: blur:radius=3"
    assert "adaptive adversary was tried" not in " ".join(advice.lines)


def test_an_adaptive_adversary_whom_no_learner_lets_run_was_not_tried():
    study = small_study("blur:radius=3", attacks=[STATIC, "reidentify-denoised-adaptive"])
    lines = recommend.recommend(study, [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)[:2]]).lines
    assert any(line.startswith("No adaptive adversary was tried") for line in lines)


def test_of_clear_images_nobody_misses_an_adaptive_adversary():
    study = small_study(attacks=[STATIC], recommend={"reidentification_at_most": 0.9})
    advice = recommend.recommend(study, CLEAR)
    assert advice.headline == "recommended: none"
    assert "No adaptive" not in " ".join(advice.lines)


def test_every_attack_says_in_its_words_who_looks_and_at_what():
    seen = {
        "released": "adversary",
        "denoised": "denoised images",
        "restored": "that they restored",
        "shape": "the mask's shape",
    }
    for attack in vocabulary.ATTACKS.values():
        assert attack.words.split()[0] == ("adaptive" if attack.adaptive else "static")
        assert attack.words.endswith(seen[attack.view])
        assert (attack.name in vocabulary.ADAPTIVE) == attack.adaptive
    assert sorted([*vocabulary.STATIC, *vocabulary.ADAPTIVE]) == sorted(grid.ATTACKS)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (attack("none", STATIC, 0.6), "static adversary, linear classifier"),
        (attack("none", STATIC, 0.6, weaker=1.2), "static adversary, 1-nn classifier"),
        (recent_attack("none", STATIC, 0.6), "static adversary, SVM classifier"),
    ],
)
def test_records_of_any_version_name_their_classifier(record, words):
    assert estimates.risks(small_study(), [record])["none", STATIC].adversary == words


def test_what_is_proved_of_the_recommended_setting_is_said():
    study = synthetic.study()
    advice = recommend.recommend(study, synthetic.typed(synthetic.records(study)))
    assert advice.headline == "recommended: dp-pix:cell=4,epsilon=3"
    assert any("the whole image only at eps = 3080" in line for line in advice.lines)


def test_where_nothing_is_proved_that_is_said():
    study = synthetic.study(
        protections=["none", "blur:radius=3"], recommend={"reidentification_at_most": 0.6}
    )
    lines = recommend.recommend(study, synthetic.typed(synthetic.records(study))).lines
    assert any(line.startswith("Nothing is proved of it") for line in lines)


def test_over_several_seeds_the_mean_counts_with_the_lowest_and_highest_seed():
    study = small_study("blur:radius=3", seeds=[0, 1, 2])
    values = (0.90, 0.92, 0.85)
    records = [
        record
        for seed, value in enumerate(values)
        for record in found("blur:radius=3", value, 0.02, 0.04 + 0.02 * seed, seed=seed)
    ]
    setting = recommend.frontier(study, records)[1]
    assert setting.accuracy == estimates.Estimate(pytest.approx(0.89), 0.85, 0.92, seeds=3)
    assert setting.risk is not None
    assert setting.risk.top1 == estimates.Estimate(pytest.approx(0.06), 0.04, 0.08, seeds=3)
    assert "over 3 seeds 85.0 to 92.0" in recommend.recommend(study, records).lines[1]


def test_with_one_seed_the_interval_is_that_of_the_record():
    records = [accuracy("none", "clean", 0.998, half_width=0.004)]
    found = estimates.accuracies(small_study(), records)["none", "clean"]
    assert (found.value, found.low, found.high) == (0.998, pytest.approx(0.994), 1.0)


def test_records_of_other_settings_or_seeds_do_not_count():
    study = small_study("blur:radius=3")
    records = [*found("blur:radius=9", 0.9, 0.02, 0.05), *found("blur:radius=3", 0.9, 0.02, 0.05, seed=7)]
    assert estimates.belonging(study, records) == []
    assert all(one.accuracy is None for one in recommend.frontier(study, records))


def test_a_finished_study_misses_nothing_and_a_stopped_one_says_what():
    study = synthetic.study()
    records = synthetic.typed(synthetic.records(study))
    assert estimates.missing(study, records) == []
    name = "accuracy blur:radius=3 denoised 0"
    kept = [one for one in records if one.name != name]
    assert estimates.missing(study, kept) == [name]


@pytest.mark.parametrize("gone", ["pictures blur:radius=3 0", "embeddings none clean 0"])
def test_pictures_and_embeddings_are_missed_where_the_study_lists_them_and_only_there(gone):
    study = synthetic.study(protections=["none", "blur:radius=3"])
    kind = gone.split()[0]
    kept = [one for one in synthetic.typed(synthetic.records(study)) if one.kind != kind]
    absent = estimates.missing(study, kept)
    assert gone in absent
    assert {name.split()[0] for name in absent} == {kind}
    without = {**study, "cells": [one for one in study["cells"] if one["kind"] != kind]}
    assert estimates.missing(without, kept) == []
