"""The routes of the API, resource by resource. Matched in this order: answers are the most frequent."""

import hmac
import re
from collections.abc import Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.routing import Route

from sfumato import wire
from sfumato.protect.naming import Counted, naming_words
from sfumato.serve import metrics
from sfumato.serve.answer_tables import why_no_table
from sfumato.serve.config import ServiceConfig
from sfumato.serve.http import problems
from sfumato.serve.http.bodies import json_body, receive, receive_json
from sfumato.serve.http.problems import Problem
from sfumato.serve.served import Served
from sfumato.serve.service import Service, Serving, in_thread
from sfumato.serve.store import Example, Key, Role
from sfumato.wire import labelled, messages
from sfumato.wire.labels import LABEL, normal
from sfumato.wire.tables import MEDIA_TYPE

router = APIRouter(responses=problems.RESPONSES)
counts = APIRouter()  # for a server with a key for its metrics


# The keys of requests, and the parameters of addresses, checked before a route sees them


_MOST_KEY = 200  # characters
_ROLES: tuple[Role, ...] = get_args(Role)  # each includes the roles before it

_HEADER = "x-api-key"
_SCHEME = APIKeyHeader(name=_HEADER, auto_error=False)


class Needs:
    """A dependency of routes that need a role; it returns the key of a request."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role

    def admits(self, key: Key) -> bool:
        """Whether the role of a key is enough."""
        return _ROLES.index(key.role) >= _ROLES.index(self.role)

    async def __call__(self, service: Serving, secret: Annotated[str | None, Security(_SCHEME)]) -> Key:
        """Return the key of a secret, and count a request of that key.

        Raises:
            Problem: 401 if it is not a valid key; 403 if its role is less; 429 if it has used its requests.
        """
        key = None
        if secret and len(secret) <= _MOST_KEY:
            key = service.store.recall(secret) or await in_thread(service.store.key, secret)
        if key is None:
            raise Problem(401, f"no valid key: send yours in the header {_HEADER}")
        if (wait := service.store.take(key)) > 0:
            raise Problem(429, f"more requests than the {key.rate} a minute of this key: wait", wait=wait)
        if not self.admits(key):
            raise Problem(403, f"this needs a key of the role {self.role}, and yours has {key.role}")
        return key


READS, WRITES = Needs("read"), Needs("write")
Reader = Annotated[Key, Depends(READS)]
Writer = Annotated[Key, Depends(WRITES)]
Admin = Annotated[Key, Depends(Needs("admin"))]


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


Id = Annotated[
    str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="An id, as the list of such objects has it.")
]
_Named = Annotated[
    str,
    Path(pattern=LABEL, description="A name, as the list of such objects has it."),
    AfterValidator(normal),
]
_DIGITS = BeforeValidator(_digits)
_Moment = Annotated[AwareDatetime | None, BeforeValidator(_moment)]
_Top = Annotated[
    int, _DIGITS, Query(ge=1, le=messages.MOST_GUESSES, description="How many classes to name per image.")
]
_TOP = TypeAdapter(_Top)

_BYTES = {"schema": {"type": "string", "format": "binary"}}
_RELEASE = {"requestBody": {"required": True, "content": {wire.MEDIA_TYPE: _BYTES}}}
_SHARES = json_body(messages.Shares)
_LABELLED = {"requestBody": {"required": True, "content": {labelled.MEDIA_TYPE: _BYTES}}}


@router.post("/v1/classifiers/{classifier}/classify", openapi_extra=_RELEASE, response_model=messages.Answers)
async def classify(
    key: Reader, service: Serving, classifier: Id, request: Request, top: _Top = 5
) -> Response:
    """Name what images show, by the nearest enrolled classes. The role `read` is enough.

    The body is a release. The answer has one entry for each image, the likeliest class
    first; its class is null where the image is of no enrolled class. No image is kept.

    Errors: 404 if you have no such classifier; 409 if it has no class, or if its model is not served; 413 if
    the body is too large; 415 if it is of another type; 422 if it was not protected as the model demands.
    """
    with service.room.share() as take:
        body = await receive(service, request, take, tenant=key.tenant, classifier=classifier)
        embeddings = await service.engine.embed(body.model, body.inputs)
    refusal, codes = body.model.refusal_of(body.release), body.model.codes
    answers = await service.galleries.ask(
        key.tenant, classifier, embeddings, top=top, refusal=refusal, codes=codes
    )
    if not answers[0].guesses:
        raise Problem(409, "the classifier has no class: enrol examples first")
    # Not as Answers, which would be checked again. JSON has no infinity, a possible distance of the largest
    # features.
    text = to_json({"images": _limit(answers, service.config)}, inf_nan_mode="null")
    return Response(text, media_type="application/json")


async def _classify_quickly(request: Request) -> Response:
    """Answer like `classify`, without FastAPI, which takes longer than a small model for its dependencies."""
    request.scope["route"] = router.routes[0]
    service: Service = request.app.state.service
    key = await READS(service, request.headers.get(_HEADER))
    try:
        top = _TOP.validate_python(request.query_params.get("top", "5"))
    except ValidationError as error:
        problem = {**error.errors()[0], "loc": ("query", "top")}
        raise RequestValidationError([problem]) from None
    return await classify(key, service, request.path_params["classifier"], request, top)


quickly = Route("/v1/classifiers/{classifier}/classify", _classify_quickly, methods=["POST"])


def _limit(answers: Sequence[messages.ImageAnswer], config: ServiceConfig) -> Sequence[messages.ImageAnswer]:
    """Limit answers to `config.confidence`, see ServiceConfig; withheld numbers are None."""
    if config.confidence == "exact":
        return answers
    only, step = config.confidence == "label", config.confidence_step

    def limit(guess: messages.GuessedClass) -> messages.GuessedClass:
        shown = None
        if guess.probability is not None and not only:
            # The nearest multiple of the step, at most 1, without digits from rounding errors.
            shown = min(1.0, round(round(guess.probability / step) * step, 12))
        return messages.GuessedClass(label=guess.label, probability=shown, distance=None)

    return [
        answer.model_copy(update={"guesses": list(map(limit, answer.guesses[: 1 if only else None]))})
        for answer in answers
    ]


@router.get("/v1/models")
async def list_models(key: Reader, service: Serving) -> list[messages.ModelInfo]:
    """List the models of the server: which releases each takes, and what is proved about them.

    The role `read` is enough.
    """
    return [_describe(model) for model in service.models.values()]


@router.get("/v1/models/{model}/device", response_class=Response)
async def device_side(key: Reader, service: Serving, model: str) -> Response:
    """Give the file by which a browser makes the codes that a model takes: ONNX, as `sfumato export` writes.

    The role `read` is enough. A browser that runs it draws noise, if any, by itself, and sends only the code.

    Errors: 404 if there is no such model, or no such file next to its artefact.
    """
    served = service.models.get(model)
    if served is None or served.device_side is None:
        raise Problem(404, "no device side here: its operator exports it with `sfumato export`")
    return Response(served.device_side, media_type="application/octet-stream")


def _describe(model: Served) -> messages.ModelInfo:
    return messages.ModelInfo(
        name=model.name,
        kind=model.kind,
        spec=model.demand.spec,
        naming=_naming(model),
        made_of=model.demand.made_of,
        shape=model.shape,
        dimension=model.dimension,
        device_side=model.device_side is not None,
        refusal=None if model.refusal is None else str(model.refusal),
    )


def _naming(model: Served) -> str:
    """State what is proved about naming; devices choose the noise of a feature or a code, so without it."""
    counted = Counted(2**model.dimension if model.demand.kind == "bits" else None)
    return naming_words(model.demand.protection or counted, model.shape)


@router.post("/v1/classifiers", status_code=201, openapi_extra=json_body(messages.NewClassifier))
async def create_classifier(key: Writer, service: Serving, request: Request) -> messages.ClassifierInfo:
    """Create a classifier for one of the models. Needs the role `write`.

    Errors: 409 if you have a classifier of this name; 422 if the server does not run the model.
    """
    new = await receive_json(messages.NewClassifier, request, service)
    if new.model not in service.models:
        raise Problem(422, f"no such model: choose one of {', '.join(sorted(service.models))}")
    made = await in_thread(
        lambda: service.store.create_classifier(key.tenant, name=new.name, model=new.model, by=key)
    )
    return _view_for(key, made)


@router.get("/v1/classifiers")
async def list_classifiers(key: Reader, service: Serving) -> list[messages.ClassifierInfo]:
    """List your classifiers. The role `read` is enough."""
    listed = await in_thread(service.store.classifiers, key.tenant)
    return [_view_for(key, each) for each in listed]


@router.get("/v1/classifiers/{classifier}")
async def show_classifier(key: Reader, service: Serving, classifier: _Named) -> messages.ClassifierDetails:
    """Describe one classifier, by its name or id, and its model. The role `read` is enough.

    Errors: 404 if you have no such classifier; 409 if its model is not served.
    """
    info = _view_for(key, await in_thread(service.store.classifier, key.tenant, classifier))
    return messages.ClassifierDetails(**{**dict(info), "model": _describe(service.model(info.model))})


@router.delete("/v1/classifiers/{classifier}")
async def delete_classifier(key: Writer, service: Serving, classifier: Id) -> messages.Forgotten:
    """Delete a classifier with all its classes and examples. Needs the role `write`.

    The answer says how many examples were forgotten. The audit log loses the labels of the classes. Errors:
    404 if you have no such classifier.
    """
    return await in_thread(lambda: service.store.delete_classifier(key.tenant, classifier, by=key))


def _view_for(key: Key, classifier: messages.ClassifierInfo) -> messages.ClassifierInfo:
    return classifier.model_copy(update={"may_enrol": WRITES.admits(key)})


@router.get("/v1/classifiers/{classifier}/classes")
async def list_classes(key: Reader, service: Serving, classifier: Id) -> list[messages.ClassSummary]:
    """List the classes of a classifier, and how many examples each has. The role `read` is enough.

    Errors: 404 if you have no such classifier.
    """
    return await in_thread(service.store.classes, key.tenant, classifier)


@router.delete("/v1/classifiers/{classifier}/classes/{label}")
async def forget_class(key: Writer, service: Serving, classifier: Id, label: _Named) -> messages.Forgotten:
    """Forget a class with all its examples. Needs the role `write`.

    The answer says how many examples were forgotten, and by which random name the audit log calls the class
    from now on: its label is forgotten as well. Errors: 404 if you have no such class.
    """
    return await in_thread(lambda: service.store.forget_class(key.tenant, classifier, label, by=key))


# The examples of classes: enrolled as releases, stored as embeddings


@router.post("/v1/classifiers/{classifier}/examples", status_code=201, openapi_extra=_LABELLED)
async def enrol(key: Writer, service: Serving, classifier: Id, request: Request) -> messages.EnrolledClasses:
    """Enrol images as examples of classes, which are created if they are new: all of them, or none.

    Needs the role `write`. The body is a release with a label and an id for each image. The service keeps
    embeddings, and no image. An image is not enrolled twice in a class under one id; under another id it
    counts as an example of its own, also if it is equal.

    Errors: 403 beyond the quota of the key; 404 if you have no such classifier; 409 if its model is not
    served; 413 if the body is too large; 415 if it is of another type; 422 if it was not protected as the
    model demands.
    """
    with service.room.share() as take:
        body = await receive(
            service, request, take, tenant=key.tenant, classifier=classifier, with_labels=True
        )
        embeddings = await service.engine.embed(body.model, body.inputs)
        weight = body.model.weight(body.release)
        given: dict[str, list[Example]] = {}
        for image, embedding in zip(body.labels, embeddings, strict=True):
            given.setdefault(image.label, []).append(Example(image.id, embedding, weight))
        enrolled = await in_thread(lambda: service.store.enrol_many(key.tenant, classifier, given, by=key))
    return messages.EnrolledClasses(classes=enrolled)


@router.delete("/v1/classifiers/{classifier}/examples/{example}")
async def forget_example(key: Writer, service: Serving, classifier: Id, example: Id) -> messages.Forgotten:
    """Forget one example, by the id that its enrolment returned. Needs the role `write`.

    A class, and its label, is forgotten with its last example. Errors: 404 if you have no such example.
    """
    return await in_thread(lambda: service.store.forget_example(key.tenant, classifier, example, by=key))


@router.post("/v1/classifiers/{classifier}/shares/{share}", status_code=204, openapi_extra=_SHARES)
async def share(key: Writer, service: Serving, classifier: Id, share: Id, request: Request) -> None:
    """Keep the histogram of a device's answers in a period, or an alarm, under an id that it drew.

    Needs the role `write`. What is sent again under its id is kept once. It is forgotten with its classifier,
    or with a class that it names. Errors: 404 if you have no such classifier; 422 if it is no histogram, or
    names a class that the classifier lacks.
    """
    sent = await receive_json(messages.Shares, request, service)
    await in_thread(lambda: service.store.share(key.tenant, classifier, share, sent, by=key))


@router.get("/v1/classifiers/{classifier}/shares")
async def list_shares(key: Admin, service: Serving, classifier: Id) -> list[messages.KeptShares]:
    """List the histograms and alarms that devices sent, the oldest first. Needs the role `admin`."""
    return await in_thread(service.store.shares, key.tenant, classifier)


# All answers of a classifier at once, for devices that send no query


@router.get("/v1/classifiers/{classifier}/table", response_class=Response)
async def answer_table(
    key: Reader,
    service: Serving,
    classifier: Id,
    request: Request,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Give the answers to all codes, signed, in which a device looks its own up, so that it sends no query.

    For models of codes of at most 16 bits. The format is that of sfumato.wire.tables. The role `read` is
    enough: queries tell the same, one by one. 304 if the classifier is still as `If-None-Match` says. A table
    is made once for each version of a classifier, one at a time.

    Errors: 404 if you have no such classifier; 409 if it has no class, if its model is not served, or if that
    has no table; 503 if other tables are made now.
    """
    model = await service.model_of(key.tenant, classifier)
    if reason := why_no_table(model):
        raise Problem(409, reason)
    info = await in_thread(service.store.classifier, key.tenant, classifier)
    tag = f'"{info.version}-{str(model.demand.made_of)[:16]}"'  # of this version, or of an earlier one
    if if_none_match == tag:
        return Response(status_code=304)
    with service.room.share() as take:
        table = await service.tables.make(key.tenant, info, model, take, request.is_disconnected)
    if table is None:
        raise Problem(409, "the classifier has no class: enrol examples first")
    return Response(table.content, media_type=MEDIA_TYPE, headers={"etag": tag})


