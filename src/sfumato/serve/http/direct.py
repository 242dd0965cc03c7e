"""A fast path for plain questions, which arrive thousands of times a second.

FastAPI resolves the route, the dependencies and the parameters of every request again, which takes longer
than an answer of a small model. This module parses a plain question, with the usual few parameters; FastAPI
gets all others, with all its refusals. Both call the same function after the same check of the key.
"""

import re
from typing import Any

from sfumato.errors import SfumatoError, needs_extra
from sfumato.serve.http import problems, routes
from sfumato.serve.http.access import HEADER, Needs
from sfumato.serve.http.parameters import ID
from sfumato.serve.http.problems import Problem
from sfumato.serve.service import Service

with needs_extra("the server", "serve"):
    from fastapi import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

_TOP = re.compile(rb"top=([1-9][0-9]?|100)")
_PATH = re.compile(routes.PATH.replace("{classifier}", f"({ID.strip('^$')})"))


class Direct:
    """Answers plain questions, and passes the others to the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._reads = Needs("read")
        self._route = routes.router.routes[0]  # that of `routes.classify`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        question = plain(scope)
        if question is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        request = Request(scope, receive)
        service: Service = request.app.state.service
        try:
            key = await self._reads(service, request.headers.get(HEADER))
            response = await routes.classify(key, service, request=request, **question)
        except Problem as problem:
            response = await problems.answer_problem(request, problem)
        except SfumatoError as error:
            response = await problems.answer_error(request, error)
        await response(scope, receive, send)


def plain(scope: Scope) -> dict[str, Any] | None:
    """Parse a plain question: a classifier, and maybe the number of classes; None for others."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path = _PATH.fullmatch(scope["path"])
    if path is None or scope.get("root_path"):
        return None
    query = scope["query_string"]
    if not query:
        return {"classifier": path[1]}
    top = _TOP.fullmatch(query)
    return None if top is None else {"classifier": path[1], "top": int(top[1])}
