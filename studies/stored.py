"""What the embeddings that a service stores tell a thief of its database.

    python studies/stored.py           # about 20 minutes on one core; stopped, it goes on
    python studies/stored.py --small   # settings too small to learn, to try it out: a minute

For each world, protection and seed a few-shot model learns to tell people apart (of `none`, on means of 2x2
pixels). Then 50 people who are in none of its training images, nor in those of any adversary, are enrolled with 5
photographs each, and the stored vectors attacked, one by one and as prototypes of 5. The thief has the model, and
what each attack names:

- inversion: photographs of other people, on whose embeddings he trains a decoder. A recogniser names the people on
  the images that it rebuilds, by 3 other photographs of each, clean or rebuilt in the same way. SSIM is that with
  the original; by chance, that of the image rebuilt from the next person's vector.
- identity: 3 other clean photographs of each person, which he protects as a device does, or leaves as they are, and
  embeds by the model; the nearest photograph, the nearest mean, or a linear discriminant name the vector.
- membership: two clean photographs of a person, of which one is enrolled. He protects and embeds both, and takes
  the one nearer to a stored vector; "found again" is an enrolled photograph whose vector is there, up to rounding.

Where a protection draws noise, he averages over 5 draws of his own. Every figure of several ways is that of the
best. Records are studies/results/stored.jsonl, models lie under runs/stored.
"""

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rows import RESULTS, Rows
from torch import Tensor
from torch.nn import functional

from sfumato import data, images
from sfumato.assess import similarity
from sfumato.attack import reidentify, undo
from sfumato.attack.reidentify import AdversaryConfig, FaceFinder
from sfumato.attack.undo import InversionConfig
from sfumato.base.proportions import wilson
from sfumato.data import LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig, FewShotModel
from sfumato.networks import MTCNN, align
from sfumato.protect import Protection, parse
from sfumato.study.lab.models import Models

RECORDS = Rows(RESULTS / "stored.jsonl")
RUNS = Path("runs/stored")
WEIGHTS = Path("../shared/data/weights")
SEEDS = (0, 1, 2)
SPECS = ("none", "pixelize:cell=4", "dp-pix:cell=4,epsilon=3")
CELLS = {"none": 2}  # what the networks see of a clear image; of the others, the cells that are released
PEOPLE, ENROLLED, KNOWN = 50, 5, 3  # photographs of each
COPIES = 5  # draws of noise that the thief averages over
SAME = 1e-6  # of the mean squared distance between stored vectors: rounding

WORLDS: dict[str, Callable[[], LabelledImages]] = {
    "faces": lambda: data.load("faces", identities=600, images_per_identity=8, headwear=150, size=64),
    "lfw": lambda: data.load("table:runs/data/lfw/attributes.csv", size=64),
}


@dataclass(frozen=True)
class Scale:
    """How long everything is trained."""

    few_shot: FewShotConfig
    inversion: InversionConfig
    recogniser: AdversaryConfig
    seeds: tuple[int, ...]


EPISODES = FewShotConfig(
    start="random",
    way=10,
    shot=2,
    queries=2,
    epochs=5,
    episodes_per_epoch=60,
    halve_every=2,
    validation_shot=3,
    validation_queries=5,
    validation_episodes=100,
    denoiser_depth=None,
    flips=True,
    precision="float32",
)
FULL = Scale(
    EPISODES,
    InversionConfig(steps=400, width=16),
    AdversaryConfig(start="random", steps=250, batch=64),
    SEEDS,
)
SMALL = Scale(
    replace(EPISODES, epochs=1, episodes_per_epoch=1, validation_episodes=2),
    InversionConfig(steps=2, width=2),
    AdversaryConfig(start="random", steps=2, batch=8),
    (0,),
)


@dataclass(frozen=True)
class People:
    """Clean photographs of the people who are enrolled: (P, 5, C, H, W), and (P, 3, C, H, W) other ones."""

    enrolled: Tensor
    known: Tensor


def people(test: LabelledImages, seed: int) -> People:
    """Deal the photographs of people who have enough of them."""
    codes, generator = test.label("identity").codes, torch.Generator().manual_seed(seed)
    counts = codes.bincount()
    able = (counts >= ENROLLED + KNOWN).nonzero().flatten()
    chosen = able[torch.randperm(len(able), generator=generator)[:PEOPLE]]
    rows = []
    for code in chosen.tolist():
        own = (codes == code).nonzero().flatten()
        rows.append(own[torch.randperm(len(own), generator=generator)[: ENROLLED + KNOWN]])
    dealt = test.images[torch.stack(rows)]
    return People(dealt[:, :ENROLLED], dealt[:, ENROLLED:])