# A tenant as a whole: its audit log, and forgetting everything


@router.delete("/v1/data")
async def forget_everything(key: Admin, service: Serving) -> messages.Forgotten:
    """Forget every classifier and example of your tenant. Needs the role `admin`.

    The answer says how many examples were forgotten. The keys and the audit log stay, but the log names no
    class any more.
    """
    return await in_thread(lambda: service.store.forget_everything(key.tenant, by=key))


@router.get("/v1/audit")
async def show_audit(
    key: Admin,
    service: Serving,
    since: _Moment = None,
    most: Annotated[int, _DIGITS, Query(ge=1, le=10_000, description="How many changes to list.")] = 1000,
) -> list[messages.AuditLine]:
    """List the changes with their keys and times, the newest first. Needs the role `admin`."""
    return await in_thread(lambda: service.store.audit(key.tenant, since=since, most=most))


# The keys of a tenant, for its admins: list them, make one, revoke one


@router.get("/v1/keys")
async def list_keys(key: Admin, service: Serving) -> list[messages.KeyInfo]:
    """List the keys of your tenant, without their secrets. Needs the role `admin`."""
    return list(await in_thread(service.store.keys, key.tenant))


@router.post("/v1/keys", status_code=201, openapi_extra=json_body(messages.NewKey))
async def create_key(key: Admin, service: Serving, request: Request) -> messages.MadeKey:
    """Create a key of your tenant. Needs the role `admin`.

    The answer has the secret, which is not shown again.

    Errors: 403 if your own key has a rate, a quota or an earlier end, which a new key would lift.
    """
    new = await receive_json(messages.NewKey, request, service)
    made, secret = await in_thread(lambda: service.store.create_key(key.tenant, **new.model_dump(), by=key))
    return messages.MadeKey(**dict(made), secret=secret)


