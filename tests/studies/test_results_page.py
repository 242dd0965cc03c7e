"""What the pages of results promise: figures of records alone, words that these show, and their shape."""

import json
import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from results_page import engine, pages, wording
from results_page.figures import Interval
from results_page.reading import ROOT, record, records

from sfumato.errors import DataError
from sfumato.study.records import parse, write_rows


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    """All pages, made of the records of the repository."""
    return pages.pages(wording.environment(pages.values()))


@pytest.fixture(scope="module")
def text(made) -> str:
    """The pages that docs/results.md sums up, one after another."""
    return "\n".join(made[pages.DOCS / "results" / f"{name}.md"] for name in pages.OVERVIEW)


def chapter(studied: engine.Study | None) -> str:
    """The chapter of a study of the engine."""
    template = '{% from "study.jinja" import chapter %}{{ chapter(studied) }}'
    return wording.environment({}).from_string(template).render(studied=studied)


def studied(**changes) -> engine.Study:
    """The study of `make demo`, with some entries of its study.json changed."""
    demo = engine.study("demo")
    return engine.Study(demo.name, demo.file | changes, demo.records)


# Pages


def test_the_pages_that_the_repository_keeps_are_those_that_its_records_make(made):
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"\(docs/((?:results|claims)[^)#]*\.md)", readme))
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    kept = {line.removeprefix("!docs/") for line in ignored if line.startswith("!docs/results/")}
    assert kept == {name for name in named if "/" in name}
    paths = [pages.DOCS / name for name in (*named, *pages.PARTS)]
    stale = [str(path.relative_to(ROOT)) for path in paths if path.read_text("utf-8") != made[path]]
    assert stale == [], "run `make results`"


def test_every_link_leads_to_a_file_and_a_heading(made):
    anchors = {path: {wording.anchor(h) for h in re.findall("^#+ (.+)$", made[path], re.M)} for path in made}
    for path, page in made.items():
        if str(path.relative_to(pages.DOCS)) in pages.PARTS:
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", page):
            name, _, anchor = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            assert file in made or file.exists(), f"{path}: {target}"
            assert not anchor or anchor in anchors[file], f"{path}: {target}"


def test_every_chapter_begins_with_the_sentence_that_it_shows_and_its_figure(text):
    chapters = re.split(r"^## ", text, flags=re.M)[1:]
    assert len(chapters) > 20
    for each in chapters:
        heading, _, first = each.split("\n", 2)
        assert re.match(r"\*\*.*\d.*\*\*", first), heading


def test_the_overview_has_the_sentence_and_the_command_of_every_chapter(made, text):
    overview = made[pages.DOCS / "results.md"]
    chapters = re.split(r"^## ", text, flags=re.M)[1:]
    assert len(re.findall(r"^- ", overview, flags=re.M)) == len(chapters)
    for each in chapters:
        heading, _, first = each.split("\n", 2)
        said, command = re.match(r"\*\*(.+?)\*\*\s(`.+?`)", first).groups()
        linked = f"#{wording.anchor(heading)}). {said} {command}"  # pages that a clone has
        assert linked in overview or f"- {heading}. {said} {command}" in overview


def test_no_table_is_long_but_those_that_fold(text):
    open_ = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    tables = re.findall(r"(?:^\|.*\n)+", open_, flags=re.M)
    assert max(table.count("\n") for table in tables) <= 2 + 11


def test_a_list_of_contents_has_each_heading_with_its_anchor():
    page = wording.with_contents("# A\n\n<!-- contents -->\n\n## One, two\n\n### -9 (x)\n")
    assert "- [One, two](#one-two)\n  - [-9 (x)](#-9-x)\n" in page


# Words


def test_words_that_the_figures_do_not_show_are_refused_with_the_words():
    template = wording.environment({}).from_string(
        "{% call claim(a < b) %}less  is\nknown{% endcall %}, so it is"
    )
    assert template.render(a=1, b=2) == "less is known, so it is"
    with pytest.raises(wording.ClaimError, match=r"'less is known'.*docs/templates"):
        template.render(a=2, b=1)


def test_a_template_that_names_what_is_not_there_is_refused():
    with pytest.raises(UndefinedError, match="lost"):
        wording.environment({}).from_string("{{ lost.figure }}").render()


def test_a_mean_has_an_interval_of_students_t_from_three_values_on():
    assert wording.spread([0.01, 0.02, 0.03]) == "2.0 ± 2.5"  # 4.303 * 1 / sqrt(3)
    assert wording.spread([0.01, 0.03]) == "2.0"
    assert wording.spread([]) == ""


def test_an_estimate_is_written_with_its_interval_in_percent():
    assert wording.interval(Interval(0.852, 0.813, 0.884)) == "85.2 (81.3 to 88.4)"
    assert wording.interval(None) == "–"


# Records


