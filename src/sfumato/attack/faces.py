"""Faces on photographs, as an adversary finds them before a face network is shown them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError
from sfumato.networks import MTCNN


@dataclass(frozen=True)
class Found:
    """The face on each photograph.

    Attributes:
        landmarks: (N, 5, 2) x, y; see networks.align.
        seen: (N,) bool, whether the detector found a face; where not, landmarks are the usual ones.
    """

    landmarks: Tensor
    seen: Tensor

    @property
    def rate(self) -> float:
        """The share of photographs on which a face was found."""
        return self.seen.double().mean().item()


class FaceFinder:
    """Finds the face in the middle of each photograph. State: a detector, and where faces usually lie.

    Photographs of one collection are framed alike, and the adversary has some of their own. Where the
    detector sees no face, as on most protected ones, they assume the usual position of it.
    """

    def __init__(self, detector: MTCNN, photographs: Tensor) -> None:
        """Learn the usual place from (N, 3, H, W) uint8 clean photographs, framed as those to come.

        Raises:
            DataError: there is a face on none of them.
        """
        self._detector = detector
        landmarks, seen = self._detect(photographs)
        if not seen.any():
            raise DataError(
                f"no face was found on any of {len(photographs)} clean photographs: a face network cannot "
                "recognise people on these; use recogniser: conv4"
            )
        self._usual = landmarks[seen].median(0).values  # (5, 2)

    def find(self, photographs: Tensor) -> Found:
        """The face on each of (N, 3, H, W) uint8 photographs, clean or released."""
        landmarks, seen = self._detect(photographs)
        return Found(torch.where(seen[:, None, None], landmarks, self._usual), seen)

    def _detect(self, photographs: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 5, 2) landmarks, zero where there is no face, and (N,) whether there is."""
        landmarks = torch.zeros(len(photographs), 5, 2)
        seen = torch.zeros(len(photographs), dtype=torch.bool)
        for row, faces in enumerate(self._detector.detect(photographs)):
            subject = faces.central(photographs.shape[2], photographs.shape[3])
            if subject is not None:
                landmarks[row], seen[row] = faces.landmarks[subject], True
        return landmarks, seen
