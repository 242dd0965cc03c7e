"""What a report shows, and that it is a pure function of the run."""

import base64
import csv
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import synthetic

from sfumato.base.proportions import over_people
from sfumato.errors import DataError, MissingExtraError
from sfumato.study import cells as kinds
from sfumato.study import report, vocabulary
from sfumato.study.choose.results import Results
from sfumato.study.report import charts
from sfumato.study.report.charts import looks
from sfumato.study.report.guarantees import success_of_judge

# Elements of HTML and SVG that have no end tag.
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """The elements of a page, its text, and whether every element that is opened is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.charts: dict[str, str] = {}  # words of each, and its image
        self._open: list[str] = []
        self._tables: dict[str, list[list[list[str]]]] = {}
        self._region = ""
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if dict(attrs).get("class") == "chart":
            self.charts[dict(attrs)["alt"] or ""] = dict(attrs)["src"] or ""
        if tag not in VOID:
            self._open.append(tag)
        if dict(attrs).get("role") == "region":
            self._region = dict(attrs)["aria-label"] or ""
        if tag == "tr":
            self._tables.setdefault(self._region, []).append([])
        if tag in ("th", "td"):
            self._tables[self._region][-1].append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "tr" in self._open and self._tables[self._region][-1]:
            self._tables[self._region][-1][-1].append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def table(self, label: str) -> list[list[str]]:
        """The texts of the cells of the table in the region of that label, row by row."""
        return [[" ".join(" ".join(cell).split()) for cell in row] for row in self._tables[label]]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def drawn(self) -> str:
        """The text of all charts."""
        return "".join(base64.b64decode(image.partition(",")[2]).decode() for image in self.charts.values())

    @property
    def references(self) -> list[str]:
        """Everything that an element refers to, and every url() of the styles."""
        keys = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        found = [each[key] or "" for _, each in self.elements for key in keys if each.get(key)]
        return found + re.findall(r"url\(([^)]*)\)", "".join(self.words))


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    return synthetic.study()


@pytest.fixture(scope="module")
def records(study) -> list[dict[str, Any]]:
    return synthetic.records(study)


@pytest.fixture(scope="module")
def directory(tmp_path_factory, study, records) -> Path:
    made = synthetic.write_run(tmp_path_factory.mktemp("runs") / "synthetic", study, records)
    report.write(made)
    return made


@pytest.fixture(scope="module")
def html(directory) -> str:
    return (directory / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html) -> Page:
    return Page(html)


def page_of(study: dict[str, Any], records: list[dict[str, Any]], *, draw: bool = False) -> Page:
    """The page of a study. Its charts have their words, but no drawing without `draw`: it takes long."""
    with pytest.MonkeyPatch.context() as patch:
        if not draw:
            patch.setattr(charts, "_source", lambda _: "data:,")
            patch.setattr(charts, "key", lambda _: "data:,")
        return Page(report.render(synthetic.results(study, records)))


def rendered(**changes: Any) -> Page:
    """The page of a changed synthetic study."""
    study = synthetic.study(**changes)
    return page_of(study, synthetic.records(study))


def small(**changes: Any) -> dict[str, Any]:
    return {"protections": ["none", "blur:radius=1", "blur:radius=3"], **changes}


# One file that needs nothing else


def test_the_page_refers_to_nothing_outside_itself_and_has_no_script(html, page):
    assert page.references
    assert [one for one in page.references if not one.startswith(("#", "data:"))] == []
    assert page.all("script") == []
    assert not re.search(r"\bon\w+=", re.sub(r'"[^"]*"', '""', html))
    policy = next(one["content"] for one in page.all("meta") if "http-equiv" in one)
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    names = [each["id"] for _, each in page.elements if "id" in each]
    assert len(names) == len(set(names))
    assert {one.lstrip("#") for one in page.references if one.startswith("#")} <= set(names)


def test_the_same_run_gives_the_same_bytes_in_another_process(directory, html, tmp_path):
    code = "import sys; from sfumato.study import report; report.write(sys.argv[1])"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "MPLCONFIGDIR": str(tmp_path)}
    before = {path.name: path.read_bytes() for path in (directory / "tables").iterdir()}
    subprocess.run([sys.executable, "-c", code, directory], check=True, env=environment)
    assert (directory / "report.html").read_text(encoding="utf-8") == html
    assert {path.name: path.read_bytes() for path in (directory / "tables").iterdir()} == before


def test_the_names_and_the_order_of_the_record_files_do_not_matter(tmp_path, study, records, html):
    names = {record["digest"]: f"{number:04}" for number, record in enumerate(reversed(records))}
    renamed = [{**record, "digest": names[record["digest"]]} for record in reversed(records)]
    listed = [{**one, "digest": names[one["digest"]]} for one in study["cells"]]
    directory = synthetic.write_run(tmp_path / "run", {**study, "cells": listed}, renamed)
    assert report.write(directory).read_text(encoding="utf-8") == html


TABLES = {f"{name}.csv" for name in ("frontier", "accuracy", "similarity", "tells", "proved")}


def test_nothing_but_a_small_report_and_its_tables_which_it_links_is_left_behind(directory, page):
    assert {path.name for path in directory.iterdir()} == {"study.json", "records", "report.html", "tables"}
    assert (directory / "report.html").stat().st_size < 1_500_000
    links = {
        one["download"].removeprefix("synthetic-"): one["href"] for one in page.all("a") if "download" in one
    }
    assert links.keys() == {path.name for path in (directory / "tables").iterdir()}
    assert links.keys() == TABLES | {"reidentification.csv"}
    for name, link in links.items():
        head, _, body = link.partition(",")
        assert head == "data:text/csv;charset=utf-8"
        assert unquote(body).encode() == (directory / "tables" / name).read_bytes()


def test_a_table_of_an_earlier_report_that_has_no_rows_now_is_removed(tmp_path):
    study = synthetic.study(**small())
    directory = synthetic.write_run(tmp_path / "run", study, synthetic.records(study))
    report.write(directory)
    assert (directory / "tables" / "reidentification.csv").exists()
    (directory / "tables" / "mine.csv").write_text("not of a report")
    fewer = synthetic.study(**small(attacks=[]))
    (directory / "study.json").write_text(json.dumps(fewer))
    report.write(directory)
    assert {path.name for path in (directory / "tables").iterdir()} == TABLES | {"mine.csv"}


# What it shows


def test_every_number_of_a_record_appears(page, records):
    shown = set(page.text.split())
    for record in records:
        results = [record["result"], *record["result"].get("scores", [])]
        results.append(record["result"].get("guarantee") or {})
        numbers = [each for one in results for each in one.values() if isinstance(each, int | float)]
        assert {str(number) for number in numbers} <= shown


def test_the_recommended_setting_is_shown_with_its_numbers_and_reasons(page, study, records):
    advice = synthetic.results(study, records).advice
    assert advice.setting is not None
    assert {"class": "choice", "id": "recommended"} in page.all("p")
    for sentence in advice.sentences:
        assert sentence in page.text


def test_every_section_has_a_heading_every_chart_and_picture_words_and_every_header_a_scope(page):
    for section in page.all("section"):
        assert {"id": section["aria-labelledby"]} in page.all("h2")
    assert len(page.charts) == 4 + 1  # accuracy, frontier
    assert all(": " in words and image.startswith("data:image/svg") for words, image in page.charts.items())
    images = [image for image in page.all("img") if image["class"] != "key"]
    assert all(image["alt"] for image in images)
    assert len(images) == 3 * (13 + 12) + 2 * 6 + 5  # and the examples of the first screen, and charts
    assert all(header["scope"] in ("row", "col", "colgroup") for header in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))


def test_a_notice_says_that_there_are_original_images_where_there_are(page, study, records, tmp_path):
    assert "This report contains original images." in page.text
    assert {"class": "notice", "role": "note"} in page.all("p")
    specs = ["none", "blur:radius=1", "feature:noise=0,dimension=10"]
    kinds = synthetic.study_of_kinds(protections=specs)
    of_kinds = synthetic.records(kinds)
    bare = Page(report.render(synthetic.results(kinds, of_kinds), pictures=False))
    recorded = [one for one in of_kinds if one["kind"] not in ("examples", "pictures", "reconstruction")]
    for without in (bare, page_of(kinds, recorded, draw=True)):
        assert "original images" not in without.text
        assert without.all("image") == []
        assert not any("data:image/png" in reference for reference in without.references)
    assert "measurements are missing" not in bare.text  # they were made, and are not shown
    # How much is left of an image is a number, and stays.
    rows = bare.table("Table of pictures")
    assert rows[0][:2] == ["setting", "released"]
    assert all("SSIM" in row[1] for row in rows[1:])
    assert bare.table("Table of reconstruction")[0] == ["setting", "adversary", "rebuilt"]
    assert bare.table("Table of reconstruction")[1][2].startswith("SSIM")
    # Also records of an earlier study have images.
    synthetic.write_run(tmp_path / "run", {**study, "cells": []}, records)
    with_images = [record for record in records if record["kind"] in ("examples", "pictures")]
    assert report.holding_pictures(tmp_path / "run") == len(with_images)
    assert report.holding_pictures(tmp_path / "none") == 0


def test_the_guarantees_are_told_in_plain_words(page):
    assert "Nothing is proved" in page.text
    assert "hides any 1 pixel at eps = 3 (pure DP); the whole image only at eps = 3080" in page.text
    assert "The figure for whole images is the one that matters" in page.text
    assert "releasing the same image again spends the same amount again" in page.text


@pytest.mark.parametrize(
    ("definition", "value", "share"),
    [
        ("pure", 0.0, "50.0%"),  # nothing is revealed: a coin
        ("pure", 1.0986122886681098, "75.0%"),  # ε = ln 3: odds of 3 to 1
        ("pure", 3.0, "95.3%"),  # 1 / (1 + e^-3) = 0.9526
        ("pure", 21168.0, None),
        ("gaussian", 0.0, "50.0%"),
        ("gaussian", 2.0, "84.2%"),  # Φ(1) = 0.8413, rounded up
        ("gaussian", 353.3, None),
        ("renyi", 1.0, None),
        (None, None, None),
    ],
)
def test_a_guarantee_bounds_how_often_a_judge_is_right(definition, value, share):
    assert success_of_judge(definition, value) == share


def test_the_settings_seeds_versions_and_digest_are_shown(page, study):
    assert study["data"]["digest"] in page.text
    for name in ("learning_rate 0.001", "sfumato 0.1.0", "torch 2.13.0", "seeds 0", "test episodes 600"):
        assert name in page.text


def test_a_title_is_text_and_never_markup():
    page = rendered(**small(title='Hats <script>alert(1)</script> & "faces"', name="<b>x</b>"))
    assert page.all("script") == page.all("b") == []
    assert 'Hats <script>alert(1)</script> & "faces"' in page.text


# Re-identification, on what is released, denoised and restored


def attacked(*protections: str, **values: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A study of all attacks on "block", with records of some: restored_adaptive=0.3, and so on."""
    study = synthetic.full_study(protections=["none", "block"])
    records = [
        synthetic.attack("block", f"reidentify-{name.replace('_', '-')}", value)
        for name, value in values.items()
    ]
    return study, records


