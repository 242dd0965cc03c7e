"""The page on which people label, while its server is killed: two browsers, of two people and of one."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import chromium
import torch
from harness import LeftOut, Trial, scenario
from service import command

from sfumato import images
from sfumato.annotate import CampaignConfig, Pair, Store, create

ANSWERED = "return document.getElementById('progress').textContent"
READY = """
    const all = [...document.querySelectorAll('#pictures img')];
    return document.getElementById('finished').hidden === false
      || all.length && all.every(image => image.complete && image.naturalWidth);
"""
SAVED = "return document.getElementById('saving').textContent == 'All saved'"


def campaign(folder: Path, count: int) -> Path:
    """Pairs of noise to compare, by two annotators."""
    generator, pairs = torch.Generator().manual_seed(0), []
    for number in range(count):
        files = folder / f"{number}.png", folder / f"{number}-rebuilt.png"
        for file in files:
            images.write(file, torch.randint(0, 256, (3, 32, 32), generator=generator).to(torch.uint8))
        pairs.append(Pair(original=files[0], reconstruction=files[1], true_class="a", model="m", source="s"))
    create(folder / "campaign.db", pairs, CampaignConfig(task="same", annotators=2, decoys=0.0))
    return folder / "campaign.db"


class Page:
    """The server of a campaign. State: its process."""

    def __init__(self, path: Path) -> None:
        self._path, self.port = path, 0
        self.begin()

    def begin(self) -> None:
        """Start it, at the port that it had."""
        words = command("annotate", "serve", self._path, "--port", self.port)
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        for line in self._process.stdout:
            if line.startswith("status"):
                self.port = int(line.split(":")[3].partition("/")[0])
                return
        raise RuntimeError(f"the page ended with {self._process.wait()}")

    def kill(self) -> None:
        """With -9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def until(browser: Any, script: str) -> None:
    """Wait for a script to be true on the page."""
    end = time.monotonic() + 120
    while not browser.execute_script(script):
        if time.monotonic() > end:
            raise TimeoutError(f"the page never came to {script!r}")
        time.sleep(0.05)


@scenario(
    "A page for annotators",
    "two people label in two browsers, then one person in both; its server is killed with -9 in the middle",
    "every answer that was given is there once, and each page shows as many as are",
)
def labels(trial: Trial) -> None:
    if not Path("/usr/bin/chromedriver").exists():
        raise LeftOut("chromium is not installed")
    count = trial.size(16)
    path = campaign(trial.folder, 2 * count)
    page = Page(path)
    with (
        chromium.started(trial.folder / "one") as first,
        chromium.started(trial.folder / "two") as second,
        Store(path) as store,
    ):
        try:
            tokens = [each.token for each in store.annotators()]
            _label(trial, page, [(first, tokens[0]), (second, tokens[1])], count)
            trial.check(_kept(store) == [count, count], f"{_kept(store)} answers of {count} each are kept")
            _label(trial, page, [(first, tokens[0]), (second, tokens[0])], count // 2)
            own = len([each for each in store.history() if each.annotator == store.annotators()[0].name])
            trial.check(
                own == 2 * count, f"one person in two browsers: {own} answers of {2 * count} are kept"
            )
            for browser in (first, second):
                browser.refresh()
                until(browser, READY)
                said = browser.execute_script(ANSWERED)
                trial.check(said == f"{_kept(store)[0]} of {2 * count} answered", f"the page says {said!r}")
            trial.figures["answers"] = len(store.history())
        finally:
            page.kill()


def _kept(store: Store) -> list[int]:
    return [each.answered for each in store.annotators()]


def _label(trial: Trial, page: Page, browsers: list[tuple[Any, str]], count: int) -> None:
    """Answer by keys in turns, and kill the server twice in between."""
    from selenium.webdriver.common.action_chains import ActionChains

    for browser, token in browsers:
        chromium.go_to(browser, f"http://127.0.0.1:{page.port}/a/{token}")
    for number in range(count):
        down = number in (count // 3, 2 * count // 3)
        if down:
            page.kill()
            trial.count("kills")
        for browser, _ in browsers:
            until(browser, READY)
            ActionChains(browser, duration=0).send_keys(trial.dice.choice("sd")).perform()
        if down:
            page.begin()
        for browser, _ in browsers:
            until(browser, SAVED)
