"""Codes of drawn people by the library's training: how many people are named from a hundred releases.

    studies/accelerator/run.sh OUT --only releases

Drawn faces in hats of 32x32: as many people train as `sfumato demo` has, or 384; 96 are known to adversaries, and 160
new people, of 200 pictures each, in new hats, are the test. Records of penalties that were compared before the library
had one, of thresholds that a device sets itself, and of hats cut out were made by this file at commit 258aef2f.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, keep, mean_and_half_width, options, run, undone
from torch import Tensor

from sfumato.attack import sets
from sfumato.attack.set_network import by_network
from sfumato.base.engines import EngineConfig, engine
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds import same_scenes
from sfumato.data.worlds._portraits import People
from sfumato.data.worlds.faces import draw, people
from sfumato.data.worlds.faces import faces as world_of
from sfumato.episodes import Sampler, Shape, fit_episodes
from sfumato.learn import code
from sfumato.learn.code import CodeConfig, CodeModel
from sfumato.learn.prototypes import episode_accuracies

SEEDS = (0, 1, 2)
WORLD = 1  # 0 is the one on which penalties were compared
SIDE = 32  # as of `sfumato demo`
PANEL = 40  # people among whom one is named: guessing is 2.5%
TEST = Shape(way=5, shot=5, queries=10)
EPISODES = 600
_PART = 2000  # images drawn by one process at a time


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an encoder is trained, beside what all have in common."""

    bits: int = 16
    longer: int = 1  # times as many steps as the demo's
    people: int = 144  # who train
    weight: float = 0.0  # of the same scenes


OF_DEMO = CodeConfig(bits=16, pretraining_epochs=4, epochs=10, halve_every=3)
TRAININGS = {
    "the demo's": Training(),
    "the demo's, same_scenes=1": Training(weight=1),
    "the demo's, four times as long": Training(longer=4),
    "the demo's, same_scenes=1, four times as long": Training(weight=1, longer=4),
    "twelve times as long as the demo's, same_scenes=1": Training(people=384, weight=1, longer=12),
    "twelve times as long as the demo's": Training(people=384, longer=12),
    "12 bits, twelve times as long as the demo's": Training(bits=12, people=384, longer=12),
}
# Bits that show nobody: what adversaries reach by chance, and whom they name most.
RANDOM = "random bits"


def tasks() -> list[Task]:
    """Every training with the first seed, then with the others."""
    return [
        Task(
            f"{name}, seed {seed}, world {WORLD}",
            {**asdict(TRAININGS.get(name, Training())), "name": name, "seed": seed, "world": WORLD},
        )
        for seed, name in product(SEEDS, (RANDOM, *TRAININGS))
    ]


@dataclass(frozen=True)
class Sizes:
    """How much is drawn."""

    identities: int  # of the world; 60, 15 and 25% are for training, for adversaries, and for the test
    headwear: int  # likewise
    own: int  # images of each training person
    others: int  # and of each person whom adversaries learn from
    pictures: int  # and of each test person

    @classmethod
    def of(cls, scale: float) -> "Sizes":
        """All of it at 1; at a hundredth a world in which everything can be tried, and nothing learned."""
        if scale >= 1:
            return cls(640, 300, 30, 100, 200)
        return cls(max(64, int(640 * scale**0.5)), 60, 12, 12, 20)


def rows(sizes: Sizes, kind: str) -> People:
    """What the images of a kind show: N rows, person by person."""
    about = {"identities": sizes.identities, "images_per_identity": sizes.pictures}
    world = people(**about, headwear=sizes.headwear, seed=WORLD)
    splits = world_of(**about, headwear=sizes.headwear, size=SIDE, seed=WORLD, drawn=False).splits
    split = {"own": "train", "others": "validation", "test": "test"}[kind]
    most = {"own": sizes.own, "others": sizes.others, "test": sizes.pictures}[kind]
    return world.rows(splits[split].view(-1, sizes.pictures)[:, :most].flatten())


def drawn(folder: Path, sizes: Sizes, *, workers: int) -> None:
    """Draw what is not in the folder yet: KIND.npy, (N, 3, 32, 32) uint8, and KIND-labels.npy, (2, N) people and hats."""
    folder.mkdir(parents=True, exist_ok=True)
    with engine(EngineConfig(workers=workers)) as processes:
        for kind in ("own", "others", "test"):
            if (folder / f"{kind}.npy").exists():
                continue
            world = rows(sizes, kind)
            np.save(folder / f"{kind}-labels.npy", torch.stack([world.identity, world.headwear]).numpy())
            parts = [world.rows(part) for part in torch.arange(len(world)).split(_PART)]
            running = [processes.submit(_draw, part) for part in parts]
            np.save(folder / f"{kind}.npy", np.concatenate([each.result() for each in running]))


def _draw(world: People) -> np.ndarray:
    return draw(world, size=SIDE)[0].numpy()


