"""What many releases of one person tell: measured, over seeds, and as what a recommendation must keep."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import synthetic
import torch
from tests.study.test_recommend import CLEAR, found, small_study
from tests.study.test_values import lab, portraits

from sfumato.base.proportions import over_people
from sfumato.errors import ConfigError
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.choose.figures import Estimate
from sfumato.study.choose.recommend import Recommendation
from sfumato.study.choose.results import Results
from sfumato.study.measure import many, results
from sfumato.study.records import Record
from sfumato.study.report import sections

CODE, NUMBERS, BLUR = "code:bits=16", "code:numbers=1", "blur:radius=3"
RARELY, OFTEN = [0.1, 0.0] * 40, [1.0, 0.4] * 40
ASKED = {"reidentification_at_most": 0.1, "releases": 100}


def curve(protection: str, named: dict[int, list[float]], **more: Any) -> Record:
    (record,) = synthetic.typed([synthetic.many(protection, named, **more)])
    return record


def study(*protections: str, **changes: Any) -> dict[str, Any]:
    """A study of many releases; its cells have their curves."""
    made = small_study(*protections, **{"recommend": ASKED, **changes})
    cells = [
        {"kind": kind, "cell": {"protection": spec, "seed": seed}, "digest": "ab"}
        for spec in protections
        for seed in made["seeds"]
        for kind in ("many", "proved")
    ]
    return {**made, "cells": made["cells"] + cells}


# Measured


def test_noisy_releases_tell_more_the_more_there_are(tmp_path: Path):
    made = lab(tmp_path, portraits(80, 24))
    result = results.Many.model_validate(
        many.MANY.measure(made, Cell("many", "dp-pix:cell=4,epsilon=0.5", 0))
    )
    shares = [sum(point.named) / len(point.named) for point in result.points]
    assert [point.releases for point in result.points] == [1, 3, 10]
    assert shares == sorted(shares)
    assert shares[0] > 2 / result.panel
    assert (result.panel, result.able, result.enough[100]) == (20, 40, 0)
    assert (result.known, result.others) == (12, 40)
    bits = [sum(point.bits) / len(point.bits) for point in result.points]
    assert 0 < bits[0] < bits[1] < bits[2] <= np.log2(20)


def test_black_images_name_nobody(tmp_path: Path):
    result = results.Many.model_validate(many.MANY.measure(lab(tmp_path), Cell("many", "block:share=1", 0)))
    for point in result.points:
        assert [*point.named, *point.linked] == pytest.approx([1 / result.panel] * 40, abs=1e-4)
        assert point.accepted == 0
        assert point.bits == pytest.approx([0] * 20)
        assert sum(point.surest) / sum(point.surest_of) == pytest.approx(1 / result.panel, abs=1e-3)


def test_numbers_that_few_have_pictures_for_are_measured_on_them_and_by_further_pictures(tmp_path: Path):
    loaded = portraits(120, 24)
    test = loaded.splits["test"]
    few = torch.isin(torch.arange(len(loaded)), test) & (torch.arange(len(loaded)) % 2 == 0)
    splits = {**loaded.splits, "test": test[few[test]], "further": test[~few[test]]}
    made = lab(tmp_path, replace(loaded, splits=splits))
    result = results.Many.model_validate(many.MANY.measure(made, Cell("many", "pixelize:cell=4", 0)))
    assert result.pictures == 12  # of the test
    held = [(point.releases, point.panel, point.known) for point in result.points]
    assert held == [(1, None, None), (3, None, None), (10, 20, 12)]
    few = many._with_pictures(made.adversaries.further, "identity", 10)
    assert len(few) == 24 * 40
    codes = few.label("identity").codes
    of_each = [(codes == code).nonzero()[:, 0] for code in codes.unique()]
    less = few.rows(torch.cat([rows[:14] if number < 10 else rows for number, rows in enumerate(of_each)]))
    assert len(many._with_pictures(less, "identity", 10)) == 24 * 30  # 15 pictures for 10 releases


def test_numbers_of_releases_that_fewer_people_have_state_the_guessing_among_these():
    points = curve(BLUR, {1: RARELY, 10: RARELY}).result.points
    few = points[1].model_copy(update={"panel": 4, "known": 9})
    made = curve(BLUR, {1: RARELY}, points=[points[0].model_dump(), few.model_dump()])
    one, ten = Results(study(BLUR), [made]).curves[BLUR].points
    assert (one.chance, ten.chance) == (1 / 40, 1 / 4)
    assert (one.had.people, ten.had.people, ten.had.known) == (40, 4, 9)


def test_a_study_names_a_number_of_releases_that_is_measured():
    assert grid.Bounds().releases == 100
    with pytest.raises(ConfigError, match="releases=50: naming is measured from 1, 3, 10, 30, 100: choose"):
        grid.Bounds(releases=50)


# Over people and seeds


def test_the_interval_is_that_of_resampling_people():
    rates = [0.1, 0.3, 0.0, 0.2, 0.9, 0.4, 0.1, 0.2] * 5
    measured = Results(study(BLUR), [curve(BLUR, {1: rates})]).curves[BLUR].points[0]
    draws = np.random.default_rng(0).choice(rates, (4000, len(rates))).mean(1)
    assert (measured.named.low, measured.named.high) == pytest.approx(
        np.quantile(draws, (0.025, 0.975)), abs=0.02
    )
    assert measured.chance == 1 / 20
    assert (measured.bits, measured.surest, measured.had.known) == (None, None, None)  # of an older record


def test_bits_of_several_seeds_are_means_over_people_and_the_surest_namings_are_counted_together():
    told = [
        {"bits": [1.0, 2.0, 3.0, 4.0], "surest": [1, 0, 0, 0], "surest_of": [1, 1, 0, 0]},
        {"bits": [3.0, 2.0, 1.0, 4.0], "surest": [1, 1, 0, 0], "surest_of": [1, 1, 0, 0]},
    ]
    records = []
    for seed, believed in enumerate(told):
        made = synthetic.many(BLUR, {1: [0.5] * 4}, seed=seed, known=7, others=30)
        made["result"]["points"][0] |= believed
        records += synthetic.typed([made])
    (point,) = Results(study(BLUR, seeds=[0, 1]), records).curves[BLUR].points
    assert (point.bits.value, point.surest.value) == (2.5, 3 / 4)
    expected = scipy.stats.t.interval(0.95, 3, 2.5, scipy.stats.sem([2, 2, 2, 4]))
    assert (point.bits.low, point.bits.high) == pytest.approx(expected)
    assert str(point.had) == "2 people, 7 known photographs of each, 30 others to learn from, 1 release"


def test_over_seeds_it_is_the_mean_of_the_numbers_that_all_seeds_have():
    records = [curve(BLUR, {1: [0.2] * 10}), curve(BLUR, {1: [0.4] * 10, 3: [0.9] * 10}, seed=1)]
    (point,) = Results(study(BLUR, seeds=[0, 1]), records).curves[BLUR].points
    low, high = over_people([3.0] * 10, [10.0] * 10)  # of a seed
    assert point.named == Estimate(*map(pytest.approx, (0.3, low, high)), seeds=1)


def test_a_protection_without_people_to_look_for_has_no_curve_and_a_study_no_section():
    nobody = curve(BLUR, {1: RARELY}, points=[], panel=0, able=1)
    assert Results(study(BLUR), [nobody]).curves == {}
    assert sections.many(Results(study(BLUR), [nobody])) is None


# Recommended


def advice_of(spec: str, *curves: Record, outputs: int | None = None) -> Recommendation:
    records = [*CLEAR, *found(spec, 0.9, 0.04, 0.05), *curves]
    if outputs is not None:
        records += synthetic.typed([synthetic.proved(spec, outputs=outputs, people=40)])
    return Results(study(spec), records).advice


def test_what_is_sent_is_recommended_if_many_releases_name_few():
    advice = advice_of(BLUR, curve(BLUR, {1: RARELY, 10: RARELY, 100: RARELY}))
    assert advice.headline == f"recommended: {BLUR}"
    assert not advice.by_table
    (words,) = [line for line in advice.sentences if line.startswith("Adversaries name")]
    assert words.startswith(
        "Adversaries name 5.0% from 1, 5.0% from 10 and 5.0% from 100 releases of a person among 40 people, "
        "100 releases ("
    )
    assert "guessing 2.5%)." in words


def test_what_names_many_after_many_releases_is_not_recommended():
    advice = advice_of(BLUR, curve(BLUR, {1: RARELY, 100: OFTEN}))
    assert advice.setting is None
    assert "at or under 10.0% from 100 releases" in advice.headline
    assert any("70.0% from 100 releases" in line for line in advice.sentences)


def test_a_code_that_names_many_is_recommended_if_it_is_looked_up():
    advice = advice_of(CODE, curve(CODE, {1: RARELY, 100: OFTEN}), outputs=2**16)
    assert advice.headline == f"recommended: {CODE}, looked up in an answer table"
    assert advice.by_table
    assert any("naming stays guessing, by construction" in line for line in advice.sentences)


def test_a_code_of_more_bits_has_no_table():
    assert advice_of(CODE, curve(CODE, {1: RARELY, 100: OFTEN}), outputs=2**17).setting is None


def test_too_few_pictures_show_nothing_of_more_releases_and_that_is_said():
    advice = advice_of(BLUR, curve(BLUR, {1: RARELY, 10: RARELY}))
    assert advice.setting is None
    assert any(
        "From 100 it could not be measured: 3 of 80 people have enough pictures. Add pictures of the same "
        "people, or ask for --releases 10." in line
        for line in advice.sentences
    )


def test_what_was_stopped_says_so():
    advice = advice_of(CODE, curve(CODE, {1: RARELY, 10: OFTEN}, stopped=True), outputs=2**16)
    assert any(
        "More releases were not looked at, since these name too many." in line for line in advice.sentences
    )


def test_sequences_of_so_few_outputs_that_they_prove_it_need_no_pictures():
    """Two outputs from three releases are 8 sequences: 8 of 100 people at most."""
    records = [*CLEAR, *found(NUMBERS, 0.9, 0.04, 0.05)]
    records += synthetic.typed([synthetic.proved(NUMBERS, outputs=2, people=100)])
    for bound, shown in ((0.1, True), (0.07, False)):
        asked = study(NUMBERS, recommend={"reidentification_at_most": bound, "releases": 3})
        assert (Results(asked, records).advice.setting is not None) == shown


def test_the_section_has_a_column_for_each_number_of_releases():
    made = sections.many(Results(study(BLUR), [curve(BLUR, {1: RARELY, 10: OFTEN})]))
    assert made is not None
    table = made.values["table"]
    named = [column.heading for column in table.columns if column.group == "named, by number of releases"]
    assert (named, [row[0] for row in table.rows]) == (["1", "10"], [BLUR])
