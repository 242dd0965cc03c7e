"""The HTTP API: enrol and classify what was protected before it came here.

No image is kept and none is logged, nor is any key or label. Nothing is asked of another host.
"""

import asyncio
import hmac
import math
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor

import sfumato
from sfumato import connections, wire
from sfumato.connections import Limits
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, SfumatoError, needs_extra
from sfumato.protect.feature import FeatureRelease
from sfumato.protect.release import Release
from sfumato.serve import metrics, problems, tripwire
from sfumato.serve.engine import Engine
from sfumato.serve.gallery import Galleries, Together
from sfumato.serve.models import Demand, Served
from sfumato.serve.problems import Problem, first
from sfumato.serve.room import Room, Share, no_room
from sfumato.serve.store import Example, Key, NotFoundError, Role, Store
from sfumato.serve.tripwire import NotProtectedError
from sfumato.serve.watch import Watched
from sfumato.wire.messages import (
    LABEL,
    Answers,
    AuditLine,
    ClassifierInfo,
    ClassSummary,
    EnrolledExamples,
    Forgotten,
    ModelInfo,
    NewClassifier,
    ProblemDetails,
    as_kept,
    no_step,
    normal,
)

with needs_extra("the server", "serve"):
    import anyio.to_thread
    from fastapi import Depends, FastAPI, Query, Request, Response, Security
    from fastapi import Path as InPath
    from fastapi.exceptions import RequestValidationError
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.security import APIKeyHeader
    from fastapi.staticfiles import StaticFiles
    from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ValidationError
    from pydantic_core import to_json
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.routing import Match, Route
    from starlette.types import Scope

_PNG = "image/png"
_MOST_JSON = 10_000  # bytes
_MOST_KEY = 200  # characters
_MOST_MODELS = 10_000  # classifiers whose models are remembered
_SMALL = 25_000  # values of originals: they are read before a thread would have begun, such as one of 84x84x3
_ANSWERED = 5.0  # seconds after body_seconds, for an answer by 408, before the connection is closed
_HELD = 6  # bytes for each value of an image: read, checked, and as the float32 that a network takes
_ROLES: tuple[Role, ...] = ("read", "write", "admin")

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """The limits of a server.

    Attributes:
        most_bytes: of a request's body.
        most_images, most_pixels: of a release; see sfumato.wire.decode.
        most_held: bytes of all requests together, of their bodies and of what is made of these; what finds no
            room is answered by 503.
        most_connections: at once; None for 1,000, or 500 over TLS, or fewer where there are fewer file
            descriptors. At the most, those go that keep the server waiting: see sfumato.connections.
        header_seconds: within which a TLS handshake and a header must have come.
        body_seconds: within which a body must have come.
        answer_seconds: within which a client takes 16 kB of its answer, or all that is left.
        window, most_batch, most_waiting: see Engine.
        allow_origins: other sites whose pages may ask, such as "https://example.org"; by default none.
        metrics_key: what Prometheus sends as its bearer token; None for no metrics.
        web: a folder with the page; None for none.
    """

    most_bytes: int = 16_000_000
    most_images: int = 64
    most_pixels: int = 16_000_000
    most_held: int = 200_000_000
    most_connections: int | None = None
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    answer_seconds: float = 20.0
    window: float = 0.002
    most_batch: int = 32
    most_waiting: int = 512
    allow_origins: tuple[str, ...] = ()
    metrics_key: str | None = None
    web: Path | None = None

    def __post_init__(self) -> None:
        for name in ("most_bytes", "most_images", "most_pixels", "body_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)}: above 0, or nothing can be sent")
        if self.most_held < self.most_bytes:
            raise ConfigError(
                f"most_held={self.most_held}: at least most_bytes={self.most_bytes}, or a body of that size "
                "never finds room"
            )
        _ = self.limits  # which checks the others
        for origin in self.allow_origins:
            if not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ConfigError(
                    f"{origin!r} is no origin: write scheme and host, such as https://example.org; '*' is "
                    "not offered"
                )
        if self.metrics_key is not None and len(self.metrics_key) < 16:
            raise ConfigError("the key of the metrics is shorter than 16 characters: choose a longer one")
        if self.web is not None and not (self.web / "index.html").is_file():
            raise ConfigError(f"{self.web}: has no index.html: build the page first, or leave it out")

    @property
    def limits(self) -> Limits:
        """Of connections."""
        return Limits(
            connections=self.most_connections,
            header_seconds=self.header_seconds,
            body_seconds=self.body_seconds + _ANSWERED,
            answer_seconds=self.answer_seconds,
        )


