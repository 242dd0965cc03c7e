"""Spec strings: `name:key=value,key=value`, read in the same way everywhere."""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from itertools import product
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints, overload

from sfumato.base.registry import Reader, Registry, read_settings
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
    "avatar": "sfumato.protect.avatar:Avatar",
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

    Raises SpecError for an unknown name or key (it names the nearest), a missing or impossible value, a list
    of values, which only a study takes, or a protection whose releases are not accepted.
    """
    return _take(spec, takes, most=1)[0]


def parse_as(spec: str, kinds: Mapping[str, Callable[..., _Named]]) -> _Named:
    """Does the same with dataclasses by name. It opens no file of the spec: anybody may have written it."""
    named: _Named = _every(spec, kinds, most=1)[0]
    return named


def expand(spec: str, *, takes: Collection[str] = IMAGES) -> list[Any]:
    """The protections of a spec whose keys may list values: "blur:radius=1,3,5" names three.

    With several lists, every combination in turn; the last key varies fastest. See parse.
    """
    return _take(spec, takes, most=MOST_LISTED)


def expand_as(spec: str, kinds: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """Does the same with dataclasses by name."""
    return _every(spec, kinds, most=MOST_LISTED)


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


def _every(spec: str, kinds: Mapping[str, Callable[..., Any]], *, most: int) -> list[Any]:
    """Every combination of values; counted first, since lists of a thousand name a thousand thousands."""
    name, _, rest = spec.strip().partition(":")
    if name not in kinds:
        raise SpecError(f"no protection is called {shorten(name)!r}: {did_you_mean(name, kinds)}")
    kind = kinds[name]
    if most == 1 and len(spec) > _LONGEST:
        raise SpecError(f"{name}: a spec of {len(spec)} characters: write at most {_LONGEST}")
    values: dict[str, list[Any]] = {}
    for key, value in read_settings(name, rest, _readers(kind)):
        values.setdefault(key, []).append(value)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name not in values and field.default is dataclasses.MISSING:
            raise SpecError(f"{name}: {field.name} is missing: write {name}:{field.name}=...")
    count = math.prod(map(len, values.values()))
    if count > most:
        cure = "give one value for each key" if most == 1 else f"name at most {most:,}"
        raise SpecError(f"{shorten(spec)!r} names {count:,} protections: {cure}")
    return [kind(**dict(zip(values, each, strict=True))) for each in product(*values.values())]


def _take(spec: str, takes: Collection[str], *, most: int) -> list[Any]:
    inner, region = _split(spec)
    protections = _every(inner, PROTECTIONS, most=most)
    if region is not None:
        place, rest = region
        readers = {key: each for key, each in _readers(Region).items() if key not in ("inner", "place")}
        own = dict(read_settings(f"@{place}", rest, readers))
        protections = [Region(protection, place, **own) for protection in protections]
    for protection in protections:
        if (kind := kind_of(protection)) not in takes:
            wanted = " or ".join(_AS[each] for each in takes)
            raise SpecError(
                f"{shorten(protection.spec)}: its releases are {_AS[kind]}, and only {wanted} can be used "
                f"here: {_CURES.get(kind, 'choose another protection')}"
            )
    return protections


def _readers(kind: Any) -> dict[str, Reader]:
    """How the value of each field is read. It may be left out, if it may be None, but not be empty."""
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


def _reader(hint: Any) -> Reader:
    if hint == int | Fraction:
        return read_cell, "a whole number or a share of the image, such as 1/8"
    kind = next((each for each in get_args(hint) if each is not NoneType), hint)
    return (_finite, "a number") if kind is float else (kind, "a whole number")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError
    return value
