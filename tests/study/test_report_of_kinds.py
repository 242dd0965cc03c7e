"""The report of everything that leaves a device: pixels, shapes, numbers, bits and answers side by side."""

import csv
import dataclasses
import io
from typing import Any

import pytest
import synthetic
from tests.study.test_report import Page, page_of

from sfumato.study import report, vocabulary
from sfumato.study.choose.recommend import describe_proof
from sfumato.study.choose.results import Results
from sfumato.study.measure.results import CANDIDATES
from sfumato.study.report.charts import families
from sfumato.study.report.sections import in_words


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    return synthetic.study_of_kinds()


@pytest.fixture(scope="module")
def records(study) -> list[dict[str, Any]]:
    return synthetic.records(study)


@pytest.fixture(scope="module")
def html(study, records) -> str:
    return report.render(synthetic.results(study, records))


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def of_kinds(**changes: Any) -> dict[str, Any]:
    return synthetic.study_of_kinds(**{"protections": ["none", "code:bits=8", "answer"], **changes})


def rows(study: dict[str, Any], records: list[dict[str, Any]], name: str) -> list[dict[str, str]]:
    (table,) = [table for table in report.tables(synthetic.results(study, records)) if table.name == name]
    return list(csv.DictReader(io.StringIO(table.csv)))


# What there is of all


def test_nothing_is_missing_and_every_kind_has_its_section(page):
    assert "are missing" not in page.text
    assert "not in this report" not in page.text
    for name in ("tells", "log-rank", "reconstruction", "guarantees", "pictures", "risk"):
        assert {"id": f"{name}-title"} in page.all("h2")
    names = [each["id"] for _, each in page.elements if "id" in each]
    assert len(names) == len(set(names))


def test_one_frontier_has_all_that_leaves_a_device(page, study):
    words = next(iter(page.charts)).partition(": ")[2]
    assert [part.split(": accuracy")[0] for part in words.split("; ")] == study["protections"]


def test_a_family_without_a_series_has_the_others(page):
    series = [
        [part.partition(":")[0] for part in words.partition(": ")[2].split("; ")]
        for words in page.charts
        if words.endswith("chance: 20.0%")
    ]
    lines = ["clean images", "chance"]
    assert series == [["clean", "protected", "denoised", *lines], ["protected", *lines]]
    for title in ("Private feature (dimension = 10)", "Learned mask (keep = 0.1)"):
        assert title in page.words


def test_a_setting_is_labelled_by_what_it_says_of_itself():
    specs = ["feature:noise=1,dimension=10", "feature:noise=1,dimension=10,norm=3"]
    specs += ["dp-pix:cell=4,epsilon=3", "dp-pix:cell=4,epsilon=3,pixels=2"]
    labels = {family.name: [*map(family.label, family.specs)] for family in families({"protections": specs})}
    assert labels == {"feature": ["default", "3"], "dp-pix": ["default", "2"]}
    specs.append("feature:noise=0,dimension=10")
    (feature, _) = families({"protections": specs})
    assert [*map(feature.label, feature.specs)] == ["1", "1, 3", "0"]


@pytest.mark.parametrize("name", ["attack", "learner"])
def test_words_that_are_registered_are_all_that_a_new_one_needs(registering, name):
    if name == "attack":
        line = dataclasses.replace(
            vocabulary.ATTACKS["reidentify-adaptive"], name="stare", term="They stare."
        )
        registering("adversaries", "stare", line)
        record = synthetic.attack("none", "stare", 0.3)
    else:
        line = dataclasses.replace(vocabulary.LEARNERS["protected"], name="stare", term="They stare.")
        registering("learners", "stare", line)
        record = synthetic.accuracy("answer", "stare", 0.3)
    study = of_kinds(learners=["clean", *(["stare"] if name == "learner" else [])])
    cells = [{key: record[key] for key in ("digest", "kind", "cell")}]
    page = page_of({**study, "cells": cells}, [record])
    assert "They stare." in page.text
    assert "30.0%" in page.text


def test_the_learner_of_answers_is_named_with_the_others(page):
    assert "answer , the device's own answer" in page.text
    assert "Learner “answer” The device classifies" in page.text


def test_settings_of_a_family_are_labelled_also_where_one_says_nothing(page):
    assert ">hard<" in page.drawn
    assert ">shape<" in page.drawn


def test_where_not_all_is_images_the_released_are_not_called_so(page):
    assert page.table("Table of re-identification")[0][:2] == ["setting", "released"]


