"""The log of a server: a line for each request, which names no image, key, label or person."""

import json
import logging
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_FIELDS = "sfumato_fields"  # the attribute of our records
_ID = 16  # bytes of the id of a request


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class _Ids:
    """Ids of requests: 32 hexadecimal digits of the operating system's entropy, drawn many at a time.

    Asking the system for each would let another thread run meanwhile, and make the request wait for it.
    State: ids that were drawn and not used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn = b""

    def __call__(self) -> str:
        with self._lock:
            if not self._drawn:
                self._drawn = secrets.token_bytes(256 * _ID)
            given, self._drawn = self._drawn[:_ID], self._drawn[_ID:]
        return given.hex()


_IDS = _Ids()


@dataclass
class Noted:
    """A request while it is answered. State: the facts for its line.

    Attributes:
        id: 32 hexadecimal digits, on all its lines.
        facts: from its route, such as the digest of the model; nothing that was sent.
    """

    id: str = field(default_factory=_IDS)
    facts: dict[str, str] = field(default_factory=dict)


_CURRENT: ContextVar[Noted | None] = ContextVar("sfumato_request", default=None)


@contextmanager
def request() -> Iterator[Noted]:
    """Marks the answering of a request: lines that are logged meanwhile carry its id."""
    noted = Noted()
    token = _CURRENT.set(noted)
    try:
        yield noted
    finally:
        _CURRENT.reset(token)


def tell(**facts: str) -> None:
    """Adds facts to the request that is being answered, if any."""
    if (noted := _CURRENT.get()) is not None:
        noted.facts.update(facts)


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Logs an event.

    Args:
        logger: the logger.
        level: as in logging.
        message: the event, in constant words; only for lines of JSON.
        fields: fit for JSON; as text, the line is these and the id of the request.
    """
    if not logger.isEnabledFor(level):
        return
    if (noted := _CURRENT.get()) is not None:
        fields = {"request": noted.id, **fields}
    logger.log(level, json.dumps(fields), extra={_FIELDS: {"message": message, **fields}})


class JsonLines(logging.Formatter):
    """Writes a record as a line of JSON: time (UTC), level, logger, message, and the fields of `event`.

    An exception is logged by its kind alone: its words and its traceback may quote what somebody sent.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, _FIELDS, None)
        line.update(fields if fields is not None else {"message": record.getMessage()})
        if fields is None and (noted := _CURRENT.get()) is not None:
            line["request"] = noted.id
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


def begin(form: LogFormat) -> None:
    """Writes the log of this process to standard error; only warnings of libraries.

    A log that was begun before, as by `sfumato -v`, keeps its level.
    """
    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if form is LogFormat.JSON:
        for handler in root.handlers:
            handler.setFormatter(JsonLines())
