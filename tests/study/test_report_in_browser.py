"""The report as a browser shows it: on a telephone, on paper, and without a network."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
import synthetic

from sfumato.study import report

pytestmark = chromium.MARKS

RESULTS = Path(__file__).parents[2] / "studies" / "results"


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    study = synthetic.full_study()
    directory = tmp_path_factory.mktemp("runs") / "synthetic"
    synthetic.write_run(directory, study, synthetic.records(study))
    return report.write(directory).as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module", params=[360, 1200], ids=["telephone", "desk"])
def wide(request) -> int:
    """Of the module, so that the tests of one width stand together."""
    return request.param


@pytest.fixture
def width(browser, address, wide) -> int:
    """The report is open at this width, as the test before left it."""
    shown = browser.execute_script("return [location.href, window.innerWidth]")
    if shown != [address, wide]:
        open_at(browser, wide, address)
    return wide


def open_at(browser: Any, width: int, address: str) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.go_to(browser, address)


def test_nothing_but_the_file_is_asked_for_and_the_console_stays_empty(browser, width, address):
    open_at(browser, width, address)
    asked = [
        message["params"]["request"]["url"]
        for entry in browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert browser.get_log("browser") == []


def test_every_image_is_decoded_and_drawn_without_smoothing(browser, width):
    images = browser.execute_script(
        "return [...document.querySelectorAll('img.picture')]"
        ".map(i => [i.naturalWidth, getComputedStyle(i).imageRendering])"
    )
    assert len(images) == 3 * (13 + 12) + 2 * 6
    assert all(natural > 0 and rendering == "pixelated" for natural, rendering in images)
    assert browser.execute_script("return [...document.images].every(i => i.naturalWidth > 0)")


def test_every_chart_and_the_recommended_setting_are_visible_and_the_page_never_scrolls_sideways(
    browser, width
):
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return window.innerWidth") == width
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('img.chart')].map(s => s.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 1 + 4
    for box in boxes:
        assert box["width"] > 80
        assert box["height"] > 60
        assert 0 <= box["left"] < box["right"] <= width
    shown = browser.find_element("id", "recommended")
    assert shown.is_displayed()
    assert shown.text == "dp-pix:cell=8,epsilon=3"
    assert len(browser.find_elements("css selector", "tr.chosen")) == 1


def test_no_label_of_a_chart_leaves_it_or_covers_another(browser, width):
    charts = browser.execute_script(
        "return [...document.querySelectorAll('img.chart')].map(image => {"
        " const svg = new DOMParser().parseFromString(atob(image.src.split(',')[1]), 'image/svg+xml');"
        " const s = document.body.appendChild(document.importNode(svg.documentElement, true));"
        " const texts = [...s.querySelectorAll('text')]"
        ".map(t => [t.textContent, t.getBoundingClientRect().toJSON()]);"
        " const boxes = [s.getBoundingClientRect().toJSON(), texts]; s.remove(); return boxes})"
    )
    assert all(texts for _, texts in charts)
    for chart, texts in charts:
        for word, box in texts:
            assert box["left"] > chart["left"] - 2, word
            assert box["right"] < chart["right"] + 2, word
        for number, (word, one) in enumerate(texts):
            for other_word, other in texts[:number]:
                across = min(one["right"], other["right"]) - max(one["left"], other["left"])
                down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                # Boxes of text include room above and below the letters.
                assert across < 1 or down < 0.35 * one["height"], (word, other_word)


def test_a_table_that_is_too_wide_scrolls_in_its_own_frame_and_the_names_of_rows_stay(browser, width):
    table, frame, left = browser.execute_script(
        "const f = document.querySelector('[aria-label=\"Table of re-identification\"]');"
        " const sizes = [f.scrollWidth, f.getBoundingClientRect().width]; f.scrollLeft = 200;"
        " return [...sizes, [...f.querySelectorAll('tbody th')].map(h => h.getBoundingClientRect().left"
        " - f.getBoundingClientRect().left)]"
    )
    assert frame <= width
    assert (table > frame) == (width < 500)
    assert len(left) == 13
    assert all(0 <= each < 2 for each in left)


def test_all_that_scrolls_or_opens_is_reached_by_the_keyboard(browser, width):
    unreachable = browser.execute_script(
        "return [...document.querySelectorAll('*')].filter(e => getComputedStyle(e).overflowX == 'auto'"
        " && e.tabIndex < 0).length"
    )
    assert unreachable == 0
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_settings_that_name_files_leave_the_adversaries_of_their_table_in_sight(browser, tmp_path):
    specs = [f"mask:artefact=runs/masks/photographs/models/gender-2/{name}.safetensors" for name in "ab"]
    specs = [*specs, f"{specs[0]},values=shape"]
    study = synthetic.study(protections=["none", *specs])
    records = [synthetic.accuracy(spec, "protected", 0.9) for spec in specs]
    records += [synthetic.attack(spec, "reidentify-adaptive", 0.2) for spec in specs]
    synthetic.write_run(tmp_path / "masks", study, records)
    open_at(browser, 1200, report.write(tmp_path / "masks").as_uri())
    column, frame = browser.execute_script(
        "const f = document.querySelector('[aria-label=\"Table of settings\"]');"
        "const seen = [...f.querySelectorAll('th')].find(each => each.innerText.trim() == 'adversary');"
        "return [seen.getBoundingClientRect().right, f.getBoundingClientRect().right]"
    )
    assert column <= frame


@pytest.fixture(scope="module")
def printable(address, tmp_path_factory) -> dict[str, str]:
    """The addresses of reports."""
    root, study = tmp_path_factory.mktemp("printable"), synthetic.study_of_kinds()
    synthetic.write_run(root / "kinds", study, synthetic.records(study))
    runs = {"kinds": root / "kinds", "demo": shutil.copy(RESULTS / "demo.jsonl", root)}
    return {"full": address, **{name: report.write(each).as_uri() for name, each in runs.items()}}


@pytest.mark.parametrize("width", [360, 1200], ids=["telephone", "desk"])
def test_a_page_of_everything_that_leaves_a_device_never_scrolls_sideways(browser, printable, width):
    open_at(browser, width, printable["kinds"])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("paper", [182, 188], ids=["A4", "Letter"])  # millimetres within the margins
@pytest.mark.parametrize("name", ["full", "kinds", "demo"])
def test_no_table_is_cut_on_paper(browser, printable, name, paper):
    width = round(paper / 25.4 * 96)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        open_at(browser, width, printable[name])
        cut = browser.execute_script(
            "return [...document.querySelectorAll('table, figure, p, dl')]"
            ".filter(e => e.getBoundingClientRect().right > document.body.clientWidth + 1)"
            ".map(e => (e.parentElement.getAttribute('aria-label') || e.tagName))"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert cut == []


def test_it_prints_to_a_pdf_of_a_few_pages(browser, address):
    chromium.go_to(browser, address)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    assert 3 <= pdf.count(b"/Type /Page\n") <= 14