def test_the_table_of_reidentification_has_what_is_looked_at_by_both_kinds_of_adversary():
    study, records = attacked(static=0.1, adaptive=0.25, denoised=0.12, denoised_adaptive=0.3)
    records += attacked(restored=0.2, restored_adaptive=0.3)[1]
    records.append(synthetic.attack("none", "reidentify-static", 0.6))
    page = page_of(study, records)
    rows = page.table("Table of re-identification")
    assert rows[0] == ["setting", "released images", "denoised images", "restored images"]
    assert rows[1] == ["static", "adaptive"] * 3
    assert rows[2] == ["none", "▲ 60.0% 55.6–64.2", *["–"] * 5]
    assert rows[3] == [
        "block",
        *("10.0% 7.7–12.9", "25.0% 21.4–29.0"),
        *("12.0% 9.4–15.1", "▲ 30.0% 26.1–34.2"),
        *("20.0% 16.7–23.7", "▲ 30.0% 26.1–34.2"),
    ]
    assert "guessing alone: 2.0%." in page.text
    assert [one["colspan"] for one in page.all("th") if one["scope"] == "colgroup"] == ["2", "2", "2"]


def test_a_figure_of_an_adversary_who_still_gained_is_marked_as_a_lower_bound():
    records = [
        synthetic.attack("block", "reidentify-static", 0.1, flat=True),
        synthetic.attack("block", "reidentify-adaptive", 0.2, flat=False),
    ]
    page, without = (page_of(attacked()[0], records[:many]) for many in (2, 1))
    assert page.table("Table of re-identification")[-1][1:3] == ["10.0% 7.7–12.9", "▲ ≥ 20.0% 16.7–23.7"]
    assert "still gained when its training ended" in page.text
    assert "still gained" not in without.text


