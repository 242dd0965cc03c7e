"""Near copies (stub until the real one is written)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Fingerprint:
    """Stub."""

    bits: bytes
    keys: tuple[int, ...]
    probes: tuple[int, ...]


def fingerprints(images: Tensor) -> list[Fingerprint | None]:
    """Stub."""
    return [None] * len(images)


def near_copies(first: bytes, second: bytes) -> bool:
    """Stub."""
    return first == second
