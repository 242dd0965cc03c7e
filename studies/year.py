"""A year of five people, 2,000 images each, through a device's ledger: what it says, and that nobody is named more often.

    OMP_NUM_THREADS=1 nice -n 10 python studies/year.py studies/results/year.jsonl

Drawn people send a code of one bit, which was trained on others: whether somebody wears glasses. Each image goes the whole way, as a
file: the device charges it in its ledger and releases its bit; a service answers. The year is lived three times. With a budget of
naming for each person, what would break it does not leave. Without one, the ledger says what the whole year proves. And by an
answer table nothing leaves but what is enrolled. Adversaries know 200 other images of each of 100 people, the five among them:
those on sets of attack.sets name everybody, and the exact table names the five from all that left of them.
"""

import argparse
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rows import Rows
from torch import Tensor

from sfumato import images as pictures
from sfumato.attack import sets
from sfumato.attack.set_network import by_network
from sfumato.attack.table import by_table
from sfumato.base.engines import EngineConfig
from sfumato.base.server import running
from sfumato.cli import ledger as commands
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds.faces import draw, faces, people
from sfumato.device.client import Client, look_up
from sfumato.device.jobs.folder import protect_folder
from sfumato.device.jobs.worker import FolderConfig
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.dp import naming
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import code
from sfumato.learn.code import CodeConfig
from sfumato.protect import parse
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store

BUDGET = "naming=3%,of=1000,per=year,assuming=exchangeable"
TARGET, CLASSES = "wears", ("no glasses", "glasses")
PERSONS, IMAGES = 5, 2_000  # of the year
AMONG, KNOWN = 100, 200  # people who are told apart, and images of each, beside those of the year
SIDE, ENROLLED, ASKED, PART, SEED = 32, 5, 100, 2_000, 0


def labelled(identities: int, seed: int) -> LabelledImages:
    """Drawn people, with a label that says whether they wear glasses."""
    world = faces(identities=identities, images_per_identity=20, headwear=60, size=SIDE, seed=seed)
    label = Label((world.label("glasses").codes > 0).long(), CLASSES)
    return LabelledImages(world.name, world.images, {**world.labels, TARGET: label}, world.splits)


