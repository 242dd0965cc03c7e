"""Lines of a log: what stands in them, and what never does."""

import json
import logging
import sys
from datetime import UTC, datetime

import pytest

from sfumato.serve import logs

LOG = logging.getLogger("sfumato.tests")


def line(record: logging.LogRecord) -> dict[str, object]:
    written = logs.JsonLines().format(record)
    assert "\n" not in written
    return json.loads(written)


def test_a_line_of_json_says_when_who_and_what_and_of_text_only_the_fields(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    with logs.request() as request_id:
        logs.event(LOG, logging.INFO, "a request was answered", status=200)
    fields = {"request": request_id, "status": 200}
    assert caplog.records[0].getMessage() == json.dumps(fields)
    read = line(caplog.records[0])
    time = datetime.fromisoformat(str(read.pop("time")))
    assert abs((time - datetime.now(UTC)).total_seconds()) < 60
    words = {"level": "info", "logger": "sfumato.tests", "message": "a request was answered"}
    assert read == {**words, **fields}


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
