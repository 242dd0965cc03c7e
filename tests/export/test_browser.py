"""Exported files in a browser, on onnxruntime's WebAssembly: the release that PyTorch makes.

onnxruntime-web is installed beside the virtual environment's libraries, as tests/export/browser pins it:

    mkdir -p .venv/browser && cp tests/export/browser/package*.json .venv/browser/
    npm ci --prefix .venv/browser --ignore-scripts --no-audit --no-fund
"""

import functools
import shutil
import sys
import threading
from collections.abc import Iterator
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

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A page, the runtime, three images, and an exported file of each kind."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PAGE, folder)
    (folder / "ort").symlink_to(RUNTIME)
    (folder / "images.bin").write_bytes(pictures(3).numpy().tobytes())
    artefacts = [
        write_feature(folder / "feature.safetensors"),
        write_mask(folder / "mask.safetensors"),
        write_code(folder / "bits.safetensors", bits=16),
        write_code(folder / "numbers.safetensors", side=16, numbers=6),
    ]
    for artefact in artefacts:
        export(artefact, artefact.with_suffix(".onnx"), check=pictures(2, seed=1))
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
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


def test_a_browser_extracts_the_feature_that_pytorch_does(page: Any, site: Path):
    found = torch.tensor([each["feature"] for each in released(page, "feature.onnx")])
    protection = Feature(str(site / "feature.safetensors"), noise=0.0)
    expected = protection.release(pictures(3), seeded_noise(0)).values
    torch.testing.assert_close(found, expected, atol=MOST_NUMBERS, rtol=0)


def test_a_browser_shows_the_pixels_that_pytorch_does(page: Any, site: Path):
    found = released(page, "mask.onnx")
    expected = Mask(str(site / "mask.safetensors")).release(pictures(3), seeded_noise(0))
    shown = torch.tensor([each["shown"] for each in found]).bool().view_as(expected.shown)
    values = torch.tensor([each["values"] for each in found]).to(torch.uint8).view_as(expected.values)
    assert shown.sum((1, 2, 3)).tolist() == [90] * 3
    assert torch.equal(values, pictures(3) * shown)
    assert (shown != expected.shown).double().mean() < 0.01  # another order of sums, and near ties


def test_a_browser_makes_the_bits_that_pytorch_does(page: Any, site: Path):
    numbers = torch.tensor([each["numbers"] for each in released(page, "bits.onnx")])
    expected = Code(str(site / "bits.safetensors")).release(pictures(3), seeded_noise(0))
    assert torch.equal(signs(numbers), expected.values)


def test_a_browser_makes_the_numbers_that_pytorch_does_of_images_that_it_shrinks(page: Any, site: Path):
    numbers = torch.tensor([each["numbers"] for each in released(page, "numbers.onnx")])
    expected = Code(str(site / "numbers.safetensors")).release(pictures(3), seeded_noise(0))
    torch.testing.assert_close(numbers, expected.values, atol=MOST_CODES, rtol=0)
