"""Images as inputs of networks: with the model's size, on its device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfumato.base.placement import to_device
from sfumato.errors import DataError
from sfumato.images import to_float


def as_input(images: Tensor, device: torch.device) -> Tensor:
    """(N, C, H, W) uint8 -> float32 on a device, in the fastest order of memory for convolutions."""
    return to_float(to_device(images, device)).contiguous(memory_format=torch.channels_last)


def check_shape(images: Tensor, shape: Sequence[int], learner: str, source: str = "") -> None:
    """Raises DataError unless images have the (C, H, W) of a model's training."""
    if list(images.shape[1:]) != list(shape):
        given, wanted = ("x".join(map(str, sizes)) for sizes in (images.shape[1:], shape))
        raise DataError(f"{source}images of {given}: this {learner} was trained on {wanted}: resize them")
