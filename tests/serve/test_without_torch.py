"""A service that answers without PyTorch, as one that has it does."""

import asyncio
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from cloud import SIDE, encoder, refusing, untrained

from sfumato import wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError
from sfumato.export.export import export
from sfumato.export.sides import MOST_EMBEDDINGS
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.serve import exported, models
from sfumato.serve.http.app import create
from sfumato.serve.served import _means, input_maker
from sfumato.serve.store import Store
from sfumato.wire import labelled

SPEC = "dp-pix:cell=4,epsilon=3"
SHAPE = (3, SIDE, SIDE)


def answers(path: str, url: str, requests: list[list[str]]) -> list[list[object]]:
    """Of a service of one model, asked within its process. Its source runs where PyTorch is missing, too."""

    async def ask() -> list[list[object]]:
        with Store(url) as store:
            transport = httpx.ASGITransport(create(store, [models.load(path)]))
            async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as client:
                replies = [
                    await client.request(method, address, headers=headers, content=bytes.fromhex(content))
                    for method, address, headers, content in requests
                ]
        return [[reply.status_code, reply.json()] for reply in replies]

    return asyncio.run(ask())


ALONE = f"""
import asyncio, json, sys

sys.modules["torch"] = None  # every import fails
import httpx
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store
{inspect.getsource(answers)}
print(json.dumps(answers(*json.loads(sys.stdin.read()))))
assert sys.modules["torch"] is None
"""


def pictures(count: int, *shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, *(shape or SHAPE)), generator=draw).to(torch.uint8)


def run(path: Path, url: str, requests: list[Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ALONE],
        input=json.dumps([str(path), url, requests]),
        capture_output=True,
        text=True,
        check=False,
    )


def questions(url: str, model: str, releases: dict[str, bytes], asked: bytes) -> list[Any]:
    """Enrol classes, list and classify by a key of a new tenant."""
    with Store(url) as store:
        store.create_tenant("museum")
        key, secret = store.create_key("museum", role="write", name="camera")
        place = store.create_classifier("museum", name="vases", model=model, by=key).id
    headers = {"x-api-key": secret, "content-type": wire.MEDIA_TYPE}
    root, kind = f"/v1/classifiers/{place}", {"content-type": labelled.MEDIA_TYPE}
    enrolling = []
    for label, sent in releases.items():
        examples = [(label, str(row)) for row in range(wire.header(sent).count)]
        enrolling.append(["POST", f"{root}/examples", headers | kind, labelled.join(examples, sent).hex()])
    return [
        *enrolling,
        ["GET", "/v1/models", headers, ""],
        ["GET", f"{root}/classes", headers, ""],
        ["POST", f"{root}/classify?top=2", headers, asked.hex()],
        ["POST", f"{root}/classify", headers | {"x-api-key": "guessed"}, asked.hex()],
    ]


