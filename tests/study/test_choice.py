"""What a setting must keep to be recommended, at the bound and a hair beyond it; and what folds say."""

import math
from types import SimpleNamespace as Of

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from tests.study import synthetic
from tests.study.test_recommend import (
    CLEAR,
    accuracy,
    apart,
    attack,
    found,
    learned_by,
    proved_record,
    small_study,
)

from sfumato.study.choose.figures import Estimate, interval_of
from sfumato.study.choose.recommend import least_useful, nothing_to_keep
from sfumato.study.choose.results import Results

# Proofs


@pytest.mark.parametrize(
    ("at_most", "candidates", "kept"),
    [(0.1, 50, True), (0.10000000001, 40, True), (0.1001, 50, False), (0.1, 51, False), (0.02, 51, False)],
)
def test_a_proof_keeps_the_bound_where_it_is_no_higher_and_among_no_more_people(at_most, candidates, kept):
    """The bound is 10%, and there are 50 people; adversaries name 30%, which only a proof outweighs."""
    study = small_study("code:bits=2")
    proof = proved_record("code:bits=2", {"candidates": candidates, "at_most": at_most})
    records = [*CLEAR, *found("code:bits=2", 0.8, 0.1, 0.3), *synthetic.typed([proof])]
    assert (Results(study, records).advice.setting is not None) is kept
    assert Results(study, []).settings[1].upper_end(0.05) == 1.0  # nobody looked


def test_of_several_proofs_that_fit_the_one_of_most_people_is_said():
    study = small_study("code:bits=2")
    namings = ({"candidates": count, "at_most": 4 / count} for count in (40, 50, 60))
    proof = proved_record("code:bits=2", *namings)
    proof["result"]["outputs"] = 4  # of records that do not have people apart, counting says no more
    records = [*CLEAR, *found("code:bits=2", 0.8, 0.02, 0.03), *synthetic.typed([proof])]
    advice = Results(study, records).advice
    assert "names more than 8% of 50 equally likely people" in advice.answers[2].sentences[1]


def test_among_settings_that_are_proved_the_more_accurate_comes_first_and_then_the_safer():
    study = small_study("code:bits=2", "code:bits=3", "code:bits=4")
    specs = {"code:bits=2": (0.8, 0.02), "code:bits=3": (0.9, 0.04), "code:bits=4": (0.9, 0.03)}
    records = [*CLEAR]
    for spec, (value, named) in specs.items():
        proof = proved_record(spec, {"candidates": 50, "at_most": 0.08})
        records += [*found(spec, value, 0.01, named), *synthetic.typed([proof])]
    advice = Results(study, records).advice
    assert advice.headline == "recommended: code:bits=4"


# Usefulness


def test_a_setting_is_useful_from_half_of_what_the_clean_learner_has_over_guessing():
    """95% of five classes: half way from 20% is 57.5%."""
    study = small_study("blur:radius=3")
    assert least_useful(Results(study, CLEAR)) == pytest.approx(0.575)
    for value, useful in ((0.576, True), (0.574, False)):
        advice = Results(study, [*CLEAR, *found("blur:radius=3", value, 0.01, 0.02)]).advice
        assert (advice.setting is not None) is useful
        assert advice.nearest is None if useful else advice.nearest is not None
        assert useful or "no setting keeps half of what clear images have over guessing" in advice.headline


@pytest.mark.parametrize(
    ("value", "half_width", "kept"), [(0.47, 0.01, True), (0.46, 0.01, False), (0.6, 0.41, False)]
)
def test_there_is_something_to_keep_from_a_third_of_what_guessing_leaves(value, half_width, kept):
    """Guessing five classes is right in 20%, so a third of the rest is 46.7%; and surely above guessing."""
    clean = [accuracy("none", "clean", value, half_width=half_width)]
    assert (nothing_to_keep(Results(small_study(), clean)) == []) is kept
    assert nothing_to_keep(Results(small_study(), [])) == []
    assert least_useful(Results(small_study(), [])) == pytest.approx(0.2)


# Halves, people, figures


def test_a_setting_is_chosen_by_its_strongest_adversary_on_the_half_that_chooses():
    study = small_study("blur:radius=1", "blur:radius=3")
    records = [
        *CLEAR,
        *apart("blur:radius=1", accuracies=(0.90, 0.80), hits=(2, 0)),
        *apart("blur:radius=3", accuracies=(0.90, 0.95), hits=(0, 2)),
    ]
    advice = Results(study, records).advice
    assert advice.headline == "recommended: blur:radius=3"  # as accurate on the first half, and safer there
    assert advice.setting is not None
    accuracy, risk = advice.setting.on(1)
    assert (accuracy.value, risk.top1.value) == (0.95, pytest.approx(0.04))


