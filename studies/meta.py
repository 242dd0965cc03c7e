"""Meta-learning on real Omniglot: without a promise against known accuracies, and with one, policy by policy.

    python studies/meta.py clean            # MAML and Reptile without noise: under an hour each on two cores
    python studies/meta.py clean --only NAME

Stopped, a run goes on from its checkpoint under runs/meta; records are studies/results/meta/*.json.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import sfumato
from sfumato import protect
from sfumato.data import LabelledImages, omniglot
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig
from sfumato.study.records import write_json

ROOT = "runs/data/omniglot"
RECORDS = Path(__file__).parent / "results" / "meta"
RUNS = Path("runs/meta")
EPISODES, QUERIES = 600, 15


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        name: of its record.
        config: how it is trained.
        seed: of weights and tasks.
        least: accuracy that is expected, from the literature; None where nothing is.
    """

    name: str
    config: MetaConfig
    seed: int = 0
    least: float | None = None


CLEAN = (
    Run(
        "maml-fully-connected-1shot",
        MetaConfig(algorithm="maml", shot=1, queries=5, steps=24_000, tasks=16),
        least=0.88,
    ),
    Run(
        "maml-strided-5shot",
        MetaConfig(
            algorithm="maml", network="strided", shot=5, queries=5, steps=8_000, tasks=8, precision="auto"
        ),
        least=0.98,
    ),
    Run(
        "reptile-strided-5shot",
        MetaConfig(
            algorithm="reptile",
            network="strided",
            shot=5,
            queries=5,
            inner_steps=5,
            inner_rate=0.1,
            test_steps=20,
            steps=6_000,
            tasks=5,
            precision="auto",
        ),
        least=0.97,
    ),
)


def measure(run: Run, loaded: LabelledImages) -> None:
    """Train, test on characters that nothing was trained on, and write the record, unless it is there."""
    record = RECORDS / f"{run.name}.json"
    if record.exists():
        return
    checkpoint = RUNS / f"{run.name}.checkpoint"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    resumed = checkpoint.exists()
    started = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if done % 200 == 0:
            print(f"{run.name}: {done} of {total}, {time.perf_counter() - started:.0f} s", flush=True)

    model = meta.train(
        loaded.split("train"),
        protect.parse("none"),
        run.config,
        seed=run.seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    model.save(RUNS / f"{run.name}.safetensors")
    tested = meta.evaluate(model, loaded.split("test"), queries=QUERIES, episodes=EPISODES, seed=run.seed)
    write_json(
        record,
        {
            "name": run.name,
            "seed": run.seed,
            "least": run.least,
            "data": loaded.digest,
            "accuracy": tested.mean,
            "half_width": tested.half_width,
            "test": {"episodes": EPISODES, "queries": QUERIES},
            "seconds": None if resumed else round(seconds, 1),
            "threads": torch.get_num_threads(),
            "version": sfumato.__version__,
            "card": model.card,
        },
    )
    print(f"{run.name}: {tested}", flush=True)


def main() -> None:
    """Run what is asked for and has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("which", choices=["clean"])
    asked.add_argument("--only", help="the name of one run")
    options = asked.parse_args()
    loaded = omniglot(ROOT)
    for run in CLEAN:
        if options.only in (None, run.name):
            measure(run, loaded)


if __name__ == "__main__":
    main()
