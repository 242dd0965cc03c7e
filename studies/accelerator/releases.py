"""Codes that tell little of a person even from a hundred releases: which training helps, and what a device can do.

    studies/accelerator/run.sh OUT --only releases

Drawn faces in hats of 32x32: 384 people train, 96 are known to adversaries, and 160 new people, of 200 pictures each, in
new hats, are the test. All trainings have as many steps of as many images of episodes; those with a penalty see, in each
step, 16 people in the same 32 scenes as well. Weights rise from 0 after a fifth of the steps to their height after half.

- `pairs`: the variance between people in one scene, mean over scenes and bits, of numbers before their sign.
- `sets`: the squared difference of a person's mean code from that of all, mean over people and bits. The same scenes for
  everybody take the hats out of it, and a product of the differences in two halves of the scenes has no bias from chance.
- `products`: as `sets`, of the products of all pairs of bits as well.

Every trained encoder is tried as it is; with bits flipped by chance; and with thresholds that the device sets itself, so
that of its own releases each bit is set as often as of other people's: in batches of 100 (`balanced`), or by a small step
after each release (`tracked`).
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, keep, mean_and_half_width, options, run, undone
from scenes import Sizes, drawn, read, rows
from torch import Tensor

from sfumato.attack import sets
from sfumato.attack.set_network import by_network
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds import same_scenes
from sfumato.episodes import Sampler, Shape, fit_episodes, seed_of
from sfumato.learn import code
from sfumato.learn.code import CodeConfig, CodeModel, episode_loss, release_numbers
from sfumato.learn.fit import Run, adam, fit
from sfumato.learn.prototypes import episode_accuracies
from sfumato.learn.same_scenes import shift

View = Callable[[Tensor], Tensor]  # (..., T, b) numbers in the order of a device -> those sent

SEEDS = (0, 1, 2)
STEPS, EPOCH = 1000, 25
PEOPLE, SCENES = 16, 32  # of a set in each step
PANEL = 40  # people among whom one is named: guessing is 2.5%
TEST = Shape(way=5, shot=5, queries=10)
EPISODES = 600
BATCH = 100  # releases that a device balances together, at most
STEP = 0.1  # of a threshold that is tracked, in units of the numbers, which go from -1 to 1
FLIPS = (0.1, 0.2)
VIEWS = ("as it is", "balanced", "tracked", *(f"flip {flip:g}" for flip in FLIPS))


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an encoder is trained, beside what all have in common.

    Attributes:
        images: "own" of each training person, or "same": everybody of a block in the same scenes.
        pairs, sets, products: heights of the penalties' weights.
        steady: weights are at their height from the first step.
        flip: in training and at the test.
        corrected: flips in training alone, so that codes of classes come to differ in more bits.
        cut: images of hats alone, all of one size, by their outline as it was drawn: see `cut_out`.
        longer: times as many steps.
        people: who train, by the library alone, `learn.code.train`; 0 for the loop in here, and everybody.
        weight: of the same scenes, there.
    """

    bits: int = 16
    images: str = "same"
    pairs: float = 0.0
    sets: float = 0.0
    products: float = 0.0
    steady: bool = False
    flip: float | None = None
    corrected: float | None = None
    cut: bool = False
    longer: int = 1
    people: int = 0
    weight: float = 0.0