@dataclass(frozen=True)
class _Received:
    """What a body held, checked, and what the model takes of it."""

    release: Release | FeatureRelease
    demand: Demand
    made_of: str | None
    inputs: Tensor


def create(store: Store, models: Sequence[Served], config: ServiceConfig | None = None) -> FastAPI:
    """The application. It closes neither the store nor anything else that it was given.

    Args:
        store: keys, classifiers, embeddings.
        models: what it runs, each under a name of its own.
        config: see ServiceConfig.

    Raises:
        ConfigError: no model, or two of one name.
    """
    config = config or ServiceConfig()
    served = {model.name: model for model in models}
    if not served or len(served) < len(models):
        raise ConfigError(
            f"{len(models)} models of {len(served)} names: name at least one, and each by a name of its own, "
            "as NAME=ARTEFACT"
        )
    _warm(models)
    engine = Engine(
        window=config.window,
        most_batch=config.most_batch,
        most_waiting=config.most_waiting,
        observe=lambda images, seconds: counted.computed(images, seconds),
    )
    counted = metrics.Metrics(lambda: engine.waiting)
    together = Together(Galleries(store))
    room = Room(config.most_held)

    @asynccontextmanager
    async def finishing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await in_thread(engine.close)

    app = FastAPI(
        title="sfumato",
        summary="Few-shot classification of images that were protected before they left their device.",
        version=sfumato.__version__,
        lifespan=finishing,
        docs_url=None,  # its pages ask other hosts for scripts
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        responses={
            "4XX": {"description": "What to do is in `detail`.", "content": _DETAILS},
            "503": {"description": "Send it again later.", "content": _DETAILS},
        },
    )
    app.add_middleware(Watched, counted=counted)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["x-api-key", "content-type"],
            expose_headers=["Retry-After"],
        )
    app.state.engine = engine

    @app.exception_handler(Problem)
    async def told(request: Request, error: Problem) -> Response:
        return problems.answer(error.status, error.detail, wait=error.wait)

    @app.exception_handler(SfumatoError)
    async def ours(request: Request, error: SfumatoError) -> Response:
        if isinstance(error, NotProtectedError):
            counted.not_protected()
        return problems.of_error(error)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return problems.answer(422, first(error.errors()))

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        if error.status_code not in (404, 405):
            return problems.answer(error.status_code, str(error.detail))
        # The folder of a page says 404 of an address of the API, too, that is asked by another method.
        methods = _allowed(app, request.scope)
        if error.status_code == 404 and not methods:
            return problems.answer(404, "there is nothing at this address: see /openapi.json")
        allow = {"Allow": ", ".join(sorted(methods or _OF_FILES))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allow)
        refusal = problems.answer(405, f"not by this method, but by {allow['Allow']}: see /openapi.json")
        refusal.headers.update(allow)
        return refusal

    model_names: dict[tuple[str, str], str] = {}

    async def model_of(tenant: str, classifier: str) -> str:
        # It never changes; and of one that was deleted since, the store says so after the model has run.
        name = model_names.get((tenant, classifier))
        if name is None:
            name = (await in_thread(store.classifier, tenant, classifier)).model
            if len(model_names) >= _MOST_MODELS:
                model_names.clear()
            model_names[tenant, classifier] = name
        return name

    def needs(role: Role) -> Callable[..., Awaitable[Key]]:
        def find(secret: str) -> Key:
            key = store.key(secret)
            if key is None:
                raise Problem(401, _NO_KEY)
            wait = store.take(key)
            if wait > 0:
                raise Problem(429, f"more requests than the {key.rate} a minute of this key: wait", wait=wait)
            return key

        async def found(secret: Annotated[str | None, Security(_API_KEY)]) -> Key:
            if not secret or len(secret) > _MOST_KEY:
                raise Problem(401, _NO_KEY)
            key = store.admitted(secret)
            if key is None:
                key = await in_thread(find, secret)
            if _ROLES.index(key.role) < _ROLES.index(role):
                raise Problem(403, f"this needs a key of the role {role}, and yours is of {key.role}")
            return key

        return found

    reader, writer, admin = (Depends(needs(role)) for role in _ROLES)

    async def received(
        request: Request, key: Key, classifier: str, spec: str | None, share: Share
    ) -> tuple[Served, _Received]:
        """The body of a request, if it is a release that the model of a classifier takes."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Problem(415, "a compressed body: send it as it is")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (wire.MEDIA_TYPE, _PNG):
            raise Problem(415, f"a body of type {wire.MEDIA_TYPE}, or {_PNG} with ?spec=, is needed")
        name = await model_of(key.tenant, classifier)
        if name not in served:
            raise Problem(409, f"the classifier is for the model {name}, which this server does not run")
        data = await _body(request, share, most=config.most_bytes, seconds=config.body_seconds)
        model = served[name]
        images = 1 if kind == _PNG else min(wire.header(data).count, config.most_images)
        share.take(_HELD * images * math.prod(model.shape))
        if kind == wire.MEDIA_TYPE and images * math.prod(model.shape) <= _SMALL:
            return model, _read(data, kind, spec, model, config)
        return model, await in_thread(_read, data, kind, spec, model, config)

    async def embedded(model: Served, found: _Received) -> Tensor:
        return await asyncio.wrap_future(engine.submit(model, found.inputs))

    @app.get("/v1/models")
    async def list_models(key: Annotated[Key, reader]) -> list[ModelInfo]:
        return [_describe(model) for model in models]

    @app.post("/v1/classifiers", status_code=201, openapi_extra=_json_body(NewClassifier))
    async def create_classifier(key: Annotated[Key, writer], request: Request) -> ClassifierInfo:
        with room.share() as share:
            data = await _body(request, share, most=_MOST_JSON, seconds=config.body_seconds)
        try:
            wanted = NewClassifier.model_validate_json(data)
        except ValidationError as error:
            raise Problem(422, first(error.errors())) from None
        if wanted.model not in served:
            raise Problem(422, f"no such model: choose one of {', '.join(sorted(served))}")
        return await in_thread(
            lambda: store.create_classifier(key.tenant, name=wanted.name, model=wanted.model, by=key)
        )

    @app.get("/v1/classifiers")
    async def list_classifiers(key: Annotated[Key, reader]) -> list[ClassifierInfo]:
        return await in_thread(store.classifiers, key.tenant)

    @app.get("/v1/classifiers/{classifier}")
    async def show_classifier(key: Annotated[Key, reader], classifier: _Id) -> ClassifierInfo:
        return await in_thread(store.classifier, key.tenant, classifier)

    @app.delete("/v1/classifiers/{classifier}")
    async def delete_classifier(key: Annotated[Key, writer], classifier: _Id) -> Forgotten:
        gone = await in_thread(lambda: store.delete_classifier(key.tenant, classifier, by=key))
        return Forgotten(forgotten=gone)

    @app.get("/v1/classifiers/{classifier}/classes")
    async def list_classes(key: Annotated[Key, reader], classifier: _Id) -> list[ClassSummary]:
        return await in_thread(store.classes, key.tenant, classifier)

    @app.delete("/v1/classifiers/{classifier}/classes/{label}")
    async def forget_class(key: Annotated[Key, writer], classifier: _Id, label: _AnyLabel) -> Forgotten:
        def forget() -> int:
            kept = normal(label)
            try:
                return store.forget_class(key.tenant, classifier, kept, by=key)
            except NotFoundError:
                if kept == label:
                    raise
                # An earlier version kept labels as they were written.
                return store.forget_class(key.tenant, classifier, label, by=key)

        return Forgotten(forgotten=await in_thread(forget))

    @app.delete("/v1/classifiers/{classifier}/examples/{example}")
    async def forget_example(key: Annotated[Key, writer], classifier: _Id, example: _Id) -> Forgotten:
        gone = await in_thread(lambda: store.forget_example(key.tenant, classifier, example, by=key))
        return Forgotten(forgotten=gone)

    @app.delete("/v1/data")
    async def forget_everything(key: Annotated[Key, admin]) -> Forgotten:
        gone = await in_thread(lambda: store.forget_everything(key.tenant, by=key))
        return Forgotten(forgotten=gone)

    @app.post(
        "/v1/classifiers/{classifier}/classes/{label}/examples", status_code=201, openapi_extra=_RELEASE_BODY
    )
    async def enrol(
        key: Annotated[Key, writer],
        classifier: _Id,
        label: _Label,
        request: Request,
        spec: _Spec = None,
    ) -> EnrolledExamples:
        def keep(found: _Received, embeddings: Tensor) -> EnrolledExamples:
            digests = wire.digests(found.release, made_of=found.made_of)
            examples = [
                Example(digest, row, found.demand.weight)
                for digest, row in zip(digests, embeddings.numpy(), strict=True)
            ]
            return store.enrol(key.tenant, classifier, label, examples, by=key)

        with room.share() as share:
            model, found = await received(request, key, classifier, spec, share)
            return await in_thread(keep, found, await embedded(model, found))

    @app.post("/v1/classifiers/{classifier}/classify", openapi_extra=_RELEASE_BODY, response_model=Answers)
    async def classify(
        key: Annotated[Key, reader],
        classifier: _Id,
        request: Request,
        top: Annotated[int, _DIGITS, Query(ge=1, le=100)] = 5,
        spec: _Spec = None,
    ) -> Response:
        with room.share() as share:
            model, found = await received(request, key, classifier, spec, share)
            embeddings = await embedded(model, found)
        answers = await together.answer(key.tenant, classifier, embeddings, top=top, refusal=model.refusal)
        if not answers[0].guesses:
            raise Problem(409, "the classifier has no class: enrol examples first")
        # Not through the classes of messages.py, which would be filled, checked and read out again.
        # No JSON has infinity, which distances of the largest features are.
        text = to_json({"images": answers}, inf_nan_mode="null")
        return Response(text, media_type="application/json")

    @app.get("/v1/audit")
    async def show_audit(
        key: Annotated[Key, admin],
        since: Annotated[AwareDatetime | None, BeforeValidator(_moment)] = None,
        most: Annotated[int, _DIGITS, Query(ge=1, le=10_000)] = 1000,
    ) -> list[AuditLine]:
        return await in_thread(lambda: store.audit(key.tenant, since=since, most=most))

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @app.get("/health/ready")
    async def ready() -> dict[str, str]:
        if not engine.alive:
            raise Problem(503, "the server is closing", wait=5)
        await in_thread(store.ping)
        return {"status": "ready"}

    if config.metrics_key is not None:
        expected = f"Bearer {config.metrics_key}".encode()

        @app.get("/metrics", include_in_schema=False)
        async def show_metrics(request: Request) -> Response:
            if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
                raise Problem(401, "metrics need their own key, as a bearer token")
            return Response(counted.text(), media_type=metrics.MEDIA_TYPE)

    if config.web is not None:
        app.mount("/", StaticFiles(directory=config.web, html=True))
    return app


def _moment(text: Any) -> Any:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", str(text), re.ASCII):
        raise ValueError(
            "a time as ISO 8601 writes it, with its offset, such as 2026-01-31T09:30:00Z; in an address, + "
            "is written %2B"
        )
    return text


def _digits(text: Any) -> Any:
    if not re.fullmatch(r"[0-9]{1,9}", str(text)):
        raise ValueError("a whole number, written in digits alone")
    return text


_NO_KEY = "no valid key: send yours in the header x-api-key"
_API_KEY = APIKeyHeader(name="x-api-key", auto_error=False)
_Id = Annotated[str, InPath(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_AnyLabel = Annotated[str, InPath(pattern=LABEL), AfterValidator(no_step)]
_Label = Annotated[_AnyLabel, AfterValidator(as_kept)]
_DIGITS = BeforeValidator(_digits)
_Spec = Annotated[str | None, Query(max_length=1000, description="Of a PNG: how it was protected.")]

_DETAILS = {problems.MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}}
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_RELEASE_BODY = {"requestBody": {"required": True, "content": {wire.MEDIA_TYPE: _BYTES, _PNG: _BYTES}}}


def _json_body(model: type[NewClassifier]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run what waits for the database, or computes for long, beside the event loop."""
    return await anyio.to_thread.run_sync(function, *arguments)


