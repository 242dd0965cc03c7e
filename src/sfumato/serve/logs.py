"""The log of a server: a line for each request, which names no image, key, label or person."""

import json
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

_FIELDS = "sfumato_fields"  # the attribute of our records
_CURRENT: ContextVar[dict[str, str] | None] = ContextVar("sfumato_request", default=None)


@contextmanager
def request() -> Iterator[str]:
    """Marks the answering of a request: lines logged meanwhile carry its id, 32 hexadecimal digits."""
    request_id = secrets.token_hex(16)
    token = _CURRENT.set({"request": request_id})
    try:
        yield request_id
    finally:
        _CURRENT.reset(token)


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Logs an event, in JSON with the message, of constant words, as text only with its fields and the id."""
    fields = {**(_CURRENT.get() or {}), **fields}
    logger.log(level, json.dumps(fields), extra={_FIELDS: {"message": message, **fields}})


class JsonLines(logging.Formatter):
    """Writes a line of JSON, of an exception its kind alone: words and tracebacks may quote a request."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        others = {"message": record.getMessage(), **(_CURRENT.get() or {})}  # of a library's line
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **getattr(record, _FIELDS, others),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)
