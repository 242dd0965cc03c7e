"""What the pages of results promise: figures of records alone, words that these show, and their shape."""

import json
import re
from pathlib import Path

import claims
import pytest
import results
import tables

from sfumato.errors import DataError
from sfumato.study.choose.results import Results
from sfumato.study.records import parse


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    """All pages, made of the records of the repository."""
    return results.pages(results.environment(claims.values()))


@pytest.fixture(scope="module")
def chapters(made) -> list[str]:
    """Those of the pages that docs/results.md sums up."""
    pages = (made[results.DOCS / "results" / f"{name}.md"] for name in results.PAGES)
    return [chapter for page in pages for chapter in re.split(r"^## ", page, flags=re.M)[1:]]


def chapter(studied: Results) -> str:
    """The chapter of a study of the engine."""
    template = '{% from "study.jinja" import chapter %}{{ chapter(studied) }}'
    return results.environment({}).from_string(template).render(studied=studied)


def studied(**changes) -> Results:
    """The study of `make demo`, with some entries of its study.json changed."""
    demo = results.study("demo")
    return Results(demo.study | changes, demo.records)


# Pages


def test_the_pages_of_the_repository_are_those_that_its_records_make(made):
    stale = [str(path.relative_to(results.ROOT)) for path in made if path.read_text("utf-8") != made[path]]
    assert stale == [], "run `make results`"
    assert {path.stem for path in (results.DOCS / "results").glob("*.md")} == set(results.PAGES)


def test_every_chapter_begins_with_its_sentence_and_its_figure_which_the_overview_has(made, chapters):
    overview = made[results.DOCS / "results.md"]
    assert len(chapters) > 20
    assert len(re.findall(r"^- ", overview, flags=re.M)) == len(chapters)
    for each in chapters:
        heading, _, first = each.split("\n", 2)
        said, command = re.match(r"\*\*(.*\d.*?)\*\*\s(`.+?`)", first).groups()
        assert f"#{results.anchor(heading)}). {said} {command}" in overview


def test_no_table_is_long_but_those_that_fold(chapters):
    open_ = re.sub(r"<details>.*?</details>", "", "\n".join(chapters), flags=re.S)
    assert max(table.count("\n") for table in re.findall(r"(?:^\|.*\n)+", open_, flags=re.M)) <= results.LONG


# Words


def test_words_that_the_figures_do_not_show_are_refused_with_the_words():
    template = results.environment({}).from_string(
        "{% call claim(a < b) %}less  is\nknown{% endcall %}, so it is"
    )
    assert template.render(a=1, b=2) == "less is known, so it is"
    with pytest.raises(results.ClaimError, match=r"'less is known'.*docs/templates"):
        template.render(a=2, b=1)


def test_a_record_that_was_edited_is_refused_by_its_file(tmp_path, monkeypatch):
    (tmp_path / "guard.jsonl").write_text(json.dumps({"seed": 0, "content_sha256": "0" * 64}))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    with pytest.raises(DataError, match=r"guard.jsonl:1: edited or damaged"):
        tables.rows(["guard"], "audits")


# Tables of rows

SOME = [
    {"data": data, "size": size, "accuracy": 0.5 + size / 100 + seed / 100, "norm": 2.0, "who": "svm"}
    for data in ("faces", "lfw")
    for size in (10, 2)
    for seed in range(3)
]


def test_a_table_has_a_line_for_each_group_and_means_with_their_interval():
    columns = {"right, %": "accuracy", "C": "norm|2", "by": "who"}
    table = results.pivot(SOME, {"data": "data", "b": "size"}, columns).splitlines()
    assert table[0] == "| data | b | right, % | C | by |"
    assert table[2] == "| faces | 2 | 53.0 ± 2.5 | 2.00 | svm |"  # 4.303 * 1 / sqrt(3), from three values on
    assert table[3].startswith("| faces | 10 | 61.0 ± 2.5 |")
    assert results.value(SOME, "accuracy") == "57.0"
    assert (results.spread([0.01, 0.03]), results.spread([])) == ("2.0", "")


def test_the_values_of_a_column_may_stand_across():
    known = [row for row in SOME if (row["data"], row["size"]) != ("lfw", 2)]
    table = results.pivot(known, {"data": "data"}, {"right": "accuracy"}, "size")
    assert table.splitlines()[::2] == ["| data | 2 | 10 |", "| faces | 53.0 ± 2.5 | 61.0 ± 2.5 |"]
    assert table.splitlines()[3] == "| lfw |  | 61.0 ± 2.5 |"
    both = results.pivot(known, {"data": "data"}, {"right": "accuracy", "C": "norm|1"}, "size")
    assert both.splitlines()[-1] == "| lfw | C |  | 2.0 |"


# Studies of the engine


def test_a_study_gets_its_chapter_by_being_named():
    run = studied(title="Hats", protections=["none", "blur:radius=3", "code:bits=16"])
    page = chapter(run)
    kept, before = run.advice.setting.on(1)[0].value, run.settings[0].accuracy.value
    assert page.startswith(f"## Hats\n\n**`code:bits=16` keeps {kept:.1%} of answers right")
    assert f"(clear images: {before:.1%})" in page
    frontier, _, many = page.partition("<details>")
    assert len(re.findall(r"^\| `", frontier, flags=re.M)) == 3
    assert len(re.findall(r"^\| `", many, flags=re.M)) == 2
    assert "| one of 65,536 outputs | yes |" in page
    assert all(line in page for line in run.advice.lines)
    assert re.search(r"Chance is 1\.7%.* Trained 10-way 5-shot", page)
    titles = [results.title(studied(title="Faces", seeds=seeds)) for seeds in ([0, 1, 2], [0])]
    assert titles == ["Faces (1 of 3 seeds)", "Faces"]


def test_a_setting_that_was_not_attacked_has_a_row_without_a_figure():
    run = studied()
    attacked = [("attack", "blur:radius=3"), ("attack", "none")]
    kept = [record for record in run.records if (record.kind, record.cell.protection) not in attacked]
    page = chapter(Results(run.study, kept))
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
    page = chapter(Results(run.study, [*others, parse(few)]))
    assert "| one of 2 outputs; among 100 people at most 2.0% named |" in page
    assert "| eps = 0.5; 512 |  |" in page
    assert re.search(r"^\| `pixelize:cell=8` .*\| nothing \|", page, flags=re.M)


# The README


def test_the_output_of_the_demo_in_the_readme_is_what_its_records_give():
    readme = (results.ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(recommended: .*?)```", readme, re.DOTALL)[1].splitlines()[:6]
    lines = results.study("demo").advice.lines
    assert shown[0] == lines[0]
    for line in shown[1:]:
        start = line.removesuffix("...").rstrip()
        assert any(each.startswith(start) for each in lines), line
    assert len(results.study("demo").settings) == 1 + 10
    assert "compares ten ways to protect an image" in " ".join(readme.split())
