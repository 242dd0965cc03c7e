"""What goes wrong, over HTTP: RFC 9457, with a detail that says what to do."""

import json
import logging
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from sfumato.errors import BusyError, ConfigError, DataError, SfumatoError, needs_extra
from sfumato.serve.store import ConflictError, NotFoundError, QuotaError, StoreError
from sfumato.wire.messages import ProblemDetails

with needs_extra("the server", "serve"):
    from fastapi import Response
    from fastapi.responses import JSONResponse

MEDIA_TYPE = "application/problem+json"
UNEXPECTED = "this failed, and it is not your fault: tell who runs the server"

log = logging.getLogger("sfumato.serve")


class Problem(Exception):  # noqa: N818 - the name is RFC 9457's
    """An answer that is no success; `detail` says what to do."""

    def __init__(self, status: int, detail: str, *, wait: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.wait = status, detail, wait


def answer(status: int, detail: str, *, wait: float | None = None) -> Response:
    """A problem as a response; `wait`: seconds, after which it is worth trying again."""
    body = ProblemDetails(title=HTTPStatus(status).phrase, status=status, detail=detail)
    headers = {} if wait is None else {"Retry-After": str(max(1, math.ceil(wait)))}
    if status == 401:
        headers["WWW-Authenticate"] = 'ApiKey realm="sfumato"'
    return JSONResponse(body.model_dump(), status, headers, media_type=MEDIA_TYPE)


def of_error(error: SfumatoError) -> Response:
    """What an error of ours is over HTTP."""
    match error:
        case BusyError():
            return answer(503, str(error), wait=error.seconds)
        case NotFoundError():
            return answer(404, "you have no such object: list those you have")
        case ConflictError():
            return answer(409, str(error))
        case QuotaError():
            return answer(403, str(error))
        case DataError() | ConfigError():
            return answer(422, str(error))
    if isinstance(error, StoreError):
        log.error(json.dumps({"store": str(error)}))
        return answer(503, "the database cannot be used now: send this again later", wait=5)
    log.error(json.dumps({"error": type(error).__name__}))
    return answer(500, UNEXPECTED)


def first(errors: Sequence[Any]) -> str:
    """The first problem of a pydantic error, without what was sent."""
    place = ".".join(str(each) for each in errors[0]["loc"]) or "body"
    return f"{place}: {errors[0]['msg']}"
