"""Mixed precision: bfloat16 if the hardware computes in it, and so gains (benchmarks/episode.py)."""

from contextlib import AbstractContextManager, nullcontext

import torch

from sfumato.errors import ConfigError

CHOICES = ("auto", "float32", "bfloat16")


def resolve(wanted: str, device: torch.device | None = None) -> str:
    """ "auto" -> "bfloat16" if the hardware has it, else "float32"; the others unchanged.

    Emulated bfloat16 is slower than float32. `device`: of the computation; None for the processor.
    """
    if wanted not in CHOICES:
        raise ConfigError(f"precision={wanted}: choose {', '.join(CHOICES)}")
    if wanted != "auto":
        return wanted
    if device is not None and device.type != "cpu":
        has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if has else "float32"
    known = torch.cpu.get_capabilities()
    return "bfloat16" if known.get("avx512_bf16") or known.get("amx_bf16") else "float32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """Mixed precision for a block of code, or no change if `precision` is float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else float32(device)


def float32(device: torch.device) -> AbstractContextManager[None]:
    """No mixed precision for a block of code, also within a block that has it."""
    # Tensors without data, for checks of shapes and devices, have no mixed precision.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
