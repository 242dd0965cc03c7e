"""The bound of an attribute is kept by an interval that allows for every setting of the study."""

from typing import Any

from tests.study import synthetic
from tests.study.test_recommend import CLEAR, found, small_study

from sfumato.base.proportions import upper_end_over_people
from sfumato.study.choose.results import Results
from sfumato.study.records import Record


def study_of_two(bound: float = 0.7) -> dict[str, Any]:
    task = {**synthetic.study()["task"], "attributes": ["gender"]}
    bounds = {"reidentification_at_most": 0.1, "inference_at_most": {"gender": bound}}
    return small_study("blur:radius=3", "blur:radius=5", task=task, recommend=bounds)


def records_of_two(*shares: float) -> list[Record]:
    """Of two settings, of which the first is more accurate; how often an attribute is inferred of them."""
    of_spec = zip(("none", "blur:radius=3", "blur:radius=5"), (0.9, *shares), strict=True)
    made = [synthetic.inference(spec, "gender", share) for spec, share in of_spec]
    settings = [*found("blur:radius=3", 0.93, 0.03, 0.05), *found("blur:radius=5", 0.90, 0.03, 0.05)]
    return [*CLEAR, *settings, *synthetic.typed(made)]


def test_the_recommended_setting_keeps_the_bound_of_every_secret():
    advice = Results(study_of_two(), records_of_two(0.8, 0.6)).advice
    assert advice.headline == "recommended: blur:radius=5"
    assert (
        "Gender is inferred in 60.0% (95% interval 56.6 to 63.3) of cases by classifiers of what travelled, "
        "guessing 50.0%; at most 70.0% is accepted, and the upper end is"
    ) in " ".join(advice.sentences)
    # With nothing inferred the more accurate one is.
    assert Results(study_of_two(), records_of_two(0.6, 0.6)).advice.headline == "recommended: blur:radius=3"


def test_where_no_setting_keeps_all_bounds_the_nearest_and_its_inference_are_said():
    advice = Results(study_of_two(), records_of_two(0.85, 0.75)).advice
    assert advice.headline == (
        "no recommendation: no useful setting is shown to keep re-identification at or under 10.0%, and the "
        "inference of gender at or under 70.0%"
    )
    assert "The nearest is blur:radius=5" in advice.sentences[1]
    assert "Gender is inferred in 75.0%" in advice.lines[2]


def test_a_setting_of_which_an_inference_is_missing_is_not_recommended():
    records = [record for record in records_of_two(0.6, 0.6) if record.cell.protection != "blur:radius=3"]
    records += found("blur:radius=3", 0.93, 0.03, 0.05)
    advice = Results(study_of_two(), records).advice
    assert advice.headline == "recommended: blur:radius=5"
    assert "Not considered, since records are missing: blur:radius=3." in advice.sentences


def upper_end(share: float, error: float) -> float:
    """For 100 people of ten photographs each, all alike; see sfumato.base.proportions."""
    return upper_end_over_people([10 * share] * 100, [10.0] * 100, error=error)


def test_the_more_settings_are_compared_the_less_an_inference_under_its_bound_shows():
    """67%: for one setting the upper end is below 70%, for the three of this study it is not."""
    alone, among_three = (upper_end(0.67, 0.05 / settings) for settings in (1, 3))
    assert alone < 0.7 < among_three
    advice = Results(study_of_two(0.7), records_of_two(0.8, 0.67)).advice
    assert advice.setting is None
    words = " ".join(advice.sentences)
    assert "at most 70.0% is accepted, and the upper end is " in words
    assert f"the upper end is {100 * among_three:.1f}%" in words


def test_an_inference_whose_interval_ends_at_the_bound_with_every_setting_allowed_for_is_enough():
    end = upper_end(0.675, 0.05 / 3)
    for bound, enough in ((0.8, True), (end + 1e-6, True), (end - 1e-6, False), (0.68, False)):
        advice = Results(study_of_two(bound), records_of_two(0.8, 0.675)).advice
        assert (advice.setting is not None) is enough
