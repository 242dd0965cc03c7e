"""One-shot classification within an alphabet, the task of Lake, Salakhutdinov & Tenenbaum 2015, by prototypes.

    python studies/lake.py              # an hour and a quarter on one core; it resumes
    python studies/lake.py --warps 0.2  # on drawings that are turned, scaled and sheared
    python studies/lake.py --encoder resnet12 --warps 0.2  # three quarters of an hour
    python studies/lake.py --encoder resnet12 --warps 0.2 --within  # trained on characters of one alphabet at a time
    python studies/lake.py --small      # settings too small to learn, to try it out

A task is 20 characters of one alphabet and two people who drew it: one image of each character by the one is known,
and those by the other are named. The authors published 20 such tasks; these are drawn by the same rule, from the 20
evaluation alphabets, none of whose characters, and none of whose drawers, is in training. The network is trained on the
30 background alphabets, five of which choose the epoch. Conv-4 is trained first as a classifier of all characters and
their quarter turns, then on 60-way one-shot episodes; a ResNet-12 of a quarter of the paper's width on 20-way one-shot
episodes alone. The input is at 28 x 28: the means of 2 x 2 pixels of images at 56 x 56. At the test an image is embedded
at nine places, a pixel apart, and the mean counts; or in 16 views, moved and warped at random. The error without is given
beside, and all three of tasks of the alphabets that choose the epoch.

Writes studies/results/lake.jsonl as ENCODER-WARPS, with -within at its end where episodes stay within an alphabet.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows
from torch import Tensor

import sfumato
from sfumato import data
from sfumato.data import LabelledImages
from sfumato.data.labelled import label_of
from sfumato.learn import few_shot
from sfumato.learn.augmentation import augment
from sfumato.learn.few_shot import FewShotConfig, FewShotModel
from sfumato.learn.prototypes import episode_accuracies
from sfumato.protect import parse

DATA = Path("runs/data/omniglot")
RUNS = Path("runs/lake")
RECORDS = Rows(RESULTS / "lake.jsonl")
SIZE = 56
WAY, TASKS, SEED = 20, 1000, 0
PLACES = (-2, 0, 2)  # of the 56 pixels, down and across
VIEWS = 16
_CONV4 = FewShotConfig(
    start="random",
    denoiser_depth=None,
    cell=SIZE // 28,
    way=60,
    shot=1,
    queries=5,
    epochs=90,
    pretraining_epochs=60,
    episodes_per_epoch=100,
    patience=20,
    learning_rate=2e-3,
    halve_every=18,
    shifts=3,
    validation_way=20,
    validation_shot=1,
    validation_queries=5,
    validation_episodes=100,
)
TRAININGS = {
    "conv4": _CONV4,
    "resnet12": replace(
        _CONV4,
        encoder="resnet12",
        widths=(16, 32, 64, 128),
        way=20,
        pretraining_epochs=0,
        learning_rate=1e-3,
        halve_every=15,
    ),
}


def tasks(drawings: LabelledImages, *, way: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw tasks by the rule of Lake et al. 2015: (count, way, 2) rows, the known image and the one to name.

    Args:
        drawings: each character once by each of its drawers: labels `class`, `alphabet`, and `drawer`, whose names
            are of one alphabet each.
        way: characters of a task.
        count: how many tasks.
        generator: of all that is drawn: an alphabet, its characters, and two of its drawers.
    """
    characters, alphabets, drawers = (drawings.label(name).codes for name in ("class", "alphabet", "drawer"))
    row_of = {pair: row for row, pair in enumerate(zip(characters.tolist(), drawers.tolist(), strict=True))}
    of_alphabet = [
        (characters[alphabets == alphabet].unique(), drawers[alphabets == alphabet].unique())
        for alphabet in alphabets.unique()
    ]
    enough = [(own, people) for own, people in of_alphabet if len(own) >= way and len(people) >= 2]
    drawn = []
    for _ in range(count):
        own, people = enough[int(torch.randint(len(enough), (), generator=generator))]
        chosen = own[torch.randperm(len(own), generator=generator)[:way]].tolist()
        pair = people[torch.randperm(len(people), generator=generator)[:2]].tolist()
        drawn.append([[row_of[character, person] for person in pair] for character in chosen])
    return torch.tensor(drawn)


def turned() -> LabelledImages:
    """Characters and their quarter turns; an alphabet that is turned is one of its own, the label `turned`."""
    drawings = data.omniglot(DATA, size=SIZE, split="lake")
    character = drawings.label("class")  # "Greek/character01/rot090"
    names = [character.names[code].split("/") for code in character.codes.tolist()]
    alphabets = label_of([f"{alphabet}/{turn}" for alphabet, _, turn in names])
    return replace(drawings, labels={**drawings.labels, "turned": alphabets})