_OF_FILES = frozenset({"GET", "HEAD", "OPTIONS"})


def _allowed(app: FastAPI, scope: Scope) -> set[str]:
    """The methods by which an address may be asked; none where there is nothing, or a folder's file."""
    methods: set[str] = set()
    for route in app.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    if "GET" in methods:
        methods.add("HEAD")
    return methods | {"OPTIONS"} if methods else methods


async def _body(request: Request, share: Share, *, most: int, seconds: float) -> bytes:
    """The body of a request, if it is short and quick enough, and there is room for it."""
    too_long = Problem(413, f"a body of more than {most} bytes: send fewer images at once")
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 15 or int(announced) > most:
        raise too_long
    share.take(int(announced))
    data = bytearray()
    try:
        async with asyncio.timeout(seconds) as share.coming:
            async for part in request.stream():
                if len(data) + len(part) > most:
                    raise too_long
                if share.bytes < len(data) + len(part):  # its length was not announced
                    share.take(len(data) + len(part) - share.bytes)
                data += part
        return bytes(data)
    except TimeoutError:
        if share.lost:
            raise no_room() from None
        raise Problem(408, f"the body took longer than {seconds:g} s: send it faster, or in parts") from None
    except ClientDisconnect:
        raise Problem(400, "the connection ended within the body") from None
    finally:
        share.coming = None
        data.clear()  # a refusal holds this frame until it is sent