def by_library(training: Training, sizes: Sizes, folder: Path, *, seed: int, scale: float) -> CodeModel:
    """The encoder as a study trains it."""
    shown, images = rows(sizes, "own"), torch.from_numpy(np.load(folder / "own.npy"))
    names = ("identity", "headwear", "hair_color", "expression", "glasses", "gender", "age")
    codes = {name: getattr(shown, name) for name in names}
    labels = {name: Label(each, tuple(map(str, range(int(each.max()) + 1)))) for name, each in codes.items()}
    everybody = LabelledImages("faces", images, labels)
    who = everybody.classes("identity")[: training.people]
    data = everybody.rows(torch.isin(codes["identity"], who).nonzero().flatten())
    longer = training.longer if scale == 1 else 1
    epochs = ("pretraining_epochs", "epochs", "halve_every")
    many = {name: getattr(OF_DEMO, name) * longer for name in epochs}
    config = replace(OF_DEMO, bits=training.bits, same_scenes=training.weight, **many)
    config = fit_episodes(config, data.label("headwear").codes)
    sets = same_scenes.draw_sets(data, seed=WORLD) if training.weight else None
    return code.train(data, config, target="headwear", same_scenes=sets, seed=seed, device=card())


def signs(numbers: Tensor) -> Tensor:
    """What a device sends: -1 and 1."""
    return (numbers > 0).float() * 2 - 1


def named(numbers: Tensor, others: Tensor, *, panel: int, seed: int) -> dict[str, Any]:
    """How often each adversary names people from each number of releases, among a panel of them.

    Numbers are what an encoder gives of T images of each person, (I, T, d), and of others, whom nobody looks for.
    """
    many = [torch.arange(len(each)).repeat_interleave(each.shape[1]) for each in (numbers, others)]
    people, of_others = many
    device = numbers.device

    def sent(values: np.ndarray) -> np.ndarray:
        return signs(torch.from_numpy(values).to(device)).cpu().numpy()

    views = {"": (numbers.flatten(0, 1).cpu(), signs(others).flatten(0, 1).cpu())}
    how: dict[str, Any] = {"scenes": torch.arange(len(people)), "sent": sent, "panel": panel, "seed": seed}
    how["further"] = {"network": partial(by_network, seed=seed)}
    made = sets.curve(views, people, of_others, **how)
    points = {str(point.releases): point for point in made.points}
    by_adversary = {
        name: {size: round(point.by_adversary[name], 4) for size, point in points.items()}
        for name in made.points[0].by_adversary
    }
    return {
        "guessing": 1 / made.panel,
        "people": len(numbers),
        "panel": made.panel,
        "named": {size: _state(point.named, point.chosen) for size, point in points.items()},
        "by_adversary": by_adversary,
    }


def _state(rates: np.ndarray, chosen: tuple[str, str]) -> dict[str, Any]:
    share, half_width = mean_and_half_width(rates)
    worst, over_half = round(float(rates.max()), 4), round(float((rates > 0.5).mean()), 4)
    about = {"share": share, "half_width": half_width, "worst": worst, "over_half": over_half}
    return {**about, "chosen": chosen}


@torch.no_grad()
def numbers_of(
    model: CodeModel | None, images: Tensor, hats: Tensor, *, bits: int, draw: torch.Generator
) -> Tensor:
    """(I, T, b) numbers of images, person by person, whose hats are (I, T); drawn by chance without a model."""
    if model is None:
        return torch.randn(*hats.shape, bits, generator=draw).to(card())
    return torch.cat([model.eval().numbers(part) for part in images.split(1024)]).unflatten(0, hats.shape)


def shown(folder: Path, kind: str) -> tuple[Tensor, Tensor]:
    """Images, and (I, T) hats, person by person."""
    identity, hats = torch.from_numpy(np.load(folder / f"{kind}-labels.npy"))
    return torch.from_numpy(np.load(folder / f"{kind}.npy")), hats.view(len(identity.unique()), -1)


def accuracy(sent: Tensor, hats: Tensor, seed: int) -> tuple[float, float]:
    """Of episodes of new hats on new people, and half of the 95% interval over episodes."""
    codes = sent.flatten(0, 1).cpu()
    label = Label(hats.flatten(), tuple(map(str, range(int(hats.max()) + 1))))
    rows = Sampler(label, TEST).draw(EPISODES, torch.Generator().manual_seed(seed))
    found = episode_accuracies(codes, rows, shot=TEST.shot)
    return round(found.mean().item(), 5), round(1.96 * found.std().item() / math.sqrt(len(found)), 5)


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train, and name people; with how far people are apart whom nobody looks for."""
    settings, seed = dict(task.settings), task.settings["seed"]
    training = Training(**{key: settings[key] for key in asdict(Training())})
    sizes, folder = Sizes.of(given.scale), given.out / f"people-{WORLD}"
    model = None
    if settings["name"] != RANDOM:
        model = by_library(training, sizes, folder, seed=seed, scale=given.scale)
        keep(model, task, given)
    test, known = (shown(folder, kind) for kind in ("test", "others"))
    draw = torch.Generator().manual_seed(seed)
    numbers, others = (numbers_of(model, *each, bits=training.bits, draw=draw) for each in (test, known))
    right, half_width = accuracy(signs(numbers), test[1] - test[1].min(), seed)
    naming = named(numbers, others, panel=min(PANEL, len(numbers) // 4), seed=seed)
    between = (others > 0).float().mean(1).var(0).mean().sqrt()
    found = {"views": {"as it is": {"accuracy": right, "half_width": half_width, **naming}}}
    return {**found, "spread_of_people": round(between.item(), 4)}


def main() -> int:
    """Draw the people, and do what there is time for."""
    given = options(__doc__)
    if undone("releases", tasks(), given):
        drawn(given.out / f"people-{WORLD}", Sizes.of(given.scale), workers=given.workers)
    return run("releases", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