def check_same(folder: Path, alone: Path, here: Path, releases: dict[str, bytes], asked: bytes) -> None:
    """A service without PyTorch answers by one file as a service in this process by another."""
    urls = [f"sqlite:///{folder}/{name}.db" for name in ("ours", "theirs")]
    ours, theirs = (questions(url, alone.stem, releases, asked) for url in urls)
    done = run(alone, urls[0], ours)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = answers(str(here), urls[1], theirs)
    assert [status for status, _ in found] == [status for status, _ in expected]
    assert [status for status, _ in found] == [201, 201, 200, 200, 200, 401]
    assert found[2] == expected[2]
    for ours, theirs in zip(found[4][1]["images"], expected[4][1]["images"], strict=True):
        assert ours["none_of_these"] == theirs["none_of_these"]
        for one, other in zip(ours["guesses"], theirs["guesses"], strict=True):
            assert one["label"] == other["label"]
            assert one["distance"] == pytest.approx(other["distance"], rel=1e-3, abs=1e-4)
            assert one["probability"] == pytest.approx(other["probability"], abs=1e-3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is told which of two protections it sees, exported beside its artefact."""
    folder = tmp_path_factory.mktemp("exported")
    served = untrained(folder, "vases", SPEC, refusal=refusing(3.0).card())
    artefact = folder / "vases.safetensors"
    written = export(artefact, folder / "vases.onnx", check=pictures(4), side=exported.side(served))
    assert written.difference.largest < MOST_EMBEDDINGS
    assert (written.images, written.bytes) == (4, written.path.stat().st_size)
    return written.path


def released(spec: str, *numbers: int) -> bytes:
    images = pictures(8)[list(numbers)]
    return wire.encode(parse(spec).release(images, seeded_noise(3)))


def test_an_exported_model_is_served_without_pytorch_and_answers_as_with_it(file: Path, tmp_path: Path):
    releases = {"cup": released(SPEC, 0, 1), "jug": released(SPEC, 2, 3)}
    check_same(tmp_path, file, file.with_suffix(".safetensors"), releases, released(SPEC, 0, 3, 5))


def test_codes_are_served_without_pytorch_and_without_export(tmp_path: Path):
    path = encoder(tmp_path / "hats.safetensors", bits=8)
    code = Code(str(path), flip=0.1)
    cap, hat, asked = (
        wire.encode(code.release(part, seeded_noise(1)), made_of=code.digest())
        for part in pictures(6).split(2)
    )
    check_same(tmp_path, path, path, {"cap": cap, "hat": hat}, asked)


def test_without_pytorch_a_model_that_needs_it_says_how_to_export_it(tmp_path: Path):
    untrained(tmp_path, "m", SPEC)
    done = run(tmp_path / "m.safetensors", f"sqlite:///{tmp_path}/store.db", [])
    path = f"{tmp_path}/m.safetensors"
    assert done.stderr.splitlines()[-1] == (
        f"sfumato.errors.MissingExtraError: {path}: PyTorch runs its network and is not installed: "
        f"run `sfumato export {path}` where it is installed, and serve the .onnx file "
        "that this writes; or install the extra torch here"
    )


def test_a_model_for_masks_or_of_another_kind_is_not_exported_for_a_service(tmp_path: Path):
    masks = untrained(tmp_path, "m", "mask:artefact=k.safetensors,keep=0.3")
    with pytest.raises(ArtefactError, match="reading their releases needs PyTorch: serve the artefact"):
        exported.side(masks)
    code = models.load(encoder(tmp_path / "c.safetensors", bits=3))
    with pytest.raises(ArtefactError, match="is a 'code', for which a server computes nothing: serve it as"):
        exported.side(code)
    assert not list(tmp_path.glob("*.onnx"))


def test_a_file_that_is_no_exported_model_or_damaged_is_refused(file: Path, tmp_path: Path):
    content = file.read_bytes()
    weight = content.index(b"encoder") + 20_000
    card = json.loads(content[content.index(b'{"artefact"') :].decode())
    for wrong, message in (
        (content[:weight] + bytes([content[weight] ^ 64]) + content[weight + 1 :], "damaged"),
        (content.replace(b'epsilon=3"', b'epsilon=9"'), "damaged"),
        (b"not a graph", "damaged, or not written by"),
        (content[: card["graph_bytes"]], "has no card of sfumato"),
    ):
        assert wrong != content
        (tmp_path / "m.onnx").write_bytes(wrong)
        with pytest.raises(ArtefactError, match=rf"m\.onnx: {message}"):
            models.load(tmp_path / "m.onnx")
    with pytest.raises(ArtefactError, match=r"gone\.onnx: cannot be read"):
        models.load(tmp_path / "gone.onnx")


@pytest.mark.parametrize(("cell", "side"), [(1, 7), (2, 7), (3, 8), (4, 8), (5, 3)])
def test_cells_are_means_of_their_pixels_as_pooling_has_them(cell: int, side: int):
    images = pictures(2, 3, side, side + 1)
    floats = images.double() / 255
    expected = torch.nn.functional.avg_pool2d(floats, cell, ceil_mode=True, count_include_pad=False)
    np.testing.assert_allclose(_means(images.numpy(), cell), expected.numpy(), rtol=0, atol=1e-6)


def test_a_release_of_the_same_cells_is_what_the_network_sees():
    release = parse("pixelize:cell=4").release(pictures(2, 1, 18, 20), seeded_noise(0))
    assert release.cell == 4
    as_it_is, by_pixels = (
        input_maker(4)(each)
        for each in (release, type(release)(release.pictures(), release.spec, release.size))
    )
    np.testing.assert_allclose(as_it_is, by_pixels, rtol=0, atol=1e-6)
