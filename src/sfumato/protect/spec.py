"""Spec strings: `name:key=value,key=value`, read the same by every part that names a protection."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from itertools import product
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from sfumato.errors import SpecError, did_you_mean
from sfumato.protect.block import Block
from sfumato.protect.blur import Blur, CentreBlur
from sfumato.protect.dp_pix import DPPix, DPPixGaussian
from sfumato.protect.feature import Feature
from sfumato.protect.gaussian import Gaussian
from sfumato.protect.mask import Mask
from sfumato.protect.none import Clear
from sfumato.protect.outside import Outside
from sfumato.protect.pixelize import Pixelize
from sfumato.protect.release import Protection

_Named = TypeVar("_Named")

PROTECTIONS: dict[str, Any] = {
    "none": Clear,
    "blur": Blur,
    "pixelize": Pixelize,
    "gaussian": Gaussian,
    "dp-pix": DPPix,
    "dp-pix-gaussian": DPPixGaussian,
    "block": Block,
    "centre-blur": CentreBlur,
    "mask": Mask,
    "outside": Outside,
}

_LONGEST = 5000  # characters of the spec of one protection: a path, and little else
_SHOWN = 200  # characters of what was written that a message repeats


def parse(spec: str) -> Protection:
    """The protection that a spec names. parse(spec).spec is its canonical form.

    Raises:
        SpecError: an unknown name or key (the nearest is named), a missing or impossible value, or a
            list of values, which only a study takes.
    """
    name, kind, rest = _known(spec)
    protection: Protection = _only(spec, name, kind, rest)
    return protection


def parse_feature(spec: str) -> Feature:
    """The private feature that a spec such as "feature:artefact=f.safetensors,noise=0.5" names.

    Apart from the protections, since its releases are numbers, and nothing that takes images takes them.

    Raises:
        SpecError: as parse does.
    """
    name, _, rest = spec.strip().partition(":")
    if name != "feature":
        raise SpecError(f"{spec[:_SHOWN]!r} is no private feature: write feature:artefact=FILE,noise=0.5")
    return _only(spec, name, Feature, rest)


def expand(spec: str) -> list[Protection]:
    """The protections of a spec whose keys may list values: "blur:radius=1,3,5" names three.

    With several lists, every combination in turn; the last key varies fastest.
    """
    name, kind, rest = _known(spec)
    return _every(kind, _values(name, kind, rest))


def _known(spec: str) -> tuple[str, Any, str]:
    """The name in a spec, the protection that it is of, and what follows."""
    name, _, rest = spec.strip().partition(":")
    if name == "feature":
        raise SpecError(
            "feature: its releases are numbers and no images: read it with protect.parse_feature, give it to "
            "sfumato.serve.Client, or put it on a device with `sfumato export`"
        )
    if name not in PROTECTIONS:
        name = name[:_SHOWN]
        raise SpecError(f"no protection is called {name!r}: {did_you_mean(name, PROTECTIONS)}")
    return name, PROTECTIONS[name], rest


def _only(spec: str, name: str, kind: Callable[..., _Named], rest: str) -> _Named:
    """Made only where it is one: lists of a thousand values name a thousand thousands."""
    if len(spec) > _LONGEST:
        raise SpecError(f"{name}: a spec of {len(spec)} characters: write at most {_LONGEST}")
    values = _values(name, kind, rest)
    count = math.prod(len(listed) for listed in values.values())
    if count > 1:
        raise SpecError(f"{spec[:_SHOWN]!r} names {count} protections: give one value for each key")
    return _every(kind, values)[0]


def _every(kind: Callable[..., _Named], values: dict[str, list[Any]]) -> list[_Named]:
    """Every combination of values."""
    return [kind(**dict(zip(values, combination, strict=True))) for combination in product(*values.values())]


def _values(name: str, kind: Callable[..., Any], rest: str) -> dict[str, list[Any]]:
    """The values of each key that follow a name."""
    types = {key: _plain(hint) for key, hint in get_type_hints(kind).items()}
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, list[Any]] = {}
    for key, text in _pairs(name, rest):
        if key not in fields:
            known = did_you_mean(key[:_SHOWN], fields) if fields else "it takes no parameters"
            raise SpecError(f"{name}: no parameter {key[:_SHOWN]!r}: {known}")
        values.setdefault(key, []).append(_value(name, key, text, types[key]))
    for key, field in fields.items():
        if key not in values and field.default is dataclasses.MISSING:
            raise SpecError(f"{name}: {key} is missing: write {name}:{key}=...")
    return values


def _plain(hint: type) -> type:
    """`float | None` -> float: a parameter may be left out, but not be written as nothing."""
    kinds: list[type] = [each for each in get_args(hint) if each is not NoneType]
    return kinds[0] if kinds else hint


def _pairs(name: str, text: str) -> Iterator[tuple[str, str]]:
    """ "a=1,2,b=3" -> (a, 1), (a, 2), (b, 3)."""
    key = None
    for part in text.split(",") if text.strip() else []:
        left, equals, right = part.partition("=")
        if equals:
            key, value = left.strip(), right.strip()
        else:
            value = left.strip()
        if key is None or not value:
            raise SpecError(f"{name}: {part[:_SHOWN]!r} is not key=value: write {name}:key=value,key=value")
        yield key, value


def _value(name: str, key: str, text: str, kind: type) -> Any:
    try:
        value = kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        wanted = {int: "a whole number", float: "a number"}[kind]
        raise SpecError(f"{name}: {key}={text[:_SHOWN]} is not {wanted}") from None