def test_only_what_can_be_looked_at_stands_among_the_pictures(page, study):
    shown = [row[0].replace(" ", "") for row in page.table("Table of pictures")[1:]]
    assert shown == [
        spec for spec in study["protections"] if vocabulary.release_kind(spec) in vocabulary.IMAGES
    ]


def test_what_was_left_out_is_folded_away_and_said(page, study):
    assert "Left out (1) " + study["left_out"][0] in page.text
    assert "Left out" not in page_of(of_kinds(left_out=[]), []).text


# What else a release tells


def test_every_other_label_stands_beside_guessing_and_is_marked_where_it_is_told():
    study = of_kinds()
    measured = [
        synthetic.tells("code:bits=8", {"age": 1.0, "headwear": 0.0, "identity": 0.0}),
        synthetic.tells("answer", {"age": 0.5, "glasses": 0.9}),
    ]
    page = page_of(study, measured)
    # The task and the secret have sections of their own: no setting has two figures of one thing.
    assert page.table("Table of labels") == [
        ["setting", "age guessing 2.0%", "glasses guessing 20.0%"],
        ["code: bits=8", "2.0% 1.2–3.3", "–"],
        ["answer", "▲ 46.1% 42.6–49.7", "▲ 27.2% 24.1–30.5"],
    ]


def test_labels_that_do_not_fit_beside_each_other_stand_below_each_other():
    names = [f"label {number}" for number in range(9)]
    page = page_of(of_kinds(), [synthetic.tells("answer", dict.fromkeys(names, 0.5))])
    widths = [len(page.table(f"Table of labels {part}")[0]) for part in (1, 2)]
    assert widths == [8, 3]  # each with its settings


def test_a_label_whose_interval_reaches_guessing_is_not_marked():
    study = of_kinds()
    record = synthetic.tells("answer", {"age": 0.5})
    told = record["result"]["labels"]["age"]
    told |= {"guessing": 0.4, "hits": [25.0] * 11 + [0.0] * 13, "probes": [25.0] * 24}  # 275 of 600
    told["accuracy"] = 275 / 600
    assert page_of(study, [record]).table("Table of labels")[1][1] == "45.8% 27.9–64.9"


def test_over_several_seeds_a_label_is_told_where_the_interval_over_people_is_above_guessing():
    study = of_kinds(seeds=[0, 1])
    both = [synthetic.tells("answer", {"age": 0.5}), synthetic.tells("answer", {"age": 0.9}, seed=1)]
    assert page_of(study, both).table("Table of labels")[1] == ["answer", "▲ 28.5% 25.3–31.8"]


def test_the_table_of_labels_has_a_row_a_protection_and_label():
    study = of_kinds()
    (row,) = rows(study, [synthetic.tells("answer", {"identity": 0.5})], "tells")
    assert {key: row[key] for key in ("protection", "label", "accuracy", "guessing", "adversary")} == {
        **{"protection": "answer", "label": "identity", "accuracy": "0.461", "guessing": "0.02"},
        "adversary": "svm",
    }


def test_what_was_not_measured_is_said_where_no_label_was():
    assert "What else the images show was not measured." in page_of(of_kinds(), []).text
    measured = page_of(of_kinds(), [synthetic.tells("answer", {"identity": 0.5})])
    assert "What else the images show was not measured." not in measured.text


# What is proved


def test_what_is_proved_of_naming_stands_in_the_table_of_guarantees_and_where_nothing_is():
    study = of_kinds()
    proved = [synthetic.proved("none"), synthetic.proved("code:bits=8"), synthetic.proved("answer")]
    table = page_of(study, proved).table("Table of guarantees")
    assert table[0] == [
        *("setting", "what leaves of an image", "proved"),
        *(f"named among {people}" for people in ("100", "1,000", "10,000", "1,000,000")),
        "bits of identity",
    ]
    assert table[1] == ["none", "pixels, 192 bytes", "Nothing is proved", *["nothing"] * 5]
    assert table[2][:2] == ["code: bits=8", "bits, 1 byte 256 different ones"]
    assert table[2][3:] == ["nothing", "≤ 25.6%", "≤ 2.56%", "≤ 0.0256%", "≤ 8"]
    assert table[3][3:] == ["≤ 5%", "≤ 0.5%", "≤ 0.05%", "≤ 0.0005%", "≤ 2.33"]


