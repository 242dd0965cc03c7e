"""What answers say: majorities, decoys that never count, and tables that others read."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import say

from sfumato.annotate import Campaign, Pair
from sfumato.annotate.results import Reliability, agreement, doubts, export, reliability, results, shares
from sfumato.errors import ConfigError, MissingExtraError
from sfumato.learn import semsim

Begin = Callable[..., Campaign]


def decoys_of(campaign: Campaign) -> list[int]:
    return [number for number, item in campaign.items.items() if item.decoy]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("answers", "majority", "recognised"),
    [
        (["cat"] * 5, "cat", True),
        (["cat", "cat", "cat", "dog", "cannot tell"], "cat", True),
        (["cat", "cat", "dog", "dog", "emu"], "no majority", False),  # a tie
        (["cat", "cat", "dog", "emu", "fox"], "no majority", False),  # the most, but not more than half
        (["cat", "cannot tell", "cannot tell", "cannot tell", "cat"], "cannot tell", False),
        (["dog", "dog", "dog", "cat", "cat"], "dog", False),
        (["cat", None, None, "dog", None], "no majority", False),
        (["cat", None, None, None, None], "cat", True),
        ([], "", None),
    ],
)
def test_recognised_is_what_more_than_half_of_those_who_answered_name_rightly(
    begin: Begin, answers: list[str | None], majority: str, recognised: bool | None
):
    (result, *_) = results(say(begin(), {1: answers}))  # its true class is cat
    assert (result.majority, result.recognised) == (majority, recognised)
    assert (result.answers, result.right) == (len(answers) - answers.count(None), answers.count("cat"))


def test_side_by_side_recognised_is_what_more_than_half_call_the_same(begin: Begin):
    said = {
        1: ["same", "same", "same", "different", "cannot tell"],
        2: ["same", "same", "different", "different", "cannot tell"],
    }
    assert [one.recognised for one in results(say(begin("same"), said))[:2]] == [True, False]


def test_a_decoy_is_never_a_leak_whatever_is_said_of_it(begin: Begin):
    campaign = begin("same")
    campaign = say(campaign, {number: ["same"] * 5 for number in decoys_of(campaign)})
    assert [one.recognised for one in results(campaign) if one.decoy] == [None] * 3
    assert shares(results(campaign)) == {}


def test_shares_are_of_each_models_items_with_an_answer(begin: Begin):
    said = {1: ["cat"] * 3, 2: ["dog"] * 3, 3: ["cannot tell"] * 3, 7: ["cat"] * 3}
    assert shares(results(say(begin(), said))) == {"lenet": (2, 3), "resnet": (1, 1)}


def test_reliability_is_what_is_said_of_decoys_by_those_with_an_opinion(begin: Begin):
    campaign = begin("same", annotators=3)
    one, two, three = decoys_of(campaign)
    said = {
        1: ["different"] * 3,  # no decoy
        one: ["different", "same", None],
        two: ["different", "cannot tell", None],
        three: ["same", "cannot tell", None],
    }
    assert reliability(say(campaign, said)) == [
        Reliability("annotator 1", 4, 15, right=2, wrong=1),
        Reliability("annotator 2", 4, 15, right=0, wrong=1),
        Reliability("annotator 3", 1, 15, right=0, wrong=0),
    ]


def test_an_annotator_who_tells_no_more_decoys_than_a_coin_is_warned_of(begin: Begin):
    campaign = begin("same", annotators=3)
    assert doubts(campaign) == []
    one, two, three = decoys_of(campaign)
    said = {
        one: ["different", "same", "same"],
        two: ["different", "same", "different"],
        three: ["same", "cannot tell", None],
    }
    second, third = doubts(say(campaign, said))
    assert second.startswith(
        "annotator 2 calls 2 of 2 decoys the same, which show something else: their answers"
    )
    assert third.startswith("annotator 3 calls 1 of 2 decoys the same")


@pytest.mark.parametrize(
    ("said", "alpha"),
    [
        ({1: ["cat", "cat"], 2: ["cannot tell", "cannot tell"]}, 1),
        # Of 2 annotators, alpha = 1 - (n - 1) * disagreements / pairs of unlike values (Krippendorff 2011):
        # 8 values, 3 cat, 4 dog, 1 "cannot tell"; two items of four disagree. Nobody agrees on the fifth.
        (
            {1: ["cat", "cat"], 2: ["cat", "dog"], 3: ["dog", "dog"], 4: ["dog", "cannot tell"], 5: ["emu"]},
            1 - 7 * 2 / (3 * 4 + 3 * 1 + 4 * 1),
        ),
        ({1: ["cat"]}, None),
        ({}, None),
    ],
)
def test_agreement_is_krippendorffs_alpha_of_all_answers_but_those_to_decoys(begin: Begin, said, alpha):
    assert agreement(say(begin(annotators=2), said)) == (alpha if alpha is None else pytest.approx(alpha))
    campaign = begin("same", annotators=2)
    alike = {1: ["same", "same"], 2: ["different", "different"]}
    assert (
        agreement(say(campaign, alike | {number: ["same", "different"] for number in decoys_of(campaign)}))
        == 1
    )


def test_the_table_of_results_has_a_row_an_item_and_says_who_answered(begin: Begin, tmp_path: Path):
    campaign = say(begin("same"), {2: ["same", "same", "different"]})
    assert export(campaign, "results", tmp_path / "r.csv") == 15
    rows = rows_of(tmp_path / "r.csv")
    assert list(rows[0]) == [
        *("item", "original", "reconstruction", "class", "model", "source", "decoy"),
        *("answers", "right", "majority", "recognised", "annotators"),
    ]
    assert (rows[1]["class"], rows[1]["recognised"], rows[1]["annotators"]) == ("dog", "true", "people")
    assert (rows[0]["majority"], rows[0]["recognised"], rows[14]["decoy"]) == ("", "", "true")


def test_semsim_reads_its_table_without_decoys_and_without_what_nobody_answered(begin, tmp_path, pairs):
    campaign = begin("same")
    said = {number: ["same"] if number % 2 else ["cannot tell"] for number in campaign.items if number != 2}
    export(say(campaign, said), "semsim", tmp_path / "elsewhere" / "s.csv")
    rows = rows_of(tmp_path / "elsewhere" / "s.csv")
    assert list(rows[0]) == ["original", "reconstruction", "recognised", "model", "source", "annotators"]
    files = [(tmp_path / "elsewhere" / row["original"]).resolve() for row in rows]
    assert files == [one.original.resolve() for n, one in enumerate(pairs) if n != 1]
    (judgements,) = semsim.read(tmp_path / "elsewhere" / "s.csv", size=8).values()
    assert judgements.recognised.tolist() == [True, *([True, False] * 5)]


def test_a_table_beside_its_images_names_no_folder_above_them(begin: Begin, pairs: list[Pair]):
    folder = pairs[0].original.parent
    export(say(begin("same"), {1: ["same", "same"]}), "results", folder / "r.csv")
    assert rows_of(folder / "r.csv")[0]["original"] == pairs[0].original.name
    assert folder.name not in (folder / "r.csv").read_text()


def test_names_that_spreadsheets_would_run_are_text_there_and_themselves_to_semsim(begin, tmp_path, pairs):
    named = [
        replace(each, source="=HYPERLINK(1)", model="@model", true_class=f"+{n % 2}x")
        for n, each in enumerate(pairs)
    ]
    campaign = say(begin("same", of=named, annotators=1), {1: ["same"]})
    export(campaign, "results", tmp_path / "r.csv")
    export(campaign, "semsim", tmp_path / "s.csv")
    row = rows_of(tmp_path / "r.csv")[0]
    assert (row["source"], row["model"], row["class"]) == ("'=HYPERLINK(1)", "'@model", "'+0x")
    assert list(semsim.read(tmp_path / "s.csv", size=8)) == ["=HYPERLINK(1)"]


def test_the_table_of_answers_has_every_one_with_its_time(begin: Begin, tmp_path: Path):
    export(say(begin(), {2: ["dog", "cat"], 1: ["dog"]}), "answers", tmp_path / "a.csv")
    rows = rows_of(tmp_path / "a.csv")
    assert [(row["annotator"], row["item"], row["answer"], row["right"]) for row in rows] == [
        ("annotator 1", "2", "dog", "true"),
        ("annotator 1", "1", "dog", "false"),
        ("annotator 2", "2", "cat", "false"),
    ]
    assert rows[1]["time"] == "2025-06-15T15:06:41.000+00:00"


def test_what_proxies_answered_is_theirs_in_every_table(begin: Begin, tmp_path: Path):
    campaign = begin()
    campaign.add_proxies({"big": dict.fromkeys(campaign.items, "cat")})
    for table in ("results", "semsim", "answers"):
        assert export(campaign, table, tmp_path / f"{table}.csv") == 12
        assert {row["annotators"] for row in rows_of(tmp_path / f"{table}.csv")} == {"proxy"}


def test_a_parquet_file_holds_the_same_table(begin: Begin, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export(say(begin(), {1: ["cat", "cat"]}), "results", tmp_path / "r.parquet")
    rows = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert (rows[0]["class"], rows[0]["recognised"], rows[1]["recognised"]) == ("cat", True, None)
    assert len(rows) == 12


def test_parquet_without_pyarrow_says_what_to_install_and_a_table_of_another_name_is_refused(
    begin, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = r"a Parquet file needs pyarrow: .*pip install -c constraints.txt -e '\.\[parquet"
    with pytest.raises(MissingExtraError, match=words):
        export(begin(), "results", tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()
    with pytest.raises(ConfigError, match="no table is called 'result': results, semsim, answers"):
        export(begin(), "result", tmp_path / "r.csv")
