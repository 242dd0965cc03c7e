"""Drawn people for codes that survive many releases: images of their own, the same scenes of others, and whole sets.

Scenes, each a hat, light, pose, background, expression and glasses, are drawn with many people: what then differs
between two images of a scene is who is shown, and nothing else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.base.engines import EngineConfig, engine
from sfumato.data.worlds.faces import PARTS, People, draw, people
from sfumato.data.worlds.faces import faces as world_of

SIDE = 32  # as of `sfumato demo`
_PART = 2000  # images drawn by one process at a time
KINDS = ("own", "same", "others", "test")


@dataclass(frozen=True)
class Sizes:
    """How much is drawn.

    Attributes:
        identities, headwear: of the world; 60, 15 and 25% of both are for training, for adversaries, and for the test.
        own: images of each training person.
        blocks, people, scenes: each block has so many training people, all in the same scenes.
        others, pictures: images of each person whom adversaries learn from, and of each test person.
    """

    identities: int
    headwear: int
    own: int
    blocks: int
    people: int
    scenes: int
    others: int
    pictures: int

    @classmethod
    def of(cls, scale: float) -> "Sizes":
        """All of it at 1; at a hundredth a world in which everything can be tried, and nothing learned."""
        if scale >= 1:
            return cls(640, 300, 30, 8, 48, 480, 100, 200)
        root = scale**0.5
        return cls(max(64, int(640 * root)), 60, 12, 2, 6, max(24, int(480 * root)), 12, 20)


def rows(sizes: Sizes, kind: str, seed: int) -> People:
    """What the images of a kind show: N rows, person by person; of "same" block by block, in each person by person."""
    world = people(
        identities=sizes.identities, images_per_identity=sizes.pictures, headwear=sizes.headwear, seed=seed
    )
    splits = world_of(
        identities=sizes.identities,
        images_per_identity=sizes.pictures,
        headwear=sizes.headwear,
        size=SIDE,
        seed=seed,
        drawn=False,
    ).splits
    split = {"own": "train", "same": "train", "others": "validation", "test": "test"}[kind]
    members = splits[split].view(-1, sizes.pictures)  # (people, pictures)
    if kind != "same":
        most = {"own": sizes.own, "others": sizes.others, "test": sizes.pictures}[kind]
        return world.rows(members[:, :most].flatten())
    order = torch.Generator().manual_seed(0)
    blocks = []
    for number in range(sizes.blocks):
        shown = torch.randperm(len(members), generator=order)[: sizes.people]
        if sizes.blocks * sizes.people <= len(members):  # everybody once
            first = number * sizes.people
            shown = torch.arange(first, first + sizes.people)
        scenes = members.flatten()[torch.randperm(members.numel(), generator=order)[: sizes.scenes]]
        # (people, scenes): who from the first image of a person, all else from the scene.
        who = members[shown, 0][:, None].expand(-1, sizes.scenes).flatten()
        what = scenes[None].expand(sizes.people, -1).flatten()
        blocks.append((who, what))
    who, what = (torch.cat(part) for part in zip(*blocks, strict=True))
    of_person = {name: getattr(world, name)[who] for name in ("identity", "hair_color", "gender", "age")}
    return replace(world.rows(what), **of_person)


def drawn(folder: Path, sizes: Sizes, seed: int, *, kinds: Sequence[str] = KINDS, workers: int) -> None:
    """Draw what is not in the folder yet: KIND.npy, (N, 3, 32, 32) uint8; KIND-cut.npy, see cut_out; and KIND-labels.npy, (2, N) people and hats."""
    folder.mkdir(parents=True, exist_ok=True)
    with engine(EngineConfig(workers=workers)) as processes:
        for kind in kinds:
            if (folder / f"{kind}.npy").exists():
                continue
            world = rows(sizes, kind, seed)
            np.save(folder / f"{kind}-labels.npy", torch.stack([world.identity, world.headwear]).numpy())
            parts = [processes.submit(_draw, world.rows(part)) for part in _parts(len(world))]
            images, cut = zip(*(part.result() for part in parts), strict=True)
            np.save(folder / f"{kind}-cut.npy", np.concatenate(cut))
            np.save(folder / f"{kind}.npy", np.concatenate(images))


def _parts(count: int) -> Iterator[Tensor]:
    yield from torch.arange(count).split(_PART)


def _draw(world: People) -> tuple[np.ndarray, np.ndarray]:
    images, parts = draw(world, size=SIDE)
    return images.numpy(), cut_out(images, parts == PARTS.index("headwear")).numpy()


def cut_out(images: Tensor, regions: Tensor) -> Tensor:
    """Enlarge the box around each region to a whole image, so that hats are aligned. (N, C, H, W) uint8.

    Args:
        images: (N, C, H, W) uint8.
        regions: (N, H, W) bool, such as the hat's; an image without one stays as it is.
    """
    made = images.clone()
    for image, region in zip(made, regions, strict=True):
        if region.any():
            (top, bottom), (left, right) = (
                region.any(side).nonzero().flatten()[[0, -1]].tolist() for side in (1, 0)
            )
            part = image[None, :, top : bottom + 1, left : right + 1].float()
            image.copy_(functional.interpolate(part, image.shape[1:], mode="bilinear")[0].round())
    return made


def read(folder: Path, kind: str, *, cut: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Images, people and hats of a kind."""
    identity, headwear = torch.from_numpy(np.load(folder / f"{kind}-labels.npy"))
    return torch.from_numpy(np.load(folder / f"{kind}{'-cut' if cut else ''}.npy")), identity, headwear