def test_records_are_named_by_their_file_and_a_pattern_of_their_names(tmp_path):
    rows = [{"row": "a-1", "part": {"counts": [0] * 9}}, {"row": "a-2"}, {"row": "b-1"}]
    write_rows(tmp_path / "some.jsonl", rows)
    assert [each.row for each in records("some", tmp_path)] == ["a-1", "a-2", "b-1"]
    assert [each.row for each in records("some/a-*", tmp_path)] == ["a-1", "a-2"]
    assert record("some/a-1", tmp_path).part.counts == [0] * 9
    assert not hasattr(record("some/b-1", tmp_path), "part")


def test_a_record_that_was_edited_is_refused_by_its_file(tmp_path):
    path = tmp_path / "guard.jsonl"
    path.write_text(json.dumps({"seed": 0, "content_sha256": "0" * 64}))
    with pytest.raises(DataError, match=rf"{path}:1: edited or damaged"):
        record("guard", tmp_path)


# Tables of rows

SOME = [
    {"data": data, "size": size, "accuracy": 0.5 + size / 100 + seed / 100, "norm": 2.0, "who": "svm"}
    for data in ("faces", "lfw")
    for size in (10, 2)
    for seed in range(3)
]


def test_a_table_has_a_line_for_each_group_and_means_with_their_interval():
    table = wording.pivot(
        SOME, {"data": "data", "b": "size"}, {"right, %": "accuracy", "C": "norm|2", "by": "who"}
    )
    assert table.splitlines()[0] == "| data | b | right, % | C | by |"
    assert table.splitlines()[2:4] == [
        "| faces | 2 | 53.0 ± 2.5 | 2.00 | svm |",
        "| faces | 10 | 61.0 ± 2.5 | 2.00 | svm |",
    ]


def test_the_values_of_a_column_may_stand_across():
    known = [row for row in SOME if (row["data"], row["size"]) != ("lfw", 2)]
    table = wording.pivot(known, {"data": "data"}, {"right": "accuracy"}, "size")
    assert table.splitlines() == [
        "| data | 2 | 10 |",
        "| --- | --- | --- |",
        "| faces | 53.0 ± 2.5 | 61.0 ± 2.5 |",
        "| lfw |  | 61.0 ± 2.5 |",
    ]
    both = wording.pivot(known, {"data": "data"}, {"right": "accuracy", "C": "norm|1"}, "size")
    assert both.splitlines()[-1] == "| lfw | C |  | 2.0 |"


# Studies of the engine


def test_a_study_gets_its_chapter_by_being_named():
    run = studied(title="Hats", protections=["none", "blur:radius=3", "code:bits=16"])
    page = chapter(run)
    advice, clear = run.recommendation, next(each for each in run.settings if each.protection == "none")
    kept, before = (f"{100 * each.value:.1f}%" for each in (advice.setting.on(1)[0], clear.accuracy))
    assert page.startswith(
        f"## Hats\n\n**`code:bits=16` keeps {kept} of answers right (clear images: {before})"
    )
    frontier, _, many = page.partition("<details>")
    assert len(re.findall(r"^\| `", frontier, flags=re.M)) == 3
    assert len(re.findall(r"^\| `", many, flags=re.M)) == 2
    assert "| one of 65,536 outputs | yes |" in page
    assert all(line in page for line in run.recommendation.lines)
    assert "Chance is 1.7%. Trained 10-way 5-shot" in page


def test_a_study_that_recommends_nothing_says_why():
    page = chapter(studied(recommend=None))
    assert "**No setting is recommended: the study sets no bound" in page


def test_a_setting_that_was_not_attacked_has_a_row_without_a_figure():
    run = studied()
    attacked = [("attack", "blur:radius=3"), ("attack", "none")]
    kept = [record for record in run.records if (record.kind, record.cell.protection) not in attacked]
    page = chapter(engine.Study(run.name, run.file, kept))
    assert re.search(r"^\| `blur:radius=3` \| \d.* \| – \| – \|", page, flags=re.M)
    assert re.search(r"names \d\.\d% of people\.\*\*", page)  # and no figure of clear images beside it


def test_what_is_proved_is_a_bound_or_a_number_of_outputs_or_nothing():
    run = studied()
    cell = {"protection": "blur:radius=3", "seed": 0}
    few = {"kind": "proved", "cell": cell, "digest": "few", "seconds": 0.0}
    naming = [{"candidates": 100, "at_most": 0.02}]
    few["result"] = {"release": "bits", "bytes_per_image": 1, "outputs": 2, "naming": naming}
    others = [
        each for each in run.records if (each.kind, each.cell.protection) != ("proved", cell["protection"])
    ]
    page = chapter(engine.Study(run.name, run.file, [*others, parse(few)]))
    assert "| one of 2 outputs; among 100 people at most 2.0% named |" in page
    assert "| eps = 0.5; 512 |  |" in page
    assert re.search(r"^\| `pixelize:cell=8` .*\| nothing \|", page, flags=re.M)
