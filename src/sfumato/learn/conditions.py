"""One model for a range of protections, which gets the parameters of an image's protection."""

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from sfumato.errors import ConfigError
from sfumato.protect import Protection


class Conditions:
    """Protections of one family, and the positions of others by the `keys`, their parameters that differ."""

    def __init__(self, protections: Sequence[Protection]) -> None:
        """Raises ConfigError unless there is a protection, and all are different and of one family."""
        if not protections:
            raise ConfigError("a model is trained for at least one protection")
        self.protections = tuple(protections)
        first = self.protections[0]
        for number, other in enumerate(self.protections[1:], 1):
            if _family(other) != _family(first):
                raise ConfigError(
                    f"{first.spec} and {other.spec} are not of one family: one model serves a range of the "
                    "numbers of one protection, such as gaussian:sigma=40,80,160"
                )
            if other in self.protections[:number]:
                raise ConfigError(f"{other.spec} occurs twice: name each protection once")
        ranges: dict[str, tuple[float, float]] = {}
        if len(self.protections) > 1:
            values = [_numbers(protection) for protection in self.protections]
            ranges = {key: (min(v[key] for v in values), max(v[key] for v in values)) for key in values[0]}
        self._ranges = {key: (low, high) for key, (low, high) in ranges.items() if low < high}
        self.keys = tuple(self._ranges)

    def position(self, protection: Protection) -> Tensor:
        """(K,) float32, a number for each of `keys`: -1 at its lowest, 1 at its highest, on a log scale.

        Outside the range it is that of the nearest end: a network knows nothing beyond.

        Raises:
            ConfigError: the protection is of another family, which these numbers do not describe.
        """
        if not self.keys:
            return torch.zeros(0)
        if _family(protection) != _family(self.protections[0]):
            known = ", ".join(each.spec for each in self.protections)
            raise ConfigError(f"{protection.spec}: the model takes the parameters of {known} only")
        values, places = _numbers(protection), []
        for key, (low, high) in self._ranges.items():
            place = math.log(min(max(values[key], low), high) / low) / math.log(high / low)
            places.append(2 * place - 1)
        return torch.tensor(places)

    def nearest(self, protection: Protection) -> Protection:
        """The protection of `protections` with the nearest parameters."""
        place = self.position(protection)
        return min(self.protections, key=lambda each: float((self.position(each) - place).norm()))


def _family(protection: Protection) -> tuple[type, dict[str, Any]]:
    """The part without a position: the kind, and the parameters that are not numbers (a variant)."""
    values = _parameters(protection)
    return type(protection), {k: v for k, v in values.items() if not isinstance(v, int | float | Fraction)}


def _numbers(protection: Protection) -> dict[str, float]:
    """The numeric parameters of a protection; all of them are above 0."""
    return {k: float(v) for k, v in _parameters(protection).items() if isinstance(v, int | float | Fraction)}


def _parameters(protection: Protection) -> dict[str, Any]:
    fields = dataclasses.fields(protection)  # type: ignore[arg-type]  # protections are dataclasses
    return {field.name: getattr(protection, field.name) for field in fields}
