"""What answers say: majorities, decoys that never count, and tables that others read."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sfumato.annotate import Pair, Store
from sfumato.annotate.results import agreement, columns_of, doubts, export, reliability, results, shares
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, MissingExtraError
from sfumato.learn import semsim

Begin = Callable[..., Store]


def say(store: Store, item: int, *answers: str | None) -> None:
    """What annotators 1, 2, ... answer to an item; None for no answer."""
    (key,) = store._row("select key from items where id = ?", item)
    for annotator, answer in enumerate(answers, 1):
        if answer is not None:
            store.answer(annotator, key, answer, ticket=f"{item} {annotator}")


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
    store = begin()
    say(store, 1, *answers)  # its true class is cat
    found = results(store)[0]
    assert (found.majority, found.recognised) == (majority, recognised)
    assert (found.answers, found.right) == (len(answers) - answers.count(None), answers.count("cat"))


def test_side_by_side_recognised_is_what_more_than_half_call_the_same(begin: Begin):
    store = begin("same")
    say(store, 1, "same", "same", "same", "different", "cannot tell")
    say(store, 2, "same", "same", "different", "different", "cannot tell")
    assert [one.recognised for one in results(store)[:2]] == [True, False]


def test_a_decoy_is_never_a_leak_whatever_is_said_of_it(begin: Begin):
    store = begin("same")
    decoys = [number for number, item in store.items().items() if item.decoy]
    for number in decoys:
        say(store, number, *["same"] * 5)
    assert [one.recognised for one in results(store) if one.decoy] == [None] * 3
    assert shares(results(store)) == []


def test_shares_are_of_each_models_items_with_an_answer(begin: Begin):
    store = begin()
    for item, answer in ((1, "cat"), (2, "dog"), (3, "cannot tell"), (7, "cat")):
        say(store, item, *[answer] * 3)
    lenet, resnet = shares(results(store))
    assert (lenet.model, lenet.recognised, lenet.items) == ("lenet", 2, 3)
    assert (resnet.model, resnet.recognised, resnet.items) == ("resnet", 1, 1)
    assert (lenet.low, lenet.high) == wilson(2, 3)
    assert str(lenet) == "66.7% (20.8 to 93.9; 2 of 3)"


def test_reliability_is_what_is_said_of_decoys_by_those_with_an_opinion(begin: Begin):
    store = begin("same", annotators=3)
    decoys = [number for number, item in store.items().items() if item.decoy]
    say(store, 1, "different", "different", "different")  # no decoy
    for number, answers in zip(
        decoys,
        [("different", "same", None), ("different", "cannot tell", None), ("same", "cannot tell", None)],
        strict=True,
    ):
        say(store, number, *answers)
    first, second, third = reliability(store)
    assert (first.right, first.wrong, first.answered, first.items) == (2, 1, 4, 15)
    assert first.share == pytest.approx(2 / 3)
    assert second.share == 0
    assert third.share is None


def test_an_annotator_who_tells_no_more_decoys_than_a_coin_is_warned_of(begin: Begin):
    store = begin("same", annotators=3)
    decoys = [number for number, item in store.items().items() if item.decoy]
    assert doubts(store) == []
    for number, answers in zip(
        decoys,
        [("different", "same", "same"), ("different", "same", "different"), ("same", "cannot tell", None)],
        strict=True,
    ):
        say(store, number, *answers)
    second, third = doubts(store)
    assert second.startswith(
        "annotator 2 calls 2 of 2 decoys the same, which show something else: their answers"
    )
    assert third.startswith("annotator 3 calls 1 of 2 decoys the same")


def test_annotators_who_always_say_alike_agree(begin: Begin):
    store = begin(annotators=2)
    say(store, 1, "cat", "cat")
    say(store, 2, "cannot tell", "cannot tell")
    assert agreement(store) == 1


def test_agreement_is_that_of_all_answers_that_count(begin: Begin):
    store = begin(annotators=2)
    # Of 2 annotators, alpha = 1 - (n - 1) * disagreements / pairs of unlike values (Krippendorff 2011, C):
    # 8 values, 3 cat, 4 dog, 1 "cannot tell"; two items of four disagree.
    for item, answers in enumerate(
        (("cat", "cat"), ("cat", "dog"), ("dog", "dog"), ("dog", "cannot tell")), 1
    ):
        say(store, item, *answers)
    say(store, 5, "emu", None)  # nobody to agree with
    unlike = 3 * 4 + 3 * 1 + 4 * 1
    assert agreement(store) == pytest.approx(1 - 7 * 2 / unlike)


def test_agreement_leaves_decoys_out(begin: Begin):
    store = begin("same", annotators=2)
    say(store, 1, "same", "same")
    say(store, 2, "different", "different")
    for number, item in store.items().items():
        if item.decoy:
            say(store, number, "same", "different")
    assert agreement(store) == 1


def test_of_one_annotator_there_is_no_agreement(begin: Begin):
    store = begin(annotators=1)
    say(store, 1, "cat")
    assert agreement(store) is None


def test_the_table_of_results_has_a_row_an_item_and_says_who_answered(begin: Begin, tmp_path: Path):
    store = begin("same")
    say(store, 2, "same", "same", "different")
    assert export(store, "results", tmp_path / "r.csv") == 15
    rows = rows_of(tmp_path / "r.csv")
    assert list(rows[0]) == [
        *("item", "original", "reconstruction", "class", "model", "source", "decoy"),
        *("answers", "right", "majority", "recognised", "annotators"),
    ]
    assert (rows[1]["class"], rows[1]["recognised"], rows[1]["annotators"]) == ("dog", "true", "people")
    assert (rows[0]["majority"], rows[0]["recognised"], rows[14]["decoy"]) == ("", "", "true")


def test_semsim_reads_its_table_without_decoys_and_without_what_nobody_answered(
    begin: Begin, tmp_path: Path, pairs: list[Pair]
):
    store = begin("same")
    for number in store.items():
        if number != 2:
            say(store, number, *(["same"] if number % 2 else ["cannot tell"]))
    export(store, "semsim", tmp_path / "elsewhere" / "s.csv")
    rows = rows_of(tmp_path / "elsewhere" / "s.csv")
    assert list(rows[0]) == ["original", "reconstruction", "recognised", "model", "source", "annotators"]
    files = [(tmp_path / "elsewhere" / row["original"]).resolve() for row in rows]
    assert files == [one.original.resolve() for n, one in enumerate(pairs) if n != 1]
    (judgements,) = semsim.read(tmp_path / "elsewhere" / "s.csv", size=8).values()
    assert judgements.recognised.tolist() == [True, *([True, False] * 5)]


def test_a_table_beside_its_images_names_no_folder_above_them(begin: Begin, pairs: list[Pair]):
    store = begin("same")
    say(store, 1, "same", "same")
    folder = pairs[0].original.parent
    export(store, "results", folder / "r.csv")
    assert rows_of(folder / "r.csv")[0]["original"] == pairs[0].original.name
    assert folder.name not in (folder / "r.csv").read_text()
    header, rows = columns_of(store, "results")  # as the page gives it, which knows no folder
    assert rows[0][header.index("original")] == pairs[0].original.name


def test_names_that_spreadsheets_would_run_are_text_there_and_themselves_to_semsim(
    begin: Begin, tmp_path: Path, pairs: list[Pair]
):
    named = [
        replace(each, source="=HYPERLINK(1)", model="@model", true_class=f"+{n % 2}x")
        for n, each in enumerate(pairs)
    ]
    store = begin("same", of=named, annotators=1)
    say(store, 1, "same")
    export(store, "results", tmp_path / "r.csv")
    export(store, "semsim", tmp_path / "s.csv")
    row = rows_of(tmp_path / "r.csv")[0]
    assert (row["source"], row["model"], row["class"]) == ("'=HYPERLINK(1)", "'@model", "'+0x")
    assert list(semsim.read(tmp_path / "s.csv", size=8)) == ["=HYPERLINK(1)"]


def test_the_table_of_answers_has_every_one_and_every_undo(begin: Begin, tmp_path: Path):
    store = begin()
    say(store, 1, "dog")
    store.undo(1, ticket="undo")
    say(store, 2, "dog")
    export(store, "answers", tmp_path / "a.csv")
    rows = rows_of(tmp_path / "a.csv")
    assert [(row["item"], row["action"], row["answer"], row["right"]) for row in rows] == [
        ("1", "answer", "dog", "false"),
        ("1", "undo", "", ""),
        ("2", "answer", "dog", "true"),
    ]
    assert {row["annotator"] for row in rows} == {"annotator 1"}
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


def test_what_proxies_answered_is_theirs_in_every_table(begin: Begin, tmp_path: Path):
    store = begin()
    store.add_proxies({"big": dict.fromkeys(store.items(), "cat")})
    for table in ("results", "semsim", "answers"):
        assert export(store, table, tmp_path / f"{table}.csv") == 12
        assert {row["annotators"] for row in rows_of(tmp_path / f"{table}.csv")} == {"proxy"}


def test_a_parquet_file_holds_the_same_table(begin: Begin, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    store = begin()
    say(store, 1, "cat", "cat")
    export(store, "results", tmp_path / "r.parquet")
    rows = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert (rows[0]["class"], rows[0]["recognised"], rows[1]["recognised"]) == ("cat", True, None)
    assert len(rows) == 12


def test_parquet_without_pyarrow_says_what_to_install(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError,
        match=r"a Parquet file needs pyarrow: .*pip install -c constraints.txt -e '\.\[parquet",
    ):
        export(begin(), "results", tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()


def test_a_table_of_another_name_is_refused(begin: Begin, tmp_path: Path):
    with pytest.raises(ConfigError, match="no table is called 'result': results, semsim, answers"):
        export(begin(), "result", tmp_path / "r.csv")
