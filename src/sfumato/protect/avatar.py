"""Avatars: a drawn face in place of an image, for people and programs that need a picture.

The painter of drawn faces paints one stand-in, who is nobody, by the code or the answer of an image, and sees
nothing else of it. So a picture tells no more than these, and all that is proved of them holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sfumato import artefacts
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError
from sfumato.images import Images, Pixels
from sfumato.protect.answer import KIND as ANSWERS
from sfumato.protect.answer import Answer, AnswerRelease
from sfumato.protect.code import Code, words_of
from sfumato.protect.outside import fit
from sfumato.protect.parameters import check_path
from sfumato.protect.release import FilePath, Release, TrainedProtection

MOST_BITS = 16  # of a code: an expression, glasses, a pose, and one of 4,096 hats
_MOST_KEPT = 1 << 12  # pictures
_TURNS = (0.1, 0.9)  # of the head, from 0 (left) to 1 (right)


def load_source(path: str) -> Code | Answer:
    """The source of pictures. Raises ArtefactError for another artefact, or a longer code."""
    of_answers = artefacts.read_card(path)["kind"] == ANSWERS
    source: Code | Answer = Answer(path) if of_answers else Code(path)
    if not 1 <= (source.outputs or 0) <= 2**MOST_BITS:
        raise ArtefactError(
            f"{path}: an avatar shows answers, or a code of at most {MOST_BITS} bits: train one"
        )
    return source


@dataclass(frozen=True)
class Avatar(TrainedProtection):
    """Releases a picture that is painted from the code, or the answer, of an image; see `paint`.

    `artefact`: an encoder of codes of at most MOST_BITS bits, or a classifier; see Code and Answer.
    """

    artefact: FilePath

    name = "avatar"
    _what, _load = "an encoder", staticmethod(load_source)

    def __post_init__(self) -> None:
        check_path("avatar", "artefact", self.artefact)

    @property
    def outputs(self) -> int | None:
        """The number of different releases. Raises ArtefactError as load_source does."""
        outputs: int | None = self._trained.outputs
        return outputs

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release. Raises as load_source does, and SpecError for images of another size."""
        made = self._trained.release(images, noise)
        answered = isinstance(made, AnswerRelease)
        numbers = made.array if answered else words_of(made.values).numpy()
        pictures = self._painted
        if new := sorted({*numbers.tolist()} - pictures.keys()):
            painted = paint(new, self.shape, names=made.classes if answered else ())
            pictures = pictures | dict(zip(new, painted, strict=True))
            self._painted.update(pictures if len(pictures) <= _MOST_KEPT else {})
        sent = np.array([pictures[number] for number in numbers.tolist()], np.uint8)
        return Release(sent.reshape(-1, *self.shape), self.spec, self.shape[1:])

    @cached_property
    def _painted(self) -> dict[int, Pixels]:
        return {}


def paint(words: Sequence[int], shape: tuple[int, int, int], *, names: Sequence[str] = ()) -> Pixels:
    """A picture of the stand-in for each code or answer: (N, C, H, W) uint8, equal for equal numbers.

    `names` are those of all answers, if the numbers are answers: where all are expressions, glasses or hats
    of drawn faces, the picture has the same. Otherwise the number decides expression, glasses, pose and
    hat.
    """
    import torch

    from sfumato.data.worlds import faces
    from sfumato.data.worlds._portraits import EXPRESSIONS, GLASSES, SCENE

    scene, numbers = torch.full((len(words), len(SCENE)), 0.5), torch.tensor(words).long()
    painted: dict[str, Any] = dict.fromkeys(("expression", "glasses", "headwear"), torch.zeros_like(numbers))
    hats = [f"hat-{number:04d}" for number in range(10_000)] if names else []
    for attribute, known in {"expression": EXPRESSIONS, "glasses": GLASSES, "headwear": hats}.items():
        if names and set(names) <= set(known):
            painted[attribute] = torch.tensor([known.index(names[word]) for word in words]).long()
            break
    else:
        painted = {"expression": numbers % 4, "glasses": numbers // 4 % 2 * 2, "headwear": numbers // 16}
        scene[:, list(SCENE).index("yaw")] = torch.tensor(_TURNS)[numbers // 8 % 2]
    # The stand-in is the first of a public world: but for these, each row is the same.
    world = faces.people(identities=3, images_per_identity=1, headwear=3).rows(torch.zeros_like(numbers))
    channels, height, width = shape
    drawn, _ = faces.draw(replace(world, **painted, scene=scene), size=min(max(height, width, 16), 256))
    fitted = np.array([fit(each, height, width) for each in drawn.numpy()], np.uint8).reshape(
        -1, 3, height, width
    )
    return fitted if channels == 3 else fitted.mean(1, keepdims=True).astype(np.uint8)
