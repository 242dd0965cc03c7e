"""The networks by which an adversary recognises people, and the detector that finds faces for them."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.attack import reidentify
from sfumato.attack.reidentify import FACE_NETWORKS, AdversaryConfig, Recogniser
from sfumato.data.labelled import draw_rows
from sfumato.errors import DataError
from sfumato.networks import MTCNN, DlibResNet, align

_FRAMING = 300  # photographs that show the usual place of faces


@dataclass(frozen=True)
class Found:
    """The face found on each photograph."""

    landmarks: Tensor  # (N, 5, 2) x, y; see networks.align
    seen: Tensor  # (N,) bool, whether the detector found a face; if not, the landmarks are the usual ones

    @property
    def rate(self) -> float:
        """The share of photographs on which a face was found."""
        return self.seen.double().mean().item()


class FaceFinder:
    """Finds the face in the middle of a photograph. State: a detector, and the usual position of a face."""

    def __init__(self, detector: MTCNN, photographs: Tensor) -> None:
        """Learn the usual position from (N, 3, H, W) uint8 clean photographs, framed like those to attack."""
        self._detector = detector
        landmarks, seen = self._detect(photographs)
        if not seen.any():
            raise DataError(
                f"no face was found on any of {len(photographs)} clean photographs: a face network cannot "
                "recognise people on them; use recogniser: conv4"
            )
        self._usual = landmarks[seen].median(0).values  # (5, 2)

    def find(self, photographs: Tensor) -> Found:
        """Find the face on each of (N, 3, H, W) uint8 photographs, clean or released."""
        landmarks, seen = self._detect(photographs)
        return Found(torch.where(seen[:, None, None], landmarks, self._usual), seen)

    def _detect(self, photographs: Tensor) -> tuple[Tensor, Tensor]:
        """Detect (N, 5, 2) landmarks, zero without a face, and (N,) whether there is a face."""
        landmarks = torch.zeros(len(photographs), 5, 2)
        seen = torch.zeros(len(photographs), dtype=torch.bool)
        for row, faces in enumerate(self._detector.detect(photographs)):
            subject = faces.central(photographs.shape[2], photographs.shape[3])
            if subject is not None:
                landmarks[row], seen[row] = faces.landmarks[subject], True
        return landmarks, seen


@dataclass
class Recognisers:
    """The networks by which an adversary recognises people. State: faces and networks found so far."""

    config: AdversaryConfig
    photographs: Tensor  # (N, C, H, W) uint8, of other people
    people: Tensor  # (N,) who is on them
    encoder: Callable[[], nn.Module]  # makes the first network
    how: dict[str, Any] = field(default_factory=dict)  # device and progress of trainings

    @cached_property
    def second(self) -> DlibResNet | None:
        """A second public network, which is not trained; None if they have one alone."""
        return None if self.config.second is None else DlibResNet.load()

    @cached_property
    def _finder(self) -> FaceFinder | None:
        if self.config.detector is None:
            return None
        framing = self.photographs[draw_rows(self.people, _FRAMING, seed=0)]
        return FaceFinder(MTCNN.load(self.config.detector), framing)

    @cached_property
    def _landmarks(self) -> Tensor | None:
        return None if (faces := self.find(self.photographs)) is None else faces.landmarks

    def find(self, images: Tensor) -> Found | None:
        """Find the faces on images; None if the recogniser needs none."""
        return None if self._finder is None else self._finder.find(images)

    def cut(self, images: Tensor, landmarks: Tensor | None) -> Tensor:
        """Make the input of the recogniser: whole images, or the faces at those landmarks."""
        if landmarks is None:
            return images
        return align(images, landmarks, FACE_NETWORKS[self.config.recogniser][1])

    def train(
        self, seed: int, static: Recogniser | None = None, seen: Callable[[int], Tensor] | None = None
    ) -> Recogniser:
        """Train on clear photographs; or `static` further, on the same ones as `seen` in each pass."""
        config, encoder = self.config, self.encoder() if static is None else copy.deepcopy(static.encoder)
        if static is not None:
            config = replace(config, steps=config.adaptive_steps)
        elif not config.steps:
            return Recogniser(encoder).to(self.how.get("device"))
        clear = self.cut(self.photographs, self._landmarks)

        def faces(number: int) -> Tensor:
            return clear if seen is None else self.cut(seen(number), self._landmarks)

        return reidentify.train_recogniser(faces, self.people, config, encoder=encoder, seed=seed, **self.how)
