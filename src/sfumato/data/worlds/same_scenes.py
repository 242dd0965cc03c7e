"""The same scenes with other people: images between which who is shown is all that differs.

Drawn people are drawn again, each in the same hat, pose, light and background.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.data.labelled import LabelledImages
from sfumato.data.worlds._portraits import SCENE, People
from sfumato.data.worlds.drawing import uniforms
from sfumato.data.worlds.faces import draw
from sfumato.errors import DataError

PEOPLE, SCENES = 16, 32  # of a set
_BLOCKS, _PEOPLE, _SCENES = 6, 24, 96  # that are drawn, of which sets are chosen

# Chooses a set: (P, S, C, H, W) uint8 images of P people, all in the same S scenes, of which S is even.
Sets = Callable[[torch.Generator], Tensor]


def check(part: LabelledImages) -> None:
    """Raise DataError if other people cannot be drawn in the scenes of these images."""
    if part.name != "faces":
        raise DataError(
            f"{part.name}: the same scenes are drawn with other people for data: faces. For other images set "
            "same_scenes=0"
        )
    if len(part.classes("identity")) < 2:
        raise DataError("faces: the same scenes take two people or more: ask for more identities")


def draw_sets(part: LabelledImages, *, seed: int = 0) -> Sets:
    """Draws blocks of people in the same scenes, from which sets are chosen at each step of a training.

    The people of `part`, images of `faces` of a world's seed, are drawn, in their hats, at their size.
    """
    check(part)
    codes = {name: label.codes for name, label in part.labels.items()}
    who, owner = codes["identity"].unique(return_inverse=True)
    shows = torch.empty_like(who).scatter_(0, owner, torch.arange(len(part)))  # an image of each person
    order = torch.Generator().manual_seed(seed)
    blocks = []
    for block in range(_BLOCKS):
        person = shows[torch.randperm(len(who), generator=order)[:_PEOPLE]]
        what = torch.randint(len(part), (_SCENES,), generator=order)  # an image with the hat of each scene
        scene = uniforms(seed, f"the same scenes, block {block}", _SCENES, len(SCENE))
        people = len(person)
        person, what = person.repeat_interleave(_SCENES), what.repeat(people)
        world = People(
            seed=seed,
            **{name: codes[name][person] for name in ("identity", "hair_color", "gender", "age")},
            **{name: codes[name][what] for name in ("headwear", "expression", "glasses")},
            scene=scene.repeat(people, 1),
        )
        blocks.append(draw(world, size=part.images.shape[-1])[0].unflatten(0, (people, _SCENES)))

    def choose(draw: torch.Generator) -> Tensor:
        block = blocks[int(torch.randint(len(blocks), (), generator=draw))]
        people = torch.randperm(len(block), generator=draw)[:PEOPLE]
        scenes = torch.randperm(_SCENES, generator=draw)[:SCENES]
        images: Tensor = block[people].index_select(1, scenes)
        return images

    return choose