class Thief:
    """A model and its protection, in the hands of who has the database. State: the model."""

    def __init__(self, model: FewShotModel, protection: Protection, seed: int) -> None:
        self.model, self.protection, self.seed = model, protection, seed

    def embed(self, clean: Tensor, *draws: int) -> Tensor:
        """(..., C, H, W) -> (..., D): protected with these draws of noise, and averaged."""
        flat = clean.flatten(0, -4)
        found = [
            self.model.embed(self.protection.release(flat, seeded_noise(self.seed, draw)).images())
            for draw in draws
        ]
        return torch.stack(found).mean(0).unflatten(0, clean.shape[:-3])

    def own(self, clean: Tensor) -> Tensor:
        """As embed, by his own draws: those of the devices are 0."""
        return self.embed(clean, *range(1, 1 + (COPIES if self.protection.draws_noise else 1)))


def identity(thief: Thief, stored: dict[str, Tensor], known: Tensor) -> dict[str, Any]:
    """Who it is, among all: stored vectors of each kind (n, D), in the order of the people."""
    galleries = {
        "protected": thief.own(known),
        "clean": thief.model.embed(known.flatten(0, 1)).unflatten(0, known.shape[:2]),
    }
    found = {}
    for kind, vectors in stored.items():
        truth = torch.arange(len(known)).repeat_interleave(len(vectors) // len(known))
        ways = {}
        for seen, gallery in galleries.items():
            codes = torch.arange(len(known)).repeat_interleave(known.shape[1])
            guesses = {
                "nearest": codes[torch.cdist(vectors, gallery.flatten(0, 1)).argmin(1)],
                "mean": torch.cdist(vectors, gallery.mean(1)).argmin(1),
                "discriminant": reidentify.log_posteriors(
                    gallery.flatten(0, 1), codes, vectors, adversary="discriminant"
                ).argmax(1),
            }
            ways |= {f"{way}, {seen}": int((guess == truth).sum()) for way, guess in guesses.items()}
        found[kind] = counted(max(ways.values()), len(truth)) | {"ways": ways}
    return found


def membership(thief: Thief, examples: Tensor, them: People) -> dict[str, Any]:
    """Which of two photographs of a person is enrolled, (P, 5, D) stored; and whether it is found exactly."""
    near = [
        torch.cdist(thief.own(photographs[:, :KNOWN]), examples).square().amin(-1).flatten()
        for photographs in (them.enrolled, them.known)
    ]
    apart = torch.pdist(examples.flatten(0, 1)).square().mean()
    found, others = (int((each < SAME * apart).sum()) for each in near)
    pairs = len(near[0])
    return {
        "nearer": counted(int((near[0] < near[1]).sum()), pairs),
        "found": counted(found, pairs),
        "mistaken": counted(others, pairs),
    }


def inversion(
    thief: Thief, stored: dict[str, Tensor], them: People, others: Tensor, world: str, scale: Scale
) -> dict[str, Any]:
    """Who is on the images that a decoder of other people's embeddings rebuilds, and how like they are."""
    decoder = undo.train_inverter(thief.embed(others, 0), others, scale.inversion, seed=thief.seed)
    embed = recogniser(world, scale)
    codes = torch.arange(len(them.known)).repeat_interleave(KNOWN)
    clean = embed(them.known.flatten(0, 1))
    galleries = {
        "clean": clean,
        "rebuilt": embed(decoder.restore(thief.own(them.known).flatten(0, 1))),
    }
    found: dict[str, Any] = {}
    for kind, vectors in stored.items():
        rebuilt = decoder.restore(vectors)
        truth = torch.arange(len(them.known)).repeat_interleave(len(vectors) // len(them.known))
        ways = named(embed(rebuilt), truth, galleries, codes)
        found[kind] = counted(max(ways.values()), len(truth)) | {"ways": ways}
        if kind == "example":
            originals = them.enrolled.flatten(0, 1)
            found["alike"] = alike(originals, rebuilt)
            found["by chance"] = alike(originals, rebuilt.roll(ENROLLED, 0))
            ceiling = named(embed(originals), truth, {"clean": clean}, codes)
            found["originals"] = counted(max(ceiling.values()), len(truth))
    return found


def named(probes: Tensor, truth: Tensor, galleries: dict[str, Tensor], codes: Tensor) -> dict[str, int]:
    """How many of the people on some images are named, by each way."""
    return {
        f"{each.classifier}, {name}": int((each.identities[each.similarities.argmax(1)] == truth).sum())
        for name, gallery in galleries.items()
        for each in reidentify.reidentify(gallery, codes, probes)
    }


def alike(originals: Tensor, others: Tensor) -> dict[str, float]:
    """Mean SSIM and PSNR."""
    pair = images.to_float(originals), images.to_float(others)
    return {
        "ssim": similarity.ssim(*pair).mean().item(),
        "psnr": similarity.psnr(*pair).mean().item(),
    }


def counted(hits: int, trials: int) -> dict[str, Any]:
    """A share with its 95% interval, over trials."""
    low, high = wilson(hits, trials)
    return {"hits": hits, "trials": trials, "share": hits / trials, "low": low, "high": high}


@cache
def loaded(world: str) -> dict[str, LabelledImages]:
    """The people of each split: nobody is in two."""
    everyone = WORLDS[world]()
    return {split: everyone.split(split) for split in ("train", "validation", "test")}


@cache
def recogniser(world: str, scale: Scale) -> Callable[[Tensor], Tensor]:
    """Who names the people on images: a public face network, or one that was trained on other drawn people."""
    others = loaded(world)["train"]
    if world == "lfw":
        kind, size = reidentify.FACE_NETWORKS["mobile-face-net"]
        network = reidentify.Recogniser(kind.load(WEIGHTS / "mobilefacenet_casia_112x96.safetensors"))
        finder = FaceFinder(MTCNN.load(WEIGHTS / "mtcnn.safetensors"), others.images[:200])
        return lambda them: network.embed(align(them, finder.find(them).landmarks, size))

    def halved(them: Tensor) -> Tensor:
        return images.to_uint8(functional.avg_pool2d(images.to_float(them), 2))

    small = halved(others.images)
    own = reidentify.train_recogniser(
        lambda _: small, others.label("identity").codes, scale.recogniser, seed=0
    )
    return lambda them: own.embed(halved(them))


def trained(world: str, spec: str, seed: int, scale: Scale, folder: Path) -> FewShotModel:
    """The model that the service runs, which is made once."""
    splits, config = loaded(world), replace(scale.few_shot, cell=CELLS.get(spec))
    several, asked = (
        splits[split].rows(enough(splits[split], episode.shot + episode.queries))
        for split, episode in (("train", config.episode), ("validation", config.validation_episode))
    )
    return Models(folder, splits["train"].digest).once(
        "few-shot",
        {"config": asdict(config), "spec": spec, "seed": seed},
        lambda path: few_shot.train(
            several, parse(spec), config, target="identity", validation=asked, seed=seed
        ).save(path),
        few_shot.load,
    )


def enough(them: LabelledImages, least: int) -> Tensor:
    """Rows of the people of whom there are so many photographs."""
    codes = them.label("identity").codes
    return (codes.bincount()[codes] >= least).nonzero().flatten()


def measure(world: str, spec: str, seed: int, scale: Scale, folder: Path) -> dict[str, Any]:
    """The record of one model."""
    started = time.process_time()
    splits, protection = loaded(world), parse(spec)
    model = trained(world, spec, seed, scale, folder)
    them, thief = people(splits["test"], seed), Thief(model, protection, seed)
    examples = thief.embed(them.enrolled, 0)
    stored = {"example": examples.flatten(0, 1), "prototype": examples.mean(1)}
    others = torch.cat([splits["train"].images, splits["validation"].images])
    return {
        "world": world,
        "spec": spec,
        "seed": seed,
        "people": len(them.known),
        "dimension": examples.shape[-1],
        "validation_accuracy": model.card["validation_accuracy"],
        "identity": identity(thief, stored, them.known),
        "membership": membership(thief, examples, them),
        "inversion": inversion(thief, stored, them, others, world, scale),
        "seconds": round(time.process_time() - started, 1),
        "threads": torch.get_num_threads(),
        "data": splits["train"].digest,
    }


def row_of(world: str, spec: str, seed: int) -> str:
    """The name of a record."""
    return f"{world}-{re.sub('[^a-z0-9.]+', '-', spec)}-{seed}"


def main() -> None:
    """Measure what has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--small", action="store_true", help="settings too small to learn, to try it out")
    options = asked.parse_args()
    scale, records = (SMALL, Rows(RUNS / "small.jsonl")) if options.small else (FULL, RECORDS)
    models = RUNS / "small" / "models" if options.small else RUNS / "models"
    models.mkdir(parents=True, exist_ok=True)
    for seed in scale.seeds:
        for world in WORLDS:
            for spec in SPECS:
                row = row_of(world, spec, seed)
                if row not in records:
                    found = records[row] = measure(world, spec, seed, scale, models)
                    print(f"{row}: {found['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
