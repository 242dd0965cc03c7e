"""The threads, devices and precision that this process computes with; to count threads needs no PyTorch."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING

from sfumato.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "float32", "bfloat16")


def thread_count() -> int:
    """As many as PyTorch would use: set by `limit_threads` or OMP_NUM_THREADS, or one for each core."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(said) if said.isdecimal() and int(said) else len(os.sched_getaffinity(0))


def limit_threads(threads: int) -> None:
    """Limits the threads of this process, now and when PyTorch is imported later."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(threads)


@contextmanager
def threads_of_children(threads: int) -> Iterator[None]:
    """Limits the threads of processes that start in this block: NumPy counts them once, at its import."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
        os.environ |= {} if before is None else {"OMP_NUM_THREADS": before}


def device_of(model: "nn.Module") -> "torch.device":
    """The device of a model."""
    return next(chain(model.parameters(), model.buffers())).device


def device_named(name: str) -> "torch.device":
    """The device of a name of DEVICES, "auto" for CUDA if it can be used. Raises ConfigError."""
    import torch

    if name not in DEVICES:
        raise ConfigError(f"device={name}: {did_you_mean(name, DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda: no GPU can be used here: install a PyTorch with CUDA, or choose cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def fuses(parameters: "Iterable[Tensor]") -> bool:
    """Whether optimisers of torch have a fused step, the fastest, for parameters on their device."""
    return all(each.device.type in ("cpu", "cuda") for each in parameters)


def to_device(tensor: "Tensor", device: "torch.device") -> "Tensor":
    """Moves a tensor to a device; to CUDA from pinned memory, so that nobody waits for it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def resolve(wanted: str, device: "torch.device | None" = None) -> str:
    """ "auto" -> "bfloat16" if the device (None: the processor) has it, and not emulated; else "float32"."""
    import torch

    if wanted not in PRECISIONS:
        raise ConfigError(f"precision={wanted}: choose {', '.join(PRECISIONS)}")
    if wanted != "auto":
        return wanted
    if device is not None and device.type != "cpu":
        has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if has else "float32"
    known = torch.cpu.get_capabilities()
    return "bfloat16" if known.get("avx512_bf16") or known.get("amx_bf16") else "float32"


def autocast(precision: str, device: "torch.device") -> AbstractContextManager[None]:
    """The precision of a block of code: mixed, or float32, also within a block that has mixed precision."""
    import torch

    mixed = precision == "bfloat16"
    if device.type == "meta" and not mixed:  # tensors without data, for checks of shapes and devices
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if mixed else None, enabled=mixed)


def float32(device: "torch.device") -> AbstractContextManager[None]:
    """No mixed precision for a block of code, also within a block that has it."""
    return autocast("float32", device)
