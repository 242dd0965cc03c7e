"""A smile, or a gender, a hundred times: what answers of one bit name on photographs, beside what is proved of them.

    studies/accelerator/run.sh OUT --only answers

LFW of 64x64. The 62 people with 20 photographs and more are in no training. Of the others whose smile is known three in
ten test the classifier, one in ten chooses its epoch, and all else trains it, by the settings of studies/lfw-smile.yaml.
Nobody has hundreds of photographs, so that releases are drawn from the photographs of a person with replacement: they
are the independent draws which the stronger proof assumes. Adversaries know 200 draws from one half of a person's
photographs, and name from draws from the other half. One more knows how often each of 1,000 people, those with the most
photographs, is answered yes: nobody names more of them by such draws, and what they reach is computed, not drawn.
"""

import math
from dataclasses import asdict
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, options, run
from releases import named, view
from torch import Tensor
from unpack import picture

from sfumato.attack.sets import SIZES
from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.naming import exact
from sfumato.learn import classifier
from sfumato.learn.classifier import ClassifierConfig
from sfumato.protect.none import Clear

SEEDS, SIDE = (0, 1, 2), 64
TARGETS = {"smile": ("no", "yes"), "gender": ("female", "male")}
FREQUENT, KNOWN, DRAWN, AMONG = 20, 10, 200, 1_000
LIKE_THE_STUDY = ClassifierConfig(
    start="random", network="conv4", epochs=40, patience=10, flips=True, shifts=4
)


def tasks() -> list[Task]:
    """Both tasks by one training each, then the other seeds."""
    return [
        Task(f"{target}, seed {seed}", {"target": target, "seed": seed})
        for seed, target in product(SEEDS, TARGETS)
    ]


@cache
def _read(given: Options) -> tuple[Tensor, dict[str, np.ndarray]]:
    """All photographs, and the table of who is on them."""
    packed = dict(np.load(given.data / "lfw_faces_84.npz"))
    rows = range(len(packed["person"]))
    images = np.stack([np.asarray(picture(packed, row).resize((SIDE, SIDE))) for row in rows])
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), packed


def split(packed: dict[str, np.ndarray], target: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(N,) labels, -1 where unknown, and the rows of train, validation and test."""
    person, counts = packed["person"], np.bincount(packed["person"])
    label = packed[target].astype(np.int64)
    label = label if len(label) == len(person) else label[person]
    label[label > 1] = -1
    known = np.unique(person[(packed["smile"] <= 1) & (counts[person] < FREQUENT)])
    order = np.random.default_rng(0).permutation(known)
    asked, held_back = 3 * len(order) // 10, len(order) // 10
    part = np.where(counts >= FREQUENT, "", "train").astype(object)
    part[order[:asked]], part[order[asked : asked + held_back]] = "test", "validation"
    return label, {
        name: np.flatnonzero((part[person] == name) & (label >= 0))
        for name in ("train", "validation", "test")
    }


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train, and name people by answers."""
    target, seed = task.settings["target"], task.settings["seed"]
    images, packed = _read(given)
    label, parts = split(packed, target)

    def shown(name: str) -> LabelledImages:
        rows = torch.from_numpy(parts[name])
        return LabelledImages(
            "lfw", images[rows], {target: Label(torch.from_numpy(label)[rows], TARGETS[target])}
        )

    config = LIKE_THE_STUDY
    if given.scale < 1:
        config = ClassifierConfig(**{**asdict(config), "epochs": 1})
    model = classifier.train(
        *(shown("train"), Clear(), config),
        **{"target": target, "validation": shown("validation"), "seed": seed, "device": card()},
    )
    with torch.no_grad():
        answers = model.classify(images).numpy()
    right = int((answers[parts["test"]] == label[parts["test"]]).sum())
    draw, person = np.random.default_rng(seed), packed["person"]
    of = [answers[person == each] for each in np.argsort(-np.bincount(person), kind="stable")]
    frequent, others = (
        [each for each in of if least <= len(each) < most]
        for least, most in ((FREQUENT, math.inf), (KNOWN, FREQUENT))
    )
    numbers = torch.from_numpy(np.stack([drawn(each, draw) for each in frequent]))
    known = torch.from_numpy(np.stack([drawn(each, draw) for each in others]))
    naming = named(
        numbers,
        known,
        view("as it is", torch.tensor([0.5]), None),
        panel=len(numbers) // 2,
        images=DRAWN,
        seed=seed,
    )
    shares = np.array([each.mean() for each in of[:AMONG]])
    return {
        "test": {"right": right, "images": len(parts["test"]), "train": len(parts["train"])},
        "among": {str(size): reached(shares, size) for size in SIZES},
        "people_who_differ": len(np.unique(shares)),
        **naming,
    }


def drawn(answers: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """(2 * 200, 1) of -1 and 1: answers drawn from one half of a person's, then from the other."""
    halves = np.array_split(draw.permutation(answers), 2)
    return np.concatenate([draw.choice(half, DRAWN) for half in halves])[:, None].astype(np.float32) * 2 - 1


def reached(shares: np.ndarray, releases: int) -> float:
    """How often who knows each person's (P,) share of ones names the right one, from n draws: exactly."""
    ones = np.arange(releases + 1)
    ways = np.array([float(math.comb(releases, each)) for each in ones])
    table = ways * shares[:, None] ** ones * (1 - shares[:, None]) ** (releases - ones)
    return exact([1 / len(shares)] * len(shares), table)


def main() -> int:
    """Do what there is time for."""
    return run("answers", tasks(), work, options(__doc__))


if __name__ == "__main__":
    raise SystemExit(main())