@router.delete("/v1/keys/{key_id}", status_code=204)
async def revoke_key(key: Admin, service: Serving, key_id: Id) -> None:
    """Revoke a key of your tenant; its examples stay. Needs the role `admin`.

    Errors: 404 if your tenant has no such key; 409 if it is the key of this request.
    """
    await in_thread(lambda: service.store.revoke(key_id, by=key))


# The health of a server, for its operators, without a key of a tenant


@router.get("/health/live")
async def live() -> dict[str, str]:
    """Say that the process answers. Needs no key."""
    return {"status": "live"}


@router.get("/health/ready")
async def ready(service: Serving) -> dict[str, str]:
    """Say that the database answers and that the server is not closing. Needs no key.

    Errors: 503 otherwise; a load balancer then asks another server.
    """
    if service.engine.closed:
        raise Problem(503, "the server is closing", wait=5)
    await in_thread(service.store.ping)
    return {"status": "ready"}


@counts.get("/metrics", include_in_schema=False)
async def show_metrics(service: Serving, request: Request) -> Response:
    """Give counts and times to Prometheus, by the key of the metrics as a bearer token."""
    key, sent = service.config.metrics_key, request.headers.get("authorization", "")
    if key is None or not hmac.compare_digest(sent.encode(), f"Bearer {key}".encode()):
        raise Problem(401, "metrics need their own key, as a bearer token")
    return Response(service.metrics.text(), media_type=metrics.MEDIA_TYPE)