SAID = {
    "static": "The static adversary knows clean photographs only.",
    "adaptive": "The adaptive adversary has protected photographs of their own",
    "denoised": "The static adversary on denoised images looks at what",
    "denoised-adaptive": "The adaptive one on denoised images passes",
    "restored": "The static adversary on restored images first undoes",
    "restored-adaptive": "The adaptive one on restored images lets",
    "student": "The adaptive one whose network learned to see through it trains",
}


def test_an_attack_on_the_shape_of_a_mask_stands_in_table_and_words():
    mask = "mask:artefact=m.safetensors"
    shown = {("block", "static"): 0.1, (mask, "static"): 0.1, (mask, "shape"): 0.3}
    records = [synthetic.attack(spec, f"reidentify-{name}", value) for (spec, name), value in shown.items()]
    page = page_of(synthetic.full_study(protections=["none", "block", mask]), records)
    rows = page.table("Table of re-identification")
    assert rows[:2] == [["setting", "released images", "shape alone"], ["static", "adaptive"]]
    assert rows[3][2] == "–"
    assert rows[4][1:] == ["10.0% 7.7–12.9", "▲ 30.0% 26.1–34.2"]
    assert "The adaptive one on the shape alone is shown which pixels a mask reveals" in page.text


@pytest.mark.parametrize("name", SAID)
def test_the_adversaries_that_ran_are_explained_and_no_others(name):
    text = page_of(*attacked(**{name.replace("-", "_"): 0.2})).text
    assert [other for other, words in SAID.items() if words in text] == [name]


