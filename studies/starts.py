"""What the shipped start is worth: training from it, and from random weights, on 10, 50 and 500 photographs.

    python studies/unpack.py lfw ../shared/data runs/data/lfw     # and cmu, caltech101, fer
    python studies/starts.py                                       # half an hour; stopped, it goes on

LFW's gender, CMU's sunglasses, three emotions of FER and Caltech-101 (5 classes, of 500 images 20), in clear and
pixelized: a Conv-4 with a linear layer, at most 40 epochs. Classes have as many images each, in training, in the
validation that chooses the epoch (300 at most, for both starts the same) and in the test (1,000 at most), where people
are new. Three draws of the training images. Writes studies/results/starts.jsonl.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows

import sfumato
from sfumato import data
from sfumato.base.proportions import wilson
from sfumato.data.labelled import LabelledImages
from sfumato.learn import classifier
from sfumato.learn.start import STARTS, by_content
from sfumato.protect import parse

DATA = Path("runs/data")
RECORDS = Rows(RESULTS / "starts.jsonl")
COUNTS = (10, 50, 500)
SEEDS = (0, 1, 2)
SPECS = ("none", "pixelize:cell=8")
VALIDATED, TESTED = 300, 1000  # images, at most


@dataclass(frozen=True)
class Task:
    """Images of classes, in the splits train, validation and test."""

    name: str
    images: LabelledImages
    target: str


def tasks(count: int) -> Iterator[Task]:
    """Those that are trained on so many images."""
    for name, table, target, size in (
        ("LFW, gender", "lfw/table.csv", "gender", 48),
        ("CMU, sunglasses", "cmu/table.csv", "sunglasses", 32),
        ("FER, three emotions", "fer/table.csv", "emotion", 48),
    ):
        yield Task(name, data.load(f"table:{DATA / table}", size=size), target)
    objects = data.load(f"table:{DATA}/caltech101/table.csv", size=48)
    codes, ways = objects.label("class").codes, 20 if count == 500 else 5
    # Forty photographs of a class: 25 to train on, 5 to choose the epoch by, 10 to test on.
    classes, counts = codes.unique(return_counts=True)
    rows = torch.stack([(codes == k).nonzero().flatten()[:40] for k in classes[counts >= 40][:ways]])
    splits = {"train": rows[:, :25], "validation": rows[:, 25:30], "test": rows[:, 30:]}
    parts = {name: part.flatten() for name, part in splits.items()}
    yield Task(
        f"Caltech-101, {ways} classes",
        LabelledImages(objects.name, objects.images, objects.labels, parts),
        "class",
    )


def balanced(task: Task, split: str, most: int, seed: int) -> LabelledImages:
    """As many images of each class, `most` in all where there are so many."""
    images = task.images.split(split)
    codes = images.label(task.target).codes
    wanted = task.images.split("test").label(task.target).codes.unique()
    order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))
    own = [order[codes[order] == k] for k in wanted]
    fewest = min(len(rows) for rows in own)
    rows = [rows[: min(fewest, -(-most // len(own)))] for rows in own]
    return images.rows(torch.cat(rows))


def classified(task: Task, count: int, spec: str, start: str, seed: int) -> dict[str, Any]:
    """Train on so many images, and test."""
    training = balanced(task, "train", count, seed)
    config = classifier.ClassifierConfig(
        network="conv4", start=start, epochs=40, patience=10, batch=32, flips=True, shifts=2
    )
    model = classifier.train(
        training,
        parse(spec),
        config,
        target=task.target,
        validation=balanced(task, "validation", VALIDATED, 0),
        seed=seed,
    )
    right = classifier.evaluate(model, balanced(task, "test", TESTED, 0), target=task.target)
    return {
        "accuracy": right.mean,
        "tested": right.images,
        "trained": len(training),
        "epochs": model.card["epochs"],
    }


def mean_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over draws, the least and the most, and the interval of the mean over the images tested."""
    values = [run["accuracy"] for run in runs]
    summary = {"mean": sum(values) / len(values), "least": min(values), "most": max(values), "runs": runs}
    tested = runs[0]["tested"]  # the same images for every draw
    summary["low"], summary["high"] = wilson(summary["mean"] * tested, tested)
    return summary


def main() -> None:
    """Measure what is not measured yet."""
    began = time.monotonic()
    torch.set_num_threads(2)
    record: dict[str, Any] = RECORDS.get("starts", {"rows": {}, "seconds": 0})
    if record.get("start") != by_content("drawn"):
        record = {"start": by_content("drawn"), "rows": {}, "seconds": 0}

    def measure(name: str, make: Any) -> None:
        nonlocal began
        if name in record["rows"]:
            return
        record["rows"][name] = mean_of([make(seed) for seed in SEEDS])
        record["seconds"] += time.monotonic() - began
        began = time.monotonic()
        record["version"] = sfumato.__version__
        RECORDS["starts"] = record
        print(name, f"{100 * record['rows'][name]['mean']:.1f}", flush=True)

    for spec in SPECS:
        for count in COUNTS:
            for task in tasks(count):
                for start in STARTS:
                    measure(
                        f"{task.name}|{count}|{spec}|{start}",
                        lambda seed, t=task, n=count, p=spec, s=start: classified(t, n, p, s, seed),
                    )


if __name__ == "__main__":
    main()
