"""The records of a study: one JSON file a cell, under the digest of all that decides its result."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from sfumato.files import whole


def digest_of(settings: Any) -> str:
    """A short digest of settings that are fit for JSON; the order of keys does not matter."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def changed(config: Any) -> dict[str, Any]:
    """The settings of a configuration that are not at their defaults, for a digest.

    A new setting thus leaves the digests of studies that do not use it; another default, or other results
    of the same settings, need another `models.RESULTS`.
    """
    plain = dataclasses.asdict(config)
    return {
        field.name: plain[field.name]
        for field in dataclasses.fields(config)
        if field.default is dataclasses.MISSING or getattr(config, field.name) != field.default
    }


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
