"""The first screen of a report: what to use, what it keeps, what is left; also as JSON, PDF and lines."""

import json
from pathlib import Path

import pytest
from tests.study import synthetic
from tests.study.test_recommend import CLEAR, found, small_study
from tests.study.test_report import Page

from sfumato.errors import ConfigError
from sfumato.study import report, vocabulary
from sfumato.study.choose.recommend import what_leaves
from sfumato.study.choose.results import Results
from sfumato.study.report import page as pages

STUDY = small_study("blur:radius=3")
RESULTS = Results(STUDY, [*CLEAR, *found("blur:radius=3", 0.9, 0.02, 0.05)])
DEMO = Path(__file__).parents[2] / "studies" / "results" / "demo.jsonl"
ANSWERS = {
    "What to use": ("Each image leaves blurred.",),
    "What it keeps": (
        "90.0% of images are classified correctly (95% interval 89.6 to 90.4; a classifier trained on "
        "protected images).",
        "Clear images reach 95.0% and guessing 20.0%, so 93% of what lies above guessing is kept.",
    ),
    "What an adversary finds out": (
        "5.0% of releases are named with the right identity by the strongest adversary (95% interval "
        "2.9 to 8.4; adaptive adversary, SVM classifier; 250 looked for among 50 people, "
        "20 known photographs of each, 1 release); guessing is right for 2.0%.",
        "At most 10.0% is accepted; the upper end for all adversaries and 500 people is 7.3% (95% "
        "confidence, all settings of the study allowed for).",
    ),
    "What is proved": ("What is proved of it is not recorded.",),
    "What is not shown": (
        "Adversaries of this library that were not tried on it: reidentify-sorted, reidentify-fused.",
        "An adversary whom nobody has thought of yet may find more, up to what is proved.",
    ),
}


def test_the_questions_of_whoever_decides_are_answered_in_order_on_the_page_as_json_and_as_lines():
    advice, page = RESULTS.advice, Page(report.render(RESULTS))
    said = {answer.question: answer.sentences for answer in advice.answers}
    assert ([*said], said) == ([*ANSWERS], ANSWERS)
    made = json.loads(json.dumps(report.as_json(RESULTS)))
    assert [answer["question"] for answer in made["answers"]] == [*ANSWERS]
    assert advice.lines[0] == made["headline"] == "recommended: blur:radius=3"
    for answer, line in zip(advice.answers, advice.lines[1:], strict=True):
        assert answer.question in page.text
        assert all(sentence in page.text for sentence in answer.sentences)
        assert line == f"{answer.question}: {' '.join(answer.sentences)}"
    (clear, blurred) = made["settings"]
    assert (made["recommended"], clear["protection"]) == ("blur:radius=3", "none")
    figures = blurred["accuracy"]["value"], blurred["reidentification"]["value"], blurred["complete"]
    assert figures == (0.9, 0.05, True)


def test_what_leaves_is_said_to_whoever_knows_no_spec_and_of_a_network_whose_it_is():
    assert all(words.leaves.endswith(".") for words in vocabulary.PROTECTIONS.values())
    for spec, end in (
        ("code:bits=16", "computes from it. This study trained the network, and kept its file."),
        ("code:artefact=mine.safetensors,bits=16", "which a trained network computes from it."),
    ):
        (sentence,) = what_leaves(spec)
        assert sentence.endswith(end)


def test_where_the_figures_of_one_half_are_stated_those_of_all_are_explained():
    advice = report.load(DEMO).advice
    of_all = advice.setting.accuracy, advice.setting.risk.top1
    accuracy, risk = advice.setting.on(1)
    assert (accuracy, risk.top1) != of_all
    accuracy, named = (f"{100 * estimate.value:.1f}%" for estimate in of_all)
    assert advice.answers[0].sentences[-1] == (
        "Charts, tables and the figures of other settings count all people and test images; there "
        f"code:bits=16 has {accuracy} accuracy and {named} re-identification."
    )
    assert not RESULTS.advice.setting.halves  # not apart: one figure


def test_without_a_recommendation_the_reason_is_the_answer():
    advice = Results(STUDY, [*CLEAR, *found("blur:radius=3", 0.9, 0.2, 0.5)]).advice
    (answer,) = advice.answers
    assert answer.sentences[0].startswith("No useful setting is shown to keep re-identification")
    assert advice.lines == (advice.headline, *answer.sentences[1:])


def test_without_a_browser_it_is_said_how_to_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"none is installed: install one, or print the page"):
        report.write_pdf("<p>page</p>", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


@pytest.mark.browser
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="needs Debian's chromium")
@pytest.mark.parametrize("name", ["synthetic", "demo"])
def test_the_summary_is_one_page_of_pdf(tmp_path: Path, name: str):
    study = synthetic.full_study()
    results = report.load(DEMO) if name == "demo" else synthetic.results(study, synthetic.records(study))
    content = report.write_pdf(report.render(results, summary=True), tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.count(b"/Type /Page\n") == 1
