"""Registries of all that specs and study files name, open to programs and to installed packages.

A thing is an object, or a reference "package.module:name", which is imported when it is first looked up.
"""

import functools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from sfumato.errors import ConfigError, SpecError, did_you_mean, shorten

GROUPS = ("protections", "adversaries", "learners", "encoders", "measures")

_Thing = TypeVar("_Thing")
Added = tuple[str, str, Any]  # group, name and thing, of `register`
Reader = tuple[Callable[[str], Any], str]  # reads the text of a value, and what that has to be, in words
_TABLES: dict[str, dict[str, Any]] = {}  # group -> name -> thing
_ADDED: list[Added] = []


def register(group: str, name: str, thing: Any) -> None:
    """Adds a protection, an adversary, a learner, an encoder or a measure of your own.

    The program and its workers see it from now on. An installed package needs no call: an entry point
    `sfumato.GROUP` of that name does the same in every process. Raises ConfigError if the name is taken.
    `thing`: see docs/guides/own-parts.md; or a reference to it.
    """
    if group not in GROUPS:
        raise ConfigError(f"register: no group {group!r}: {did_you_mean(group, GROUPS)}")
    _add(group, name, thing)
    _ADDED.append((group, name, thing))


def list_added() -> list[Added]:
    """Lists the things that this program registered, for its workers; see `adopt`. Raises ConfigError."""
    for group, name, thing in _ADDED:
        try:
            pickle.dumps(thing)
        except Exception as error:
            cure = "define it in a module, not in a function or a notebook, or use --workers 1"
            raise ConfigError(f"{name!r} of {group} cannot be sent to workers ({error}): {cure}") from error
    return list(_ADDED)


def adopt(things: Sequence[Added]) -> None:
    """Registers the things of a program in its worker."""
    for group, name, thing in things:
        if name not in _TABLES.get(group, {}):
            register(group, name, thing)


def load(reference: str) -> Any:
    """Imports the object that "package.module:name" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def read_settings(name: str, text: str, readers: Mapping[str, Reader]) -> Iterator[tuple[str, Any]]:
    """Reads the rest of a spec: "a=1,2,b=3" -> (a, 1), (a, 2), (b, 3). `name` is for errors, SpecError."""
    key = None
    for part in text.split(",") if text.strip() else []:
        left, equals, right = map(str.strip, part.partition("="))
        key, value = (left, right) if equals else (key, left)
        if key is None or not value:
            raise SpecError(f"{name}: {shorten(part)!r} is not key=value: write {name}:key=value,key=value")
        if key not in readers:
            known = did_you_mean(key, readers) if readers else "it takes no parameters"
            raise SpecError(f"{name}: no parameter {shorten(key)!r}: {known}")
        try:
            yield key, readers[key][0](value)
        except ValueError:
            raise SpecError(f"{name}: {key}={shorten(value)} is not {readers[key][1]}") from None


class Registry(Mapping[str, _Thing]):
    """The things of a group by name: of sfumato, which none replaces, of `register`, of entry points."""

    def __init__(
        self, group: str, noun: str, check: Callable[[str, Any], str], built_in: Mapping[str, _Thing | str]
    ) -> None:
        """Opens a group. `noun` is a thing of it; `check` says why a thing does not fit it, "" if it does."""
        self._group, self._noun, self._check = group, noun, check
        self._table = _TABLES.setdefault(group, {})
        self._checked: dict[str, tuple[Any, _Thing]] = {}
        for name, thing in built_in.items():
            _add(group, name, thing)

    def __getitem__(self, name: str) -> _Thing:
        registered = self._table[name] if name in self._table else _entry_points(self._group)[name]
        if name not in self._checked or self._checked[name][0] is not registered:
            self._checked[name] = registered, self._load(name, registered)
        return self._checked[name][1]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._table, *(name for name in _entry_points(self._group) if name not in self._table)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in _entry_points(self._group)

    def _load(self, name: str, registered: Any) -> _Thing:
        thing, package = registered, ""
        if isinstance(registered, str | _Reference):
            path, package = (registered, "") if isinstance(registered, str) else registered
            try:
                thing = load(path)
            except Exception as error:
                raise ConfigError(
                    f"{self._noun} {name!r}{package} cannot be imported from {path} "
                    f"({type(error).__name__}: {error}): repair the package, or uninstall it"
                ) from error
        if reason := self._check(name, thing):
            raise ConfigError(f"{self._noun} {name!r}{package}: {reason}")
        return thing  # type: ignore[no-any-return]


class _Reference(NamedTuple):
    path: str  # package.module:name
    package: str  # in words


def _add(group: str, name: str, thing: Any) -> None:
    table = _TABLES.setdefault(group, {})
    if name in table:
        raise ConfigError(f"register: {name!r} of {group} is taken: choose another name")
    table[name] = thing


@functools.cache
def _entry_points(group: str) -> dict[str, _Reference]:
    """The references of installed packages by name, each with the words for its package."""
    from importlib import metadata  # not at import: it and the look through all packages take a while

    points: dict[str, _Reference] = {}
    for point in metadata.entry_points(group=f"sfumato.{group}"):
        package = "" if point.dist is None else f" of the package {point.dist.name} {point.dist.version}"
        path, other = points.setdefault(point.name, _Reference(point.value, package))
        if path != point.value:
            words = f"{point.name!r} of {group} is registered{other} and{package}"
            raise ConfigError(f"{words}: uninstall one of them")
    return points
