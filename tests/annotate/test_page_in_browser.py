"""The page as annotators use it: by keys and by touch, in two windows, and while the server is down."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import chromium
import pytest
import torch

from sfumato import images
from sfumato.annotate import CampaignConfig, Pair, Store, create
from sfumato.annotate.app import create as application
from sfumato.base.server import listen, running

pytestmark = chromium.MARKS

SECONDS = 60  # what takes longer hangs
CLASSES = [f"animal {number:02d}" for number in range(24)]
SERVE = "from sfumato.cli.annotate import app; app()"


def served(path: Path, port: int = 0) -> AbstractContextManager[str]:
    """The address of a campaign, as long as the block lasts."""
    return running(application(path), port)


class Page:
    """A campaign, its address, and a browser. Each test takes an annotator who has not begun."""

    def __init__(self, browser: Any, store: Store, address: str) -> None:
        self.browser, self.store, self.address = browser, store, address
        self._fresh = iter(store.annotators())
        self.annotator = 0
        self.link = ""

    def begin(self) -> None:
        one = next(self._fresh)
        self.annotator, self.link = one.id, f"{self.address}/a/{one.token}"
        self.open()

    def open(self, *, width: int = 1200) -> None:
        open_at(self.browser, self.link, width=width)
        until(self.browser, READY)

    def press(self, *keys: str) -> None:
        for key in keys:
            press(self.browser, key)

    def answers(self) -> list[str | None]:
        name = f"annotator {self.annotator}"
        return [given.answer for given in self.store.history() if given.annotator == name]

    def upcoming(self, count: int) -> list[tuple[str, ...]]:
        return [question.options for question in self.store.upcoming(self.annotator, count=count)]


READY = """
    const all = [...document.querySelectorAll('#pictures img')];
    return document.getElementById('finished').hidden === false
      || document.getElementById('asking').hidden === false
      && all.every(image => image.complete && image.naturalWidth && image.hasAttribute('width'));
