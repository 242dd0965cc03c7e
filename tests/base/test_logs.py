"""Lines of a log: what stands in them, and what never does."""

import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from sfumato.base import logs

LOG = logging.getLogger("sfumato.tests")


def line(record: logging.LogRecord) -> dict[str, object]:
    written = logs.JsonLines().format(record)
    assert "\n" not in written
    read: dict[str, object] = json.loads(written)
    return read


def test_a_line_of_json_says_when_who_and_what(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    before = datetime.now(UTC)
    logs.event(LOG, logging.INFO, "a request was answered", status=200)
    read = line(caplog.records[0])
    time = datetime.fromisoformat(str(read.pop("time")))
    assert abs((time - before).total_seconds()) < 60
    assert read == {
        **{"level": "info", "logger": "sfumato.tests", "message": "a request was answered"},
        "status": 200,
    }


def test_as_text_the_line_is_the_fields(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    with logs.request() as request_id:
        logs.event(LOG, logging.INFO, "a request was answered", status=200)
    assert caplog.records[0].getMessage() == json.dumps({"request": request_id, "status": 200})


def test_a_line_of_a_library_has_the_id_of_the_request_during_which_it_was_written():
    record = logging.makeLogRecord({"name": "sqlalchemy", "levelname": "WARNING", "msg": "two\nlines"})
    with logs.request() as request_id:
        assert line(record)["request"] == request_id
    read = line(record)
    assert "request" not in read
    assert (read["level"], read["message"]) == ("warning", "two\nlines")


def test_of_an_exception_the_kind_is_written_and_neither_words_nor_traceback():
    try:
        raise RuntimeError("amphora")
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    assert line(record)["error"] == "RuntimeError"
    assert "amphora" not in logs.JsonLines().format(record)


def test_requests_have_ids_of_their_own():
    ids = set()
    for _ in range(100):
        with logs.request() as request_id:
            ids.add(request_id)
    assert len(ids) == 100
