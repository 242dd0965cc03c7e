"""Answers that are looked up on the device: what travels, how long that takes, and whether they are right.

    OMP_NUM_THREADS=1 python benchmarks/answer_tables.py [CODE.safetensors ...]

Five pictures of each of 20 hats of the drawn faces are enrolled over HTTP, as codes by the encoder of each
file; without one by an untrained encoder of 16 bits. 10,000 other pictures of these hats are looked up by
PyTorch, and some by the page in Chromium if that and the tools of the page (`npm ci --prefix web`) are there.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import torch
from edge import write_code
from timing import Line, in_turn, show

from sfumato import data, images
from sfumato.base.server import running
from sfumato.device.client import Client, look_up
from sfumato.device.ledger import Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.export.export import export
from sfumato.learn.gallery import answers_of_episodes
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.config import ServiceConfig
from sfumato.serve.http.app import create
from sfumato.serve.store import Store
from sfumato.study.parts.learners.few_shot import serve_vectors
from sfumato.wire.tables import AnswerTable

HATS, SHOTS, ANSWERS, TIMED = 20, 5, 10_000, 100
SEED = 1  # other people and hats than those of seed 0, by which `sfumato train` draws
TESTS = Path(__file__).parents[1] / "tests"


class Counting(httpx.HTTPTransport):
    """Sends requests. State: how many it sent, and the bytes of their bodies."""

    sent = bytes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        self.bytes += len(request.content)
        return super().handle_request(request)


def lines(artefact: Path, folder: Path, *, seconds: float) -> Iterator[Line]:
    code = Code(str(artefact))
    wears = data.load(
        "faces", identities=700, images_per_identity=20, headwear=HATS, size=code.shape[1], seed=SEED
    )
    labels = wears.label("headwear").codes
    places = torch.stack(
        [(labels == hat).nonzero().flatten()[: SHOTS + ANSWERS // HATS] for hat in range(HATS)]
    )
    shots = {str(hat): list(wears.images[rows[:SHOTS]]) for hat, rows in enumerate(places)}
    queries = list(wears.images[places[:, SHOTS:].flatten()])
    few = queries[:: ANSWERS // TIMED]
    export(artefact, artefact.with_suffix(".onnx"), check=torch.stack(few[:8]))  # which the page is handed
    with Ledger(folder / "ledger.db") as ledger:  # pictures of a person are near copies
        ledger.set_near_copies("ignore")
    store, site = Store(f"sqlite:///{folder}/store.db"), built_page(folder)
    store.create_tenant("me")
    key = store.create_key("me", role="write", name="device")[1]
    app = create(store, [models.load(artefact)], ServiceConfig(web=site))
    transport = Counting()
    given = {"key": key, "protection": code, "ledger": folder / "ledger.db", "classifier": "hats"}
    with running(app) as url, Client(url, transport=transport, **given) as cloud:
        cloud.enrol_many(shots)
        table = cloud.answer_table()
        yield from answers(code, table, queries, wears.images, places, transport)
        asked = [row[-1].label for row in cloud.classify_many(few, top=1)]
        same = sum(row[-1].label == one for row, one in zip(look_up(table, code, few), asked, strict=True))
        yield share("answers that equal those of queries", same / TIMED)
        yield from times(table, code, few, cloud, seconds)
        if site is not None:
            yield in_browser(url, key, code, torch.stack(few[:32]), folder)


def share(name: str, part: float, against: str = "all", other: float = 1.0) -> Line:
    return Line(name=name, ours=part, other=other, ratio=part / other, unit="of all", against=against)


def answers(
    code: Code,
    table: AnswerTable,
    queries: list[torch.Tensor],
    all_images: images.Images,
    places: torch.Tensor,
    sent: Counting,
) -> Iterator[Line]:
    """What was sent for all answers, what the table is, and what a study measures on the same images."""
    before, start = sent.sent, time.process_time()
    guesses = look_up(table, code, queries)
    taken = time.process_time() - start
    counts = {
        "ours": float(sent.sent - before),
        "other": float(before),
        "ratio": (sent.sent - before) / before,
    }
    words = f"requests for {len(guesses):,} answers in {taken:.1f} s"
    yield Line(name=words, **counts, unit="requests", against=f"{sent.bytes:,} bytes before, in", lower=True)
    size, clear = len(table.content) / 1e3, 131.072
    sizes = {"ours": size, "other": clear, "ratio": size / clear, "unit": "kB"}
    yield Line(name="table", **sizes, against="its numbers unpacked", lower=True)
    shown = all_images[places.flatten()]
    vectors, weights, codes, refusal = serve_vectors(code.release(shown, fresh_noise()))
    rows = np.arange(len(vectors)).reshape(1, HATS, -1)
    hits, accepted = answers_of_episodes(
        vectors, rows, shot=SHOTS, weights=weights, codes=codes, refusal=refusal
    )
    right = (
        np.array([row[-1].label for row in guesses]).reshape(HATS, -1) == np.arange(HATS).astype(str)[:, None]
    )
    none = np.array([row[0].label is None for row in guesses]).reshape(HATS, -1)
    same = (right == hits[0]) & (none == (False if accepted is None else ~accepted[0]))
    yield share("answers that equal those of a study", float(same.mean()))
    yield share("right by the table", float(right.mean()), "by a study", float(hits.mean()))


def times(
    table: AnswerTable, code: Code, few: list[torch.Tensor], cloud: Client, seconds: float
) -> Iterator[Line]:
    functions = [
        lambda: look_up(table, code, few),
        lambda: code.encode(torch.stack(few)),
        lambda: cloud.classify_many(few, top=1),
    ]
    turns, scale = in_turn(*functions, seconds=seconds), {"unit": "ms an answer", "scale": 1e3 / TIMED}
    yield turns.costs("looked up, PyTorch", against="its encoder alone", other=1, **scale)
    yield turns.costs("looked up, PyTorch", against="a query to this machine", other=2, **scale)
    codes = np.random.default_rng(0).random((ANSWERS, table.header.bits)) < 0.5
    turns = in_turn(lambda: table.look_up(codes), lambda: codes.sum(1), seconds=seconds / 4)
    yield turns.costs(f"{ANSWERS:,} codes looked up", against="adding up their bits")


def built_page(folder: Path) -> Path | None:
    """The page, if what builds and shows it is there."""
    sys.path += [str(TESTS / "browsers"), str(TESTS / "web")]
    import conftest as web

    if not (
        web.TOOLS.exists() and shutil.which("node") and shutil.which("chromium") and find_spec("selenium")
    ):
        return None
    web.run(web.TOOLS / "vite", "build", "--logLevel", "error", "--outDir", folder / "site")
    return folder / "site"


def in_browser(url: str, key: str, code: Code, pictures: torch.Tensor, folder: Path) -> Line:
    """From the click to the answers on the page: the network in WebAssembly, the table, and the drawing."""
    import chromium

    from conftest import Page

    (folder / "pictures").mkdir()
    click = """
        const [done, status, start] = [arguments[0], document.getElementById("status"), performance.now()];
        status.textContent = "";
        new MutationObserver((_, observer) => {
          if (!status.textContent.endsWith("sent.")) return;
          observer.disconnect();
          done(performance.now() - start);
        }).observe(status, { childList: true, characterData: true, subtree: true });
        document.getElementById("classify").click();
    """
    with chromium.started(folder / "profile") as browser:
        page = Page(browser, f"{url}/", SimpleNamespace(), folder / "pictures")
        page.connect({"spec": f"code:artefact={Path(code.artefact).name}"}, key=key)
        page.choose(pictures)
        taken = [browser.execute_async_script(click) / len(pictures) for _ in range(7)]
    first, again = taken[0], median(taken[1:])
    found: dict[str, Any] = {"ours": again, "other": first, "ratio": again / first, "unit": "ms an answer"}
    return Line(name="looked up, page in Chromium (wall)", **found, against="the first time", lower=True)


def main() -> None:
    given = list(map(Path, sys.argv[1:]))
    for number in range(len(given) or 1):
        with tempfile.TemporaryDirectory() as folder:
            artefact = Path(folder) / "code.safetensors"
            if given:
                shutil.copy(given[number], artefact)
            else:
                write_code(artefact, bits=16)
            card = models.load(artefact)
            words = f"{card.dimension} bits of {card.shape}"
            show(lines(artefact, Path(folder), seconds=8), words)


if __name__ == "__main__":
    main()
