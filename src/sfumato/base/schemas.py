"""Checks texts of others against a schema of pydantic, at a cost that their bytes bound.

pydantic lists every error of every item: 12 MB of `[{},{},...]` become gigabytes of errors. Here the values
are counted first, and the first item that does not fit ends the check.
"""

from functools import lru_cache
from typing import Any

import pydantic
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator

from sfumato.base.files import has_more_values

MOST_VALUES = 1_200_000  # values and keys of a text: 200,000 classes in an answer
_LISTS = frozenset({"list", "tuple", "set", "frozenset"})


def validate_json(kind: Any, text: str | bytes, *, most_values: int = MOST_VALUES) -> Any:
    """Return the value of a JSON text, as a type that pydantic knows.

    Raises pydantic.ValidationError if it is not JSON, does not fit (few errors, the first found first), or
    has more than `most_values` values and keys.
    """
    if has_more_values(text, most_values):
        problem = PydanticCustomError("too_many_values", f"more than {most_values:,} values")
        details: list[InitErrorDetails] = [{"type": problem, "loc": (), "input": None}]
        raise pydantic.ValidationError.from_exception_data("JSON", details)
    return _validator(kind).validate_json(text)


def validate(kind: Any, content: Any) -> Any:
    """Return loaded content as a type that pydantic knows. Raises ValidationError, see validate_json."""
    return _validator(kind).validate_python(content)


@lru_cache(256)
def _validator(kind: Any) -> SchemaValidator:
    # Validators that models have already collect all errors.
    return SchemaValidator(_failing_fast(pydantic.TypeAdapter(kind).core_schema), None, _use_prebuilt=False)


def _failing_fast(part: Any) -> Any:
    """Copy a core schema, in which lists end at their first item that does not fit."""
    if isinstance(part, list | tuple):
        return type(part)(map(_failing_fast, part))
    if not isinstance(part, dict):
        return part
    copy = {key: value if key == "metadata" else _failing_fast(value) for key, value in part.items()}
    return copy | ({"fail_fast": True} if copy.get("type") in _LISTS else {})