def test_outputs_that_are_counted_show_a_bound_among_enough_people():
    study = small_study("code:bits=5")
    proof = proved_record("code:bits=5", {"candidates": 100, "at_most": 0.32})
    proof["result"]["outputs"] = 32
    records = [*CLEAR, *apart("code:bits=5", accuracies=(0.9, 0.9), hits=(10, 10)), *synthetic.typed([proof])]
    (words,) = (
        line for line in Results(study, records).advice.sentences if line.startswith("What would show it")
    )
    assert "; or 320 test people, by counting its 32 outputs; or a bound of " in words
    ends = [setting.upper_end(0.05 / 2) for setting in Results(study, records).settings[1:]]
    assert f"a bound of {math.ceil(100 * min(ends[0], 0.32)) / 100:g} " in words


def test_the_nearest_setting_is_the_useful_one_that_misses_its_bounds_by_least():
    study = small_study("blur:radius=1", "blur:radius=3", "blur:radius=5")
    records = [
        *CLEAR,
        *found("blur:radius=1", 0.9, 0.1, 0.4),
        *found("blur:radius=3", 0.8, 0.1, 0.3),
        *found("blur:radius=5", 0.4, 0.1, 0.2),  # safer, and of no use
    ]
    nearest = Results(study, records).advice.nearest
    assert nearest is not None
    assert nearest.protection == "blur:radius=3"


# The frontier


@pytest.mark.parametrize(
    ("value", "named", "beaten"),
    [(0.9, 0.3, False), (0.9, 0.29, True), (0.91, 0.3, True), (0.91, 0.31, False), (0.89, 0.2, False)],
)
def test_a_complete_setting_is_beaten_by_one_as_good_in_both_and_better_in_one(value, named, beaten):
    study = small_study("blur:radius=1", "blur:radius=3")
    first, other = found("blur:radius=1", 0.9, 0.1, 0.3), found("blur:radius=3", value, 0.1, named)
    assert Results(study, [*first, *other]).settings[1].on_frontier is not beaten
    less = Results(study, [*first, *other[:3]]).settings
    assert [each.on_frontier for each in less] == [each.complete for each in less] == [False, True, False]


def test_a_seed_that_chose_another_reading_changes_nothing_and_every_adversary_has_an_upper_end():
    study = small_study("blur:radius=3", seeds=[0, 1, 2])
    records = [
        record
        for seed in range(3)
        for record in [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.03 + 0.01 * seed, seed=seed)]
    ]
    read = [record.model_copy(deep=True) for record in records]
    for record in read:
        if record.kind == "attack" and record.cell.seed == 1:
            scores = [score.model_copy(update={"reading": "4x4 means"}) for score in record.result.scores]
            object.__setattr__(record.result, "scores", scores)
    assert Results(study, read).advice.sentences == Results(study, records).advice.sentences
    (risk,) = [
        each for each in Results(study, read).settings[1].risks if each.attack == "reidentify-adaptive"
    ]
    assert risk.top1.value == pytest.approx(0.04)
    assert risk.upper_end(0.05 / 2) > risk.top1.value + 0.015


def test_a_classifier_that_only_one_seed_has_keeps_nothing_from_being_bounded():
    study = small_study("blur:radius=3", seeds=[0, 1])
    first, second = (attack("blur:radius=3", "reidentify-values", 0.09, seed=seed) for seed in (0, 1))
    for number, record in enumerate((first, second)):
        scores = [
            score.model_copy(update={"classifier": f"way {number}"}) for score in record.result.scores[:1]
        ]
        object.__setattr__(record.result, "scores", scores)
    (risk,) = Results(study, [first, second]).settings[1].risks
    assert set(risk.named) == {"way 0", "way 1"}
    assert risk.upper_end(0.05 / 2) > risk.top1.value + 0.02


def test_a_learner_that_knows_the_classes_counts_where_all_learners_do():
    answered = learned_by("answer", found("answer", 0.95, 0.02, 0.02))
    known = small_study("answer", learners=["classifier-clean", "classifier-protected"])
    for study in (known, small_study("answer")):
        assert Results(study, answered).settings[1].learner == "answer"
    plain = [
        accuracy("blur:radius=3", "classifier-protected", 0.99),
        accuracy("blur:radius=3", "protected", 0.5),
    ]
    both = small_study("blur:radius=3", learners=["protected", "classifier-protected"])
    assert Results(both, plain).settings[1].learner == "protected"


