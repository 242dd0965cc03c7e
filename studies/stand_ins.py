"""Stand-ins for CIAGAN and DeepPrivacy, whose images cannot be made here: averaged, swapped and drawn faces.

Both tools draw another face into a photograph. These do the same by textbook means, and are named for what they are:

- k-same (Newton, Sweeney & Malin 2005): photographs of k people, each the nearest to a first, become their mean. Who
  holds the originals finds k people for each image, and not one.
- swap: a face of somebody in the training images, turned and scaled so that its landmarks come upon those of the
  photograph, coloured like it, and blended in within an ellipse around them. The hair, the ears and what surrounds the
  face stay, as they do for DeepPrivacy. An image in which no face is found becomes its mean.
- drawn: the same with faces that nobody has, of the world `faces`: neutral, without glasses, each of another person.

They come in through `outside:index=...`, as images of any tool would: the files in studies/mask-tables hold masks against them.

    python studies/stand_ins.py fer lfw-hair    # into runs/stand-ins; pictures are docs/images/stand-ins-*.png
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.nn import functional

from sfumato import data, images
from sfumato.attack.reidentify import FaceFinder, Found
from sfumato.base.files import whole, write_rows
from sfumato.data import LabelledImages
from sfumato.data.worlds._portraits import PARTS
from sfumato.data.worlds.faces import draw, part_codes
from sfumato.data.worlds.faces import people as people_to_draw
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError
from sfumato.networks import MTCNN
from sfumato.networks.faces.alignment import similarity
from sfumato.protect import parse

MADE = Path("runs/stand-ins")
PICTURES = Path(__file__).parents[1] / "docs" / "images"
SOURCES = {"fer": ("table:runs/data/fer/table.csv", 48), "lfw-hair": ("table:runs/data/lfw/hair.csv", 64)}
STRIP = 8  # photographs in a picture
DETECTOR = Path("../shared/data/weights/mtcnn.safetensors")
SEED = 0
KS = (2, 10)
NAMES = {f"k-same-{k}": f"k-same of {k}" for k in KS} | {"swap": "swapped face", "drawn": "drawn face"}
CANDIDATES = 50  # faces of others, of which the one whose landmarks fit best is swapped in
GREY = 8  # how far the channels of a grey photograph, which is a JPEG, are apart at most
DRAWN = 500  # people who are drawn
DRAWN_SIZE = 128  # the side of their images
COMPARED = 16  # the side of the grey images by which faces are near each other


def k_same(photographs: Tensor, people: Tensor, k: int) -> Tensor:
    """Photographs of k people at a time become their mean. (N, C, H, W) uint8 -> the same.

    Source: Newton, Sweeney & Malin 2005, k-Same by pixels, for several photographs of a person: the k - 1 others are
    the nearest photographs of k - 1 other people. What is left in the end, of fewer than k people, joins the last k.

    Args:
        photographs: faces in one place.
        people: (N,) int64, who is on each.
        k: at most as many as there are people.

    Raises:
        DataError: there are fewer people.
    """
    if (there := len(people.unique())) < k:
        raise DataError(f"k={k}: there are {there} people: choose a smaller k, or add photographs of others")
    grey = functional.adaptive_avg_pool2d(photographs.float().mean(1, keepdim=True), COMPARED).flatten(1)
    left = torch.ones(len(photographs), dtype=torch.bool)
    groups: list[Tensor] = []
    while len(people[left].unique()) >= k:
        rows = left.nonzero().flatten()
        order = rows[(grey[rows] - grey[rows[0]]).square().sum(1).argsort(stable=True)]
        seen: dict[int, int] = {}
        for row in order.tolist():  # the nearest of each person; the first is nearest to itself
            seen.setdefault(int(people[row]), row)
            if len(seen) == k:
                break
        groups.append(torch.tensor(list(seen.values())))
        left[groups[-1]] = False
    groups[-1] = torch.cat([groups[-1], left.nonzero().flatten()])
    made = torch.empty_like(photographs)
    for group in groups:
        made[group] = photographs[group].float().mean(0).round().to(torch.uint8)
    return made


def swapped(photograph: Tensor, landmarks: Tensor, other: Tensor, its_landmarks: Tensor) -> Tensor:
    """Another face in the place of one, blended in within an ellipse around the landmarks.

    Args:
        photograph, other: (C, H, W) uint8.
        landmarks, its_landmarks: (5, 2) x, y: eyes, nose, corners of the mouth.
    """
    height, width = photograph.shape[1:]
    # PIL asks where each pixel comes from: from the photograph's landmarks to the other's.
    matrix = similarity(landmarks[None], its_landmarks[None])[0].flatten().tolist()
    picture = Image.fromarray(other.permute(1, 2, 0).numpy())
    face = picture.transform((width, height), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    moved = torch.from_numpy(np.array(face)).permute(2, 0, 1).float()
    soft = ellipse(landmarks, height, width)  # (H, W), 1 inside and 0 outside
    ours = photograph.float()
    for channel in range(len(moved)):
        weight = soft / soft.sum()
        mean, goal = (moved[channel] * weight).sum(), (ours[channel] * weight).sum()
        spread, wanted = (
            ((plane - middle).square() * weight).sum().sqrt()
            for plane, middle in ((moved[channel], mean), (ours[channel], goal))
        )
        moved[channel] = (moved[channel] - mean) * wanted / spread.clamp(min=1.0) + goal
    return (soft * moved.clamp(0, 255) + (1 - soft) * ours).round().to(torch.uint8)


def ellipse(landmarks: Tensor, height: int, width: int) -> Tensor:
    """(H, W) from 0 to 1: an ellipse from the brows to the chin, with a soft edge."""
    eyes, mouth = landmarks[:2].mean(0), landmarks[3:].mean(0)
    down = mouth - eyes
    length = down.norm().clamp(min=1.0)
    centre, down = (eyes + mouth) / 2, down / length
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    away = torch.stack([x, y], 2) - centre
    along, across = (away * down).sum(2), away[..., 0] * down[1] - away[..., 1] * down[0]
    inside = (along / (1.35 * length)).square() + (across / (1.05 * length)).square() <= 1
    mask = Image.fromarray(inside.to(torch.uint8).mul(255).numpy())
    blurred = mask.filter(ImageFilter.GaussianBlur(float(length) / 8))
    return torch.from_numpy(np.array(blurred)).float() / 255


@dataclass(frozen=True)
class Donors:
    """Faces to put over others.

    Attributes:
        photographs: (D, C, H, W) uint8.
        landmarks: (D, 5, 2) x, y.
        people: (D,) int64, who is on each; somebody who is on no photograph has a negative number.
    """

    photographs: Tensor
    landmarks: Tensor
    people: Tensor


def exchanged(every: LabelledImages, people: Tensor, donors: Callable[[Found], Donors]) -> Tensor:
    """Each photograph with the face of a donor, and its mean where no face is found; `people`: (N,), who is on each."""
    found = FaceFinder(MTCNN.load(DETECTOR), every.images).find(every.images)
    there = donors(found)
    generator = torch.Generator().manual_seed(SEED)
    made = every.images.clone()
    for row in range(len(every)):
        if not found.seen[row]:
            made[row] = every.images[row].float().mean((1, 2), True).round()
            continue
        others = (there.people != people[row]).nonzero().flatten()
        some = others[torch.randperm(len(others), generator=generator)[:CANDIDATES]]
        own = found.landmarks[row]
        fitted = similarity(there.landmarks[some], own)
        moved = there.landmarks[some].double() @ fitted[:, :, :2].transpose(1, 2) + fitted[:, None, :, 2]
        best = some[(moved - own).square().sum((1, 2)).argmin()]
        made[row] = swapped(every.images[row], own, there.photographs[best], there.landmarks[best])
    return made


def swaps(every: LabelledImages, people: Tensor) -> Tensor:
    """Each photograph with the face of somebody else among the training images."""

    def training(found: Found) -> Donors:
        rows = every.splits["train"]
        rows = rows[found.seen[rows]]
        return Donors(every.images[rows], found.landmarks[rows], people[rows])

    return exchanged(every, people, training)


def covered(every: LabelledImages, people: Tensor) -> Tensor:
    """Each photograph with a drawn face, grey where all photographs are."""
    donors = drawn(DRAWN)
    if ((every.images.amax(1) - every.images.amin(1)) <= GREY).all():
        grey = donors.photographs.float().mean(1, keepdim=True).round().to(torch.uint8)
        donors = replace(donors, photographs=grey.expand_as(donors.photographs))
    return exchanged(every, people, lambda _: donors)


def drawn(count: int) -> Donors:
    """Faces of so many drawn people, neutral and without glasses; what is not face, as a hat, has the colour of the skin."""
    world = people_to_draw(identities=count, images_per_identity=1, seed=SEED)
    first = torch.zeros_like(world.expression)  # neutral, and no glasses
    pictures, parts = draw(replace(world, expression=first, glasses=first), size=DRAWN_SIZE)
    face = torch.isin(parts, part_codes("identity")) & (parts != PARTS.index("hair"))
    skin = parts == PARTS.index("skin")
    mean = (pictures * skin[:, None]).sum((2, 3)) / skin.sum((1, 2))[:, None]
    pictures = torch.where(face[:, None], pictures, mean.round().to(torch.uint8)[:, :, None, None])
    return Donors(pictures, drawn_landmarks(parts), -1 - torch.arange(count))


def drawn_landmarks(parts: Tensor) -> Tensor:
    """(N, H, W) parts of drawn faces -> (N, 5, 2) x, y: middles of the eyes and of the nose, corners of the mouth."""
    landmarks = torch.empty(len(parts), 5, 2)
    for row, of_face in enumerate(parts):
        y, x = (of_face == PARTS.index("eyes")).nonzero().float().T
        nose = (of_face == PARTS.index("nose")).nonzero().float().mean(0)
        left = x < (x.min() + x.max()) / 2
        mouth = (of_face == PARTS.index("mouth")).nonzero().float()
        corners = mouth[[int(mouth[:, 1].argmin()), int(mouth[:, 1].argmax())]]
        landmarks[row] = torch.stack(
            [
                torch.stack([x[left].mean(), y[left].mean()]),
                torch.stack([x[~left].mean(), y[~left].mean()]),
                nose.flip(0),
                *corners.flip(1),
            ]
        )
    return landmarks


def written(name: str, every: LabelledImages, made: Tensor) -> None:
    """Write images that were made, and their index by digests."""
    folder = MADE / name
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, str] = {}
    for row in range(len(every)):
        digest = images.digest(every.images[row]).hex()
        if digest not in rows:  # some photographs are there twice
            rows[digest] = f"{row:05d}.png"
            images.write(folder / rows[digest], made[row])
    with whole(folder / "index.csv") as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, [("file", "digest"), *((path, digest) for digest, path in rows.items())])


def averages(every: LabelledImages, people: Tensor, k: int) -> Tensor:
    """k_same within each split: a device that averages test people has no training people."""
    made = every.images.clone()
    for rows in every.splits.values():
        made[rows] = k_same(every.images[rows], people[rows], k)
    return made


def make(folder: str, every: LabelledImages, people: Tensor) -> None:
    """Make those that are not there yet, and a picture of all.

    Args:
        folder: of the data set, under MADE.
        every: all photographs.
        people: (N,) int64, who is on each.
    """
    makers: dict[str, Callable[[], Tensor]] = {f"k-same-{k}": partial(averages, every, people, k) for k in KS}
    makers |= {"swap": partial(swaps, every, people), "drawn": partial(covered, every, people)}
    test = every.split("test").images
    strips = [test[:: len(test) // STRIP][:STRIP]]
    for stem, make_all in makers.items():
        index = MADE / folder / stem / "index.csv"
        if not index.exists():
            written(f"{folder}/{stem}", every, make_all())
        strips.append(parse(f"outside:index={index}").release(strips[0], seeded_noise(SEED)).images())
    images.write(
        PICTURES / f"stand-ins-{folder}.png", torch.cat([torch.cat(list(strip), 2) for strip in strips], 1)
    )


def main() -> None:
    """Make those of the data sets that are asked for."""
    for folder in sys.argv[1:] or SOURCES:
        source, size = SOURCES[folder]
        every = data.load(source, size=size)
        known = "identity" in every.labels  # otherwise all are different people
        make(folder, every, every.label("identity").codes if known else torch.arange(len(every)))


if __name__ == "__main__":
    main()
