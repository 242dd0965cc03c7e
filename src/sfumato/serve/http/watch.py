"""A wrapper of every request and its answer."""

import logging
import time
import traceback
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfumato.serve import logs
from sfumato.serve.http import problems
from sfumato.serve.http.problems import log
from sfumato.serve.metrics import Metrics

_HEADERS = {
    # The page computes masks and features in WebAssembly, and shows its own images.
    "content-security-policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; "
    "img-src 'self' blob: data:; media-src 'self' blob:; worker-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(self), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_ENCODED = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
_LASTING = b"public, max-age=31536000, immutable"  # parts of the page: their names change with their content
_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
_UNREADABLE = (
    "the address has bytes that are not UTF-8, such as %ff: write each letter in UTF-8, such as é as %C3%A9"
)


def _readable(scope: Scope) -> bool:
    """Whether an address is UTF-8: in others each bad byte would be replaced, and labels could collide."""
    try:
        for part in (scope.get("raw_path") or b"", scope["query_string"]):
            (unquote_to_bytes(part) if b"%" in part else part).decode()
    except UnicodeDecodeError:
        return False
    return True


def _here(location: bytes) -> bytes:
    """Remove scheme and host from a redirect: behind a proxy that ends TLS it would lead to http."""
    parts = urlsplit(location.decode("latin-1"))
    # A single slash: two at the beginning would name another host.
    return urlunsplit(("", "", "/" + parts.path.lstrip("/"), parts.query, parts.fragment)).encode("latin-1")


class Watched:
    """Wraps every request: headers, counts, one line in the log, and no traceback, which may show a label."""

    def __init__(self, app: ASGIApp, *, counted: Metrics) -> None:
        self._app, self._counted = app, counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever happens inside."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with logs.request() as request_id:
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        start, status = time.perf_counter(), 0
        method = scope["method"] if scope["method"] in _METHODS else "other"
        if method == "HEAD":  # answered as GET, without the body
            scope = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal status
            if method == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            if message["type"] == "http.response.start":
                status = message["status"]
                given = dict(message["headers"])
                if b"location" in given:
                    given[b"location"] = _here(given[b"location"])
                lasting = status == 200 and scope["path"].startswith("/assets/")
                given.setdefault(b"cache-control", _LASTING if lasting else b"no-store")
                message["headers"] = [*given.items(), *_ENCODED, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            if _readable(scope):
                await self._app(scope, receive, answer)
            else:
                await problems.answer(422, _UNREADABLE)(scope, receive, answer)
        except Exception as error:  # the last resort: log kind and line of an unexpected error
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            place = f"{Path(frame.f_code.co_filename).name}:{line}"
            logs.event(log, logging.ERROR, "a request failed", error=type(error).__name__, place=place)
            if not status:
                await problems.answer(500, problems.UNEXPECTED)(scope, receive, answer)
        seconds = time.perf_counter() - start
        route = getattr(scope.get("route"), "path", None) or "other"
        self._counted.count_answer(method, route, status, seconds)
        told = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        logs.event(log, logging.INFO, "a request was answered", **told)
