"""The devices of models, and moving tensors to them."""

from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError, did_you_mean

DEVICES = ("auto", "cpu", "cuda")


def device_of(model: nn.Module) -> torch.device:
    """The device of a model."""
    return next(chain(model.parameters(), model.buffers())).device


def device_named(name: str) -> torch.device:
    """The device of a name: "cpu", "cuda", or "auto", which is CUDA if it can be used.

    Raises:
        ConfigError: another name, or CUDA that cannot be used.
    """
    if name not in DEVICES:
        raise ConfigError(f"device={name}: {did_you_mean(name, DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda: no GPU can be used here: install a PyTorch with CUDA, or choose cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def fuses(parameters: Iterable[Tensor]) -> bool:
    """Whether optimisers of torch have a fused step, the fastest, for parameters on their device."""
    return all(each.device.type in ("cpu", "cuda") for each in parameters)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Moves a tensor to a device.

    A copy from the processor to CUDA starts from pinned memory, so that nobody waits for it.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