def test_every_protection_has_a_colour_and_a_mark_of_its_own_in_every_study_and_learners_a_line_or_fill():
    known = [words.look for words in vocabulary.PROTECTIONS.values()]
    entries = [*known, *vocabulary.SPARE_LOOKS]
    assert None not in entries
    assert len({(look.colour, look.marker) for look in entries}) == len(entries)
    assert len({look.marker for look in known}) == len(known)  # black and white print has no colours
    for specs in (["code:bits=8"], ["block", "code:bits=8"]):
        assert looks({"protections": ["none", *specs]})["code"] == vocabulary.PROTECTIONS["code"].look
    assert len(set(looks({"protections": ["none", "mine", "code:bits=8", "theirs"]}).values())) == 4
    entries = [each.look for each in vocabulary.LEARNERS.values()]
    assert len({(str(look.line), look.fill) for look in entries}) == len(entries)
    assert len({(look.colour, look.marker) for look in entries}) == 1


def test_every_attack_says_in_words_of_its_own_who_looks_and_at_what():
    seen = {
        **{"released": "adversary", "denoised": "denoised images", "restored": "that they restored"},
        **{"student": "whose network learned to see through it", "shape": "the mask's shape"},
        **{"values": "the values that travelled", "sorted": "the values in order of size"},
        "fused": "who combines all others",
    }
    for attack in vocabulary.ATTACKS.values():
        assert attack.words.split()[0] == ("adaptive" if attack.adaptive else "static")
        assert attack.words.endswith(seen[attack.view])


# Ordinary classifiers, and meta-learning

MASKS = [f"mask:artefact=m.safetensors,keep={keep}" for keep in (0.1, 0.25)]


