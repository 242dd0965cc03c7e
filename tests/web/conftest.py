"""The page as it is built from its sources, in Chromium and under node, for all tests of it."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chromium
import pytest
import torch
from torch import Tensor

from sfumato import images, wire
from sfumato.wire import labelled

Ask = Callable[[list[dict[str, Any]]], list[Any]]

WEB = Path(__file__).parents[2] / "web"
TOOLS = WEB / "node_modules" / ".bin"

KEY = "the-key-of-the-user"
SECONDS = 30


def run(*command: str | Path) -> None:
    """In the folder of the page; what a tool says is shown where it fails."""
    done = subprocess.run(list(map(str, command)), cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def needs_tools() -> None:
    if not (shutil.which("node") and TOOLS.exists()):
        pytest.skip("needs node and the page's tools: npm ci --prefix web")


@dataclass
class Page:
    """The page in a browser.

    Attributes:
        cloud: its server: `models` are what it offers, and `sent(end)` what it was sent to such addresses.
        folder: for pictures to choose.
    """

    browser: Any
    address: str
    cloud: Any
    folder: Path

    def open(self, *, width: int = 1200, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        chromium.go_to(self.browser, self.address)
        self.until("return !document.getElementById('main').hidden")

    def connect(self, model: dict[str, Any], *, key: str = KEY) -> None:
        self.cloud.models = [model]
        self.open()
        self.write("key", key)
        self.submit("connect")
        self.until("return !document.getElementById('connected').hidden")
        self.reads("spec", model["spec"])

    def until(self, script: str) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        wait = WebDriverWait(self.browser, SECONDS, poll_frequency=0.02)
        wait.until(lambda page: page.execute_script(script))

    def reads(self, name: str, begin: str) -> None:
        """Wait until a part of the page begins with these words."""
        self.until(f"return document.getElementById('{name}').textContent.startsWith({json.dumps(begin)})")

    def refuses(self, begin: str) -> None:
        """Wait until the page says a problem, which begins with these words."""
        self.until("return !document.getElementById('problem').hidden")
        assert self.text("problem").startswith(begin)

    def find(self, name: str) -> Any:
        return self.browser.find_element("id", name)

    def write(self, name: str, text: str) -> None:
        self.find(name).clear()
        self.find(name).send_keys(text)

    def submit(self, name: str) -> None:
        self.browser.find_element("css selector", f"#{name} button").click()

    def text(self, name: str) -> str:
        found: str = self.find(name).get_property("textContent")
        return found

    def choose(self, batch: Tensor) -> None:
        """Pick images as PNG files."""
        before = self.count("#pictures > li")
        paths = []
        for image in batch:
            paths.append(self.folder / f"{len(list(self.folder.iterdir()))}.png")
            images.write(paths[-1], image)
        self.pick(paths, before + len(batch))

    def pick(self, paths: list[Path], listed: int) -> None:
        """Pick files, and wait until as many pictures are listed."""
        self.find("files").send_keys("\n".join(map(str, paths)))
        self.until(f"return document.querySelectorAll('#pictures > li').length == {listed}")

    def export(self, artefact: Path) -> None:
        """Pick what was exported of an artefact."""
        self.find("exported").send_keys(str(artefact.with_suffix(".onnx")))
        self.reads("guarantee", "nothing is proved about its pixels")

    def count(self, selector: str) -> int:
        return len(self.browser.find_elements("css selector", selector))

    def status(self, begin: str) -> None:
        self.reads("status", begin)

    def enrol(self, label: str) -> bytes:
        """The release that was sent."""
        self.write("label", label)
        self.submit("enrol")
        self.status(f"{label}: ")
        return labelled.split(self.cloud.sent("/examples")[-1])[1]

    def release(self, label: str = "a hat") -> Any:
        """The release that was sent, decoded."""
        return wire.decode(self.enrol(label), most_images=64, most_pixels=100_000)

    def confirm(self, selector: str) -> None:
        """Click a button, and agree."""
        self.browser.find_element("css selector", selector).click()
        self.browser.switch_to.alert.accept()

    @contextmanager
    def changed(self, script: str) -> Iterator[None]:
        """A browser in which this script runs before a page's own."""
        added = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        yield
        self.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def accept(self) -> None:
        """Agree to what the server demands now."""
        self.until("return !document.getElementById('changed').hidden")
        self.find("accept").click()
        self.until("return document.getElementById('changed').hidden")

    def slide(self, key: str, *, by: int) -> None:
        """Move a slider by one step with the keyboard."""
        from selenium.webdriver.common.keys import Keys

        before = self.text("spec")
        self.find(f"slider-{key}").send_keys(Keys.ARROW_RIGHT if by > 0 else Keys.ARROW_LEFT)
        self.until(f"return document.getElementById('spec').textContent != {json.dumps(before)}")
        self.browser.execute_async_script("const done = arguments[0]; setTimeout(done, 200)")

    def canvas(self, index: int) -> Tensor:
        """The pixels on the page: original and protected of each picture in turn. (4, H, W)"""
        found = self.browser.execute_script(
            """
            const canvas = document.querySelectorAll('#pictures canvas')[arguments[0]];
            const { width, height } = canvas;
            return [width, height, [...canvas.getContext('2d').getImageData(0, 0, width, height).data]];
            """,
            index,
        )
        width, height, data = found
        return torch.tensor(data, dtype=torch.uint8).view(height, width, 4).permute(2, 0, 1)


@pytest.fixture(scope="session")
def browser(tmp_path_factory) -> Iterator[Any]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[[str, Any], Page]]:
    """Makes a page of an address and its server. An address that is new has an empty ledger."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    browser.get_log("browser")
    browser.get_log("performance")
    yield lambda address, cloud: Page(browser, address, cloud, folder)
    browser.get("about:blank")  # or what the page still asks for would be asked of a server that is gone


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder that a server serves."""
    needs_tools()
    folder = tmp_path_factory.mktemp("web") / "site"
    run(TOOLS / "vite", "build", "--logLevel", "error", "--outDir", folder)
    return folder


@pytest.fixture(scope="session")
def ask(tmp_path_factory) -> Ask:
    """What the page's modules answer to vectors, under node."""
    needs_tools()
    folder = tmp_path_factory.mktemp("vectors")
    run(TOOLS / "rolldown", WEB / "vectors.ts", "--file", folder / "bundle.mjs", "--platform", "node")

    def asked(vectors: list[dict[str, Any]]) -> list[Any]:
        (folder / "vectors.json").write_text(json.dumps(vectors))
        run("node", folder / "bundle.mjs", folder / "vectors.json", folder / "answers.json")
        answers: list[Any] = json.loads((folder / "answers.json").read_text())
        return answers

    return asked