"""
SAVED = "return document.getElementById('saving').textContent == 'All saved'"


def until(browser: Any, script: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, SECONDS, poll_frequency=0.02).until(lambda page: page.execute_script(script))


def strike(browser: Any, key: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    until(browser, READY)
    ActionChains(browser, duration=0).send_keys(key).perform()


def press(browser: Any, key: str) -> None:
    strike(browser, key)
    until(browser, SAVED)


def text(browser: Any, name: str) -> str:
    found: str = browser.execute_script("return document.getElementById(arguments[0]).textContent", name)
    return found


def shown(browser: Any) -> list[str]:
    """The addresses of the pictures on the page."""
    until(browser, READY)
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('#pictures img')].map(image => image.src)"
    )
    return found


def open_at(browser: Any, address: str, *, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.go_to(browser, address)


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> Callable[..., Path]:
    """Writes a campaign of 24 pairs of 24 classes, 32x32, for 24 annotators."""
    folder = tmp_path_factory.mktemp("campaigns")
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for number, name in enumerate(CLASSES):
        files = folder / f"{number}.png", folder / f"{number}-rebuilt.png"
        for file in files:
            images.write(file, torch.randint(0, 256, (3, 32, 32), generator=generator).to(torch.uint8))
        pairs.append(
            Pair(original=files[0], reconstruction=files[1], true_class=name, model="lenet", source="zoo")
        )

    def write(name: str, task: str) -> Path:
        create(folder / name, pairs, CampaignConfig(task=task, annotators=24))
        return folder / name

    return write


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def chosen(browser: Any, new: Callable[..., Path]) -> Iterator[Page]:
    path = new("choose.db", "choose")
    with served(path) as address, Store(path) as store:
        yield Page(browser, store, address)


@pytest.fixture(scope="module")
def compared(browser: Any, new: Callable[..., Path]) -> Iterator[Page]:
    path = new("same.db", "same")
    with served(path) as address, Store(path) as store:
        yield Page(browser, store, address)


@pytest.fixture
def choose(chosen: Page) -> Page:
    chosen.begin()
    return chosen


@pytest.fixture
def same(compared: Page) -> Page:
    compared.begin()
    return compared


def test_digits_letters_and_space_answer(choose: Page):
    first, second, third, _ = choose.upcoming(4)
    choose.press("1", "0", "j", " ")
    assert choose.answers() == [first[0], second[9], third[19], "cannot tell"]
    assert text(choose.browser, "progress") == "4 of 24 answered"


def test_keys_are_shown_on_the_buttons(choose: Page):
    keys = [key.text for key in choose.browser.find_elements("css selector", "#options kbd")]
    assert "".join(keys) == "1234567890ABCDEFGHIJ"
    assert choose.browser.find_element("id", "cannot-tell").text == "Space\nCannot tell"
    assert choose.browser.find_element("id", "undo").text == "U\n⌫\nUndo"


@pytest.mark.parametrize("key", ["u", "\ue003"], ids=["u", "backspace"])
def test_a_key_takes_the_last_answer_back_and_shows_its_question(choose: Page, key: str):
    before = shown(choose.browser)
    choose.press("1", key)
    assert shown(choose.browser) == before
    assert text(choose.browser, "progress") == "0 of 24 answered"
    assert choose.answers()[-1] is None


def test_an_answer_from_before_a_reload_can_be_undone(choose: Page):
    before = shown(choose.browser)
    choose.press("1")
    choose.open()
    choose.press("u")
    assert shown(choose.browser) == before


def test_a_reload_goes_on_where_it_stopped(choose: Page):
    choose.press("1", "2", "3")
    before = shown(choose.browser)
    choose.open()
    assert shown(choose.browser) == before
    assert text(choose.browser, "progress") == "3 of 24 answered"


def test_side_by_side_the_first_letters_answer(same: Page):
    assert len(shown(same.browser)) == 2
    same.press("s", "d", " ")
    assert same.answers() == ["same", "different", "cannot tell"]


def test_a_finger_answers(choose: Page):
    (first,) = choose.upcoming(1)
    choose.open(width=360)
    choose.browser.find_elements("css selector", "#options button")[2].click()
    until(choose.browser, SAVED)
    assert choose.answers() == [first[2]]


def test_when_all_is_answered_the_page_says_so(same: Page):
    count = len(same.upcoming(100))
    same.press(*"sd" * (count // 2))
    assert text(same.browser, "progress") == f"{count} of {count} answered"
    assert same.browser.find_element("id", "finished").is_displayed()
    same.press("u")
    assert same.browser.find_element("id", "asking").is_displayed()


def test_space_on_a_button_presses_that_button_and_the_question_is_read_next(choose: Page):
    (first,) = choose.upcoming(1)
    choose.browser.execute_script("document.querySelectorAll('#options button')[4].focus()")
    choose.press(" ")
    assert choose.answers() == [first[4]]
    assert choose.browser.switch_to.active_element.get_attribute("id") == "question"


def test_keys_can_be_turned_off(choose: Page):
    choose.browser.find_element("id", "keys").click()
    choose.press("1", "u")
    assert choose.answers() == []
    assert not choose.browser.find_element("css selector", "#options kbd").is_displayed()


def test_everything_that_answers_has_a_name_and_progress_is_announced(same: Page):
    nodes = same.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and "role" in node
    ]
    buttons = [name for role, name in found if role == "button"]
    assert sorted(buttons) == ["Cannot tell", "Different", "Same", "Undo"]
    assert [name for role, name in found if role == "image"] == [
        "Original to judge",
        "Reconstruction to judge",
    ]
    assert ("checkbox", "Answer with keys") in found
    assert ("group", "Do both pictures show the same?") in found
    assert "status" in [role for role, _ in found]


def test_pictures_are_enlarged_a_whole_number_of_times_without_smoothing(same: Page):
    sizes = same.browser.execute_script(
        "return [...document.querySelectorAll('#pictures img')].map(i => "
        "[i.naturalWidth, i.getBoundingClientRect().width, i.getBoundingClientRect().height,"
        " getComputedStyle(i).imageRendering])"
    )
    assert sizes == [[32, 352, 352, "pixelated"]] * 2


@pytest.mark.parametrize("width", [320, 360])
def test_no_page_scrolls_sideways(choose: Page, width: int):
    link, status = choose.link, f"{choose.address}/status/{choose.store.token}"
    for address in (link, status, f"{link}x"):
        open_at(choose.browser, address, width=width)
        if address == link:
            until(choose.browser, READY)
        assert choose.browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_buttons_are_large_enough_for_a_finger(choose: Page):
    choose.open(width=360)
    boxes = choose.browser.execute_script(
        "return [...document.querySelectorAll('main button')].map(b => b.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 21
    assert min(min(box["height"], box["width"]) for box in boxes) >= 44  # WCAG 2.2, 2.5.5


def test_colours_follow_the_preference(choose: Page):
    colours = []
    for scheme in ("light", "dark"):
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        choose.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
        colour = choose.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        colours.append(sum(map(int, re.findall(r"\d+", colour))))
    assert colours[0] > 700 > 100 > colours[1]


def test_no_request_leaves_the_host_and_no_name_tells_anything(same: Page):
    same.browser.get_log("performance")
    same.browser.get_log("browser")
    same.open()
    same.press("s")
    open_at(same.browser, f"{same.address}/status/{same.store.token}", width=1200)
    asked = [
        message["params"]["request"]["url"]
        for entry in same.browser.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    ]
    elsewhere = [url for url in asked if not url.startswith((same.address + "/", "about:"))]
    assert len(asked) > 10
    assert elsewhere == []
    pictures = [url for url in asked if "/images/" in url]
    # A random name of 32 letters, and nothing before or behind it.
    assert all(re.fullmatch(re.escape(same.address) + r"/images/[\w-]{32}", url) for url in pictures)
    assert same.browser.get_log("browser") == []


def test_a_second_browser_sees_the_same_question_and_is_told_what_it_replaced(choose: Page, tmp_path: Path):
    (options,) = choose.upcoming(1)
    with chromium.started(tmp_path / "profile") as other:
        open_at(other, choose.link, width=1200)
        assert shown(other) == shown(choose.browser)
        choose.press("1")
        press(other, "2")
        assert text(other, "notice") == (
            f"Another window had answered “{options[0]}” here. "
            f"Your last answer, “{options[1]}”, is the one that counts."
        )
        assert choose.answers() == [options[0], options[1]]
        assert text(other, "progress") == "1 of 24 answered"


@contextmanager
def process(store: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SERVE, "serve", str(store), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("status"):
                break
        try:
            yield running
        finally:
            running.kill()


def test_a_server_that_is_killed_loses_nothing(browser: Any, new: Callable[..., Path]):
    path = new("killed.db", "choose")
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    with Store(path) as store:
        page = Page(browser, store, f"http://127.0.0.1:{port}")
        with process(path, port) as running:
            page.begin()
            first, second, third, fourth = page.upcoming(4)
            page.press("1", "2")
            os.kill(running.pid, signal.SIGKILL)
            running.wait()
            assert page.answers() == [first[0], second[1]]
        strike(browser, "3")
        until(browser, "return document.getElementById('saving').textContent == '1 not yet saved'")
        strike(browser, "4")
        until(browser, "return document.getElementById('saving').textContent == '2 not yet saved'")
        with served(path, port):
            browser.get("about:blank")  # also when the page was closed meanwhile
            page.open()
            until(browser, SAVED)
            assert page.answers() == [first[0], second[1], third[2], fourth[3]]
            assert text(browser, "progress") == "4 of 24 answered"
