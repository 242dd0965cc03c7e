"""The examples of classes: enrolled as releases, stored as embeddings."""

import hashlib
import secrets
from collections.abc import Iterable
from typing import Annotated

import numpy as np

from sfumato.errors import needs_extra
from sfumato.serve.hiding import Hiding
from sfumato.serve.http import problems
from sfumato.serve.http.access import Writer
from sfumato.serve.http.bodies import Received, receive
from sfumato.serve.http.routes.parameters import LABELLED_BODY, RELEASE_BODY, Id, Label, Spec
from sfumato.serve.service import Serving, in_thread
from sfumato.serve.store import Example
from sfumato.wire.messages import EnrolledClass, EnrolledClasses, EnrolledExamples, Forgotten

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Header, Request

router = APIRouter(responses=problems.RESPONSES)


@router.post(
    "/v1/classifiers/{classifier}/classes/{label}/examples", status_code=201, openapi_extra=RELEASE_BODY
)
async def enrol(
    key: Writer,
    service: Serving,
    classifier: Id,
    label: Label,
    request: Request,
    spec: Spec = None,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=255,
            description="A new random text for each request, such as a UUID. A request that is sent again "
            "with it, because the answer was lost, enrols nothing twice.",
        ),
    ] = None,
) -> EnrolledExamples:
    """Enrol images as examples of one class, which is created if it is new. Needs the role `write`.

    The body is a release, or a PNG with `spec`. The service keeps embeddings, and no image. Each image counts
    as an example of its own, also if it is equal to another. Without `Idempotency-Key` each request is a new
    one, even if it is the same as before; images that are sent again with the key of an earlier request are
    not enrolled twice.

    Errors: 403 beyond the quota of the key; 404 if you have no such classifier; 409 if its model is not
    served; 413 if the body is too large; 415 if it is of another type; 422 if it was not protected as the
    model demands.
    """

    def keep(body: Received, embeddings: np.ndarray) -> EnrolledExamples:
        ids: Iterable[str] = (secrets.token_hex(16) for _ in embeddings)
        if idempotency_key is not None:
            ids = (_id_in_request(idempotency_key, row) for row in range(len(embeddings)))
        examples = _examples(body, embeddings, ids, service.config.hiding)
        return service.store.enrol(key.tenant, classifier, label, examples, by=key)

    with service.room.share() as share:
        body = await receive(service, request, share, tenant=key.tenant, classifier=classifier, spec=spec)
        return await in_thread(keep, body, await service.embed(body.model, body.inputs))


@router.post("/v1/classifiers/{classifier}/examples", status_code=201, openapi_extra=LABELLED_BODY)
async def enrol_many(key: Writer, service: Serving, classifier: Id, request: Request) -> EnrolledClasses:
    """Enrol images of many classes: all of them, or none. Needs the role `write`.

    The body is a release with a label and an id for each image. An image is not enrolled twice in a class
    under one id. Errors are those of enrolling one class.
    """

    def keep(body: Received, embeddings: np.ndarray) -> EnrolledClasses:
        assert body.labels is not None
        given: dict[str, list[Example]] = {}
        ids = [image.id for image in body.labels]
        examples = _examples(body, embeddings, ids, service.config.hiding)
        for image, example in zip(body.labels, examples, strict=True):
            given.setdefault(image.label, []).append(example)
        enrolled = service.store.enrol_many(key.tenant, classifier, given, by=key)
        return EnrolledClasses(
            classes=[EnrolledClass(label=label, **dict(each)) for label, each in enrolled.items()]
        )

    with service.room.share() as share:
        body = await receive(
            service, request, share, tenant=key.tenant, classifier=classifier, with_labels=True
        )
        return await in_thread(keep, body, await service.embed(body.model, body.inputs))


@router.delete("/v1/classifiers/{classifier}/examples/{example}")
async def forget_example(key: Writer, service: Serving, classifier: Id, example: Id) -> Forgotten:
    """Forget one example, by the id that its enrolment returned. Needs the role `write`.

    A class, and its label, is forgotten with its last example. Errors: 404 if you have no such example.
    """
    return await in_thread(lambda: service.store.forget_example(key.tenant, classifier, example, by=key))


def _examples(
    body: Received, embeddings: np.ndarray, ids: Iterable[str], hiding: Hiding | None
) -> list[Example]:
    if hiding is not None:
        embeddings = hiding.embeddings(embeddings)
    weight = body.model.weight(body.release, body.demand)
    return [Example(given_id, embedding, weight) for given_id, embedding in zip(ids, embeddings, strict=True)]


def _id_in_request(key: str, row: int) -> str:
    """Return the id of an image in a request with an Idempotency-Key."""
    return hashlib.sha256(f"{key} {row}".encode()).hexdigest()[:32]
