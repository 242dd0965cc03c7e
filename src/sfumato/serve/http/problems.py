"""Errors over HTTP: RFC 9457, with a detail that says what to do."""

import logging
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from sfumato.errors import BusyError, ConfigError, DataError, SfumatoError, first_problem
from sfumato.serve import logs
from sfumato.serve.store import ConflictError, NotFoundError, QuotaError, StoreError
from sfumato.serve.tripwire import NotProtectedError
from sfumato.wire.messages import ProblemDetails

MEDIA_TYPE = "application/problem+json"

_DETAILS = {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}}
RESPONSES: dict[int | str, dict[str, Any]] = {  # for every route, in the description of the API
    "4XX": {"description": "What to do is in `detail`.", "content": _DETAILS},
    "503": {"description": "Send it again later.", "content": _DETAILS},
}
_STATUSES: dict[Any, int] = {ConflictError: 409, QuotaError: 403, (DataError, ConfigError): 422}
_OF_FILES = frozenset({"GET", "HEAD", "OPTIONS"})
UNEXPECTED = "this failed, and it is not your fault: tell the operator of the server"

log = logging.getLogger("sfumato.serve")


class Problem(Exception):  # noqa: N818 - the name is RFC 9457's
    """An answer that is not a success; `detail` says what to do."""

    def __init__(self, status: int, detail: str, *, wait: float | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.wait = status, detail, wait


def answer(status: int, detail: str, *, wait: float | None = None) -> Response:
    """Make a problem a response; `wait`: seconds to wait before trying again."""
    body = ProblemDetails(title=HTTPStatus(status).phrase, status=status, detail=detail)
    headers = {} if wait is None else {"Retry-After": str(max(1, math.ceil(wait)))}
    if status == 401:
        headers["WWW-Authenticate"] = 'ApiKey realm="sfumato"'
    return JSONResponse(body.model_dump(), status, headers, media_type=MEDIA_TYPE)


async def _answer(request: Request, error: Exception) -> Response:
    """Make an error of a route a response."""
    if isinstance(error, Problem):
        return answer(error.status, error.detail, wait=error.wait)
    if isinstance(error, RequestValidationError):
        return answer(422, first_problem(error))
    if isinstance(error, NotProtectedError):
        request.app.state.service.metrics.count_not_protected()
    if isinstance(error, BusyError):
        return answer(503, str(error), wait=error.seconds)
    if isinstance(error, NotFoundError):
        return answer(404, "you have no such object: list those you have")
    for kinds, status in _STATUSES.items():
        if isinstance(error, kinds):
            return answer(status, str(error))
    if isinstance(error, StoreError):
        logs.event(log, logging.ERROR, "the store failed", store=str(error))
        why = "the database cannot be used now"
        if error.full:
            why = "the disk of the service is full, and nothing was changed: its operator has to make room"
        return answer(503, f"{why}: send this again later", wait=60 if error.full else 5)
    logs.event(log, logging.ERROR, "a request failed", error=type(error).__name__)
    return answer(500, UNEXPECTED)


async def _answer_address(request: Request, error: HTTPException) -> Response:
    if error.status_code not in (404, 405):
        return answer(error.status_code, str(error.detail))
    # The folder of a page also answers 404 for an API address with another method.
    methods = _methods_of(request.app, request.scope)
    if error.status_code == 404 and request.url.path == "/":
        return answer(404, "this service has no page: build it by `make web`, or name its folder with --web")
    if error.status_code == 404 and not methods:
        return answer(404, "there is nothing at this address: see /openapi.json")
    allow = {"Allow": ", ".join(sorted(methods or _OF_FILES))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allow)
    refusal = answer(405, f"this address does not take that method, only {allow['Allow']}: see /openapi.json")
    refusal.headers.update(allow)
    return refusal


def _methods_of(app: FastAPI, scope: Scope) -> set[str]:
    """Return the methods of an address; none if there is nothing, or a folder's file."""
    methods: set[str] = set()
    for route in app.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    if "GET" in methods:
        methods.add("HEAD")
    return methods | {"OPTIONS"} if methods else methods


HANDLERS: dict[int | type[Exception], Any] = {
    **dict.fromkeys((Problem, SfumatoError, RequestValidationError), _answer),
    HTTPException: _answer_address,
}