def classified(*learners: str, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A study of classifiers of masks, and its records of accuracy."""
    study = synthetic.study(
        protections=["none", *MASKS],
        learners=list(learners),
        classifier={"network": "conv4", "epochs": 7},
        **changes,
    )
    values = {"classifier-clean": 0.6, "classifier-protected": 0.8, "classifier-shape": 0.9}
    records = [
        synthetic.classifier_accuracy(one["cell"]["protection"], learner, values[learner])
        for one in study["cells"]
        if one["kind"] == "accuracy" and (learner := one["cell"]["learner"]) in values
    ]
    return study, records


def test_a_study_of_classifiers_speaks_of_images_and_not_of_episodes_nor_judges_by_shapes():
    every = [name for name, each in vocabulary.LEARNERS.items() if each.knows_classes]
    page = page_of(*classified(*every))
    assert "(guessing: 25.0%)" in page.text
    assert "Ordinary classifiers know all classes from training." in page.text
    assert "Classifiers network conv4 epochs 7" in page.text
    assert "Learner “classifier-shape” The same network shown which pixels a mask reveals" in page.text
    for word in ("episode", "5-way", "way, shot", "queries"):
        assert word not in page.text, word
    described = [words for words in page.charts if "classifier-protected: 80.0%" in words]
    assert all("chance: 25.0%" in words for words in described)
    assert described
    rows = page.table("Table of settings")[1:]
    assert [row[1] for row in rows] == ["60.0% 57.0–64.0", "80.0% 77.0–84.0", "80.0% 77.0–84.0"]
    assert [row[3] for row in rows] == ["classifier-clean", *["classifier-protected"] * 2]


def test_beside_few_shot_learners_a_classifier_is_shown_and_not_compared():
    study, records = classified("protected", "classifier-protected")
    records += [synthetic.accuracy(MASKS[0], "protected", 0.5)]
    page = page_of(study, records)
    assert page.table("Table of settings")[2][1:4] == ["50.0% 49.6–50.4", "–", "protected"]
    assert "theirs is another task, and not to be compared with the others" in page.text
    assert any("classifier-protected: 80.0%" in words for words in page.charts)


def test_a_classifiers_record_is_damaged_without_its_interval(tmp_path):
    study, records = classified("classifier-protected")
    del records[0]["result"]["low"]
    with pytest.raises(DataError, match=r"a damaged record \(result: it has neither half_width and episodes"):
        report.load(synthetic.write_run(tmp_path / "run", study, records))


def test_how_alike_faces_are_stands_with_the_other_measures():
    study = synthetic.study(**small(measures=["ssim", "face-similarity"]))
    records = synthetic.records(study)
    for record in records:
        if record["kind"] == "similarity":
            record["result"] |= {"face-similarity": 0.4321, "face-similarity_of_two": 0.1234}
    page = page_of(study, records)
    assert "face similarity 0.43 (of two people 0.12)" in page.text
    assert "Face similarity Mean cosine between the embeddings of a test image" in page.text
    (table,) = (one for one in report.tables(synthetic.results(study, records)) if one.name == "similarity")
    assert "face-similarity" in table.names
    plain = synthetic.study(**small())
    assert "Face similarity" not in page_of(plain, synthetic.records(plain)).text


WITH_META = ["clean", "protected", "meta"]
NO_PROMISE = {"promise": "nothing is promised to the images that it was trained on"}


def meta_learned(promise=synthetic.promise, **changes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A study with a meta learner, and its records: `promise()` is what each model promises."""
    study = synthetic.study(**small(learners=WITH_META, **changes))
    records = synthetic.records(study)
    for record in records:
        if record["cell"].get("learner") == "meta":
            record["result"]["privacy"] = promise()
    return study, records


def training(*made: Any, **changes: Any) -> Page:
    return page_of(*meta_learned(*made, **changes))


def test_a_meta_learner_stands_in_chart_legend_words_and_settings(page):
    made = training()
    assert "meta , meta-learned on protected images. All are tested on releases." in made.text
    assert "Learner “meta” A network meta-learned on protected images." in made.text
    assert "Meta-learning algorithm maml private epsilon 9.0, delta 1e-05" in made.text
    assert any("meta: " in words for words in made.charts)
    assert "Privacy of training" not in page.text  # where there is none
    assert "meta-learned" not in page.text


def test_the_privacy_of_training_has_a_row_a_model_with_all_accountants_its_unit_and_its_limits():
    study, records = meta_learned()
    page = page_of(study, records)
    header, *rows = page.table("Table of training")
    by = ("ε by PLD, the bound", "ε by RDP, a looser bound", "ε by GDP, an approximation")
    assert header == ["setting", "clipping", *by, "δ", "accuracy"]
    assert [row[0].replace(" ", "") for row in rows] == study["protections"]
    for row in rows:
        # Bounds are rounded up, the approximation is not.
        assert row[1:6] == ["fixed", "9", "9.88", "8.12", "1e-05"]
    (blurred,) = [
        record["result"]["accuracy"]
        for record in records
        if record["cell"] == {"protection": "blur:radius=1", "learner": "meta", "seed": 0}
    ]
    assert rows[1][6].startswith(f"{100 * blurred:.1f}% ")
    unit = "ε is the price of one task of the pool, added or removed, with all images of its classes."
    assert unit in page.text
    assert "Not covered: those who use the model floating point" in page.text
    # Three models are trained on one pool: 3 · 8.996 and 3e-5.
    assert "no more than ε = 27 at δ = 3e-05 allows, the sum of their budgets" in page.text
    assert "Another seed" not in page.text
    assert "Nor is this page part of any promise" in page.text


def test_over_several_seeds_each_model_has_its_row_and_only_those_of_one_seed_are_added_up():
    page = training(lambda: synthetic.promise(image_epsilon=31.23), seeds=[0, 1])
    header, *rows = page.table("Table of training")
    assert (header[1], [row[1] for row in rows]) == ("seed", ["0", "1"] * 3)
    # Where tasks overlap an image has an epsilon of its own.
    assert (header[4], [row[4] for row in rows]) == ("ε of an image, a bound", ["31.3"] * 6)
    assert "ε = 27 at δ = 3e-05" in page.text
    assert "of models of several seeds together nothing is proved here" in page.text
    # An infinite one is written as null.
    _, *rows = training(lambda: synthetic.promise(image_epsilon=None)).table("Table of training")
    assert [row[3] for row in rows] == ["no bound"] * 3


def test_a_policy_that_is_not_covered_or_has_no_budget_promises_nothing_whatever_its_epsilon_would_be():
    unknown = {"rdp": None, "gdp_approximation": None, "epsilon_if_the_norm_were_public": 8.996}
    page = training(lambda: synthetic.promise(None, **unknown))
    for row in page.table("Table of training")[1:]:
        assert row[2:5] == ["nothing is promised 9 if its norm were public", "–", "–"]
    assert "the sum of their budgets" not in page.text
    page = training(lambda: NO_PROMISE)
    assert "nothing is promised to the images that they were trained on" in page.text
    assert "The cost of training for the tasks" not in page.text


def test_the_table_of_privacy_holds_the_promises_exactly():
    study, records = meta_learned()
    tables = {table.name: table for table in report.tables(synthetic.results(study, records))}
    rows = list(csv.DictReader(io.StringIO(tables["privacy"].csv)))
    assert [(row["protection"], row["learner"]) for row in rows] == [
        (spec, "meta") for spec in study["protections"]
    ]
    for row in rows:
        promised = {"epsilon": "8.996", "delta": "1e-05", "rdp": "9.8712", "gdp_approximation": "8.1234"}
        promised |= {"clipping": "fixed", "not_covered": "those who use the model; floating point"}
        assert row.items() >= promised.items()
    assert "privacy" not in tables["accuracy"].names
    steps = {
        (row["learner"], row["trained_steps"]) for row in csv.DictReader(io.StringIO(tables["accuracy"].csv))
    }
    assert steps == {("clean", ""), ("protected", ""), ("meta", "2000")}


def test_a_meta_learner_can_be_the_one_that_is_recommended():
    study, records = meta_learned(recommend={"reidentification_at_most": 1.0})
    for record in records:
        if record["cell"] == {"protection": "blur:radius=3", "learner": "meta", "seed": 0}:
            record["result"]["accuracy"] = 0.99
    best = synthetic.results(study, records).advice.setting
    assert best is not None
    assert (best.protection, best.learner) == ("blur:radius=3", "meta")
    assert "meta-learned on protected images" in synthetic.results(study, records).advice.lines[2]


@pytest.mark.parametrize(
    ("privacy", "problem"),
    [
        (None, "result has no promise under 'privacy'"),
        ({}, "result.privacy.promise is missing"),
        ({"promise": "eps = 9", "epsilon": 9.0}, "result.privacy: it has no 'clipping'"),
    ],
)
def test_a_record_of_a_meta_learner_without_its_promise_is_damaged(tmp_path, privacy, problem):
    made = synthetic.write_run(tmp_path / "run", *meta_learned(lambda: privacy))
    with pytest.raises(DataError, match=rf"a damaged record \({problem}\)"):
        report.load(made)


# Incomplete and other studies


def test_missing_records_are_counted_and_named():
    study = synthetic.study(**small())
    records = synthetic.typed(synthetic.records(study))
    gone = {"accuracy blur:radius=3 denoised 0", "attack blur:radius=1 reidentify-adaptive 0"}
    kept = [one for one in records if one.name not in gone]
    page = Page(report.render(Results(study, kept)))
    assert f"{len(records) - len(kept)} of {len(records)} measurements are missing." in page.text
    assert all(name in page.text for name in gone)


def _cell(record: dict[str, Any]) -> tuple[Any, ...]:
    cell = record["cell"]
    what = [cell[key] for key in ("learner", "attack", "view") if key in cell]
    return (cell["protection"], *what, cell["seed"])


def test_an_adversary_that_this_version_does_not_know_is_named_and_a_run_without_records_has_a_report():
    study = synthetic.study(**small())
    own = {"kind": "attack", "digest": "own", "cell": {"protection": "none", "seed": 0, "attack": "gram"}}
    page = page_of({**study, "cells": [*study["cells"], own]}, synthetic.records(study))
    assert "this report leaves out, since this version does not know them: gram." in page.text
    assert "measurements are missing" not in page.text
    page = page_of(synthetic.study(), [])
    assert "no attack is recorded" in page.text.lower()
    assert page.charts == {}


@pytest.mark.parametrize("kind", sorted({*kinds.KINDS} - synthetic.LEFT_OUT - {"inference", "checks"}))
def test_a_kind_of_record_alone_or_all_but_it_has_a_report(kind):
    specs = ["none", "dp-pix:cell=4,epsilon=3", "feature:noise=0,dimension=10", "answer"]
    study = synthetic.study_of_kinds(protections=specs)
    records = synthetic.records(study)
    assert kind in {one["kind"] for one in records}
    page_of(study, [one for one in records if one["kind"] == kind], draw=True)
    page_of(study, [one for one in records if one["kind"] != kind])


def test_without_a_secret_there_is_accuracy_and_no_risk_and_the_task_bounds_one_that_it_is():
    task = synthetic.study()["task"]
    page = rendered(**small(task={**task, "sensitive": None}, attacks=[]))
    assert {"id": "accuracy-title"} in page.all("h2")
    assert {"id": "risk-title"} not in page.all("h2")
    assert "names no secret" in page.text
    assert "strongest" not in page.text
    page = rendered(**small(task={**task, "target": "identity", "secret_is_task": True}))
    assert "bounds an adaptive adversary’s success from below" in page.text
    assert "No recommendation" in page.text


def test_a_naming_stands_beside_its_means_its_bits_and_how_sure_it_is():
    attack = synthetic.attack("blur:radius=1", "reidentify-adaptive", 0.3)
    attack["result"] |= {"others": 1915, "bits": [2.0, 3.0] * 250, "surest": [1, 1, 1, 0] + [0] * 496}
    attack["result"]["surest_of"] = [1] * 4 + [0] * 496
    study = synthetic.full_study(protections=["none", "blur:radius=1"])
    page = page_of(study, [synthetic.accuracy("blur:radius=1", "protected", 0.8), attack])
    header, *rows = page.table("Table of settings")
    cells = dict(zip(header, rows[-1], strict=True))
    assert cells["bits of identity"] == "2.50 2.46–2.54"
    assert cells["right of the surest 1%"].startswith("75.0% ")
    assert cells["releases until one in a million"] == "8"  # log2 of a million, 19.93, by 2.46 to 2.54
    assert "50 people, 20 known photographs of each, 1,915 others to learn from, 1 release" in page.text


def test_several_seeds_give_means_with_their_spread():
    page = rendered(**small(seeds=[0, 1, 2]))
    assert "lowest and highest of 3 seeds" in page.text
    assert "Numbers are means over 3 seeds" in page.text


def test_families_of_several_settings_have_charts_and_no_panel_has_a_single_point():
    study = synthetic.study(
        protections=[
            "none",
            "block",
            "mask:artefact=a.safetensors,keep=10",
            *(f"dp-pix:cell={cell},epsilon={epsilon}" for cell in (2, 4, 8) for epsilon in (1, 3)),
        ]
    )
    records = [synthetic.accuracy("none", "clean", 0.95), synthetic.attack("none", "reidentify-static", 0.6)]
    for number, spec in enumerate(study["protections"][1:]):
        records += [synthetic.accuracy(spec, name, 0.9 - 0.05 * number) for name in study["learners"]]
        records.append(synthetic.attack(spec, "reidentify-adaptive", 0.3 - 0.03 * number))
    page = page_of(study, records, draw=True)
    assert [words.partition(":")[0] for words in page.charts] == [
        *("Best accuracy against strongest re-identification", "DP-Pix")
    ]
    assert ">2, 1<" in page.drawn
    # What has no chart has its numbers in the table.
    rows = [row[0].replace(" ", "") for row in page.table("Table of accuracies")[1:]]
    assert rows == study["protections"]
    alone = [
        synthetic.accuracy("block", "denoised", 0.9),
        synthetic.attack("block", "reidentify-adaptive", 0.1),
    ]
    assert page_of(study, alone).charts == {}


def test_a_mask_is_called_by_the_name_of_its_file_in_charts_and_by_its_spec_in_tables():
    specs = [f"mask:artefact=runs/models/{name}-0.25.safetensors" for name in ("adversarial", "plain")]
    study = synthetic.study(protections=["none", *specs])
    records = [synthetic.accuracy(spec, "protected", 0.9) for spec in study["protections"][1:]]
    page = page_of(study, records, draw=True)
    assert ">adversarial-0.25<" in page.drawn
    assert any("90.0% at " in words for words in page.charts)
    rows = page.table("Table of settings")[1:]
    assert [row[0].replace(" ", "") for row in rows] == ["none", *specs]


def test_a_dollar_in_a_name_is_no_formula():
    study = synthetic.study(protections=["none", "mask:artefact=$a$,keep=1", "mask:artefact=$b_,keep=1"])
    records = [synthetic.accuracy(spec, "protected", 0.9) for spec in study["protections"][1:]]
    assert "$b_" in page_of(study, records, draw=True).drawn


# The tables


def test_the_tables_hold_the_numbers_of_the_records_exactly(directory, records):
    results = {_cell(one): one["result"] for one in records}
    for name, which in (("accuracy", "learner"), ("reidentification", "attack"), ("similarity", "view")):
        text = (directory / "tables" / f"{name}.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert len(rows) == sum(
            len(one["result"].get("scores", "1")) for one in records if which in one["cell"]
        )
        for row in rows:
            known = dict(results[row["protection"], row[which], int(row["seed"])])
            for score in known.get("scores", []):
                if score["classifier"] == row["classifier"]:
                    low, high = over_people(score["hits"], known["people"])
                    known |= {**score, "low": low, "high": high}
            known["guarantee"] = (known.get("guarantee") or {}).get("text")
            for key in row.keys() & known.keys():
                assert row[key] == ("" if known[key] is None else str(known[key])), key


def test_a_table_has_its_columns_in_their_order_none_that_no_record_fills_and_one_for_what_is_new():
    def columns(study: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
        return {one.name: one.names for one in report.tables(synthetic.results(study, records))}

    plain = synthetic.study(**small())
    records = synthetic.records(plain)
    made = columns(plain, records)
    rates = ("classifier", "top1", "low", "high", "top5", "top10", "chance")
    sizes = ("identities", "gallery", "probes", "faces_found", "verification_auc", "tar_at_far_1e-3")
    assert made["reidentification"] == ("protection", "attack", "seed", *rates, *sizes, "seconds")
    told = ("accuracy", "half_width", "episodes", "trained_episodes", "train_seconds", "operations")
    assert made["accuracy"] == ("protection", "learner", "seed", *told, "accuracy_1_shot", "seconds")
    of_classifiers = columns(*classified("classifier-clean"))["accuracy"]
    assert {"low", "high", "images", "chance", "trained_epochs"} <= set(of_classifiers) - set(
        made["accuracy"]
    )
    records[0]["result"]["colour"] = "green"
    assert "colour" in columns(plain, records)["accuracy"]


# Reading a run


@pytest.mark.parametrize("key", ["protections", "cells"])
def test_a_directory_that_is_no_run_or_lacks_what_the_report_needs_is_refused(tmp_path, study, key):
    with pytest.raises(DataError, match=r"study\.json: cannot be read .* give the directory of a study"):
        report.load(tmp_path)
    less = {name: value for name, value in study.items() if name != key}
    with pytest.raises(DataError, match=rf"study\.json: '{key}' is missing: run the study again"):
        report.load(synthetic.write_run(tmp_path / "run", less, []))


def damaged(kind: str, result: Any, **which: Any) -> str:
    cell = {"protection": "none", "seed": 0, **which}
    return json.dumps({"kind": kind, "cell": cell, "seconds": 1, "result": result})


LOOKS: dict[str, Any] = {"original": [], "released": [], "denoised": None}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"kind": "accuracy", "cell": {}}', "cell.protection is missing"),
        ('{"kind": "accuracy", "cell": {"protection": "none"}, "result": {}}', "cell.seed is missing"),
        (damaged("accuracy", {}, learner="clean"), "result.accuracy is missing"),
        (damaged("accuracy", {"accuracy": float("nan")}), "NaN is not a number"),
        (
            damaged("pictures", {**LOOKS, "original": ["https://a.org/a.png"]}),
            "a picture is not a PNG data: URI",
        ),
        (damaged("pictures", {**LOOKS, "denoised": ["a.png"]}), "a picture is not a PNG data: URI"),
        (damaged("tells", {}), "result.labels is missing"),
        (damaged("tells", {"labels": [0.5]}), "result.labels: Input should be a valid dictionary"),
        (damaged("tells", {"labels": {"smile": {"low": 0.5}}}), "result.labels.smile.accuracy is missing"),
        (
            damaged("tells", {"labels": {"smile": 0.5}}),
            "result.labels.smile: Input should be a valid dictionary",
        ),
        (
            damaged("accuracy", {"accuracy": 1, "half_width": 0, "episodes": 1}, model=""),
            "cell has no 'learner'",
        ),
    ],
)
def test_a_damaged_record_is_named(tmp_path, study, records, text, problem):
    directory = synthetic.write_run(tmp_path / "run", study, records[:2])
    (directory / "records" / "bad.json").write_text(text)
    with pytest.raises(DataError, match=f"bad.json: .*{re.escape(problem)}.*run the study again"):
        report.load(directory)


