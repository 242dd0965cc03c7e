"""The page as annotators use it: a file that they open, answer by keys and by touch, and save."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
import torch
from campaigns import content_of

from sfumato import images
from sfumato.annotate import Campaign, CampaignConfig, Pair, create

pytestmark = chromium.MARKS

CLASSES = [f"animal {number:02d}" for number in range(24)]
READY = """
    const all = [...document.querySelectorAll('#pictures img')];
    return document.getElementById('finished').hidden === false
      || all.every(image => image.complete && image.naturalWidth && image.hasAttribute('width'));
"""


class Page:
    """A campaign, and a browser. Each test takes an annotator who has not begun."""

    def __init__(self, browser: Any, campaign: Campaign, downloads: Path) -> None:
        self.browser, self.campaign, self.downloads = browser, campaign, downloads
        self._fresh = iter(range(1, campaign.config.annotators + 1))

    def begin(self) -> "Page":
        self.annotator = next(self._fresh)
        self.asked = content_of(self.campaign, self.annotator)["items"]
        return self.open()

    def open(self, *, width: int = 1200) -> "Page":
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.go_to(self.browser, (self.campaign.path / f"annotator-{self.annotator}.html").as_uri())
        self.until(READY)
        return self

    def until(self, script: str) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.browser, 60, poll_frequency=0.02).until(lambda page: page.execute_script(script))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            self.until(READY)
            ActionChains(self.browser, duration=0).send_keys(key).perform()

    def text(self, name: str) -> str:
        found: str = self.browser.find_element("id", name).text
        return found

    def shown(self) -> list[str]:
        return [
            each.get_attribute("src") for each in self.browser.find_elements("css selector", "#pictures img")
        ]

    def save(self) -> list[str | None]:
        """Save, give the file back to the campaign, and read what the annotator answered, as asked."""
        name = f"annotator-{self.annotator}.json"
        (self.downloads / name).unlink(missing_ok=True)
        self.browser.find_element("id", "save").click()
        self.until("return document.getElementById('state').textContent == 'All in your saved file'")
        while not (self.downloads / name).exists():
            self.until("return true")
        content = (self.downloads / name).read_bytes()
        (self.campaign.path / "answers" / name).write_bytes(content)
        mine = Campaign(self.campaign.path).answers()[f"annotator {self.annotator}"]
        by_key = {one.item: one.answer for one in mine.values()}
        return [by_key[one["item"]] for one in self.asked if one["item"] in by_key]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> list[Pair]:
    """24 pairs of 24 classes, 32x32."""
    folder = tmp_path_factory.mktemp("images")
    generator = torch.Generator().manual_seed(0)
    made = []
    for number, name in enumerate(CLASSES):
        files = folder / f"{number}.png", folder / f"{number}-rebuilt.png"
        for file in files:
            images.write(file, torch.randint(0, 256, (3, 32, 32), generator=generator).to(torch.uint8))
        made.append(
            Pair(original=files[0], reconstruction=files[1], true_class=name, model="lenet", source="zoo")
        )
    return made


@pytest.fixture(scope="module")
def pages(pairs: list[Pair], tmp_path_factory) -> Iterator[dict[str, Page]]:
    folder = tmp_path_factory.mktemp("campaigns")
    downloads = folder / "downloads"
    with chromium.started(folder / "profile") as browser:
        allow = {"behavior": "allow", "downloadPath": str(downloads)}
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", allow)
        made = {}
        for task in ("choose", "same"):
            create(folder / task, pairs, CampaignConfig(task=task, annotators=12))
            made[task] = Page(browser, Campaign(folder / task), downloads)
        yield made


@pytest.fixture
def choose(pages: dict[str, Page]) -> Page:
    return pages["choose"].begin()


@pytest.fixture
def same(pages: dict[str, Page]) -> Page:
    return pages["same"].begin()


def test_digits_letters_and_space_answer_and_are_saved(choose: Page):
    first, second, third = (one["options"] for one in choose.asked[:3])
    choose.press("1", "0", "j", " ")
    assert choose.text("progress") == "4 of 24 answered"
    assert choose.text("state") == "4 not in a saved file yet"
    assert choose.save() == [first[0], second[9], third[19], "cannot tell"]
    keys = [key.text for key in choose.browser.find_elements("css selector", "#options kbd")]
    assert "".join(keys) == "1234567890ABCDEFGHIJ"
    assert (choose.text("cannot-tell"), choose.text("undo")) == ("Space\nCannot tell", "U\n⌫\nUndo")


def test_a_reload_goes_on_where_it_stopped_and_loses_nothing(choose: Page):
    choose.press("1", "2", "3")
    before = choose.shown()
    choose.open()
    assert (choose.shown(), choose.text("progress")) == (before, "3 of 24 answered")
    choose.press("4")
    assert choose.save() == [one["options"][place] for place, one in enumerate(choose.asked[:4])]


@pytest.mark.parametrize("key", ["u", "\ue003"], ids=["u", "backspace"])
def test_a_key_takes_the_last_answer_back_also_after_a_reload_and_a_save(choose: Page, key: str):
    before = choose.shown()
    choose.press("1")
    assert len(choose.save()) == 1
    choose.open()
    choose.press(key)
    assert choose.shown() == before
    assert choose.text("progress") == "0 of 24 answered"
    assert choose.text("state") == "1 not in a saved file yet"
    choose.press("2")
    assert choose.save() == [choose.asked[0]["options"][1]]


def test_two_windows_never_lose_an_answer_of_each_other(choose: Page):
    first = choose.browser.current_window_handle
    choose.browser.switch_to.new_window("tab")
    choose.open()
    choose.press("1", "2")
    choose.browser.switch_to.window(first)
    choose.until("return document.getElementById('progress').textContent == '2 of 24 answered'")
    choose.press("3")
    choose.browser.switch_to.window(choose.browser.window_handles[1])
    choose.until("return document.getElementById('progress').textContent == '3 of 24 answered'")
    choose.browser.close()
    choose.browser.switch_to.window(first)
    assert len(choose.save()) == 3


def test_side_by_side_the_first_letters_answer_until_all_is_done(same: Page):
    assert len(same.shown()) == 2
    count = len(same.asked)
    same.press("s", "d", " ", *"s" * (count - 3))
    assert same.text("progress") == f"{count} of {count} answered"
    assert same.text("finished").startswith("All done, thank you\nEvery question has your answer. Save")
    assert same.save() == ["same", "different", "cannot tell", *["same"] * (count - 3)]


def test_a_finger_answers_on_a_narrow_page_that_never_scrolls_sideways(choose: Page):
    for width in (320, 360):
        choose.open(width=width)
        assert choose.browser.execute_script("return document.documentElement.scrollWidth") <= width
    boxes = choose.browser.execute_script(
        "return [...document.querySelectorAll('main button')].map(b => b.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 21
    assert min(min(box["height"], box["width"]) for box in boxes) >= 44  # WCAG 2.2, 2.5.5
    choose.browser.find_elements("css selector", "#options button")[2].click()
    assert choose.save() == [choose.asked[0]["options"][2]]


def test_pictures_are_enlarged_a_whole_number_of_times_unsmoothed_and_colours_follow_the_preference(same):
    sizes = same.browser.execute_script(
        "return [...document.querySelectorAll('#pictures img')].map(i => "
        "[i.naturalWidth, i.getBoundingClientRect().width, i.getBoundingClientRect().height,"
        " getComputedStyle(i).imageRendering])"
    )
    assert sizes == [[32, 352, 352, "pixelated"]] * 2
    colours = []
    for scheme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        same.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        colour = same.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        colours.append(sum(map(int, re.findall(r"\d+", colour))))
    assert colours[0] > 700 > 100 > colours[1]


def test_nothing_is_asked_of_any_host_and_nothing_is_complained_of(same: Page):
    same.browser.get_log("performance")
    same.browser.get_log("browser")
    same.open()
    same.press("s")
    same.save()
    asked = [
        message["params"]["request"]["url"]
        for entry in same.browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    assert {url.partition(":")[0] for url in asked} <= {"about", "file", "data", "blob"}
    assert sum(url.startswith("file:") for url in asked) == 1
    assert same.browser.get_log("browser") == []


def test_a_browser_that_keeps_nothing_says_so(same: Page):
    same.browser.execute_script("Storage.prototype.setItem = () => { throw new Error('full'); }")
    same.press("s")
    assert same.text("notice").startswith("This browser keeps no answers for this page: save them as a file")
    assert same.save() == ["same"]
