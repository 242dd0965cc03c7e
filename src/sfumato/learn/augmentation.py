"""Variants of training images, made before they are protected."""

import torch
from torch import Tensor


def augmented(images: Tensor, generator: torch.Generator, *, flips: bool = False, shifts: int = 0) -> Tensor:
    """Mirror and move images, each by itself. -> (N, C, H, W).

    Args:
        images: (N, C, H, W); left as they are.
        generator: of the draws; none where nothing is asked for.
        flips: mirror every other image left to right, by chance.
        shifts: move each by up to so many pixels along each axis, edges repeated.
    """
    if flips:
        mirrored = torch.rand(len(images), generator=generator) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if shifts:
        count, height, width = len(images), *images.shape[2:]
        down, right = torch.randint(-shifts, shifts + 1, (2, count, 1), generator=generator)
        rows = (torch.arange(height) + down).clamp(0, height - 1)  # (N, H)
        columns = (torch.arange(width) + right).clamp(0, width - 1)  # (N, W)
        every = torch.arange(count)[:, None, None]
        # Indices on both sides of the channels would put these last.
        images = images.movedim(1, 3)[every, rows[:, :, None], columns[:, None]].movedim(3, 1)
    return images
