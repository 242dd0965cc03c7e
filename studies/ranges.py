"""One model for a range of protections, against one model for each; and prototypes that weigh by the noise.

    python studies/ranges.py        # about 20 minutes on one core; stopped, it goes on

For each range: a model for every setting alone, and one that serves all and is told which made an image, all
trained alike. Tested on each setting, on settings between them that no model was trained for, and on images of
which each has any of the settings, with support images that count alike or by what their protection leaves.
The record is studies/results/ranges.jsonl.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import sfumato
from sfumato import data, protect
from sfumato.data import LabelledImages
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig, FewShotModel
from sfumato.study.records import write_rows

RECORD = Path(__file__).parent / "results" / "ranges.jsonl"
MODELS = Path("runs/ranges")
SEED = 0


@dataclass(frozen=True)
class Range:
    """A range of settings on one data set, and one between them."""

    name: str
    source: dict[str, Any]
    target: str
    settings: str
    between: str
    training: FewShotConfig
    queries: int


def _training(way: int, shot: int, queries: int, **more: Any) -> FewShotConfig:
    return FewShotConfig(
        start="random",
        way=way,
        shot=shot,
        queries=queries,
        epochs=8,
        episodes_per_epoch=50,
        patience=8,
        halve_every=3,
        validation_episodes=100,
        denoiser_width=16,
        **more,
    )


OMNIGLOT = {"source": "omniglot", "root": "runs/data/omniglot"}
RANGES = (
    Range(
        "Omniglot, Gaussian noise",
        OMNIGLOT,
        "class",
        "gaussian:sigma=40,80,160",
        "gaussian:sigma=120",
        _training(20, 5, 5),
        15,
    ),
    Range(
        "Omniglot, DP-Pix",
        OMNIGLOT,
        "class",
        "dp-pix:cell=4,epsilon=0.5,2,8",
        "dp-pix:cell=4,epsilon=1",
        _training(20, 5, 5),
        15,
    ),
    Range(
        "LFW, DP-Pix",
        {"source": "table:runs/data/lfw/table.csv"},
        "identity",
        "dp-pix:cell=8,epsilon=0.2,1,5",
        "dp-pix:cell=8,epsilon=0.5",
        _training(40, 2, 2, flips=True),
        5,
    ),
)


def trained(one: Range, loaded: LabelledImages, specs: list[str]) -> tuple[FewShotModel, float]:
    """The model for these settings, trained or read from where an earlier run left it; and the seconds it took."""
    name = "-".join(
        [*one.name.replace(",", "").lower().split(), *(spec.rpartition("=")[2] for spec in specs)]
    )
    path = MODELS / f"{name}.safetensors"
    if not path.exists():
        started = time.perf_counter()
        model = few_shot.train(
            loaded.split("train"),
            [protect.parse(spec) for spec in specs],
            one.training,
            target=one.target,
            validation=loaded.split("validation"),
            seed=SEED,
        )
        model.card["seconds"] = time.perf_counter() - started
        model.save(path)
    model = few_shot.load(path)
    return model, model.card["seconds"]


def measure(one: Range) -> dict[str, Any]:
    """All models of a range on all of its settings."""
    source = dict(one.source)
    loaded = data.load(source.pop("source"), **source)
    test = loaded.split("test")
    specs = [protection.spec for protection in protect.expand(one.settings)]

    def tested(model: FewShotModel, specs: list[str], *, weighted: bool = True) -> dict[str, float]:
        found = few_shot.evaluate(
            model,
            test,
            way=5,
            shot=5,
            queries=one.queries,
            episodes=1000,
            target=one.target,
            protection=[protect.parse(spec) for spec in specs],
            weighted=weighted,
            seed=SEED,
        )
        return {"accuracy": found.mean, "half_width": found.half_width}

    alone = {spec: trained(one, loaded, [spec]) for spec in specs}
    together, seconds = trained(one, loaded, specs)
    return {
        "name": one.name,
        "settings": specs,
        "between": one.between,
        "training": asdict(one.training),
        "alone": {
            spec: {asked: tested(alone[spec][0], [asked]) for asked in [*specs, one.between]}
            for spec in specs
        },
        "together": {asked: tested(together, [asked]) for asked in [*specs, one.between]},
        "mixed": {
            "alike": tested(together, specs, weighted=False),
            "by protection": tested(together, specs, weighted=True),
        },
        "weights": together.card["weights"],
        "seconds": {"alone": {spec: alone[spec][1] for spec in specs}, "together": seconds},
    }


def main() -> None:
    """Measure every range and write the record."""
    record = {
        "ranges": [measure(one) for one in RANGES],
        "seed": SEED,
        "version": sfumato.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    write_rows(RECORD, [record])
    print(json.dumps({"written": str(RECORD)}))


if __name__ == "__main__":
    main()
