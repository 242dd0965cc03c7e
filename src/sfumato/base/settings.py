"""Settings that people write, "key=value" or YAML, as configurations that check themselves."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pydantic
import yaml

from sfumato.base.files import read_regular
from sfumato.errors import ConfigError, did_you_mean, shorten

_Config = TypeVar("_Config")
MOST_YAML = 100_000  # bytes of a file
_DEEPEST, _MOST_VALUES = 20, 10_000


def configure(kind: type[_Config], overrides: Sequence[str]) -> _Config:
    """Makes a configuration from "dotted.key=value" strings, as `parse_overrides` and `check_settings` do."""
    return check_settings(kind, parse_overrides(overrides), "training")


def parse_overrides(overrides: Sequence[str]) -> dict[str, Any]:
    """Reads a mapping from "dotted.key=value" strings, values as YAML reads them."""
    settings: dict[str, Any] = {}
    for text in overrides:
        override(settings, text)
    return settings


def check_settings(kind: type[_Config], settings: Mapping[str, Any], where: str) -> _Config:
    """Makes a dataclass, whose fields may be dataclasses, of values by field. `where`: their name in errors.

    Raises ConfigError for no such key (it names the nearest), or a value of the wrong type or out of range.
    """
    check_keys(kind, settings, where)
    try:
        return pydantic.TypeAdapter(kind).validate_python(settings)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            raise ConfigError(f"{where}: {key} is missing") from error
        value = "" if problem["type"] == "value_error" else f"={shorten(repr(problem['input']))}"
        raise ConfigError(f"{where}: {f'{key}{value}: ' if key else ''}{message}") from error


def check_keys(kind: Any, settings: Any, where: str) -> None:
    """Raises ConfigError unless settings are a mapping whose keys are all fields of a dataclass."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: a mapping is needed, got {shorten(repr(settings))}")
    types = get_type_hints(kind)
    for key, value in settings.items():
        if key not in types:
            below = [dotted for dotted, _, _ in list_keys(kind)]
            raise ConfigError(f"{where}: no key {shorten(repr(key))}: {did_you_mean(str(key), types, below)}")
        kinds = get_args(types[key]) if get_origin(types[key]) in (Union, UnionType) else (types[key],)
        for inner in filter(dataclasses.is_dataclass, kinds):
            if value is not None or type(None) not in kinds:
                check_keys(inner, value, f"{where}: {key}")


def override(settings: dict[str, Any], text: str) -> None:
    """Changes settings by one "dotted.key=value". Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{shorten(text)!r} is not key=value: write for example task.episodes=100")
    *parents, last = key.strip().split(".")
    inner = settings
    for parent in parents:
        child = inner.setdefault(parent, {})
        if isinstance(child, str) and parent == "data":
            child = inner[parent] = {"source": child}
        if not isinstance(child, dict):
            raise ConfigError(f"{shorten(text)!r}: {shorten(parent)} has no keys")
        inner = child
    try:
        inner[last] = parse_yaml(value)
    except ValueError as error:
        raise ConfigError(f"{shorten(text)!r}: the value is not YAML: {error}") from error


def read_yaml(path: Path) -> Any:
    """Reads a YAML file as parse_yaml reads its text. Raises ConfigError."""
    try:
        return parse_yaml(read_regular(path, MOST_YAML).decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not YAML ({error})") from error


def parse_yaml(text: str) -> Any:
    """Reads a YAML text, or raises ValueError: a key twice, a value with a name (&, *), too long or deep."""
    if len(text) > MOST_YAML:
        raise ValueError(f"{len(text):,} characters, and at most {MOST_YAML:,} are read")
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Loader(yaml.SafeLoader):
    """Refuses, before anything is built, values that would become much larger than their text."""

    _depth = _count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self._depth, self._count = self._depth + 1, self._count + 1
        problems = {
            "a value with a name (&, *): write the value out": getattr(event, "anchor", None) is not None,
            f"lists and mappings in each other, more than {_DEEPEST} deep": self._depth > _DEEPEST,
            f"more than {_MOST_VALUES:,} values": self._count > _MOST_VALUES,
        }
        if problem := next((words for words, holds in problems.items() if holds), None):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise yaml.MarkedYAMLError(problem="a key occurs twice", problem_mark=node.start_mark)
        return made


def list_keys(kind: Any, *, below: str = "") -> Iterator[tuple[str, str, str]]:
    """The keys of a configuration, dotted if it is nested (`below` is in front), with types and defaults."""
    types = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, key = types[field.name], f"{below}{field.name}"
        if dataclasses.is_dataclass(hint):
            yield from list_keys(hint, below=f"{key}.")
            continue
        made = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        default = "needed" if made is dataclasses.MISSING else yaml_of(made)
        words = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
        yield key, words.replace("typing.", "").replace("NoneType", "null").replace("None", "null"), default


def yaml_of(value: Any) -> str:
    """A value on one line, as YAML writes it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    written: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return written.removesuffix("\n").removesuffix("\n...")
