"""The evidence report: verdicts by a threshold, the figures of a study's records, gaps, no legal verdict."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.audits.evidence import Case, make_report, of_audit, read_case
from sfumato.audits.findings import Report, Risk, as_json, as_page, as_text
from sfumato.base.proportions import over_people, wilson
from sfumato.errors import ConfigError
from sfumato.study.choose.figures import Estimate
from sfumato.study.choose.results import load

RESULTS = Path(__file__).parents[2] / "studies" / "results"
NAMED = Risk("singling out", "identity", 1, "somebody", Estimate(0.05, 0.03, 0.08, 1), 0.01, source="record")


def judge(*risks: Risk, threshold: float = 0.09) -> dict[str, str | None]:
    case = Case(subject="it", roles=(), risks=risks, proof="", origin=())
    return {each.name: each.verdict for each in make_report(case, threshold=threshold).findings}


@pytest.mark.parametrize(
    ("low", "high", "proved", "verdict"),
    [
        (0.03, 0.089, None, "below on average"),
        (0.03, 0.09, None, "not shown"),
        (0.09, 0.2, None, "above"),
        (0.03, 0.2, 0.089, "bounded"),
    ],
)
def test_a_risk_is_below_the_threshold_only_if_the_upper_end_or_a_proof_is(low, high, proved, verdict):
    risk = replace(NAMED, rate=Estimate(low, low, high, 1), proved=proved)
    assert judge(risk)["singling-out"] == verdict
    assert judge(risk, NAMED)["singling-out"] == ("not shown" if proved else verdict)
    assert judge(risk)["linkability"] == judge(risk)["inference"] == "not measured"


def test_an_attribute_is_judged_by_the_share_beyond_guessing():
    gender = replace(NAMED, kind="inference", control=0.5, rate=Estimate(0.52, 0.5, 0.54, 1))
    assert gender.judged == Estimate(pytest.approx(0.04), 0.0, pytest.approx(0.08), 1)
    assert judge(gender)["inference"] == "below on average"
    assert judge(replace(gender, kind="linkability"))["linkability"] == "above"


@pytest.fixture(scope="module")
def cases() -> dict[tuple[str, str], Case]:
    """The case of every setting of two committed studies."""
    made = {}
    for name in ("demo", "lfw-smile-answer"):
        path = RESULTS / f"{name}.jsonl"
        results = load(path)
        for spec in results.study["protections"]:
            made[name, spec] = read_case(results, path, protection=spec)
    return made


def test_figures_are_those_of_the_records(cases):
    results = load(RESULTS / "demo.jsonl")
    points = {point.releases: point for point in results.curves["code:bits=16"].points}
    named = [risk for risk in cases["demo", "code:bits=16"].risks if "earlier releases" in risk.adversary]
    assert [risk.releases for risk in named] == [1, 10, 100]
    for risk in named:
        point = points[risk.releases]
        assert (risk.rate, risk.bits, risk.surest) == (point.named, point.bits, point.surest)
        assert str(point.had) in risk.adversary
    digests = {record.digest[:12] for record in results.records}
    assert {risk.source for case in cases.values() for risk in case.risks if risk.source in digests}
    assert results.advice.setting.protection == "code:bits=16"


def test_the_interval_of_an_attribute_is_over_people_and_not_over_their_images(cases):
    attributes = [risk for risk in cases["demo", "code:bits=5"].risks if risk.kind == "inference"]
    assert [risk.secret for risk in attributes] == ["age", "expression", "gender", "glasses", "hair_color"]
    records = load(RESULTS / "demo.jsonl").records
    (told,) = (r.result for r in records if r.kind == "tells" and r.cell.protection == "code:bits=5")
    for risk in attributes:
        assert (risk.people, risk.images) == (60, 1500)
        counted = told.labels[risk.secret]
        expected = over_people(counted.hits, counted.probes)
        assert (risk.rate.low, risk.rate.high) == pytest.approx(expected)
        # Images of a person are guessed alike, and at most as alike as if all were one.
        of_people, of_images = (wilson(risk.rate.value * many, many) for many in (60, 1500))
        assert risk.rate.low < of_images[0] < of_images[1] < risk.rate.high
        assert risk.rate.low > of_people[0] - 1e-3
        assert risk.rate.high < of_people[1] + 1e-3


def test_nothing_is_measured_above_its_proof(cases):
    bounded = [risk for case in cases.values() for risk in case.risks if risk.proved is not None]
    assert len(bounded) >= 6
    for risk in bounded:
        assert risk.rate.low <= risk.proved
        assert risk.proved >= risk.control


def test_every_risk_and_number_of_releases_has_a_figure_or_is_a_gap(cases):
    for case in cases.values():
        report = make_report(case)
        (gaps,) = [finding.table.rows for finding in report.findings if finding.name == "not-tested"]
        for kind in ("Singling out", "Linkability", "Inference"):
            for count, words in ((1, "1 release"), (10, "10 releases"), (100, "100 releases")):
                measured = any((risk.kind, risk.releases) == (kind.lower(), count) for risk in case.risks)
                assert measured != ((f"{kind} from {words}", "no figure") in gaps)


def test_each_clause_leads_to_a_section_or_says_that_none_answers_it(cases):
    report = make_report(cases["demo", "code:bits=5"])
    titles = [finding.title for finding in report.findings]
    (clauses,) = [each.table.rows for each in report.findings if each.title.startswith("Which figure")]
    texts = " ".join(text for text, _, _ in clauses)
    for source in ("WP29 Opinion 05/2014", "motivated intruder", "ISO/IEC 27559", "NIST SP 800-226", "DPIA"):
        assert source in texts
    for _, _, answer in clauses:
        assert any(re.match(rf"(Not in this report|{title})", answer) for title in titles)


def test_no_output_calls_anything_anonymous(cases):
    for case in cases.values():
        report = make_report(case)
        for text in (as_page(report), as_text(report), json.dumps(as_json(report))):
            assert not re.search(r"\banonym(ous|i[sz]ed)", text, re.I)
            assert "gives no legal opinion" in text


def test_an_audit_without_risks_is_refused():
    with pytest.raises(ConfigError, match="this audit of round 3 measured no risk to report"):
        of_audit(Report(audit="update", subject="round 3", sentence="", findings=()))


def test_each_protection_has_its_technique_and_its_formal_model(cases):
    from sfumato.audits import evidence
    from sfumato.protect.spec import PROTECTIONS

    known = [row[0] for row in evidence._read("techniques")[1:]]
    assert sorted(known) == sorted(PROTECTIONS)
    case = cases["demo", "dp-pix:cell=8,epsilon=3"]
    proof = next(each for each in make_report(case).findings if each.name == "proof")
    assert proof.table is not None
    assert proof.table.rows[0][0] == "dp-pix"
    assert "noise addition" in proof.table.rows[0][1]


def test_emotions_and_special_categories_are_named_with_the_law_and_other_labels_are_not(cases):
    def restricted(name: str) -> list[tuple[str, ...]]:
        case = next(case for (study, _), case in cases.items() if study == name)
        sections = [each for each in make_report(case).findings if each.name == "restricted-uses"]
        return [row for each in sections if each.table for row in each.table.rows]

    ((label, law),) = restricted("lfw-smile-answer")
    assert label == "smile"
    assert "Art. 5(1)(f)" in law
    assert not restricted("demo")  # hats and identities


@pytest.mark.parametrize(
    ("label", "article"), [("religion", "Art. 9"), ("diagnosis", "Art. 9"), ("Mood", "5(1)(f)")]
)
def test_a_label_is_recognised_by_its_stem(label: str, article: str):
    from sfumato.audits.evidence import _restrict

    assert any(article in law for _, law in _restrict({"target": label}))
    assert not _restrict({"target": "headwear", "sensitive": "identity"})


def test_each_recipient_has_a_column_and_only_those_with_releases_have_their_figures(cases):
    report = make_report(cases["demo", "code:bits=16"])
    table = next(each.table for each in report.findings if each.name == "who-could-do-it")
    assert table is not None
    assert table.columns[1:] == (
        "service operator",
        "thief of the store",
        "other tenant",
        "who holds the device",
    )
    singling = next(row for row in table.rows if row[0] == "Singling out")
    assert singling[1] == singling[2] != singling[3]
    assert "from 100: " in singling[1]
    assert any("EDPB" in row[0] for row in table.rows)
