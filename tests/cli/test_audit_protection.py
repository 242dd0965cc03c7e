"""`sfumato audit protection`: a finding a protection, and exit code 1 for one that breaks its guarantee."""

import json
import re
from contextlib import nullcontext

import pytest
import typer

from sfumato.audits.findings import Finding, Report
from sfumato.cli.audit.family import finish
from sfumato.protect.dp_pix import DPPix

SMALL = ("--shape", "1x8x8", "--trials", "10000")


def answers(said, question):
    """What the report answers to a question, for each protection."""
    return re.findall(rf"^  {question} +(.+)$", said.out, re.MULTILINE)


def test_each_protection_of_a_spec_gets_a_finding_and_right_ones_end_well(command, tmp_path):
    asked = ("dp-pix:cell=4,epsilon=1,3", *SMALL, "--seed", "3", "--html", "page.html")
    said = command("audit", "protection", *asked)
    assert said.code == 0
    assert said.out.startswith("No fault was found in the stated guarantee: release with it")
    bounded = re.findall(r"^(\S+) \(bounded\): ", said.out, re.MULTILINE)
    assert bounded == ["dp-pix:cell=4,epsilon=1", "dp-pix:cell=4,epsilon=3"]
    told = answers(said, "told apart")
    assert len(told) == 2
    assert all(line.startswith("stated eps = ") and "10,000 trials" in line for line in told)
    page = (tmp_path / "page.html").read_text()
    assert "No fault was found in the stated guarantee" in page
    assert "stated eps = 1" in page
    assert "http" not in page.replace("http-equiv", "")  # no other host
    assert said.err.endswith("report: page.html\n")
    report = json.loads(command("audit", "protection", "dp-pix:cell=4,epsilon=1", *SMALL, "--json").out)
    figures = report["findings"][0]["figures"]
    assert (report["audit"], figures["spec"]) == ("protection", "dp-pix:cell=4,epsilon=1")
    assert 0 <= figures["lower"] <= figures["most"]
    assert (figures["convicted"], figures["stated"]["value"]) == (False, 1)


def test_pixels_and_confidence_reach_the_audit(command):
    asked = ("--pixels", "4", "--confidence", "0.95")
    said = command("audit", "protection", "gaussian:sigma=400", *SMALL, *asked)
    assert said.code == 0
    for words in ("stated mu = 1.275;", "95% confidence", "4 pixels"):  # 2 * 255 / 400
        assert words in said.out


def test_a_protection_without_a_guarantee_leaks_and_says_no_more_than_that(command):
    said = command("audit", "protection", "blur:radius=1", *SMALL)
    assert said.code == 1
    assert "blur:radius=1 (leaks)" in said.out
    told_apart = "and neighbouring images are told apart: if you need a proof"
    assert said.out.startswith(f"No guarantee is stated for blur:radius=1, {told_apart}")
    assert answers(said, "told apart")[0].startswith("nothing is stated; told apart at eps >= 6")


def test_a_protection_that_states_too_little_ends_with_1_and_a_plain_sentence(command, monkeypatch):
    weak, honest = DPPix(4, 8.0), DPPix.release
    monkeypatch.setattr(DPPix, "release", lambda self, images, noise: honest(weak, images, noise))
    said = command("audit", "protection", "dp-pix:cell=4,epsilon=1", *SMALL)
    assert said.code == 1
    more = "it gives away more than it states. Report this as a bug."
    assert said.out.startswith(f"Do not release with dp-pix:cell=4,epsilon=1: {more}")


MEANS = (
    "(nothing is assumed of the images; on average over people and noise, so that a rare release may name "
    "its own person, though nobody can be 10% sure of them except with a chance of 36% "
    "among 100 or 3.6% among 1,000 or 0.0036% among 1,000,000; pure DP from a centre: Kairouz, Oh & "
    "Viswanath 2015, Thm. 3.3)"
)


@pytest.mark.parametrize(
    ("strength", "releases", "expected"),
    [
        (  # the whole image is at eps = 64 * 0.02 = 1.28, and e^1.28 is 3.597
            "epsilon=0.02",
            "1",
            "after 1 release nobody, whatever they know, names the right one of 100 equally likely people "
            f"more than 3.6% of the time, or of 1,000 more than 0.36%, or of 1,000,000 more "
            f"than 0.00036% {MEANS}",
        ),
        ("epsilon=0.02", "3", "after 3 releases nobody, whatever they know, names the right one of 100"),
        ("epsilon=3", "1", "nothing is proved about who it shows"),
        ("epsilon=3", "3", "nothing is proved about who they show"),
    ],
)
def test_what_is_proved_of_naming_people_is_said_and_of_more_releases_less(
    command, strength, releases, expected
):
    spec = f"dp-pix:cell=4,{strength}"
    (line,) = answers(command("audit", "protection", spec, *SMALL, "--releases", releases), "naming")
    assert line.startswith(expected)
    assert (releases, strength) != ("3", "epsilon=0.02") or float(line.split(" more than ")[1][:4]) > 3.6


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(("bounded", "not shown", None), 0), (("bounded", "leaks"), 1), (("not measured",), 1), ((), 0)],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_the_exit_code_of_every_audit_is_1_if_something_leaks_or_was_not_looked_at(verdicts, code, as_json):
    findings = tuple(Finding(name="a", title="A", verdict=each, sentence="So.") for each in verdicts)
    report = Report(audit="update", subject="a", sentence="So.", findings=findings)
    with pytest.raises(typer.Exit) if code else nullcontext() as stopped:
        finish(report, as_json)
    assert code == 0 or stopped.value.exit_code == 1
