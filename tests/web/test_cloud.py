"""The page with a real server: what is enrolled and classified through it, as a client in Python would."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import chromium
import httpx
import pytest
import torch
from torch import Tensor

from sfumato import images, wire
from sfumato.base.server import running
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import parse
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.http.app import ServiceConfig, create
from sfumato.serve.store import Store
from sfumato.wire import labelled

pytestmark = chromium.MARKS

SPEC = "dp-pix:cell=4,epsilon=3"
SHAPE = (3, 32, 32)
RELEASE = {"content-type": wire.MEDIA_TYPE}


@dataclass
class Cloud:
    """A server, with artefacts in a folder. State: the bodies that it was sent, and to which addresses."""

    app: Any
    address: str = ""
    key: str = ""
    folder: Path = Path()
    models: list[Any] = field(default_factory=list)
    asked: list[tuple[str, list[bytes]]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parts: list[bytes] = []

        async def kept() -> Any:
            message = await receive()
            parts.append(message.get("body", b""))
            return message

        if scope["type"] == "http":  # before the answer, after which somebody may look
            self.asked.append((scope["path"], parts))
        await self.app(scope, kept, send)

    def sent(self, end: str) -> list[bytes]:
        return [b"".join(parts) for path, parts in self.asked if path.endswith(end)]

    def ask(self, method: str, path: str, **more: Any) -> Any:
        headers = {"x-api-key": self.key, **more.pop("headers", {})}
        reply = httpx.request(method, f"{self.address}v1/{path}", headers=headers, **more)
        assert reply.is_success, reply.text
        return reply.json()

    def enrol(self, classifier: str, label: str, release: bytes) -> Any:
        """As examples that are new, whatever was enrolled before."""
        examples = [(label, uuid.uuid4().hex) for _ in range(wire.header(release).count)]
        content, kind = labelled.join(examples, release), {"content-type": labelled.MEDIA_TYPE}
        said = self.ask("POST", f"classifiers/{classifier}/examples", content=content, headers=kind)
        return said["classes"][0]


@pytest.fixture(scope="module")
def cloud(site: Path, tmp_path_factory) -> Iterator[Cloud]:
    """With a model that nobody trained: its answers need not be right, but the same."""
    folder = tmp_path_factory.mktemp("cloud")
    config = FewShotConfig(denoiser_depth=None, precision="float32")
    card = {"config": asdict(config), "spec": SPEC, "channels": 3, "precision": "float32", "refusal": None}
    card |= {"shape": list(SHAPE)}
    few_shot.make_untrained(3, config, parse(SPEC), card=card).save(folder / "hats.safetensors")
    with Store(f"sqlite:///{folder}/store.db") as store:
        store.create_tenant("museum")
        _, key = store.create_key("museum", role="write", name="page")
        artefacts = (folder / "hats.safetensors", train_code(folder))
        served = list(map(models.load, artefacts))
        cloud = Cloud(create(store, served, ServiceConfig(web=site)), key=key, folder=folder)
        with running(cloud) as address:
            cloud.address = f"{address}/"
            yield cloud


def train_code(folder: Path) -> Path:
    """A code of `sfumato train code`, with the .onnx beside it that `sfumato export` writes for the page."""
    for kind in range(4):
        for number, image in enumerate(hats(kind, 12)):
            for split, most in (("train", 6), ("validation", 9), ("test", 12)):
                if number < most:
                    images.write(folder / "hats" / split / str(kind) / f"{number}.png", image)
                    break
    quick = ("epochs=1", "episodes_per_epoch=2", "validation_episodes=4", "way=2", "shot=1", "queries=1")
    words = ["train", "code", "--data", f"folder:{folder}/hats", "--target", "class", "--set", "bits=16"]
    words += ["--size", "32", "--known", "--episodes", "4", "--out", str(folder / "code.safetensors")]
    words += [word for each in quick for word in ("--set", each)]
    for command in (words, ["export", str(folder / "code.safetensors")]):
        done = subprocess.run([sys.executable, "-m", "sfumato", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder / "code.safetensors"


def choose_classifier(page: Any, number: str) -> None:
    script = "classifiers.value = arguments[0]; classifiers.dispatchEvent(new Event('change'))"
    page.browser.execute_script(script, number)


def hats(kind: int, count: int) -> Tensor:
    """Pictures of a kind: stripes of their own, and noise."""
    generator = torch.Generator().manual_seed(kind * 100 + count)
    stripes = (torch.arange(32) // (kind + 2) % 2 * 150).view(1, 1, 1, 32)
    return (stripes + torch.randint(0, 90, (count, *SHAPE), generator=generator)).to(torch.uint8)


def test_a_page_and_a_client_get_the_same_answers_for_the_same_releases(open_page: Any, cloud: Cloud):
    page = open_page(cloud.address, cloud)
    page.connect({"spec": SPEC}, key=cloud.key)
    page.write("name", "hats")
    page.submit("create")
    page.status("Created hats.")
    ours = cloud.ask("POST", "classifiers", json={"name": "ours", "model": "hats"})["id"]
    for kind, label in enumerate(("bowler", "fez", "50% wool")):
        page.choose(hats(kind, 3))
        enrolled = page.enrol(label)
        sent = wire.decode(enrolled, most_images=3, most_pixels=10_000)
        clean = parse("pixelize:cell=4").release(hats(kind, 3), noise=None).values
        assert (sent.values != clean).double().mean() > 0.8
        assert cloud.enrol(ours, label, enrolled)["new"] == 3
    page.choose(torch.cat([hats(0, 1), hats(1, 2)]))
    page.find("classify").click()
    page.until("return document.querySelectorAll('#pictures meter').length == 9")
    shown = page.browser.execute_script(
        """
        return [...document.querySelectorAll('#pictures > li')].map((picture) =>
          [...picture.querySelectorAll('.guesses li')].map((guess) =>
            [guess.firstChild.textContent, guess.querySelector('meter').value]));
        """
    )
    asked = cloud.sent("/classify")[-1]
    answers = cloud.ask("POST", f"classifiers/{ours}/classify", content=asked, headers=RELEASE)["images"]
    expected = [[[each["label"], each["probability"]] for each in image["guesses"]] for image in answers]
    for image, others in zip(shown, expected, strict=True):
        assert [label for label, _ in image] == [label for label, _ in others]
        assert [share for _, share in image] == pytest.approx([share for _, share in others], rel=1e-4)
    assert page.browser.get_log("browser") == []


def test_what_is_forgotten_on_the_page_is_gone_from_the_server(open_page: Any, cloud: Cloud):
    other = cloud.ask("POST", "classifiers", json={"name": "caps", "model": "hats"})["id"]
    page = open_page(cloud.address, cloud)
    page.connect({"spec": SPEC}, key=cloud.key)
    choose_classifier(page, other)
    page.until("return document.getElementById('classes').textContent == 'none yet'")
    for label, kind in (("flat", 4), ("peaked", 5)):
        page.choose(hats(kind, 2))
        page.enrol(label)
    page.find("undo").click()
    page.status("Forgot 2 again.")
    left = cloud.ask("GET", f"classifiers/{other}/classes")
    assert [(each["label"], each["examples"]) for each in left] == [("flat", 2)]
    page.confirm("#classes button")
    page.status("Forgot flat.")
    assert cloud.ask("GET", f"classifiers/{other}/classes") == []


def test_a_page_makes_the_codes_that_python_makes(open_page: Any, cloud: Cloud):
    codes = cloud.ask("POST", "classifiers", json={"name": "coded", "model": "code"})["id"]
    artefact = cloud.folder / "code.safetensors"
    page = open_page(cloud.address, cloud)
    page.connect({"spec": ""}, key=cloud.key)  # whichever classifier is the first
    choose_classifier(page, codes)
    page.reads("spec", "code:artefact=code.safetensors")
    page.reads("guarantee", "nothing is proved about its pixels")
    assert page.find("export").get_property("hidden")
    assert page.text("exported-help").startswith("The server handed out the network that makes codes.")
    assert page.find("pixels").get_property("hidden")
    for kind, label in enumerate(("bowler", "fez")):
        page.choose(hats(kind, 3))
        page.enrol(label)
        protection = Code(str(artefact))
        release = protection.release(hats(kind, 3), seeded_noise(0))
        ours = wire.encode(release, made_of=protection.digest())
        answer = cloud.enrol(codes, f"{label} by Python", ours)
        assert (answer["new"], answer["known"]) == (3, 0)  # hats that are alike have one code, and count each
        asked = cloud.ask("POST", f"classifiers/{codes}/classify?top=10", content=ours, headers=RELEASE)
        for image in asked["images"]:  # the page made the same codes, so that both classes have one prototype
            distances = {guess["label"]: guess["distance"] for guess in image["guesses"]}
            assert distances[label] == pytest.approx(distances[f"{label} by Python"])
    queries = torch.cat([hats(0, 1), hats(1, 2)])
    ours = wire.encode(protection.release(queries, seeded_noise(0)), made_of=protection.digest())
    asked = cloud.ask("POST", f"classifiers/{codes}/classify?top=1", content=ours, headers=RELEASE)["images"]
    cloud.asked.clear()
    page.choose(queries)
    page.find("classify").click()
    page.until("return document.getElementById('status').textContent.endsWith('nothing of them was sent.')")
    assert [path.rpartition("/")[2] for path, _ in cloud.asked] == ["table"]
    shown = page.browser.execute_script(
        "return [...document.querySelectorAll('#pictures .guesses li')].map((guess) => guess.textContent)"
    )
    assert shown == [image["guesses"][0]["label"] for image in asked]


def test_the_server_lets_the_page_do_no_more_than_it_needs(cloud: Cloud):
    headers = httpx.get(cloud.address).headers
    assert "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'" in headers["content-security-policy"]
    assert "camera=(self)" in headers["permissions-policy"]
