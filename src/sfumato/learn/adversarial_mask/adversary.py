"""The adversary against whom a mask is trained: they name the person by the shown pixels.

Not in the mask paper, whose adversarial step hides the TASK in the HIDDEN pixels. This adversary looks for
the PERSON in the SHOWN ones. They restore the image from a release, and embed it so that releases of one
person are near each other; the gradient of all that they minimise reaches the masker reversed (Ganin &
Lempitsky 2015).

They learn from episodes of N people: one release of each is known, and the others are to be named. So they
do not learn the training people, but the differences between people, also unseen ones.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.data.labelled import LabelledImages
from sfumato.episodes import Sampler, Shape, largest
from sfumato.errors import DataError
from sfumato.learn.method import count_in_words
from sfumato.learn.start import begin
from sfumato.networks import Conv4, UNet
from sfumato.networks.weights import initial_weights

_RESTORER_WIDTH, _RESTORER_LEVELS = 8, 3
_SHARPNESS = 10.0  # the initial scale of similarities


class Adversary(nn.Module):
    """A restorer, and an encoder of its images. State: their weights, and a scale of cosines."""

    def __init__(self, channels: int, *, seed: int) -> None:
        super().__init__()
        with initial_weights(seed):
            self.restorer = UNet(channels, width=_RESTORER_WIDTH, levels=_RESTORER_LEVELS)
            self.encoder = Conv4(channels)
        begin(self.encoder, "drawn")  # there is little time to learn
        self.sharpness = nn.Parameter(torch.tensor(math.log(_SHARPNESS)))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, released: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) float releases -> (B, C, H, W) restored images, and (B, D) embeddings of length 1."""
        restored = self.restorer(released.contiguous(memory_format=torch.channels_last))
        return restored.float(), functional.normalize(self.encoder(restored).float(), dim=1)

    def naming_loss(self, embedded: Tensor, way: int) -> Tensor:
        """The cross-entropy of naming the queries of an episode by cosines to its one known release a person.

        `embedded`: (N * (1 + Q), D) of length 1; the known release of each person comes first.
        """
        known, asked = embedded.unflatten(0, (way, -1)).split([1, len(embedded) // way - 1], dim=1)
        cosines = asked.flatten(0, 1) @ known[:, 0].T  # (N * Q, N)
        people = torch.arange(way, device=cosines.device).repeat_interleave(asked.shape[1])
        return functional.cross_entropy(self.sharpness.exp() * cosines, people)


def episodes_of_people(people: LabelledImages, sensitive: str, *, batch: int) -> Sampler:
    """The sampler of the adversary's episodes: half a batch of people, or more releases of fewer people.

    `batch`: images of an episode, at most. Raises DataError: fewer than two people have two images.
    """
    label = people.label(sensitive)
    there = int((label.codes.unique(return_counts=True)[1] >= 2).sum())
    if there < 2:
        raise DataError(
            f"{people.name}: {count_in_words(there)} of label {sensitive!r} with two images, and an "
            "adversary learns to distinguish people: choose another label, or add images"
        )
    way = max(2, min(there, batch // 2))
    way, shot, queries = largest(label.codes, way=way, shot=1, queries=max(1, batch // way - 1))
    return Sampler(label, Shape(way=way, shot=shot, queries=queries))
