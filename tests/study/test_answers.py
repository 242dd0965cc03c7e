"""The first screen of a report: what to use, what it keeps, what is left; also as JSON and PDF."""

import json
from pathlib import Path

import pytest
from tests.study import synthetic
from tests.study.test_recommend import CLEAR, found, small_study
from tests.study.test_report import Page

from sfumato.errors import ConfigError
from sfumato.study import report, vocabulary
from sfumato.study.choose.recommend import recommend
from sfumato.study.report import printing
from sfumato.study.report.answers import answers, states_a_half, what_leaves

STUDY = small_study("blur:radius=3")
RECORDS = [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)]


def said() -> dict[str, tuple[str, ...]]:
    """Question -> the sentences of its answer."""
    made = answers(STUDY, RECORDS, recommend(STUDY, RECORDS))
    return {answer.question: answer.sentences for answer in made}


def test_the_questions_of_whoever_decides_are_answered_in_order():
    assert list(said()) == [
        "What to use",
        "What it keeps",
        "What an adversary finds out",
        "What is proved",
        "What is not shown",
    ]


@pytest.mark.parametrize("name", vocabulary.PROTECTIONS)
def test_what_leaves_by_each_protection_is_said_to_whoever_knows_no_spec(name: str):
    assert vocabulary.PROTECTIONS[name].leaves.endswith(".")


def test_what_leaves_by_the_recommended_setting_comes_first():
    assert said()["What to use"][0] == "Each image leaves blurred."


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("code:bits=16", "computes from it. This study trained the network, and kept its file."),
        ("code:artefact=mine.safetensors,bits=16", "which a trained network computes from it."),
    ],
)
def test_of_a_network_it_is_said_whose_it_is(spec: str, words: str):
    (sentence,) = what_leaves(spec)
    assert sentence.endswith(words)


def test_what_is_kept_stands_beside_clear_images_and_guesses():
    first, second = said()["What it keeps"]
    assert first == (
        "90.0% of images are classified correctly (95% interval 89.6 to 90.4; a classifier trained on "
        "protected images)."
    )
    assert (
        second == "Clear images reach 95.0% and guessing 20.0%, so 93% of what lies above guessing is kept."
    )


def test_what_an_adversary_finds_out_stands_beside_guesses():
    first, *_ = said()["What an adversary finds out"]
    assert first.startswith(
        "5.0% of releases are named with the right identity by the strongest adversary (95% interval"
    )
    assert first.endswith("250 people among 50); guessing is right for 2.0%.")


def test_where_the_figures_of_one_half_are_stated_those_of_all_are_explained():
    study, records = report.load(Path(__file__).parents[2] / "studies" / "results" / "demo.jsonl")
    advice = recommend(study, records)
    sentences = answers(study, records, advice)[0].sentences
    assert advice.setting is not None
    of_all = advice.setting.accuracy, advice.setting.risk.top1
    assert (advice.accuracy, advice.risk.top1) != of_all
    accuracy, named = (f"{100 * estimate.value:.1f}%" for estimate in of_all)
    assert sentences[-1] == (
        "Charts, tables and the figures of other settings count all people and test images; there "
        f"code:bits=16 has {accuracy} accuracy and {named} re-identification."
    )
    one = synthetic.study()
    assert not states_a_half(recommend(one, synthetic.typed(synthetic.records(one))))  # not apart: one figure


def test_without_a_recommendation_the_reason_is_the_answer():
    records = [*CLEAR, *found("blur:radius=3", 0.9, 0.2, 0.5)]
    (answer,) = answers(STUDY, records, recommend(STUDY, records))
    assert answer.sentences[0].startswith("No useful setting is shown to keep re-identification")


def test_the_page_shows_the_answers_and_the_figures_first():
    page = Page(report.render(STUDY, RECORDS))
    for question, sentences in said().items():
        assert question in page.text
        assert all(sentence in page.text for sentence in sentences)


def test_json_has_the_answers_and_every_setting():
    made = json.loads(json.dumps(report.as_json(STUDY, RECORDS)))
    assert made["recommended"] == "blur:radius=3"
    assert [answer["question"] for answer in made["answers"]] == list(said())
    (clear, blurred) = made["settings"]
    assert clear["protection"] == "none"
    assert blurred["accuracy"]["value"] == 0.9
    assert blurred["reidentification"]["value"] == 0.05
    assert blurred["complete"]


def test_without_a_browser_it_is_said_how_to_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(printing.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"none is installed: install one, or print the page"):
        report.write_pdf("<p>page</p>", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


@pytest.mark.browser
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="needs Debian's chromium")
def test_the_summary_is_one_page_of_pdf(tmp_path: Path):
    study = synthetic.full_study()
    page = report.render(study, synthetic.typed(synthetic.records(study)), summary=True)
    content = report.write_pdf(page, tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.count(b"/Type /Page\n") == 1


@pytest.mark.browser
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="needs Debian's chromium")
def test_the_summary_of_a_real_study_is_one_page_too(tmp_path: Path):
    study, records = report.load(Path(__file__).parents[2] / "studies" / "results" / "demo.jsonl")
    content = report.write_pdf(
        report.render(study, records, summary=True), tmp_path / "page.pdf"
    ).read_bytes()
    assert content.count(b"/Type /Page\n") == 1