def test_folds_are_one_share_of_all_images_or_a_mean_of_independent_ones_and_seeds_keep_their_range():
    """The half-width of a mean of two: the root of both squares, over two; within 0 and 1."""
    folds = Results(small_study(), [])
    folds.folds = True
    interval = binomtest(35, 40).proportion_ci(0.95, method="wilson")
    made = folds.together([(0.5, 0.4, 0.6), (1.0, 0.9, 1.0)], [10, 30])
    assert made == Estimate(35 / 40, pytest.approx(interval.low), pytest.approx(interval.high), 1)
    made = folds.together([(0.5, 0.3, 0.6), (0.7, 0.6, 0.8)], [])
    half = math.hypot(0.2, 0.1) / 2
    assert made == Estimate(pytest.approx(0.6), pytest.approx(0.6 - half), pytest.approx(0.6 + half), 1)
    wide = folds.together([(0.0, 0.0, 0.9), (1.0, 0.1, 1.0)], [5, None])
    assert (wide.low, wide.high) == (0, 1)
    seeds = Results(small_study(), [])
    assert seeds.together([(0.5, 0.4, 0.6), (1.0, 0.9, 1.0)], []) == Estimate(0.75, 0.5, 1.0, 2)
    assert seeds.together([(0.5, 0.4, 0.6)], []) == Estimate(0.5, 0.4, 0.6, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_mean_over_seeds_lies_in_its_interval_whatever_is_rounded(shares: list[float]):
    seeds = Results(small_study(), [])
    made = seeds.together([(share, 0.0, 1.0) for share in shares[:1] * 3 + shares], [])
    assert made.low <= made.value <= made.high
    same = seeds.together([(shares[0], 0.0, 1.0)] * 3, [])
    assert same.low == same.value == same.high == shares[0]


@pytest.mark.parametrize(
    ("value", "half_width", "interval"),
    [(0.5, 0.1, (0.5, 0.4, 0.6)), (0.99, 0.02, (0.99, 0.97, 1.0)), (0.01, 0.02, (0.01, 0.0, 0.03))],
)
def test_an_interval_of_episodes_ends_at_0_and_1(value, half_width, interval):
    made = interval_of(Of(accuracy=value, low=None, half_width=half_width))
    assert made == pytest.approx(interval)
    assert interval_of(Of(accuracy=0.5, low=0.1, high=0.7, half_width=0.2)) == (0.5, 0.1, 0.7)


def test_of_an_odd_number_of_images_the_first_half_has_one_more():
    study = {**small_study("blur:radius=3", seeds=[0, 1])}
    study["task"] = {**study["task"], "folds": 2}
    halves = [{"accuracy": value, "low": 0.0, "high": 1.0} for value in (1.0, 0.0)]
    more = {"images": 5, "halves": halves}
    records = [accuracy("blur:radius=3", "protected", 0.6, seed=seed, **more) for seed in (0, 1)]
    first, second = Results(study, records).halves["blur:radius=3", "protected"]
    for made, right, images in ((first, 6, 6), (second, 0, 4)):
        interval = binomtest(right, images).proportion_ci(0.95, method="wilson")
        assert (made.value, made.low) == (right / images, pytest.approx(interval.low, abs=1e-6))
        assert made.high == pytest.approx(interval.high, abs=1e-6)


def test_halves_that_a_seed_lacks_are_none():
    halves = [{"accuracy": 0.9, "low": 0.8, "high": 1.0}] * 2
    records = [
        accuracy("blur:radius=3", "protected", 0.9, halves=halves),
        accuracy("blur:radius=3", "protected", 0.9, seed=1),
    ]
    assert Results(small_study("blur:radius=3", seeds=[0, 1]), records).halves == {}


def test_the_fewest_people_of_any_seed_are_those_there_are_to_name():
    study = small_study("blur:radius=3", seeds=[0, 1])
    records = [attack("blur:radius=3", "reidentify-static", 0.2, seed=seed) for seed in (0, 1)]
    records[1] = records[1].model_copy(
        update={"result": records[1].result.model_copy(update={"identities": 30})}
    )
    assert Results(study, records).risks["blur:radius=3", "reidentify-static"].identities == 30


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [((0.1, 0.2), (0.2, 0.3), True), ((0.1, 0.2), (0.21, 0.3), False), ((0.4, 0.5), (0.1, 0.9), True)],
)
def test_intervals_overlap_where_they_share_a_number(one, other, overlap):
    first, second = (Estimate(sum(ends) / 2, *ends, seeds=1) for ends in (one, other))
    assert first.overlaps(second) is second.overlaps(first) is overlap
