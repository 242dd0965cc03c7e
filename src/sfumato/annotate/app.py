"""The page: one link for each annotator, one for the operator of the campaign, and nothing without a link.

A link is the whole secret: there are no names, passwords or cookies. No other host is contacted.
"""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from sfumato.annotate import results
from sfumato.annotate.campaign import CANNOT_TELL, CHOOSE
from sfumato.annotate.store import PROXY, Annotator, Question, Store
from sfumato.base import server
from sfumato.errors import DataError, SfumatoError, first_problem, needs_extra

with needs_extra("the annotation page", "annotate"):
    import jinja2
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse
    from fastapi.staticfiles import StaticFiles
    from pydantic import BaseModel, Field
    from starlette.exceptions import HTTPException

_HERE = Path(__file__).parent
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",  # the address is a secret
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}
_AHEAD = 6  # questions loaded in advance, for short interruptions of the network
_MOST_BYTES = 10_000  # the most of a request

_Ticket = Annotated[str, Field(min_length=8, max_length=64)]


class _Undo(BaseModel):
    ticket: _Ticket


class _Answer(_Undo):
    item: str = Field(max_length=64)
    answer: str = Field(max_length=1000)


def create(path: str | os.PathLike[str]) -> FastAPI:
    """Create the application that serves a campaign.

    Raises:
        ArtefactError: see `Store`.
    """
    store = Store(path)
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    @asynccontextmanager
    async def close_at_the_end(app: FastAPI) -> AsyncIterator[None]:
        yield
        store.close()

    app = FastAPI(
        redirect_slashes=False,  # redirects would lead to http behind a proxy that ends TLS
        lifespan=close_at_the_end,
        # FastAPI's documentation loads scripts from other hosts; its traces would contain links.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        max_body_size=_MOST_BYTES,
    )
    app.mount("/static", StaticFiles(directory=_HERE / "static"))

    @app.middleware("http")
    async def secure(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        for name, value in _HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    @app.exception_handler(HTTPException)
    def answer_missing(request: Request, error: HTTPException) -> Response:
        if error.status_code != 404:
            return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
        return HTMLResponse(pages.get_template("unknown.html").render(), 404)

    @app.exception_handler(RequestValidationError)
    def answer_malformed(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse({"detail": first_problem(error)}, 422)

    @app.exception_handler(SfumatoError)
    def answer_error(request: Request, error: SfumatoError) -> Response:
        # A wrong request is 422; a file error is the server's.
        return JSONResponse({"detail": str(error)}, 422 if isinstance(error, DataError) else 500)

    def who(token: str) -> Annotator:
        found = store.annotator(token)
        if found is None:
            raise HTTPException(404)
        return found

    def state(token: str) -> dict[str, Any]:
        one = who(token)
        upcoming = store.upcoming(one.id, count=_AHEAD)
        return {
            "answered": one.answered,
            "total": len(asked),
            "items": [_question(question) for question in upcoming],
        }

    asked = store.items()

    @app.get("/a/{token}")
    def page(token: str) -> HTMLResponse:
        who(token)
        return HTMLResponse(
            pages.get_template("answer.html").render(
                token=token, choose=store.config.task == CHOOSE, cannot_tell=CANNOT_TELL
            )
        )

    @app.get("/a/{token}/next")
    def following(token: str) -> dict[str, Any]:
        return state(token)

    @app.post("/a/{token}/answer")
    def answer(token: str, sent: _Answer) -> dict[str, Any]:
        before = store.answer(who(token).id, sent.item, sent.answer, ticket=sent.ticket)
        return {**state(token), "before": before}

    @app.post("/a/{token}/undo")
    def undo(token: str, sent: _Undo) -> dict[str, Any]:
        store.undo(who(token).id, ticket=sent.ticket)
        return state(token)

    @app.get("/images/{key}")
    def image(key: str) -> Response:
        png = store.image(key)
        if png is None:
            raise HTTPException(404)
        # A name never shows another image.
        return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=86400"})

    @app.get("/status/{token}")
    def status(token: str) -> HTMLResponse:
        if token != store.token:
            raise HTTPException(404)
        found = results.results(store)
        return HTMLResponse(
            pages.get_template("status.html").render(
                token=token,
                config=store.config,
                proxy=store.kind == PROXY,
                people=list(zip(store.annotators(), results.reliability(store), strict=True)),
                doubts=results.doubts(store),
                items=sum(not one.decoy for one in found),
                decoys=sum(one.decoy for one in found),
                judged=sum(one.recognised is not None for one in found),
                recognised=sum(one.recognised is True for one in found),
                agreement=results.agreement(store),
                shares=results.shares(found),
                tables=results.TABLES,
            )
        )

    @app.get("/status/{token}/{table}.csv")
    def table(token: str, table: str) -> Response:
        if token != store.token or table not in results.TABLES:
            raise HTTPException(404)
        text = results.to_csv(*results.columns_of(store, table))
        name = f"{'proxy-' if store.kind == PROXY else ''}{table}.csv"
        return Response(
            text,
            media_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return app


def _question(question: Question) -> dict[str, Any]:
    return {"item": question.key, "images": question.images, "options": question.options}


def run(app: FastAPI, listener: socket.socket) -> None:
    """Serve until stopped."""
    server.serve(app, listener)
