"""Spec strings: `name:key=value,key=value`, read in the same way everywhere."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from itertools import product
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints, overload

from sfumato.base.registry import Registry
from sfumato.errors import SpecError, did_you_mean, shorten
from sfumato.protect.dp_pix import DPPix, DPPixGaussian
from sfumato.protect.outside import Outside
from sfumato.protect.parameters import REGION, file_parameters, read_cell
from sfumato.protect.pixels import Block, Blur, CentreBlur, Clear, Gaussian, Pixelize
from sfumato.protect.region import Region
from sfumato.protect.release import IMAGES, KINDS, Protection, kind_of

if TYPE_CHECKING:
    from sfumato.protect.answer import Answer
    from sfumato.protect.code import Code
    from sfumato.protect.feature import Feature

_Named = TypeVar("_Named")
_Kind = TypeVar("_Kind")

_AS = {kind: kind for kind in KINDS} | {"shape": "the shape of a mask", "answer": "answers"}
_CURES = {
    "bits": "give it to sfumato.serve.Client, or read it with protect.parse(spec, takes=['bits'])",
    "numbers": "give it to sfumato.serve.Client, or put it on a device with `sfumato export`",
    "answer": "compare it with others in a study, or read it with protect.parse(spec, takes=['answer'])",
}


_PIXELS: dict[str, Any] = {
    kind.name: kind
    for kind in (Clear, Blur, Pixelize, Gaussian, DPPix, DPPixGaussian, Block, CentreBlur, Outside)
}
# These need PyTorch, and are imported when they are asked for.
_TRAINED = {
    "mask": "sfumato.protect.mask:Mask",
    "feature": "sfumato.protect.feature:Feature",
    "code": "sfumato.protect.code:Code",
    "answer": "sfumato.protect.answer:Answer",
}


def _check(name: str, kind: Any) -> str:
    fits = isinstance(kind, type) and issubclass(kind, Protection) and dataclasses.is_dataclass(kind)
    return "" if fits else "register a frozen dataclass that inherits from protect.Protection"


PROTECTIONS: Registry[Any] = Registry("protections", "protection", _check, {**_PIXELS, **_TRAINED})

AnyProtection: TypeAlias = "Protection | Feature | Code | Answer"

MOST_LISTED = 1000  # protections that the lists of one spec name
_LONGEST = 5000  # characters of the spec of one protection: a path, and little else


@overload
def parse(spec: str) -> Protection: ...
@overload
def parse(spec: str, *, takes: Collection[str]) -> Any: ...
def parse(spec: str, *, takes: Collection[str] = IMAGES) -> Any:
    """Reads the protection that a spec names. parse(spec).spec is its canonical form.

    `takes`: the kinds of releases that the caller accepts, of release.KINDS; images by default.

    Raises:
        SpecError: an unknown name or key (it names the nearest), a missing or impossible value, a list of
            values, which only a study takes, or a protection whose releases are not accepted.
    """
    inner, region = _split(spec)
    protection = parse_as(inner, PROTECTIONS)
    return _check_taken(protection if region is None else _on_part(protection, region), takes)


def parse_as(spec: str, kinds: Mapping[str, Callable[..., _Named]]) -> _Named:
    """Does the same with dataclasses by name. It opens no file of the spec: anybody may have written it."""
    known = _look_up(spec, kinds)
    if len(spec) > _LONGEST:
        raise SpecError(f"{known[0]}: a spec of {len(spec)} characters: write at most {_LONGEST}")
    return _every(spec, *known, most=1)[0]


@overload
def expand(spec: str) -> list[Protection]: ...
@overload
def expand(spec: str, *, takes: Collection[str]) -> list[Any]: ...
def expand(spec: str, *, takes: Collection[str] = IMAGES) -> Any:
    """The protections of a spec whose keys may list values: "blur:radius=1,3,5" names three.

    With several lists, every combination in turn; the last key varies fastest. See parse.
    """
    inner, region = _split(spec)
    listed = expand_as(inner, PROTECTIONS)
    if region is not None:
        listed = [_on_part(protection, region) for protection in listed]
    return [_check_taken(protection, takes) for protection in listed]


def expand_as(spec: str, kinds: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """Does the same with the dataclasses of `kinds`, by the names that a spec begins with."""
    return _every(spec, *_look_up(spec, kinds), most=MOST_LISTED)


def portable(spec: str) -> str:
    """The part of a spec that travels: files by their names, without the folders of this device."""
    return with_files(spec, lambda key, path: file_name(path))


def file_name(path: str) -> str:
    """The name of a file, without its folders, on any system."""
    return re.split(r"[/\\]", path)[-1]


def check_portable(spec: str) -> str:
    """Returns a spec that came from elsewhere. Raises SpecError if it names folders."""
    if portable(spec) != spec:
        raise SpecError(f"{shorten(spec)}: names a file with its folder: only its name may travel")
    return spec


def files_of(spec: str) -> list[str]:
    """The parameters of a spec that name files, such as "artefact"."""
    keys: list[str] = []
    with_files(spec, lambda key, path: keys.append(key) or path)  # type: ignore[func-returns-value]
    return keys


def with_files(spec: str, change: Callable[[str, str], str]) -> str:
    """Replaces each file that a spec names, which may be lists, by `change` of its parameter and path.

    For an unknown protection, every value counts as a file.
    """
    inner, region = _split(spec)
    name, colon, rest = inner.partition(":")
    written = f"{name}{colon}{_with_files(rest, _file_keys(name.strip()), change)}"
    if region is None:
        return written
    place, rest = region
    return f"{written}@{place}" + (":" + _with_files(rest, file_parameters(Region), change) if rest else "")


def _with_files(text: str, keys: Collection[str] | None, change: Callable[[str, str], str]) -> str:
    key, parts = "", []
    for part in text.split(","):
        left, equals, right = part.partition("=")
        key, value = (left.strip(), right.strip()) if equals else (key, left.strip())
        if value and (keys is None or key in keys):
            value = change(key, value)
            part = f"{left}={value}" if equals else value
        parts.append(part)
    return ",".join(parts)


def _file_keys(name: str) -> Collection[str] | None:
    """The parameters of a protection that are files; None for an unknown one."""
    if name in _TRAINED:  # named here, since importing them imports PyTorch; a test compares
        return {"artefact"}
    return file_parameters(PROTECTIONS[name]) if name in PROTECTIONS else None


def _split(spec: str) -> tuple[str, tuple[str, str] | None]:
    """Splits a spec into the part before `@PLACE:key=value,...`, and the place with the text after it."""
    found = REGION.search(spec)
    return (spec, None) if found is None else (spec[: found.start()], (found[1], found[2] or ""))


def _on_part(protection: Any, region: tuple[str, str]) -> Region:
    place, rest = region
    readers: dict[str, Callable[[str], Any]] = {"file": str, "margin": float, "missing": str}
    values: dict[str, Any] = {}
    for key, text in _pairs(f"@{place}", rest):
        if key not in readers:
            raise SpecError(f"@{place}: no parameter {shorten(key)!r}: {did_you_mean(key, readers)}")
        values[key] = _value(f"@{place}", key, text, readers[key])
    return Region(protection, place, **values)


def _look_up(spec: str, kinds: Mapping[str, _Kind]) -> tuple[str, _Kind, str]:
    """The name in a spec, its protection, and the rest."""
    name, _, rest = spec.strip().partition(":")
    if name not in kinds:
        raise SpecError(f"no protection is called {shorten(name)!r}: {did_you_mean(name, kinds)}")
    return name, kinds[name], rest


def _check_taken(protection: Any, takes: Collection[str]) -> Any:
    kind = kind_of(protection)
    if kind not in takes:
        wanted = " or ".join(_AS[each] for each in takes)
        raise SpecError(
            f"{shorten(protection.spec)}: its releases are {_AS[kind]}, and only {wanted} can be used "
            f"here: {_CURES.get(kind, 'choose another protection')}"
        )
    return protection


def _every(spec: str, name: str, kind: Callable[..., _Named], rest: str, *, most: int) -> list[_Named]:
    """Every combination of values; counted first, since lists of a thousand name a thousand thousands."""
    values = _values(name, kind, rest)
    count = math.prod(len(listed) for listed in values.values())
    if count > most:
        cure = "give one value for each key" if most == 1 else f"name at most {most:,}"
        raise SpecError(f"{shorten(spec)!r} names {count:,} protections: {cure}")
    return [kind(**dict(zip(values, combination, strict=True))) for combination in product(*values.values())]


def _values(name: str, kind: Callable[..., Any], rest: str) -> dict[str, list[Any]]:
    """The values of each key."""
    types = {key: _plain(hint) for key, hint in get_type_hints(kind).items()}
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, list[Any]] = {}
    for key, text in _pairs(name, rest):
        if key not in fields:
            known = did_you_mean(key, fields) if fields else "it takes no parameters"
            raise SpecError(f"{name}: no parameter {shorten(key)!r}: {known}")
        values.setdefault(key, []).append(_value(name, key, text, types[key]))
    for key, field in fields.items():
        if key not in values and field.default is dataclasses.MISSING:
            raise SpecError(f"{name}: {key} is missing: write {name}:{key}=...")
    return values


def _plain(hint: Any) -> Callable[[str], Any]:
    """`float | None` -> float: a parameter may be left out, but not be empty."""
    if hint == int | Fraction:  # a cell, in pixels or as a share of the image
        return read_cell
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
            raise SpecError(f"{name}: {shorten(part)!r} is not key=value: write {name}:key=value,key=value")
        yield key, value


def _value(name: str, key: str, text: str, kind: Callable[[str], Any]) -> Any:
    try:
        value = kind(text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        wanted = "a number" if kind is float else "a whole number"
        if "/" in text and kind is read_cell:
            wanted = "a share of the image, such as 1/8"
        raise SpecError(f"{name}: {key}={shorten(text)} is not {wanted}") from None
