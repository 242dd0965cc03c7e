"""Codes of hats on photographs from a hundred releases: pairs by pasting the hat onto other people's photographs.

    studies/accelerator/run.sh OUT --only hats

LFW of 64x64 in drawn hats. The test is of the 62 people with 20 photographs and more, 20 of each, in new hats; adversaries
know the 96 with 10 to 19; all others train. Photographs are few: each is shown in 10 hats, one a release, and what adversaries
know of a person and what they are to name are of different photographs. All trainings have as many steps of as many images of
episodes. "Pasted" is what learn.code costs for the same scenes with other people, with the region of a hat by its outline, as it
was drawn; by a box, all that is above the brows; by a mask that paper 001's method learns from the labels of hats alone.
"""

from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, keep, options, run, undone
from releases import accuracy, named, numbers_of, view
from scenes import cut_out
from torch import Tensor
from unpack import picture

from sfumato.base.engines import EngineConfig, engine
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds import _hats
from sfumato.data.worlds._people import SCENE
from sfumato.data.worlds.drawing import uniforms
from sfumato.data.worlds.hats import EDGE, JITTER, put_on
from sfumato.data.worlds.same_scenes import PEOPLE, SCENES, Sets
from sfumato.images import to_float
from sfumato.learn import adversarial_mask, code
from sfumato.learn.code import CodeConfig
from sfumato.protect.mask import pixels_shown, top_pixels

SEEDS = (0, 1, 2)
SIDE = 64
HEADWEAR = {"train": 180, "others": 45, "test": 75}
STEPS, EPOCH = 3000, 25
FREQUENT, KNOWN = 20, 10  # photographs of each test person, and of each whom adversaries learn from
WORN = {"train": 3, "others": 10, "test": 10}  # hats of each photograph
SHOWN = 0.2  # of the pixels, by a learned mask
_PART = 500  # images drawn by one process at a time


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an encoder is trained, beside what all have in common.

    Attributes:
        region: of a hat, that is pasted: one of REGIONS; "" for episodes alone.
        weight: of the cost of the same scenes.
        cut: images of hats alone, all of one size, by their outline as it was drawn: see `cut_out`.
    """

    bits: int = 16
    region: str = ""
    weight: float = 1.0
    cut: bool = False


TRAININGS = {
    "episodes alone": Training(),
    "pasted by its outline": Training(region="outline"),
    "pasted by a learned mask": Training(region="mask"),
    "pasted by a box": Training(region="box"),
    "pasted by its outline, weight 4": Training(region="outline", weight=4),
    "8 bits": Training(bits=8),
    "8 bits, pasted by its outline": Training(bits=8, region="outline"),
    "aligned crops of hats": Training(cut=True),
    "12 bits": Training(bits=12),
}
RANDOM = "random bits"


def tasks() -> list[Task]:
    """All seeds of the first four, since one says nothing; then the others."""
    names = [*TRAININGS, RANDOM]
    pairs = [*product(SEEDS, names[:4]), *product(SEEDS, names[4:])]
    return [
        Task(
            f"{name}, seed {seed}",
            {**asdict(TRAININGS.get(name, Training())), "name": name, "seed": seed},
        )
        for seed, name in pairs
    ]


def dressed(given: Options, folder: Path) -> None:
    """Draw what is not in the folder yet: KIND.npy, (N, 3, 64, 64) uint8, its regions and its labels, photograph by photograph."""
    folder.mkdir(parents=True, exist_ok=True)
    packed = dict(np.load(given.data / "lfw_faces_84.npz"))
    counts = np.bincount(packed["person"])
    few = given.scale < 1
    people = {
        "test": (counts >= FREQUENT, FREQUENT),
        "others": ((counts >= KNOWN) & (counts < FREQUENT), KNOWN),
        "train": (counts < KNOWN, KNOWN),
    }
    with engine(EngineConfig(workers=given.workers)) as processes:
        for number, (kind, (wanted, most)) in enumerate(people.items()):
            if (folder / f"{kind}.npy").exists():
                continue
            chosen = wanted.nonzero()[0][: {"train": 600}.get(kind, 24) if few else None]
            rows = np.concatenate([(packed["person"] == each).nonzero()[0][:most] for each in chosen])
            parts = [
                processes.submit(dress, part, kind, number, given)
                for part in np.array_split(rows, max(1, len(rows) * WORN[kind] // _PART))
            ]
            images, regions, worn = (
                np.concatenate(part) for part in zip(*(part.result() for part in parts), strict=True)
            )
            who = np.repeat(packed["person"][rows], WORN[kind])
            np.save(folder / f"{kind}-regions.npy", regions)
            np.save(folder / f"{kind}-labels.npy", np.stack([who, worn]))
            np.save(folder / f"{kind}.npy", images)


def dress(
    rows: np.ndarray, kind: str, number: int, given: Options
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Photographs, each in hats of its own, all different: images, regions and hats."""
    packed, each = _packed(given.data), WORN[kind]
    photographs = np.stack([np.asarray(picture(packed, row).resize((SIDE, SIDE))) for row in rows])
    first = sum(list(HEADWEAR.values())[: list(HEADWEAR).index(kind)])
    kinds = torch.stack(
        [
            first + uniforms(number, f"hats of photograph {row}", HEADWEAR[kind], 1)[:, 0].argsort()[:each]
            for row in rows
        ]
    ).flatten()
    scene = torch.cat([uniforms(number, f"scenes of photograph {row}", each, len(SCENE)) for row in rows])
    behind = torch.from_numpy(photographs).permute(0, 3, 1, 2).repeat_interleave(each, 0)
    worn = _hats.kinds(sum(HEADWEAR.values()), seed=0).rows(kinds)
    images, regions = behind.clone(), torch.empty(len(behind), SIDE, SIDE, dtype=torch.bool)
    for family in worn.family.unique():
        for part in (worn.family == family).nonzero().flatten().split(48):
            images[part], cover = put_on(behind[part], worn.rows(part), scene[part])
            regions[part] = cover > 0
    return images.numpy(), regions.numpy(), kinds.numpy()


