"""Codes of hats on photographs: how many people are named from a hundred releases.

    studies/accelerator/run.sh OUT --only hats

LFW of 64x64 in drawn hats. The test is of the 62 people with 20 photographs and more, 20 of each, in new hats; adversaries
know the 96 with 10 to 19; all others train. Photographs are few: each is shown in 10 hats, one a release, and what adversaries
know of a person and what they are to name are of different photographs. Records of hats pasted onto other people's photographs
and of hats cut out were made by this file at commit 258aef2f, those of a hundred answers by answers.py there.
"""

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pool import Options, Task, card, keep, options, run, undone
from releases import measured
from torch import Tensor
from unpack import picture

from sfumato.base.engines import EngineConfig, engine
from sfumato.data.labelled import Label, LabelledImages
from sfumato.data.worlds import _hats
from sfumato.data.worlds._portraits import SCENE
from sfumato.data.worlds.drawing import uniforms
from sfumato.data.worlds.hats import put_on
from sfumato.learn import code
from sfumato.learn.code import CodeConfig

SEEDS = (0, 1, 2)
SIDE = 64
HEADWEAR = {"train": 180, "others": 45, "test": 75}
STEPS, EPOCH = 3000, 25
FREQUENT, KNOWN = 20, 10  # photographs of each test person, and of each whom adversaries learn from
WORN = {"train": 3, "others": 10, "test": 10}  # hats of each photograph
_PART = 500  # images drawn by one process at a time
BITS = {"episodes alone": 16, "8 bits": 8, "12 bits": 12}
RANDOM = "random bits"


def tasks() -> list[Task]:
    """All trainings by one seed, then the others."""
    return [
        Task(f"{name}, seed {seed}", {"bits": BITS.get(name, 16), "name": name, "seed": seed})
        for seed, name in product(SEEDS, (*BITS, RANDOM))
    ]


def dressed(given: Options, folder: Path) -> None:
    """Draw what is not in the folder yet: KIND.npy, (N, 3, 64, 64) uint8, and its labels, photograph by photograph."""
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
            images, worn = map(np.concatenate, zip(*(part.result() for part in parts), strict=True))
            who = np.repeat(packed["person"][rows], WORN[kind])
            np.save(folder / f"{kind}-labels.npy", np.stack([who, worn]))
            np.save(folder / f"{kind}.npy", images)


def dress(rows: np.ndarray, kind: str, number: int, given: Options) -> tuple[np.ndarray, np.ndarray]:
    """Photographs, each in hats of its own, all different: images and hats."""
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
    images = behind.clone()
    for family in worn.family.unique():
        for part in (worn.family == family).nonzero().flatten().split(48):
            images[part], _ = put_on(behind[part], worn.rows(part), scene[part])
    return images.numpy(), kinds.numpy()


@cache
def _packed(data: Path) -> dict[str, np.ndarray]:
    return dict(np.load(data / "lfw_faces_84.npz"))


@cache
def _read(folder: Path, kind: str) -> LabelledImages:
    """Images with who is shown and in which hat."""
    who, worn = torch.from_numpy(np.load(folder / f"{kind}-labels.npy"))
    names = tuple(map(str, range(int(max(who.max(), worn.max())) + 1)))
    labels = {"identity": Label(who, names), "headwear": Label(worn, names)}
    return LabelledImages("hats", torch.from_numpy(np.load(folder / f"{kind}.npy")), labels)


def shown(folder: Path, kind: str) -> tuple[Tensor, Tensor]:
    """Images, and (I, T) hats, person by person, photograph by photograph."""
    data = _read(folder, kind)
    return data.images, data.label("headwear").codes.view(len(data.classes("identity")), -1)


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train, and name people."""
    bits, name, seed = task.settings.values()
    folder, model = given.out / "hats", None
    if name != RANDOM:
        epochs = max(4, round(STEPS * min(1.0, given.scale * 3)) // EPOCH)
        config = CodeConfig(
            bits=bits,
            start="random",
            side=42,
            pretraining_epochs=epochs // 6,
            epochs=epochs,
            episodes_per_epoch=EPOCH if given.scale == 1 else 4,
            halve_every=max(1, epochs // 4),
        )
        model = code.train(_read(folder, "train"), config, target="headwear", seed=seed, device=card())
        keep(model, task, given)
    test, known = (shown(folder, kind) for kind in ("test", "others"))
    panel = len(test[1]) // 2
    return measured(model, test, known, bits=bits, seed=seed, panel=panel, images=WORN["test"])[0]


def main() -> int:
    """Dress the people, and do what there is time for."""
    given = options(__doc__)
    if undone("hats", tasks(), given):
        dressed(given, given.out / "hats")
    return run("hats", tasks(), work, given)


if __name__ == "__main__":
    raise SystemExit(main())
