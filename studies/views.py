"""What a service sees of people who look their codes up in an answer table, or send them.

    studies/accelerator/run.sh OUT --only "releases hats"       # trains the codes of 12 bits
    OMP_NUM_THREADS=1 nice -n 10 python studies/views.py OUT/models studies/results/views.jsonl

Drawn people, and people of LFW in drawn hats, as in both pieces of the accelerator, who are in no training. A service
knows five hats by five examples each. Each person has a device with a ledger of its own, which names the hats on 100 of
their pictures in two ways: by the table, and by codes that are sent in order. What arrives of each is compared byte for
byte, with all headers (records also have a batch of all codes, which commit 35bda054 can send): people whose bytes are equal are named in turn by everybody who
sees them, so that the best adversary on the view is computed, and not looked for. Episodes over HTTP say how often the
table's hat is right. Records: a row for each world and seed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from rows import Rows
from torch import Tensor

from sfumato.base.server import running
from sfumato.data.labelled import Label
from sfumato.data.worlds.faces import draw
from sfumato.device.client import Client, look_up
from sfumato.device.ledger import Ledger
from sfumato.dp.naming import of_each
from sfumato.episodes import Sampler, Shape
from sfumato.learn.gallery import answers_of_episodes
from sfumato.protect.code import Code
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store
from sfumato.study.parts.learners.few_shot import serve_vectors

sys.path.append(str(Path(__file__).parent / "accelerator"))
import hats
import pool
import releases

PEOPLE, PICTURES, EPISODES = 40, 100, 40
TEST = Shape(way=5, shot=5, queries=10)
WAYS = ("table", "sent in order")
TRAINED = {
    "drawn faces": "12 bits, twelve times as long as the demo's, seed {}, world 1",
    "lfw": "12 bits, seed {}",
}


@dataclass
class Watched(httpx.HTTPTransport):
    """Sends requests. State: the bytes of each."""

    seen: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        headers = b"".join(b"%s: %s\n" % pair for pair in request.headers.raw)
        self.seen.append(
            b"%s %s\n" % (request.method.encode(), request.url.raw_path) + headers + request.read()
        )
        return super().handle_request(request)


def drawn_people() -> tuple[Tensor, Tensor]:
    """(40, 100, C, H, W) pictures, and (40, 100) hats."""
    shown = releases.rows(releases.Sizes.of(1.0), "test")
    rows = torch.arange(len(shown)).view(-1, releases.Sizes.of(1.0).pictures)[:PEOPLE, :PICTURES]
    kept = shown.rows(rows.flatten())
    return draw(kept, size=releases.SIDE)[0].unflatten(0, rows.shape), kept.headwear.view(rows.shape)


def people_of_lfw(packed: Path) -> tuple[Tensor, Tensor]:
    """The same of photographs, each in ten hats."""
    given = pool.Options(Path(), packed, 1.0, 0.0, 1)
    person = np.load(packed / "lfw_faces_84.npz")["person"]
    frequent = np.flatnonzero(np.bincount(person) >= hats.FREQUENT)[:PEOPLE]
    rows = np.concatenate(
        [np.flatnonzero(person == each)[: PICTURES // hats.WORN["test"]] for each in frequent]
    )
    images, worn = hats.dress(rows, "test", 0, given)
    of = (len(frequent), PICTURES)
    return torch.from_numpy(images).unflatten(0, of), torch.from_numpy(worn).view(of)


@contextmanager
def served(artefact: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """A service's address, and a key."""
    with Store(f"sqlite:///{folder}/store.db") as store:
        store.create_tenant("views")
        key = store.create_key("views", role="write", name="device")[1]
        with running(create(store, [models.load(artefact)])) as url:
            yield url, key