@cache
def _packed(data: Path) -> dict[str, np.ndarray]:
    return dict(np.load(data / "lfw_faces_84.npz"))


@cache
def _read(folder: Path, kind: str) -> tuple[LabelledImages, Tensor]:
    """Images with who is shown and in which hat; and regions of hats."""
    who, worn = torch.from_numpy(np.load(folder / f"{kind}-labels.npy"))
    names = tuple(map(str, range(int(max(who.max(), worn.max())) + 1)))
    images = LabelledImages(
        "hats",
        torch.from_numpy(np.load(folder / f"{kind}.npy")),
        {"identity": Label(who, names), "headwear": Label(worn, names)},
    )
    return images, torch.from_numpy(np.load(folder / f"{kind}-regions.npy"))


def regions_of(name: str, data: LabelledImages, outlines: Tensor, *, seed: int, scale: float) -> Tensor:
    """(N, H, W) bool: the region of each image that is pasted."""
    if name == "outline":
        return outlines
    if name == "box":
        rows = torch.arange(SIDE) < round((EDGE + JITTER) * SIDE)
        return rows[None, :, None].expand(len(data), SIDE, SIDE)
    config = adversarial_mask.MaskConfig(keep=SHOWN, epochs=max(1, round(6 * scale)), masker_width=8)
    model = adversarial_mask.train(data, config, target="headwear", seed=seed, device=card()).eval()
    count = pixels_shown(SHOWN, (SIDE, SIDE))
    with torch.no_grad():
        parts = [
            top_pixels(model.masker(to_float(part.to(card()))).float(), count=count)[:, 0].cpu()
            for part in data.images.split(512)
        ]
    return torch.cat(parts)


