"""A route that is asked thousands of times a second, without a look at its declaration each time.

FastAPI resolves the dependencies and parameters of every request anew, which takes longer than an answer of
a small model. A plain request, whose few parameters are as most are, is understood here; every other one is
left to FastAPI, with all its refusals. Both end in the same function, by the same check of the key.
"""

import re
from collections.abc import Callable, Coroutine
from typing import Any

from sfumato.errors import needs_extra
from sfumato.serve.access import HEADER, Needs
from sfumato.serve.routes.parameters import ID
from sfumato.serve.service import Service

with needs_extra("the server", "serve"):
    from fastapi import Request, Response
    from fastapi.routing import APIRoute

_TOP = re.compile(rb"top=([1-9][0-9]?|100)")
_PLAIN_ID = re.compile(ID)


class Direct(APIRoute):
    """A route of (key of a reader, service, classifier, request, top), which gives a response itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request of this route."""
        declared, answer, needs = super().get_route_handler(), self.endpoint, Needs("read")

        async def handle(request: Request) -> Response:
            parameters, classifier = plain(request), request.path_params.get("classifier", "")
            if parameters is None or not _PLAIN_ID.fullmatch(classifier):
                return await declared(request)
            service: Service = request.app.state.service
            key = await needs(service, request.headers.get(HEADER))
            response: Response = await answer(key, service, classifier, request, **parameters)
            return response

        return handle


def plain(request: Request) -> dict[str, int] | None:
    """What the query of a plain request says: nothing, or how many classes are wanted; None of any other."""
    query = request.scope["query_string"]
    if not query:
        return {}
    match = _TOP.fullmatch(query)
    return None if match is None else {"top": int(match[1])}