TRAININGS = {
    "episodes alone": Training(images="own"),
    "the same scenes": Training(),
    "pairs 0.5, steady": Training(pairs=0.5, steady=True),
    "sets 100": Training(sets=100),
    "pairs 5": Training(pairs=5),
    "sets 400": Training(sets=400),
    "sets 100, pairs 5": Training(sets=100, pairs=5),
    "pairs 20": Training(pairs=20),
    "products 100": Training(products=100),
    "sets 30": Training(sets=30),
    "8 bits": Training(bits=8, images="own"),
    "8 bits, sets 100, pairs 5": Training(bits=8, sets=100, pairs=5),
    "flip 0.1": Training(images="own", flip=0.1),
    "flip 0.1, sets 100, pairs 5": Training(sets=100, pairs=5, flip=0.1),
    "5 bits": Training(bits=5, images="own"),
    "5 bits, sets 100, pairs 5": Training(bits=5, sets=100, pairs=5),
    "sets 1600": Training(sets=1600),
    "sets 100, pairs 5, three times as long": Training(sets=100, pairs=5, longer=3),
    "episodes alone, three times as long": Training(images="own", longer=3),
    "aligned crops of hats": Training(images="own", cut=True),
    "aligned crops of hats, three times as long": Training(images="own", cut=True, longer=3),
    "aligned crops of hats, sets 100, pairs 5, three times as long": Training(
        sets=100, pairs=5, cut=True, longer=3
    ),
    "errors of 0.1 corrected": Training(images="own", corrected=0.1),
    "8 bits, errors of 0.1 corrected": Training(bits=8, images="own", corrected=0.1),
}


# By the library: with as many people and steps as `sfumato demo` has, then with all people.
OF_DEMO = CodeConfig(bits=16, pretraining_epochs=4, epochs=10, halve_every=3)
BY_LIBRARY = {
    "the demo's": Training(images="own", people=144),
    "the demo's, same_scenes=1": Training(images="own", people=144, weight=1),
    "the demo's, four times as long": Training(images="own", people=144, longer=4),
    "the demo's, same_scenes=1, four times as long": Training(images="own", people=144, weight=1, longer=4),
    "twelve times as long as the demo's, same_scenes=1": Training(
        images="own", people=384, weight=1, longer=12
    ),
    "twelve times as long as the demo's": Training(images="own", people=384, longer=12),
    "12 bits, twelve times as long as the demo's": Training(bits=12, images="own", people=384, longer=12),
}


# Trainings that are done again in a world of other people and other hats, since the others were compared on the first.
AGAIN = ("sets 100, pairs 5, three times as long", "episodes alone, three times as long")
OTHER_WORLD = 1
OTHER_SEEDS = (0, 1, 2, 3, 4)
# Trainings of the other world alone.
CUT = (
    "aligned crops of hats, three times as long",
    "aligned crops of hats, sets 100, pairs 5, three times as long",
)
# Bits that show nobody: what adversaries reach by chance, and whom they name most.
RANDOM = "random bits"


def tasks() -> list[Task]:
    """Every training with the first seed, then with the others: what is most telling comes first; then those of the other world."""
    pairs = [(name, seed) for names in _by_worth() for seed, name in product(SEEDS, names) if name not in CUT]
    first = [_task(name, seed, 0) for name, seed in pairs]
    again = [*product(AGAIN, OTHER_SEEDS), *product([RANDOM], SEEDS)]
    again += [(name, seed) for seed, name in product(SEEDS, (*BY_LIBRARY, *CUT))]
    return first + [_task(name, seed, OTHER_WORLD) for name, seed in again]


def _task(name: str, seed: int, world: int) -> Task:
    where = f", world {world}" if world else ""
    return Task(
        f"{name}, seed {seed}{where}",
        {
            **asdict((TRAININGS | BY_LIBRARY).get(name, Training())),
            "name": name,
            "seed": seed,
            "world": world,
        },
    )


def _by_worth(first: int = 7) -> tuple[list[str], list[str]]:
    names = list(TRAININGS)
    return names[:first], names[first:]


