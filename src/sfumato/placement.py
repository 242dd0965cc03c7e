"""Where a model computes, and how tensors get there."""

from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor, nn


def device_of(model: nn.Module) -> torch.device:
    """Where a model computes."""
    return next(chain(model.parameters(), model.buffers())).device


def fuses(parameters: Iterable[Tensor]) -> bool:
    """Whether optimisers of torch have a fused step for parameters where they are: the quickest there is."""
    return all(each.device.type in ("cpu", "cuda") for each in parameters)


def brought(tensor: Tensor, device: torch.device) -> Tensor:
    """The same tensor on a device; itself where it is there.

    A copy from the processor to CUDA starts from pinned memory, so that nobody waits for it.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
