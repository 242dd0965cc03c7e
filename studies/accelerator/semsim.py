"""SemSim with the paper's network: each data set left out in turn, at equal epochs, and from few annotations.

    studies/accelerator/run.sh OUT --only semsim

Trains on the reconstructions and judgements behind studies/results/reconstruction.jsonl. The images are those that `python
studies/reconstruction.py` leaves in runs/reconstruction; an attack of which images are missing is not measured. Nobody judges
again. LeNet, ResNet-18 and ResNet-50, later ResNet-152, are trained for as many epochs of as many images, with the settings of
the published code, and ResNet-50 with those of the paper, too. For Fig. 7A a LeNet sees a share of the originals with all their
reconstructions, for as many steps. At each tenth of the epochs the record has the loss and the agreement; at the end, the
mean distance of each victim. A training that the time limit cuts is recorded with the epochs that it reached. Without an accelerator,
LeNets alone are trained.
"""

import time
from dataclasses import replace
from functools import cache, partial
from itertools import product
from statistics import mean
from typing import Any

import torch
from pool import Options, Task, card, options, run
from reconstructed.judged import PROXY, folder_of
from reconstructed.learned import PUBLISHED, judgements, record_of, scores_of, shares_of, tau
from reconstructed.recognisers import admitted
from reconstructed.sources import RECORDS, RUNS

from sfumato.assess.semsim import SemSim
from sfumato.learn import semsim
from sfumato.learn.semsim import SEMSIM
from sfumato.networks.encoders.small import Embedding

SETS = tuple(admitted())
SEEDS = (0, 1, 2)
SHARES = (0.05, 0.1, 0.25, 0.5)
EQUAL = ("lenet", "resnet18", "resnet50")
AS_PAPER = "resnet50, settings of the paper"
POINTS = 10  # of a curve
SPARE = 15.0  # seconds before the end, in which what was trained is measured


class OutOfTimeError(Exception):
    """No time is left to train."""


def tasks() -> tuple[list[Task], list[Task]]:
    """What is compared, once; and few annotations, then more seeds, then what takes longest."""
    first = [*product((0,), EQUAL, (1.0,))]
    others = [
        *product(SEEDS, ("lenet",), SHARES),
        *product(SEEDS[1:], EQUAL[:2], (1.0,)),
        (1, "resnet50", 1.0),
        (0, AS_PAPER, 1.0),
        (2, "resnet50", 1.0),
        (0, "resnet152", 1.0),
    ]
    return tuple(  # type: ignore[return-value]
        [
            Task(
                f"{network}, without {name}, {share:g} of the originals, seed {seed}",
                {"network": network, "data": name, "share": share, "seed": seed},
            )
            for (seed, network, share), name in product(some, SETS)
        ]
        for some in (first, others)
    )


@cache
def records() -> dict[str, dict[str, Any]]:
    """Those of attacks whose images are here."""
    return {
        row: record
        for row, record in RECORDS.items()
        if "attack" not in record
        or all(
            (folder_of(name, record["attack"], victim, RUNS) / "facts.json").exists()
            for name in [row.removesuffix(f"-{record['attack']}")]
            for victim in record["victims"]
        )
    }


@cache
def known(name: str) -> semsim.Judgements:
    """The judgements of all data sets but one."""
    return judgements([other for other in SETS if other != name], records(), RUNS)


def work(ends: float, task: Task, given: Options) -> dict[str, Any]:
    """Train once, and measure the victims of the data set that was left out."""
    name, network, share, seed = (task.settings[key] for key in ("data", "network", "share", "seed"))
    device, small, seen = card(), given.scale < 1, known(name)
    full = -(-len(seen.of) // PUBLISHED.batch)  # steps of an epoch of all
    count = 2 if small else round(share * len(seen.originals))
    if count < len(seen.originals):
        seen = semsim.sample(seen, count, torch.Generator().manual_seed(seed))
    config = SEMSIM if network == AS_PAPER else replace(PUBLISHED, network=network)
    epochs = 1 if small else round(config.epochs * full / -(-len(seen.of) // config.batch))
    config = replace(config, epochs=epochs, size=8 if small else config.size)
    curve: list[dict[str, Any]] = []
    last: dict[str, Any] = {}

    def measure(embedding: Embedding) -> dict[str, Any]:
        scores = scores_of(SemSim(embedding, card={}), name, records(), RUNS, device)
        last["victims"] = {
            attack: {victim: round(mean(each), 4) for victim, each in victims.items()}
            for attack, victims in scores.items()
        }
        return {
            attack: round(
                tau([*map(mean, victims.values())], shares_of(record_of(name, attack, records()))), 4
            )
            for attack, victims in scores.items()
        }

    def observe(epoch: int, loss: float, embedding: Embedding) -> None:
        late = time.time() > ends
        points = 1 if small else POINTS
        if late or epoch * points // epochs > (epoch - 1) * points // epochs:
            curve.append({"epoch": epoch, "loss": round(loss, 5), "kendall": measure(embedding)})
        if late:
            raise OutOfTimeError

    try:
        semsim.train(seen, config, seed=seed, observe=observe, device=device)
    except OutOfTimeError:
        print(f"{task.name}: {curve[-1]['epoch']} of {epochs} epochs", flush=True)
    return {
        "annotators": PROXY,
        "data": name,
        "seed": seed,
        "config": {**vars(config), "epochs": curve[-1]["epoch"]},
        "known": seen.card(),
        "curve": curve,
        **last,
    }


def main() -> int:
    """Do what there is time for, and what can be done here."""
    given = options(__doc__)
    ends = time.time() + given.seconds
    able = torch.cuda.is_available() or given.scale < 1
    failed = 0
    # A part by itself, since no task begins when less time is left than the longest of its part took.
    for part in tasks():
        todo = [task for task in part if able or task.settings["network"] == "lenet"]
        left = replace(given, seconds=ends - time.time())
        failed += run("semsim", todo, partial(work, ends - SPARE), left, least=2 * SPARE)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