def measure(artefact: Path, pictures: Tensor, worn: Tensor, *, seed: int) -> dict[str, Any]:
    """What arrives of each person, and how often the table is right."""
    code = Code(str(artefact))
    flat, label = pictures.flatten(0, 1), Label(worn.flatten(), tuple(map(str, range(int(worn.max()) + 1))))
    drawn = Sampler(label, TEST).draw(EPISODES, torch.Generator().manual_seed(seed)).numpy()
    made = serve_vectors(code.release(flat, None))
    hits, accepted = answers_of_episodes(
        *(made.vectors, drawn), shot=TEST.shot, weights=made.weights, codes=made.codes, refusal=made.refusal
    )
    with tempfile.TemporaryDirectory() as temporary, served(artefact, Path(temporary)) as (url, key):
        folder = Path(temporary)

        def device(name: str, sent: httpx.BaseTransport | None = None) -> Client:
            with Ledger(folder / f"{name}.db") as ledger:  # drawn people look alike
                ledger.set_near_copies("ignore")
            return Client(
                url, key=key, protection=code, ledger=folder / f"{name}.db", transport=sent, timeout=300
            )

        same = []
        with device("operator") as operator:
            for number, rows in enumerate(drawn):  # (way, shot + queries)
                name = f"hats {number}"
                operator.create(name, models.load(artefact).name)
                shots = {str(row): list(flat[each[: TEST.shot]]) for row, each in enumerate(rows)}
                operator.enrol_many(shots, classifier=name)
                table = operator.answer_table(classifier=name)
                asked = look_up(table, code, list(flat[rows[:, TEST.shot :].flatten()]))
                right = [
                    guesses[-1].label == str(place // TEST.queries) for place, guesses in enumerate(asked)
                ]
                refused = np.array([guesses[0].label is None for guesses in asked])
                none = False if accepted is None else ~accepted[number].flatten()
                same.append(
                    bool((np.array(right) == hits[number].flatten()).all() and (refused == none).all())
                )
        views: dict[str, list[bytes]] = {way: [] for way in WAYS}
        agree, counted, sizes, start = 0, {}, {}, time.process_time()
        for person, shown in enumerate(pictures):
            said = []
            for way in WAYS:
                sent = Watched()
                with device(f"{person} {way}", sent) as asking:
                    if way == "table":
                        found = look_up(asking.answer_table(classifier="hats 0"), code, list(shown))
                    else:
                        found = asking.classify_many(list(shown), top=1, classifier="hats 0")
                said.append([guesses[-1].label for guesses in found])
                views[way].append(b"\0".join(sent.seen))
                counted[way], sizes[way] = len(sent.seen), sum(map(len, sent.seen))
            agree += said[0] == said[1]
    result = {}
    for way, of_people in views.items():
        kinds = sorted(set(of_people))
        channel = np.eye(len(kinds))[[kinds.index(view) for view in of_people]]
        named = of_each([1 / len(of_people)] * len(of_people), channel)
        result[way] = {
            **{"views": len(kinds), "requests": counted[way], "bytes": sizes[way]},
            **{"named": float(named.mean()), "worst": float(named.max())},
        }
    return {
        "people": len(pictures),
        "pictures": pictures.shape[1],
        "guessing": 1 / len(pictures),
        "accuracy": float(hits.mean()),
        "half_width": 1.96 * float(hits.reshape(EPISODES, -1).mean(1).std(ddof=1)) / EPISODES**0.5,
        "episodes": EPISODES,
        "episodes_as_studied": int(sum(same)),
        "people_answered_alike": agree,
        "seconds": round(time.process_time() - start, 1),
        "ways": result,
    }


def main() -> None:
    """Make the rows that are missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, help="OUT/models of studies/accelerator/run.sh")
    parser.add_argument("record", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = Rows(options.record)
    for world, task in TRAINED.items():
        missing = [seed for seed in releases.SEEDS if f"{world}, seed {seed}" not in records]
        if not missing:
            continue
        shown = drawn_people() if world == "drawn faces" else people_of_lfw(options.data)
        for seed in missing:
            artefact = options.models / pool.file_of(task.format(seed))
            records[f"{world}, seed {seed}"] = measure(artefact, *shown, seed=seed)
            print(world, seed, records[f"{world}, seed {seed}"], flush=True)


if __name__ == "__main__":
    main()
