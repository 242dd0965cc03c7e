import math
import re

import pytest

from sfumato.assess import people
from sfumato.assess.people import Recognition, at_blur, at_noise, read
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, DataError

HEADER = "experiment,condition,subject,category,trials,correct,no_answer\n"


@pytest.fixture(scope="module")
def recognition(shared_data) -> Recognition:
    return read(shared_data / "human_recognition_geirhos2018.csv")


def shares(recognition: Recognition, experiment: str) -> dict[str, float]:
    return {one.condition: one.share for one in recognition.of(experiment)}


# The file


def test_people_recognise_less_the_more_is_filtered_away(recognition):
    found = shares(recognition, "lowpass")
    deviations = ("0", "1", "3", "5", "7", "10", "15", "40")
    # The README beside the file, in per cent; it has 48.5 as 48.
    expected = [0.86, 0.81, 0.72, 0.58, 0.48, 0.31, 0.19, 0.08]
    assert [found[one] for one in deviations] == pytest.approx(expected, abs=0.0055)


def test_no_answer_of_the_paper_is_lost(recognition):
    assert sum(one.trials for one in recognition.conditions) == 82_880


def test_a_condition_pools_people_and_classes(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text(
        f"{HEADER}noise,0.1,01,bear,40,30,0\nnoise,0.1,01,bird,40,20,1\nnoise,0.1,02,bear,20,10,0\n"
    )
    (condition,) = read(path).conditions
    assert (condition.correct, condition.trials, condition.share) == (60, 100, 0.6)
    assert condition.interval == wilson(60, 100)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("experiment,condition,trials\n", "no column 'correct': give the CSV of answers"),
        (HEADER, "no rows: give the CSV of answers, not only its header"),
        (f"{HEADER}noise,0,01,bear,40,many,0\n", "line 2: correct and trials are whole numbers"),
        (f"{HEADER}noise,0,01,bear,40\n", "line 2: correct and trials are whole numbers"),
        (f"{HEADER}noise,0,01,bear,40,41,0\n", "line 2: 41 right of 40 trials: from 0 to all"),
        (f"{HEADER}noise,0,01,bear,0,0,0\n", "line 2: 0 right of 0 trials"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, text, problem):
    path = tmp_path / "answers.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(problem)):
        read(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read \(No such file or directory\)"):
        read(tmp_path / "nowhere.csv")


def test_an_experiment_that_is_not_there_is_refused_with_the_nearest_name(recognition):
    with pytest.raises(ConfigError, match="did you mean 'lowpass'"):
        recognition.of("low-pass")


# What a report can say without the file


@pytest.mark.parametrize(
    ("experiment", "counts", "trials"),
    [
        ("lowpass", people._LOW_PASS, people._LOW_PASS_TRIALS),
        ("noise", people._NOISE, people._NOISE_TRIALS),
    ],
)
def test_the_counts_in_the_module_are_those_of_the_file(recognition, experiment, counts, trials):
    found = recognition.of(experiment)
    assert {float(one.condition): one.correct for one in found} == counts
    assert {one.trials for one in found} == {trials}


@pytest.mark.parametrize("counts", [people._LOW_PASS, people._NOISE])
def test_recognition_falls_with_each_condition_so_that_nothing_has_to_be_smoothed(counts):
    right = [counts[one] for one in sorted(counts)]
    assert right == sorted(set(right), reverse=True)


@pytest.mark.parametrize(("deviation", "correct"), people._LOW_PASS.items())
def test_a_blur_that_was_measured_gives_its_share_and_its_interval(deviation, correct):
    found = at_blur(deviation, side=224)
    low, high = wilson(correct, 960)
    assert (found.share, found.low, found.high) == pytest.approx((correct / 960, low, high))
    assert not found.beyond


def test_a_blur_counts_by_its_part_of_the_width():
    # 1 pixel of 32 is 7 of 224, and 2 of 64.
    assert at_blur(1, side=32).share == pytest.approx(466 / 960)
    assert at_blur(2, side=64) == at_blur(1, side=32)


def test_noise_counts_by_its_ratio_to_the_contrast():
    # Half width 0.35 at a contrast of 0.3: a deviation of 0.35 / sqrt(3) / 0.3 = 0.674 of the contrast.
    sigma = 255 * 0.35 / math.sqrt(3) / 0.3
    assert at_noise(sigma).share == pytest.approx(365 / 800)
    assert at_noise(40).compared == "uniform noise of ±0.082 at a contrast of 30%"


def test_between_two_conditions_shares_are_linear_in_the_logarithm():
    halfway = at_blur(math.sqrt(3 * 5), side=224)  # as far from 3 as from 5
    assert halfway.share == pytest.approx((689 + 560) / 2 / 960)
    assert halfway.low == pytest.approx((wilson(689, 960)[0] + wilson(560, 960)[0]) / 2)


def test_below_the_weakest_condition_shares_are_linear_from_no_distortion():
    assert at_blur(0.25, side=224).share == pytest.approx((0.75 * 825 + 0.25 * 776) / 960)
    assert at_noise(0).share == 644 / 800


def test_more_blur_or_noise_is_never_recognised_more_often():
    for at in (lambda value: at_blur(value, side=84), at_noise):
        found = [at(value / 4).share for value in range(400)]
        assert found == sorted(found, reverse=True)


def test_beyond_the_strongest_condition_its_share_is_a_bound():
    found = at_blur(41, side=224)
    assert found.beyond
    assert (found.share, found.low, found.high) == (74 / 960, *wilson(74, 960))
    assert not at_noise(441).beyond  # 0.9 is that of 441.7
    assert at_noise(442).beyond
    assert at_noise(442).share == 48 / 800


def test_a_sentence_has_the_share_its_interval_and_chance():
    assert at_blur(5, side=224).sentence == (
        "at this setting people recognised about 58% (55 to 61) of photographs of 16 classes; chance 6%"
    )
    assert "recognised no more than about 8% (6 to 10) of photographs" in at_blur(41, side=224).sentence


def test_what_was_compared_is_told():
    assert at_blur(1, side=84).compared == "a blur of 2.67 pixels in a photograph of 224 × 224"


@pytest.mark.parametrize("value", [-1, math.nan])
def test_a_strength_below_zero_is_refused(value):
    with pytest.raises(ConfigError, match="a radius of at least 0, a side of at least 1 pixel"):
        at_blur(value, side=84)
    with pytest.raises(ConfigError, match="a standard deviation is at least 0"):
        at_noise(value)


def test_an_image_without_width_is_refused():
    with pytest.raises(ConfigError, match="side=0: a radius of at least 0, a side of at least 1 pixel"):
        at_blur(1, side=0)
