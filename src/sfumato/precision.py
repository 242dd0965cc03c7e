"""Mixed precision: bfloat16 where the processor computes in it, and so gains (benchmarks/episode.py)."""

import torch

from sfumato.errors import ConfigError

CHOICES = ("auto", "float32", "bfloat16")


def resolve(wanted: str) -> str:
    """ "auto" -> "bfloat16" where the hardware has it, else "float32"; the others as they are.

    Where bfloat16 is only emulated it is slower than float32.
    """
    if wanted not in CHOICES:
        raise ConfigError(f"precision={wanted}: choose {', '.join(CHOICES)}")
    if wanted != "auto":
        return wanted
    has = torch.cpu.get_capabilities()
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Mixed precision for a block of code, or none where `precision` is float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