def paste_regions(
    images: Tensor, regions: Tensor, identity: Tensor, *, people: int = PEOPLE, scenes: int = SCENES
) -> Sets:
    """Chooses sets: regions of S images, each pasted onto images of P people. (P, S, C, H, W).

    What is pasted covers the region of both images, so that nothing is left of what the other image had there.

    Args:
        images: (N, C, H, W) uint8.
        regions: (N, H, W) bool, the pixels of the task.
        identity: (N,) who is shown; two people at least.
        people, scenes: P and S of a set, at most as many as there are.
    """
    who, owner = identity.unique(return_inverse=True)
    order = owner.argsort(stable=True)
    count = owner.bincount()
    first = count.cumsum(0) - count

    def choose(draw: torch.Generator) -> Tensor:
        shown = torch.randperm(len(who), generator=draw)[:people]
        given = torch.randperm(len(images), generator=draw)[: min(scenes, len(images)) // 2 * 2]
        place = torch.rand(len(shown), len(given), generator=draw)
        onto = order[first[shown, None] + (place * count[shown, None]).long()].to(images.device)  # (P, S)
        given = given.to(images.device)
        region = regions[given] | regions[onto]
        return torch.where(region[:, :, None], images[given], images[onto])

    return choose


def train(
    training: Training, given: Options, folder: Path, seed: int
) -> tuple[code.CodeModel, dict[str, Any]]:
    """The encoder of one training, and how its regions compare with what was drawn."""
    data, outlines = _read(folder, "train")
    if training.cut:
        data = replace(data, images=cut_out(data.images, outlines))
    epochs = max(4, round(STEPS * min(1.0, given.scale * 3)) // EPOCH)
    config = CodeConfig(
        bits=training.bits,
        start="random",
        side=42,
        pretraining_epochs=epochs // 6,
        epochs=epochs,
        episodes_per_epoch=EPOCH if given.scale == 1 else 4,
        halve_every=max(1, epochs // 4),
        same_scenes=training.weight if training.region else 0.0,
    )
    sets, found = None, {}
    if training.region:
        regions = regions_of(training.region, data, outlines, seed=seed, scale=given.scale)
        both = (regions & outlines).float().mean().item()
        found = {
            "of_the_hat": round(both / outlines.float().mean().item(), 4),
            "of_the_region": round(both / regions.float().mean().item(), 4),
        }
        identity = data.label("identity").codes
        sets = paste_regions(data.images.to(card()), regions.to(card()), identity)
    model = code.train(data, config, target="headwear", same_scenes=sets, seed=seed, device=card())
    return model, found


def shown(folder: Path, kind: str, *, cut: bool = False) -> tuple[Tensor, Tensor]:
    """Images, and (I, T) hats, person by person, photograph by photograph."""
    data, outlines = _read(folder, kind)
    images = cut_out(data.images, outlines) if cut else data.images
    return images, data.label("headwear").codes.view(len(data.classes("identity")), -1)


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train, and name people."""
    settings, seed = dict(task.settings), task.settings["seed"]
    training, folder = Training(**{key: settings[key] for key in asdict(Training())}), given.out / "hats"
    model, found = (None, {}) if settings["name"] == RANDOM else train(training, given, folder, seed)
    if model is not None:
        keep(model, task, given)
    test, known = (shown(folder, kind, cut=training.cut) for kind in ("test", "others"))
    draw = torch.Generator().manual_seed(seed)
    numbers, others = (numbers_of(model, *each, bits=training.bits, draw=draw) for each in (test, known))
    hats = test[1]
    usual = (others > 0).float().mean((0, 1))
    of_view = view("as it is", usual, None)
    right, half_width = accuracy(of_view(numbers), hats - hats.min(), seed)
    naming = named(numbers, others, of_view, panel=len(numbers) // 2, images=WORN["test"], seed=seed)
    return {"regions": found, "views": {"as it is": {"accuracy": right, "half_width": half_width, **naming}}}


def main() -> int:
    """Dress the people, and do what there is time for."""
    given = options(__doc__)
    if undone("hats", tasks(), given):
        dressed(given, given.out / "hats")
    return run("hats", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
