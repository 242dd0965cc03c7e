"""Faces: a world of drawn people in patterned hats, for tasks that are NOT identity. No download.

Every image shows one person (`identity`) in one of hundreds of hats (`headwear`), which anybody may wear: the
task is to recognise the hat, the risk is to recognise the person. The seed fixes the people's looks; light,
pose, background, expression and glasses change from image to image.

`draw` also gives the part that each pixel shows, to check a protection against the truth.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages, without_pixels
from sfumato.data.worlds import _hats
from sfumato.data.worlds._portraits import (
    AGES,
    EXPRESSIONS,
    FACE,
    GENDERS,
    GLASSES,
    HAIR_COLORS,
    LOOKS,
    SCENE,
    Painter,
    People,
)
from sfumato.data.worlds.drawing import check_world, permutation, uniforms
from sfumato.errors import ConfigError

# The parts that change with an attribute. A pixel that two parts share belongs to the one in front.
CARRIERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "identity": FACE,
        "headwear": ("headwear",),
        "hair_color": ("hair", "beard", "brows"),
        "expression": ("mouth", "brows"),
        "glasses": ("glasses",),
        "gender": ("hair", "skin", "beard", "eyes", "brows", "mouth"),
        "age": FACE,
    }
)

SHARES = (0.60, 0.15, 0.25)  # of the people, and of the hats: train, validation, test

_CHUNK_PIXELS = 48 * 64 * 64  # drawn at a time: they fit a core's cache


def faces(
    *,
    identities: int = 500,
    images_per_identity: int = 30,
    headwear: int = 300,
    size: int = 64,
    further: int = 0,
    seed: int = 0,
    drawn: bool = True,
) -> LabelledImages:
    """People in hats. Splits share neither people nor hats: both are new at test time.

    Inside a split hats are dealt to images in random order, each as often as any other (up to one),
    independently of the wearer: neither label reveals the other. The looks of a person or a hat depend only
    on the seed and its number.

    Args:
        identities: how many people.
        images_per_identity: how many images of each.
        headwear: how many kinds of hat, over all splits.
        size: the side of the images in pixels, 16 to 256.
        further: images more of each test person, in a split of that name: by them a study measures what many
            releases of one person tell.
        seed: of the world.
        drawn: False for labels and splits alone: the images have a shape, and no pixels.

    Returns:
        (identities * images_per_identity, 3, size, size) images, by person, labelled `identity`,
        `headwear`, `hair_color`, `expression`, `glasses`, `gender` and `age`. Row i shows row i of
        `people` with the same numbers; further images follow, which have rows of a world of their own.
    """
    numbers = {"identities": identities, "headwear": headwear, "seed": seed}
    world = people(**numbers, images_per_identity=images_per_identity)
    parts = _deal(identities, seed=seed, stream="people of a split")
    splits = {k: torch.isin(world.identity, v).nonzero().flatten() for k, v in parts.items()}
    if further < 0:
        raise ConfigError(f"faces: further is at least 0, got {further}: images more of each test person")
    if further:
        each = images_per_identity + further  # another number than the world's, and so other images
        more = people(**numbers, images_per_identity=each)
        asked = torch.isin(more.identity, parts["test"]) & (torch.arange(len(more)) % each < further)
        splits["further"] = torch.arange(len(world), len(world) + int(asked.sum()))
        world = world.append(more.rows(asked.nonzero().flatten()))
    images = draw(world, size=size)[0] if drawn else without_pixels(len(world), 3, size)
    labels = {
        "identity": Label(world.identity, tuple(f"person-{i:04d}" for i in range(identities))),
        "headwear": Label(world.headwear, tuple(f"hat-{i:04d}" for i in range(headwear))),
        "hair_color": Label(world.hair_color, HAIR_COLORS),
        "expression": Label(world.expression, EXPRESSIONS),
        "glasses": Label(world.glasses, GLASSES),
        "gender": Label(world.gender, GENDERS),
        "age": Label(world.age, AGES),
    }
    return LabelledImages("faces", images, labels, splits)


def people(
    *, identities: int = 500, images_per_identity: int = 30, headwear: int = 300, seed: int = 0
) -> People:
    """The table behind `faces`: the same numbers give the same rows. Raises ConfigError as it does."""
    for name, count in {"identities": identities, "headwear": headwear}.items():
        if count < 3:
            raise ConfigError(
                f"faces: {name} is at least 3, got {count}: "
                "train, validation and test share none, and each needs one"
            )
    check_world("faces", seed=seed, images_per_identity=images_per_identity)
    count = identities * images_per_identity
    identity = torch.arange(identities).repeat_interleave(images_per_identity)
    u = uniforms(seed, "people", identities, 4)
    age = torch.bucketize(u[:, 0].contiguous(), torch.tensor([0.2, 0.75]), right=True)
    gender = (u[:, 1] * 2).long()
    hair = torch.bucketize(u[:, 2].contiguous(), torch.tensor([0.25, 0.5, 0.75, 0.92]), right=True)
    # Six in ten of the old are grey, and no child is.
    hair = torch.where((age == 2) & (u[:, 3] < 0.6), 4, hair)
    hair = torch.where((age == 0) & (hair == 4), 2, hair)

    kinds = torch.empty(count, dtype=torch.int64)
    wearers = _deal(identities, seed=seed, stream="people of a split")
    hats = _deal(headwear, seed=seed, stream="hats of a split")
    for split, members in wearers.items():
        rows = torch.isin(identity, members).nonzero().flatten()
        rows = rows[permutation(seed, f"hats dealt in {split}", len(rows))]
        kinds[rows] = hats[split].repeat(math.ceil(len(rows) / len(hats[split])))[: len(rows)]

    image = uniforms(seed, f"images, {images_per_identity} each", count, 2 + len(SCENE))
    return People(
        seed=seed,
        identity=identity,
        headwear=kinds,
        hair_color=hair[identity],
        expression=(image[:, 0] * len(EXPRESSIONS)).long(),
        glasses=torch.bucketize(image[:, 1].contiguous(), torch.tensor([0.6, 0.9]), right=True),
        gender=gender[identity],
        age=age[identity],
        scene=image[:, 2:],
    )


def _deal(count: int, *, seed: int, stream: str) -> dict[str, Tensor]:
    """Gives each of `count` things to one split, by SHARES, and at least one to each."""
    order = permutation(seed, stream, count)
    validation, test = max(1, round(SHARES[1] * count)), max(1, round(SHARES[2] * count))
    train = count - validation - test
    members = torch.split(order, [train, validation, test])
    return dict(zip(("train", "validation", "test"), members, strict=True))


def draw(world: People, *, size: int = 64) -> tuple[Tensor, Tensor]:
    """Draws people. If only one attribute differs, only pixels of its parts differ.

    That holds to the pixel for headwear, glasses and expression; hair and skin also show through the
    soft edge, one pixel wide, of the parts over them.

    Returns:
        (N, 3, size, size) uint8 images, and (N, size, size) uint8 codes into PARTS: the front-most part
        that touches each pixel.
    """
    check_world("faces", size=size, most=256, usual=64)
    images = torch.empty(len(world), 3, size, size, dtype=torch.uint8)
    parts = torch.empty(len(world), size, size, dtype=torch.uint8)
    if not len(world):
        return images, parts
    looks = uniforms(world.seed, "looks", int(world.identity.max()) + 1, len(LOOKS))[world.identity]
    hats = _hats.kinds(int(world.headwear.max()) + 1, seed=world.seed).rows(world.headwear)
    step = max(1, _CHUNK_PIXELS // size**2)
    # Hats of one family share their code: draw them together, and among them those of faces at one height,
    # since fewer rows can then show a nose.
    heights = world.scene[:, list(SCENE).index("y")].argsort(stable=True)
    for family in torch.unique(hats.family):
        for rows in torch.split(heights[hats.family[heights] == family], step):
            painter = Painter(world.rows(rows), looks[rows], hats.rows(rows), size)
            images[rows], parts[rows] = painter.paint()
    return images, parts
