"""Debian's Chromium, for the tests that look at pages as a user does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_BROWSER, _DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
_FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No process is made ready for a page that may come, and no page is kept for a way back to it.
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache",
]
_SECONDS = 60

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (_BROWSER.exists() and _DRIVER.exists()), reason="needs Debian's chromium and chromium-driver"
    ),
]


@contextmanager
def started(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own, which keeps a log of its console and of what it asked for."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(_BROWSER)
    for flag in [*_FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(_DRIVER)))
    driver.set_script_timeout(_SECONDS)
    driver.set_page_load_timeout(_SECONDS / 3)  # soon enough to ask again
    _get(driver, "about:blank")
    driver.get_log("performance")  # what the browser's own start page asked for
    try:
        yield driver
    finally:
        driver.quit()


def go_to(browser: Any, address: str) -> None:
    """Open a page, and wait until all of it is there: `get` may come back before it has been read."""
    from selenium.webdriver.support.wait import WebDriverWait

    browser.execute_script("window.left = true")  # or the page before, which is whole, could be taken for it
    _get(browser, address)
    loaded = "return !window.left && document.readyState == 'complete'"
    WebDriverWait(browser, _SECONDS).until(lambda page: page.execute_script(loaded))


def _get(browser: Any, address: str) -> None:
    """Go there, again where the driver lost the browser's answer, as it may on a busy machine."""
    from selenium.common.exceptions import TimeoutException

    for last in (False, False, True):
        try:
            browser.get(address)
            return
        except TimeoutException:
            if last:
                raise
