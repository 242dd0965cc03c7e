"""The log of a server: a line for each request, which names no image, key, label or person."""

import json
import logging
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_FIELDS = "sfumato_fields"  # the attribute of our records
_CURRENT: ContextVar[str | None] = ContextVar("sfumato_request", default=None)


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def request() -> Iterator[str]:
    """Marks the answering of a request: lines logged meanwhile carry its id, 32 hexadecimal digits."""
    request_id = secrets.token_hex(16)
    token = _CURRENT.set(request_id)
    try:
        yield request_id
    finally:
        _CURRENT.reset(token)


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Logs an event, in JSON with the message, of constant words, as text only with its fields and the id."""
    if (request_id := _CURRENT.get()) is not None:
        fields = {"request": request_id, **fields}
    logger.log(level, json.dumps(fields), extra={_FIELDS: {"message": message, **fields}})


class JsonLines(logging.Formatter):
    """Writes a line of JSON, of an exception its kind alone: words and tracebacks may quote a request."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, _FIELDS, None)
        line.update(fields if fields is not None else {"message": record.getMessage()})
        if fields is None and (request_id := _CURRENT.get()) is not None:
            line["request"] = request_id
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


def begin(form: LogFormat) -> None:
    """Writes the log of this process to standard error. One that was begun before keeps its level."""
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if form is LogFormat.JSON:
        for handler in root.handlers:
            handler.setFormatter(JsonLines())