@cache
def _read(folder: Path, kind: str, cut: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Images where the network computes, people and hats."""
    images, identity, headwear = read(folder, kind, cut=cut)
    return images.to(card()), identity, headwear


def train(training: Training, sizes: Sizes, folder: Path, *, seed: int, steps: int) -> CodeModel:
    """The encoder of one training."""
    images, _, hats = _read(folder, training.images, training.cut)
    own, _, own_hats = read(folder, "own")
    way = min(20, len(hats.unique()))
    epochs = max(4, steps * training.longer // EPOCH)
    config = CodeConfig(
        bits=training.bits,
        flip=training.flip or training.corrected,
        way=way,
        epochs=epochs,
        episodes_per_epoch=EPOCH,
        halve_every=epochs // 4,
    )
    labelled = LabelledImages(
        "faces", own, {"headwear": Label(own_hats, tuple(map(str, range(sizes.headwear))))}
    )
    model = code.make_untrained(labelled, config, target="headwear", sensitive=(), validation=None, seed=seed)
    device = card()
    under_way = Run(
        model,
        adam(config.learning_rate),
        kind="code checkpoint",
        identity={**model.card, **asdict(training)},
        device=device,
    )
    sampler = Sampler(Label(hats, tuple(map(str, range(sizes.headwear)))), config.episode)
    grid = torch.arange(sizes.blocks * sizes.people * sizes.scenes).view(
        sizes.blocks, sizes.people, sizes.scenes
    )
    penalised = max(training.pairs, training.sets, training.products) > 0
    draw, done, planned = torch.Generator(), 0, epochs * EPOCH

    def batches(epoch: int) -> Any:
        nonlocal done
        draw.manual_seed(seed_of(seed, epoch))
        under_way.set_rate(config.learning_rate * 0.5 ** (epoch // config.halve_every))
        done = epoch * EPOCH
        for _ in range(EPOCH):
            yield sampler.draw(1, draw)[0]

    def step(rows: Tensor) -> Tensor:
        nonlocal done
        rows = rows.flatten()
        if not penalised:
            done += 1
            numbers = model.network.code(model.encode_images(images[rows.to(device)]))
            return under_way.minimise(episode_loss(model, numbers, config, draw))
        block = grid[int(torch.randint(sizes.blocks, (), generator=draw))]
        who = torch.randperm(sizes.people, generator=draw)[:PEOPLE]
        what = torch.randperm(sizes.scenes, generator=draw)[: min(SCENES, sizes.scenes // 2 * 2)]
        every = torch.cat([rows, block[who][:, what].flatten()])
        numbers = model.network.code(model.encode_images(images[every.to(device)]))
        loss = episode_loss(model, numbers[: len(rows)], config, draw)
        share = 1.0 if training.steady else min(1.0, max(0.0, (done / planned - 0.2) / 0.3))
        done += 1
        if share:
            of_set = numbers[len(rows) :].unflatten(0, (len(who), len(what)))  # (P, S, b)
            loss = loss + share * penalty(of_set, training, config)
        return under_way.minimise(loss)

    fit(under_way, batches, step, epochs=epochs, steps=EPOCH)
    return model


def by_library(
    training: Training, sizes: Sizes, folder: Path, *, world: int, seed: int, scale: float
) -> CodeModel:
    """The encoder as a study trains it."""
    shown, images = rows(sizes, "own", world), read(folder, "own")[0]
    names = ("identity", "headwear", "hair_color", "expression", "glasses", "gender", "age")
    codes = {name: getattr(shown, name) for name in names}
    labels = {name: Label(each, tuple(map(str, range(int(each.max()) + 1)))) for name, each in codes.items()}
    everybody = LabelledImages("faces", images, labels)
    who = everybody.classes("identity")[: training.people]
    data = everybody.rows(torch.isin(codes["identity"], who).nonzero().flatten())
    longer = training.longer if scale == 1 else 1
    config = replace(
        OF_DEMO,
        bits=training.bits,
        pretraining_epochs=OF_DEMO.pretraining_epochs * longer,
        epochs=OF_DEMO.epochs * longer,
        halve_every=OF_DEMO.halve_every * longer,
        same_scenes=training.weight,
    )
    config = fit_episodes(config, data.label("headwear").codes)
    sets = same_scenes.draw_sets(data, seed=world) if training.weight else None
    return code.train(data, config, target="headwear", same_scenes=sets, seed=seed, device=card())


def penalty(numbers: Tensor, training: Training, config: CodeConfig) -> Tensor:
    """What one set costs. (P, S, b) numbers of people in the same scenes."""
    total = numbers.new_zeros(())
    if training.pairs:
        total = total + training.pairs * numbers.var(0).mean()
    if training.sets or training.products:
        bits = release_numbers(numbers, CodeConfig(bits=config.bits), torch.Generator())
        if training.products:
            first, second = torch.triu_indices(bits.shape[2], bits.shape[2], 1, device=bits.device)
            bits = torch.cat([bits, bits[..., first] * bits[..., second]], 2)
        total = total + max(training.sets, training.products) * shift(bits)
    return total


def view(name: str, usual: Tensor, flip: float | None) -> View:
    """What a device sends of numbers. `usual`: (b,) how often each bit is set among other people."""
    draw = torch.Generator().manual_seed(1)
    if name.startswith("flip "):
        flip = float(name.removeprefix("flip "))

    def sent(numbers: Tensor) -> Tensor:
        if name == "balanced":
            return balanced(numbers, usual)
        if name == "tracked":
            return tracked(numbers, usual)
        bits = (numbers > 0).float() * 2 - 1
        if flip is None:
            return bits
        flipped = (torch.rand(bits.shape, generator=draw) < flip).to(bits.device)
        return torch.where(flipped, -bits, bits)

    return sent


def balanced(numbers: Tensor, usual: Tensor) -> Tensor:
    """In each batch of a device's releases each bit is set as often as among other people. (..., T, b) -> -1 and 1.

    What adversaries know of a person and what they are to name are of different batches.
    """
    parts = []
    for part in numbers.split(min(BATCH, numbers.shape[-2] // 2), -2):
        order = part.argsort(-2).argsort(-2)  # the rank of each release
        least = part.shape[-2] - (usual * part.shape[-2]).round()
        parts.append((order >= least).float() * 2 - 1)
    return torch.cat(parts, -2)


def tracked(numbers: Tensor, usual: Tensor) -> Tensor:
    """Each release moves the threshold of each bit against what it was: up where the bit was set. (..., T, b) -> -1 and 1."""
    threshold = torch.zeros_like(numbers[..., 0, :])
    bits = []
    for each in numbers.unbind(-2):
        bit = (each > threshold).float()
        threshold = threshold + STEP * (bit - usual)
        bits.append(2 * bit - 1)
    return torch.stack(bits, -2)


def named(
    numbers: Tensor, others: Tensor, of_view: View, *, panel: int, images: int = 1, seed: int
) -> dict[str, Any]:
    """How often each adversary names people from each number of releases.

    Args:
        numbers: (I, T, d) what an encoder gives of T images of each person.
        others: (O, T', d) the same of people whom nobody looks for.
        of_view: what of it is sent, image after image.
        panel: people among whom one is named.
        images: of each photograph, which follow each other: all are known, or all are to be named.
        seed: of galleries, panels and orders.
    """
    people, of_others = (
        torch.arange(len(each)).repeat_interleave(each.shape[1]) for each in (numbers, others)
    )
    device = numbers.device

    def sent(values: np.ndarray) -> np.ndarray:
        return of_view(torch.from_numpy(values).to(device)).cpu().numpy()

    views = {"": (numbers.flatten(0, 1).cpu(), of_view(others).flatten(0, 1).cpu())}
    scenes = torch.arange(len(people)) // images
    further = {"network": by_network}
    made = sets.curve(
        views, people, of_others, scenes=scenes, sent=sent, further=further, panel=panel, seed=seed
    )
    points = {str(point.releases): point for point in made.points}
    result: dict[str, Any] = {"guessing": 1 / made.panel, "people": len(numbers), "panel": made.panel}
    result["named"] = {size: _state(point.named, point.chosen) for size, point in points.items()}
    result["by_adversary"] = {
        name: {size: round(point.by_adversary[name], 4) for size, point in points.items()}
        for name in made.points[0].by_adversary
    }
    return result


def _state(rates: np.ndarray, chosen: tuple[str, str]) -> dict[str, Any]:
    share, half_width = mean_and_half_width(rates)
    over_half = round(float((rates > 0.5).mean()), 4)
    worst = round(float(rates.max()), 4)
    return {
        "share": share,
        "half_width": half_width,
        "worst": worst,
        "over_half": over_half,
        "chosen": chosen,
    }


@torch.no_grad()
def numbers_of(
    model: CodeModel | None, images: Tensor, hats: Tensor, *, bits: int, draw: torch.Generator
) -> Tensor:
    """(I, T, b) numbers of images, person by person, whose hats are (I, T); drawn by chance without a model."""
    if model is None:
        return torch.randn(*hats.shape, bits, generator=draw).to(card())
    return torch.cat([model.eval().numbers(part) for part in images.split(1024)]).unflatten(0, hats.shape)


def shown(folder: Path, kind: str, cut: bool = False) -> tuple[Tensor, Tensor]:
    """Images, and (I, T) hats, person by person."""
    images, identity, hats = read(folder, kind, cut=cut)
    return images, hats.view(len(identity.unique()), -1)


def accuracy(sent: Tensor, hats: Tensor, seed: int) -> tuple[float, float]:
    """Of episodes of new hats on new people, and half of the 95% interval over episodes."""
    codes, label = (
        sent.flatten(0, 1).cpu(),
        Label(hats.flatten(), tuple(map(str, range(int(hats.max()) + 1)))),
    )
    rows = Sampler(label, TEST).draw(EPISODES, torch.Generator().manual_seed(seed))
    found = episode_accuracies(codes, rows, shot=TEST.shot)
    return round(found.mean().item(), 5), round(1.96 * found.std().item() / math.sqrt(len(found)), 5)


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train, and try every view."""
    settings, seed = dict(task.settings), task.settings["seed"]
    training = Training(**{key: settings[key] for key in asdict(Training())})
    sizes, folder = Sizes.of(given.scale), _folder(given, settings["world"])
    model, draw = None, torch.Generator().manual_seed(seed)
    if training.people:
        model = by_library(training, sizes, folder, world=settings["world"], seed=seed, scale=given.scale)
    elif settings["name"] != RANDOM:
        steps = max(EPOCH * 4, int(STEPS * given.scale))
        model = train(training, sizes, folder, seed=seed, steps=steps)
    if model is not None and training.people:
        keep(model, task, given)
    test, known = (shown(folder, kind, training.cut) for kind in ("test", "others"))
    numbers, others = (numbers_of(model, *each, bits=training.bits, draw=draw) for each in (test, known))
    hats = test[1]
    usual = (others > 0).float().mean((0, 1))
    found = {}
    for name in VIEWS:
        alone = training.flip or training.corrected or training.cut or training.people
        if (alone or settings["name"] == RANDOM) and name != "as it is":
            continue
        of_view = view(name, usual, training.flip)
        right, half_width = accuracy(of_view(numbers), hats, seed)
        naming = named(numbers, others, of_view, panel=min(PANEL, len(numbers) // 4), seed=seed)
        found[name] = {"accuracy": right, "half_width": half_width, **naming}
    between = (others > 0).float().mean(1).var(0).mean().sqrt()
    return {
        "views": found,
        "usual": [round(each, 3) for each in usual.tolist()],
        "spread_of_people": round(between.item(), 4),
    }


def _folder(given: Options, world: int) -> Path:
    return given.out / f"people-{world}"


def main() -> int:
    """Draw the people, and do what there is time for."""
    given = options(__doc__)
    left = undone("releases", tasks(), given)
    for world in dict.fromkeys(task.settings["world"] for task in left):
        own = [task.settings["images"] for task in left if task.settings["world"] == world]
        kinds = [*dict.fromkeys(("own", "others", "test", *own))]
        drawn(_folder(given, world), Sizes.of(given.scale), world, kinds=kinds, workers=given.workers)
    return run("releases", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
