"""The records of a study: one JSON file a cell, under the digest of all that decides its result."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from sfumato.errors import DataError
from sfumato.files import parse_json, whole

CONTENT = "content_sha256"  # the key of the digest


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


def source_of(name: str) -> str:
    """What a study and its report call their data: as the study file has it, but for an absolute path.

    That is left out, with the folders of this machine: "folder" of "folder:/home/anna/photos". A relative one
    is in the words of whoever wrote the study, and stays.
    """
    kind, colon, place = name.partition(":")
    outside = place.startswith(("/", "~", "\\")) or Path(place).is_absolute() or place[1:2] == ":"
    return kind if colon and outside else name


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all; an object with a digest of its content, see read_json."""
    if isinstance(value, dict):
        content = {key: each for key, each in value.items() if key != CONTENT}
        value = {**content, CONTENT: _content_digest(content)}
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, cure: str) -> dict[str, Any]:
    """Read an object that `write_json` wrote, without its digest.

    Promises: what is read was written so: an object that was edited, or damaged, is refused. It is no
    signature: who can write the file can write the digest. Those of earlier versions have none, and are read.

    Args:
        path: of the file.
        cure: what to do where it is refused.

    Raises:
        DataError: it cannot be read, is no JSON object of finite numbers, or is not as it was written.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {cure}") from error
    except ValueError as error:  # also what json and the decoder raise
        raise DataError(f"{path}: damaged, not JSON ({error}): {cure}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged, not a JSON object: {cure}")
    digest = content.pop(CONTENT, None)
    if digest is not None and digest != _content_digest(content):
        raise DataError(f"{path}: edited or damaged since it was written: {cure}")
    return content


def _content_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
