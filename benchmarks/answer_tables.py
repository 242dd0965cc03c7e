"""Answers that are looked up on the device: what travels, how long that takes, and whether they are right.

    OMP_NUM_THREADS=1 python benchmarks/answer_tables.py [CODE.safetensors]

Five pictures of each of 20 hats of the drawn faces are enrolled over HTTP, as codes of 16 bits: by the
encoder of a file, such as that of a demo's run, or by an untrained one, whose answers are often wrong and
cost the same. 100 other pictures are classified by queries, by the table, and by the exported network with
the table in it; then 10,000 codes are looked up.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import torch
from timing import Line, in_turn, show

from edge import write_code
from sfumato import data
from sfumato.base.listening import running
from sfumato.device.client import Client, look_up
from sfumato.device.ledger import Ledger
from sfumato.edge.export import export
from sfumato.edge.runtime import session
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store

HATS, SHOTS, QUERIES, CODES = 20, 5, 100, 10_000


class Counting(httpx.HTTPTransport):
    """Sends requests. State: how many it sent, and the bytes of their bodies."""

    sent = bytes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        self.bytes += len(request.content)
        return super().handle_request(request)


def lines(artefact: Path, folder: Path, *, seconds: float) -> Iterator[Line]:
    code = Code(str(artefact))
    wears = data.load("faces", identities=60, images_per_identity=20, headwear=HATS, size=code.shape[1])
    labels = wears.label("headwear").codes
    each = [(labels == hat).nonzero().flatten()[: SHOTS + QUERIES // HATS] for hat in range(HATS)]
    shots = {f"hat {hat}": list(wears.images[rows[:SHOTS]]) for hat, rows in enumerate(each)}
    queries = wears.images[torch.cat([rows[SHOTS:] for rows in each])]
    with Ledger(folder / "ledger.db") as ledger:  # pictures of a person are near copies
        ledger.set_near_copies("ignore")
    store = Store(f"sqlite:///{folder}/store.db")
    store.create_tenant("me")
    key = store.create_key("me", role="write", name="device")[1]
    transport = Counting()
    with (
        running(create(store, [models.load(artefact)])) as url,
        Client(
            url,
            key=key,
            protection=code,
            ledger=folder / "ledger.db",
            classifier="hats",
            transport=transport,
        ) as cloud,
    ):
        cloud.enrol_many(shots)
        table = cloud.answer_table()
        asked = [row[-1].label for row in cloud.classify_many(list(queries), top=1)]
        before, sent = transport.sent, transport.bytes
        found = [row[-1].label for row in look_up.look_up(table, code, list(queries))]
        assert transport.sent == before
        same = sum(one == other for one, other in zip(asked, found, strict=True)) / len(asked)
        counts = {"ours": 0.0, "other": float(before), "ratio": 0.0}
        words = f"requests for {len(found)} answers"
        yield Line(name=words, **counts, unit="requests", against="before them", lower=True)
        equal = {"ours": same, "other": 1.0, "ratio": same, "unit": "of all", "against": "all"}
        yield Line(name="answers that equal those of queries", **equal)
        size = float(len(table.content))
        yield Line(
            **{"name": "table", "ours": size / 1e3, "other": 131.072, "ratio": size / 131_072},
            **{"unit": "kB", "against": "its answers unpacked", "lower": True},
        )
        export(artefact, folder / "answers.onnx", check=queries[:8], table=table)
        graph = session(folder / "answers.onnx")
        rows = [{"images": image.numpy()} for image in queries.split(1)]
        turns = in_turn(
            lambda: look_up.look_up(table, code, list(queries)),
            lambda: [graph.run(None, row) for row in rows],
            lambda: cloud.classify_many(list(queries), top=1),
            lambda: code.encode(queries),
            seconds=seconds,
        )
        scale = {"unit": "ms an answer", "scale": 1e3 / QUERIES}
        yield turns.costs("looked up, PyTorch", against="its encoder alone", other=3, **scale)
        yield turns.costs("looked up, exported network", against="PyTorch", one=1, other=0, **scale)
        yield turns.costs("looked up, PyTorch", against="a query to this machine", other=2, **scale)
        codes = np.random.default_rng(0).random((CODES, table.header.bits)) < 0.5
        turns = in_turn(lambda: table.look_up(codes), lambda: codes.sum(1), seconds=seconds)
        yield turns.costs(f"{CODES:,} codes looked up", against="adding up their bits")
    print(f"{sent} bytes of bodies were sent before: {SHOTS * HATS} examples and {QUERIES} queries")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        artefact = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "code.safetensors"
        if len(sys.argv) == 1:
            write_code(artefact)
        show(lines(artefact, Path(folder), seconds=8))


if __name__ == "__main__":
    main()
