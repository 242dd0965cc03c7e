"""Settings that people write, "key=value" or YAML, made into configurations that check themselves."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import pydantic
import yaml

from sfumato.errors import ConfigError, did_you_mean

_Config = TypeVar("_Config")


def configured(kind: type[_Config], overrides: Sequence[str]) -> _Config:
    """A configuration from "dotted.key=value" strings, values as YAML reads them.

    Raises:
        ConfigError: as `checked` does.
    """
    return checked(kind, parsed(overrides), "training")


def parsed(overrides: Sequence[str]) -> dict[str, Any]:
    """A mapping from "dotted.key=value" strings, values as YAML reads them."""
    settings: dict[str, Any] = {}
    for text in overrides:
        override(settings, text)
    return settings


def checked(kind: type[_Config], settings: Mapping[str, Any], where: str) -> _Config:
    """A configuration of these settings.

    Args:
        kind: a dataclass, whose fields may be dataclasses.
        settings: values by field.
        where: what the messages call the settings: a file, or a command.

    Raises:
        ConfigError: a key that does not exist (the nearest is named), or a value of the wrong type or out
            of range.
    """
    check_keys(kind, settings, where)
    try:
        return pydantic.TypeAdapter(kind).validate_python(settings)
    except pydantic.ValidationError as error:
        raise ConfigError(f"{where}: {_first_problem(error)}") from error


def check_keys(kind: Any, settings: Any, where: str) -> None:
    """Raise ConfigError where settings are not a mapping, or have a key that a dataclass has no field for."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{where}: a mapping is needed, got {settings!r}")
    types = get_type_hints(kind)
    for key, value in settings.items():
        if key not in types:
            raise ConfigError(f"{where}: no key {key!r}: {did_you_mean(str(key), types)}")
        # Of settings that may be null, as `Private | None`, as well.
        union = get_origin(types[key]) in (Union, UnionType)
        kinds = get_args(types[key]) if union else (types[key],)
        for inner in filter(dataclasses.is_dataclass, kinds):
            if value is not None or type(None) not in kinds:
                check_keys(inner, value, f"{where}: {key}")


def override(settings: dict[str, Any], text: str) -> None:
    """Change settings by one "dotted.key=value". Raises ConfigError for anything else."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not key=value: write for example task.episodes=100")
    *parents, last = key.strip().split(".")
    inner = settings
    for parent in parents:
        child = inner.setdefault(parent, {})
        if isinstance(child, str) and parent == "data":
            child = inner[parent] = {"source": child}
        if not isinstance(child, dict):
            raise ConfigError(f"{text!r}: {parent} has no keys")
        inner = child
    try:
        inner[last] = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{text!r}: the value is not YAML") from error


def listed(kind: Any, *, below: str = "") -> Iterator[tuple[str, str, str]]:
    """The keys of a configuration, dotted where it has others in it, with their types and defaults.

    Args:
        kind: a dataclass.
        below: what stands before each key.
    """
    types = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, key = types[field.name], f"{below}{field.name}"
        if dataclasses.is_dataclass(hint):
            yield from listed(hint, below=f"{key}.")
            continue
        if field.default is not dataclasses.MISSING:
            default = yaml_of(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = yaml_of(field.default_factory())
        else:
            default = "needed"
        words = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
        yield key, words.replace("typing.", "").replace("NoneType", "null").replace("None", "null"), default


def yaml_of(value: Any) -> str:
    """A value on one line, as YAML writes it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    written: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return written.removesuffix("\n").removesuffix("\n...")


def _first_problem(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{key} is missing"
    if not key:
        return message
    return (
        f"{key}: {message}" if problem["type"] == "value_error" else f"{key}={problem['input']!r}: {message}"
    )