def train(config: FewShotConfig, path: Path) -> FewShotModel:
    """The network, trained where it is not there yet."""
    if path.exists():
        return few_shot.load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawings = turned()
    checkpoint, began = path.with_suffix(".checkpoint"), time.perf_counter()
    model = few_shot.train(
        drawings.split("train"),
        parse("none"),
        config,
        validation=drawings.split("validation"),
        seed=SEED,
        checkpoint=checkpoint,
        progress=lambda done, planned: print(f"\r{done}/{planned}", end="", flush=True),
    )
    model.card["seconds"] = round(time.perf_counter() - began)
    model.save(path)
    checkpoint.unlink(missing_ok=True)
    return model


def moved(images: Tensor, down: int, across: int) -> Tensor:
    """(N, 1, H, W) images moved by so many pixels; what comes in is empty, as the border of drawings is."""
    room = max(abs(down), abs(across))
    wide = torch.nn.functional.pad(images, [room] * 4)
    height, width = images.shape[2:]
    return wide[..., room - down : room - down + height, room - across : room - across + width]


def errors(embeddings: Tensor, drawn: Tensor) -> dict[str, float]:
    """How often the wrong character is named: the mean over tasks, and half of its 95% interval."""
    wrong = 1 - episode_accuracies(embeddings, drawn, shot=1)  # (E,)
    return {"error": wrong.mean().item(), "half_width": 1.96 * wrong.std().item() / len(wrong) ** 0.5}


def looked_at(
    model: FewShotModel, drawings: LabelledImages, count: int, warps: float
) -> dict[str, dict[str, float]]:
    """The errors in tasks of these drawings: of images as they are, at nine places, and in random views.

    Views are moved as places are, and warped half as far as images were in training.
    """
    drawn = tasks(drawings, way=WAY, count=count, generator=torch.Generator().manual_seed(SEED))
    images, generator = drawings.images, torch.Generator().manual_seed(SEED)
    places = {
        (down, across): model.embed(moved(images, down, across)) for down in PLACES for across in PLACES
    }
    shifts = max(PLACES)
    views = [model.embed(augment(images, generator, shifts=shifts, warps=warps / 2)) for _ in range(VIEWS)]
    return {
        "one_place": errors(places[0, 0], drawn),
        "nine_places": errors(torch.stack(list(places.values())).mean(0), drawn),
        "views": errors(torch.stack(views).mean(0), drawn),
    }


def measure(config: FewShotConfig, path: Path, count: int) -> dict[str, Any]:
    """Train, and test on tasks."""
    model = train(config, path)
    drawings = data.omniglot(DATA, size=SIZE, rotations=False, split="lake")
    card = {name: model.card[name] for name in ("epochs", "validation_accuracy", "curve", "seconds")}
    return {
        "way": WAY,
        "tasks": count,
        "alphabets": len(drawings.split("test").label("alphabet").codes.unique()),
        "seed": SEED,
        "training": {
            "encoder": config.encoder,
            "widths": config.widths,
            "way": config.way,
            "pretraining_steps": config.pretraining_epochs * config.episodes_per_epoch,
            "episodes": (config.epochs - config.pretraining_epochs) * config.episodes_per_epoch,
            "warps": config.warps,
            "within": config.within is not None,
            **card,
        },
        **looked_at(model, drawings.split("test"), count, config.warps),
        "validation": looked_at(model, drawings.split("validation"), count, config.warps),
        "version": sfumato.__version__,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Train, test, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="settings too small to learn")
    parser.add_argument(
        "--warps", type=float, default=0, help="how far drawings are warped in training, such as 0.2"
    )
    parser.add_argument("--encoder", choices=TRAININGS, default="conv4")
    parser.add_argument("--within", action="store_true", help="train on characters of one alphabet at a time")
    options = parser.parse_args()
    within = "turned" if options.within else None
    config = replace(TRAININGS[options.encoder], warps=options.warps, within=within)
    name = f"{config.encoder}-{config.warps:g}" + ("-within" if options.within else "")
    path, records, count = RUNS / f"{name}.safetensors", RECORDS, TASKS
    if options.small:
        config = replace(
            config,
            epochs=2,
            pretraining_epochs=min(config.pretraining_epochs, 1),
            episodes_per_epoch=2,
            validation_episodes=2,
        )
        path, records, count = RUNS / "small.safetensors", Rows(RUNS / "small.jsonl"), 10
    found = measure(config, path, count)
    records[name] = found
    print(f"\nerror {100 * found['views']['error']:.1f}%: {name}")


if __name__ == "__main__":
    main()