class Year:
    """What all three years share. State: a folder, the images of everybody, a trained code."""

    def __init__(self, folder: Path, each: int) -> None:
        self.folder, self.each = folder, each
        training = labelled(200, SEED).split("train")
        config = CodeConfig(
            bits=1, way=2, shot=5, queries=5, pretraining_epochs=3, epochs=8, episodes_per_epoch=25
        )
        self.artefact = folder / "code.safetensors"
        code.train(training, config, target=TARGET, seed=SEED).save(self.artefact)
        self.code: Any = parse(f"code:artefact={self.artefact},bits=1", takes=["bits"])
        self.others = self.bits(training.images), training.label("identity").codes
        living = people(identities=AMONG, images_per_identity=KNOWN + each, headwear=60, seed=SEED + 1)
        number = torch.arange(len(living)) % (KNOWN + each)
        known = self._drawn(living.rows((number < KNOWN).nonzero().flatten()))
        self.known = self.bits(known).unflatten(0, (AMONG, KNOWN))  # (100, 200, 1)
        lived = living.rows(((number >= KNOWN) & (living.identity < PERSONS)).nonzero().flatten())
        self.images = self._drawn(lived).unflatten(0, (PERSONS, each))
        self.glasses = lived.glasses.view(PERSONS, each)
        for person, of_person in enumerate(self.images):
            (folder / "year" / f"person-{person}").mkdir(parents=True)
            for i, image in enumerate(of_person):
                pictures.write(folder / "year" / f"person-{person}" / f"{i:04d}.png", image)

    def _drawn(self, world: Any) -> Tensor:
        parts = torch.arange(len(world)).split(PART)
        return torch.cat([draw(world.rows(part), size=SIDE)[0] for part in parts])

    def bits(self, images: Tensor) -> Tensor:
        """(N, 1) of -1 and 1."""
        return torch.cat(
            [self.code.release(part, seeded_noise(0)).vectors() for part in images.split(PART)]
        ).float()

    def begin(self, name: str, budget: str | None) -> Path:
        """A ledger in which drawn faces, which look alike, are no copies, with one budget for each person."""
        path = self.folder / f"{name}.db"
        with Ledger(path) as ledger:
            ledger.set_near_copies("ignore")
            ledger.set_budget(None, person="")
            if budget is not None:
                ledger.set_budget(Budget.parse(budget), person="")
        return path

    def live(self, name: str, budget: str | None) -> dict[str, Any]:
        """Protect everybody's images, and let adversaries look at what left."""
        ledger, start = self.begin(name, budget), time.perf_counter()
        made = protect_folder(
            *(self.folder / "year", self.folder / name, self.code, ledger),
            FolderConfig(format_name="RELEASE", people=True),
            engine=EngineConfig(workers=1),
        )
        seconds = round(time.perf_counter() - start, 1)
        with Ledger(ledger) as opened:
            left = [opened.namings([AMONG], person=f"person-{i}")[0].releases for i in range(PERSONS)]
            proved = {
                assuming: [
                    opened.namings([AMONG, 1_000], person=f"person-{i}", assuming=assuming)
                    for i in range(PERSONS)
                ]
                for assuming in naming.BY_STRENGTH
            }
        return {
            "budget": budget,
            "charged": made.charged,
            "left": left,
            "refused": sum(count for _, _, count in made.failed),
            "seconds": seconds,
            "proved": {
                assuming: {str(each.candidates): each.chance for each in of_first[0]}
                for assuming, of_first in proved.items()
            },
            "named": self._named_among(left),
            "show": shown(ledger),
        }

    def _named_among(self, left: list[int]) -> list[int]:
        """Whether the exact table names each of the five, from all that left of them."""
        owners = torch.arange(AMONG).repeat_interleave(KNOWN)
        right = []
        for person, count in enumerate(left):
            sent = self.bits(self.images[person][:count])
            table = by_table(
                self.known.flatten(0, 1)[None], owners, sent[None], torch.full((count,), person), prior=1.0
            )
            together = (table.log_posteriors[0] - table.log_prior).sum(0)
            right.append(int(together.argmax() == person))
        return right

    def answer(self, ledger: Path) -> dict[str, Any]:
        """A service answers some of the sent bits; the table answers the same, and all of the year, alone."""
        enrolled = labelled(60, SEED + 2)
        of = {name: enrolled.label(TARGET).codes == number for number, name in enumerate(CLASSES)}
        support = {name: list(enrolled.images[rows][:ENROLLED]) for name, rows in of.items()}
        served = models.load(self.artefact, name="glasses")
        with Store(f"sqlite:///{self.folder}/store.db") as store:
            store.create_tenant("year")
            key = store.create_key("year", role="write", name="device")[1]
            with (
                running(create(store, [served])) as url,
                Client(url, key=key, protection=self.code, ledger=ledger, timeout=300) as device,
            ):
                device.create("glasses", served.name)
                device.enrol_many(support, classifier="glasses")
                table = device.answer_table(classifier="glasses")
                asked = [image for of_person in self.images for image in of_person[: ASKED // PERSONS]]
                said = [
                    guesses[-1].label for guesses in device.classify_many(asked, top=1, classifier="glasses")
                ]
        start = time.perf_counter()
        looked = [guesses[-1].label for guesses in look_up(table, self.code, list(self.images.flatten(0, 1)))]
        milliseconds = 1000 * (time.perf_counter() - start) / len(looked)
        truth = [CLASSES[number > 0] for number in self.glasses.flatten().tolist()]
        same = [looked[person * self.each + i] for person in range(PERSONS) for i in range(ASKED // PERSONS)]
        return {
            "looked_up": len(looked),
            "right": sum(map(str.__eq__, looked, truth)) / len(truth),
            "commonest": max(map(truth.count, CLASSES)) / len(truth),
            "as_the_service": sum(map(str.__eq__, same, said)) / len(said),
            "bytes": len(table.content),
            "milliseconds": round(milliseconds, 2),
        }

    def curve(self) -> dict[str, Any]:
        """How often adversaries on sets name everybody, beside what is proved of as many releases."""
        who = torch.arange(AMONG).repeat_interleave(KNOWN)
        views = {"": (self.known.flatten(0, 1), self.others[0])}
        further = {"network": partial(by_network, seed=SEED)}
        made = sets.curve(views, who, self.others[1], further=further, seed=SEED)
        return {
            "panel": made.panel,
            "points": [
                {
                    "releases": point.releases,
                    "named": float(point.named.mean()),
                    "largest": max(point.by_adversary.values()),
                    "worst": float(point.named.max()),
                    "proved": naming.counting(
                        1 / made.panel, outputs=2, releases=point.releases, assuming="exchangeable"
                    ).chance,
                }
                for point in made.points
            ],
        }


def shown(path: Path) -> list[str]:
    """What `sfumato ledger show` prints, without the path of the ledger; of people the first."""
    with redirect_stdout(StringIO()) as printed:
        commands.show(path=path)
    lines = printed.getvalue().splitlines()[1:]
    return [line for line in lines if not line.startswith("the person ") or "person-0" in line]


def main() -> None:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES, help="of each person; few try it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        year = Year(Path(temporary), options.images)
        record: dict[str, Any] = {"images": options.images, "among": AMONG, "curve": year.curve()}
        record |= {"with_budget": year.live("with-budget", BUDGET), "without": year.live("without", None)}
        record["table"] = year.answer(year.begin("table", None))
        Rows(options.record)["year"] = record


if __name__ == "__main__":
    main()