def test_two_records_of_one_cell_are_refused_and_one_of_an_earlier_version_of_the_study_passed_over(
    tmp_path, directory, study, records
):
    loaded = report.load(directory)
    assert (loaded.study, loaded.missing) == (study, [])
    assert loaded.records == synthetic.typed(records)
    newer = {**records[0], "digest": records[1]["digest"]}
    synthetic.write_run(tmp_path / "two", study, [records[0], newer])
    with pytest.raises(DataError, match=r"record the same cell: delete the one that is out of date"):
        report.load(tmp_path / "two")
    listed = [{key: newer[key] for key in ("digest", "kind", "cell")}]
    synthetic.write_run(tmp_path / "run", {**study, "cells": listed}, [records[0], newer])
    assert report.load(tmp_path / "run").records == synthetic.typed([newer])


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_named_with_the_cure(monkeypatch, name):
    for module in [module for module in sys.modules if module.startswith("sfumato.study.report.")]:
        if ".charts" in module or ".sections" in module or ".guarantees" in module:
            monkeypatch.delitem(sys.modules, module)
    for room in ("charts", "sections", "guarantees"):
        monkeypatch.delattr(f"sfumato.study.report.{room}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        MissingExtraError, match=rf"a report needs {name}: .*pip install -c constraints.txt -e '\.\[study\]'"
    ):
        report.render(Results(synthetic.study(), []))


def test_reading_and_recommending_need_neither_charts_nor_torch(directory):
    code = (
        "import sys; from sfumato.study import report; "
        "print(report.load(sys.argv[1]).advice.headline); "
        "print([name for name in ('jinja2', 'matplotlib', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, directory], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["recommended: dp-pix:cell=8,epsilon=3", "[]"]