def test_what_is_proved_of_many_releases_and_of_ranks_stands_with_what_is_assumed():
    proved = [synthetic.proved("answer", outputs=2, people=40), synthetic.proved("none", people=40)]
    asked = {"reidentification_at_most": 0.1, "releases": 100}
    page = page_of(of_kinds(protections=["none", "answer"], recommend=asked), proved)
    header, clear, answer = page.table("Table of guarantees")
    assert header[-2:] == ["named among 1,000 after 100 releases", "log-rank privacy"]
    # 101 / 1,000 and C / 1,000, of which C(2, 100) = 13.2; two groups of 20 people: ln 20! / (20 ln 40);
    # and (ln 2 (1 - C / 40) + ln 1.5 (1 - 2 C / 40) + ln 4/3 (1 - 3 C / 40)) / ln 40.
    assert answer[-2] == "≤ 13.4% (chain); ≤ 10.1% (shuffled); ≤ 1.33% (exchangeable)"
    assert answer[-1] == "≥ 0.573; after 100 ≥ 0.163 (exchangeable)"
    assert clear[-2:] == ["nothing", "nothing"]
    assert "Shuffled : they leave as one shuffled batch" in page.text


def test_judges_of_two_images_stand_beside_naming_where_their_chance_is_proved():
    spec = "dp-pix:cell=4,epsilon=3"
    naming = [{"candidates": 100, "at_most": 0.12341}]
    study = of_kinds(protections=["none", spec])
    header, row = page_of(study, [synthetic.proved(spec, naming=naming)]).table("Table of guarantees")
    assert header[3:6] == [
        *("judge of two images that differ in those pixels", "judge of any two images", "named among 100")
    ]
    assert row[3:6] == ["≤ 95.3%", "nothing", "≤ 12.4%"]  # rounded up: 99.96% is nothing


@pytest.mark.parametrize(
    ("outputs", "most"), [(2, None), (100, 100), (101, 100), (65_536, 10_000), (2**20, 1_000_000)]
)
def test_the_most_people_among_whom_nothing_is_proved_is_known(outputs, most):
    naming = [{"candidates": count, "at_most": outputs / count} for count in CANDIDATES if outputs < count]
    (record,) = synthetic.typed([synthetic.proved("code:bits=8", naming=naming)])
    assert record.result.nothing_among == most


@pytest.mark.parametrize(
    ("naming", "words"),
    [
        (
            [{"candidates": 1_000_000, "at_most": 0.0656}],
            "one of 1,000,000 equally likely people with a chance of at most 6.56%; "
            "among 10,000 people nothing is proved.",
        ),
        ([], "the whole image only at eps = 3080; nothing is proved about who it shows."),
    ],
)
def test_the_first_screen_says_where_nothing_is_proved(naming, words):
    study = of_kinds(protections=["none", "dp-pix:cell=4,epsilon=3"])
    (proof,) = synthetic.typed([synthetic.proved("dp-pix:cell=4,epsilon=3", naming=naming)])
    assert describe_proof(Results(study, [proof]).proofs["dp-pix:cell=4,epsilon=3"]).endswith(words)


def test_records_of_proofs_take_the_place_of_those_beside_the_similarity(study, records):
    both = page_of(study, records).table("Table of guarantees")
    assert len(both) == 1 + len(study["protections"])
    less = [record for record in records if record["kind"] != "proved"]
    assert len(page_of(study, less).table("Table of guarantees")) == 1 + 5  # those with similarities


def test_the_table_of_proofs_has_a_column_a_number_of_people():
    (row,) = rows(of_kinds(), [synthetic.proved("answer")], "proved")
    assert (row["release"], row["outputs"], row["naming_of_1000"]) == ("answer", "5", "0.005")


# Reconstruction


def test_rebuilt_images_stand_beside_the_originals_with_their_measures():
    spec = "feature:noise=0,dimension=10"
    study = of_kinds(protections=["none", spec], seeds=[0, 1])
    records = [
        synthetic.reconstruction(spec, "invert-feature", ssim=0.25, psnr=None),
        synthetic.reconstruction(spec, "invert-feature", ssim=0.5, psnr=12.0, seed=1),
    ]
    page = page_of(study, records)
    (row,) = page.table("Table of reconstruction")[1:]
    setting, adversary, _, rebuilt = row
    assert setting == "feature: noise=0, dimension=10"
    assert (adversary, rebuilt) == (
        "Feature inversion",
        "SSIM 0.38, PSNR ∞ (an image is unchanged in 1 of 2 seeds)",
    )
    assert in_words([{"ssim": -0.004}]) == ["SSIM 0.00"]  # a zero has no sign
    shown = [image["src"] for image in page.all("img")]
    assert shown == [*records[0]["result"]["originals"], *records[0]["result"]["pictures"]]
    assert vocabulary.RECONSTRUCTIONS["invert-feature"].term in page.text
    assert [row["ssim"] for row in rows(study, records, "reconstruction")] == ["0.25", "0.5"]
