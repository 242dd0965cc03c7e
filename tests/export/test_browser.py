"""Exported files in a browser, on onnxruntime's WebAssembly: the release that PyTorch makes.

onnxruntime-web is installed beside the virtual environment's libraries, as tests/export/browser pins it:

    mkdir -p .venv/browser && cp tests/export/browser/package*.json .venv/browser/
    npm ci --prefix .venv/browser --ignore-scripts --no-audit --no-fund
"""

import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import chromium
import pytest
import torch
from devices import SHAPE, pictures, write_code, write_feature, write_mask

from sfumato.dp.mechanisms import seeded_noise
from sfumato.export.export import export
from sfumato.export.sides import MOST_CODES, MOST_NUMBERS
from sfumato.protect.code import Code, signs
from sfumato.protect.feature import Feature
from sfumato.protect.mask import Mask

RUNTIME = Path(sys.prefix) / "browser" / "node_modules" / "onnxruntime-web" / "dist"
PAGE = Path(__file__).with_name("browser") / "page.html"
pytestmark = [
    *chromium.MARKS,
    pytest.mark.skipif(not RUNTIME.exists(), reason="needs onnxruntime-web: see the docstring"),
]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and prints nothing."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}
    extensions_map[".wasm"] = "application/wasm"

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A page, the runtime, three images, and an exported file of each kind."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PAGE, folder)
    (folder / "ort").symlink_to(RUNTIME)
    (folder / "images.bin").write_bytes(pictures(3).numpy().tobytes())
    write_feature(folder / "feature.safetensors")
    write_mask(folder / "mask.safetensors")
    write_code(folder / "bits.safetensors", bits=16)
    write_code(folder / "numbers.safetensors", side=16, numbers=6)
    for artefact in folder.glob("*.safetensors"):
        export(artefact, artefact.with_suffix(".onnx"), check=pictures(2, seed=1))
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/page.html"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def page(address: str, tmp_path_factory) -> Iterator[Any]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as driver:
        chromium.go_to(driver, address)
        yield driver


def released(page: Any, file: str) -> list[dict[str, list[float]]]:
    """What the page makes of the three images."""
    script = """
        const [file, shape, count, done] = arguments;
        window.run(file, shape, count).then(done, (error) => done(String(error)));
    """
    found = page.execute_async_script(script, file, list(SHAPE), 3)
    assert isinstance(found, list), found
    return found


def test_a_browser_shows_the_pixels_that_pytorch_does(page: Any, site: Path):
    found = released(page, "mask.onnx")
    expected = Mask(str(site / "mask.safetensors")).release(pictures(3), seeded_noise(0))
    shown = torch.tensor([each["shown"] for each in found]).bool().view_as(expected.shown)
    values = torch.tensor([each["values"] for each in found]).to(torch.uint8).view_as(expected.values)
    assert shown.sum((1, 2, 3)).tolist() == [90] * 3
    assert torch.equal(values, pictures(3) * shown)
    assert (shown != expected.shown).double().mean() < 0.01  # another order of sums, and near ties


@pytest.mark.parametrize(
    ("name", "output", "make", "most"),
    [
        ("feature", "feature", partial(Feature, noise=0.0), MOST_NUMBERS),
        ("bits", "numbers", Code, MOST_CODES),
        ("numbers", "numbers", Code, MOST_CODES),  # of images that it shrinks
    ],
)
def test_a_browser_makes_the_feature_or_code_that_pytorch_does(
    page: Any, site: Path, name, output, make, most
):
    found = torch.tensor([each[output] for each in released(page, f"{name}.onnx")])
    expected = make(str(site / f"{name}.safetensors")).release(pictures(3), seeded_noise(0)).values
    torch.testing.assert_close(signs(found) if name == "bits" else found, expected, atol=most, rtol=0)
