"""Images with one of several protections each: the choice, their releases, their embeddings."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfumato.dp.mechanisms import Noise
from sfumato.learn.few_shot.model import FewShotModel
from sfumato.protect import Protection


def choose(images: int, protections: int, generator: torch.Generator) -> Tensor:
    """(N,) int64, the protection of each image. One protection draws nothing from the generator."""
    if protections == 1:
        return torch.zeros(images, dtype=torch.int64)
    return torch.randperm(images, generator=generator) % protections  # all as often


def release(images: Tensor, protections: Sequence[Protection], which: Tensor, noise: Noise) -> Tensor:
    """(N, C, H, W) uint8, each image released by protections[which]."""
    if len(protections) == 1:
        return protections[0].release(images, noise).images()
    released = torch.empty_like(images)
    for number, protection in enumerate(protections):
        rows = (which == number).nonzero().flatten()
        if len(rows):
            released[rows] = protection.release(images[rows], noise).images()
    return released


def embed(model: FewShotModel, released: Tensor, protections: Sequence[Protection], which: Tensor) -> Tensor:
    """(N, D) embeddings of images, each released by protections[which]."""
    if len(protections) == 1:
        return model.embed(released, protections[0])
    order = which.argsort(stable=True)
    parts = [
        model.embed(released[which == number], protection)
        for number, protection in enumerate(protections)
        if (which == number).any()
    ]
    return torch.cat(parts)[order.argsort()]
