"""Face detection, before a face network sees photographs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.networks import MTCNN


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
    """Finds the face in the middle of each photograph. State: a detector, and the usual position of a face.

    Photographs of one collection are framed alike, and the adversary has some of their own. If the detector
    finds no face, as on most protected ones, they assume its usual position.
    """

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