def _read(data: bytes, kind: str, spec: str | None, model: Served, config: ServiceConfig) -> _Received:
    made_of = None
    found: Release | FeatureRelease
    if kind == _PNG:
        if spec is None:
            raise Problem(422, "a PNG does not say how it was protected: add ?spec=")
        demand = tripwire.demand_named(model, spec)
        found = tripwire.read_png(data, model, demand)
    else:
        head = wire.header(data)
        demand, made_of = tripwire.demand_of(model, head), head.made_of
        found = wire.decode(data, most_images=config.most_images, most_pixels=config.most_pixels)
    tripwire.check(found, demand)
    return _Received(found, demand, made_of, model.prepare(found, demand))


def _warm(models: Sequence[Served]) -> None:
    """Do once what the first request of each model would wait for: the tables of the tripwire."""
    for model in models:
        for demand in model.demands:
            if demand.protection is not None and demand.made_of is None and demand.protection.draws_noise:
                image = torch.zeros(1, *model.shape, dtype=torch.uint8)
                tripwire.check(demand.protection.release(image, seeded_noise(0)), demand)


def _describe(model: Served) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        kind=model.kind,
        specs=[each.spec for each in model.demands],
        made_of=[each.made_of for each in model.demands],
        shape=model.shape,
        dimension=model.dimension,
        refused=None if model.refusal is None else model.refusal.refused,
    )


def run(
    app: FastAPI,
    listener: socket.socket,
    config: ServiceConfig | None = None,
    *,
    certificate: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> None:
    """Serve until stopped, and finish what was accepted; over TLS with a certificate and its key.

    Raises:
        ConfigError: a certificate without its key, or one that cannot be used; or more connections than there
            are file descriptors.
    """
    limits = (config or ServiceConfig()).limits
    connections.serve(app, listener, limits=limits, certificate=certificate, private_key=private_key)
