"""The records of a study: one JSON file a cell, under the digest of all that decides its result."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from sfumato.errors import DataError


def digest_of(settings: Any) -> str:
    """A short digest of settings that are fit for JSON; the order of keys does not matter."""
    text = json.dumps(settings, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(
            json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8"
        )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises DataError that names a damaged one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise DataError(f"{path}: damaged: delete it, and run the study again to make it anew") from error
