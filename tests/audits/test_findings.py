"""A report of an audit: the same findings as text, as JSON and as one page."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from sfumato.audits.findings import Finding, Picture, Report, Table, as_json, as_page, as_text


@pytest.fixture
def report() -> Report:
    grey = torch.full((3, 4, 4), 128, dtype=torch.uint8)
    return Report(
        audit="update",
        subject="round 3 <of 4>",
        sentence="Send no such update.",
        findings=(
            Finding(
                name="labels",
                title="Labels",
                verdict="leaks",
                sentence="Two labels can be read.",
                table=Table(("class", "images"), (("7", "1"), ("12", "1")), "Of the batch."),
                pictures=((Picture(grey, "came back"),),),
                figures={"labels": [7, 12]},
            ),
            Finding(name="noise", title="Noise", verdict="not shown", sentence="No noise is stated."),
        ),
        changes=("Train more local steps.",),
        limits=("Other attacks exist.",),
    )


def test_text_begins_with_the_sentence_and_its_tables_are_aligned(report):
    assert as_text(report).splitlines() == [
        "Send no such update.",
        "",
        "Labels (leaks): Two labels can be read.",
        "  class  images",
        "  7      1",
        "  12     1",
        "Noise (not shown): No noise is stated.",
        "",
        "What to change:",
        "- Train more local steps.",
        "",
        "What this does not say:",
        "- Other attacks exist.",
    ]


def test_json_has_every_sentence_and_figure(report):
    said = json.loads(json.dumps(as_json(report)))
    assert said["sentence"] == report.sentence
    assert [each["verdict"] for each in said["findings"]] == ["leaks", "not shown"]
    assert said["findings"][0]["figures"] == {"labels": [7, 12]}
    assert said["findings"][0]["table"]["rows"] == [["7", "1"], ["12", "1"]]
    assert (said["changes"], said["limits"]) == (list(report.changes), list(report.limits))


def test_the_page_asks_no_host_for_anything_and_text_is_escaped(report):
    text = as_page(report)
    assert "round 3 &lt;of 4&gt;" in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "<script" not in text
    assert text == as_page(report)


def test_the_page_says_first_what_everybody_reads(report):
    body = as_page(report).partition("<body>")[2]
    assert body.index(report.sentence) < body.index(report.changes[0]) < body.index("Two labels")


def test_the_page_says_that_it_holds_images_where_it_does(report):
    notice = "Show it only to people who may see them."
    assert notice in as_page(report)
    bare = replace(report, findings=tuple(replace(each, pictures=()) for each in report.findings))
    assert notice not in as_page(bare)


def test_findings_and_their_page_need_no_pytorch():
    code = "import sys, sfumato.audits.findings; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
