"""The classifiers of a tenant."""

from sfumato.errors import needs_extra
from sfumato.serve import problems
from sfumato.serve.access import Reader, Writer
from sfumato.serve.bodies import body
from sfumato.serve.problems import Problem, first
from sfumato.serve.routes.parameters import Id
from sfumato.serve.service import Serving, in_thread
from sfumato.wire.messages import ClassifierInfo, Forgotten, NewClassifier

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Request
    from pydantic import ValidationError

_MOST_JSON = 10_000  # bytes
_JSON_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": NewClassifier.model_json_schema()}},
    }
}

router = APIRouter(responses=problems.RESPONSES)


@router.post("/v1/classifiers", status_code=201, openapi_extra=_JSON_BODY)
async def create_classifier(key: Writer, service: Serving, request: Request) -> ClassifierInfo:
    with service.room.share() as share:
        data = await body(request, share, most=_MOST_JSON, seconds=service.config.body_seconds)
    try:
        wanted = NewClassifier.model_validate_json(data)
    except ValidationError as error:
        raise Problem(422, first(error.errors())) from None
    if wanted.model not in service.models:
        raise Problem(422, f"no such model: choose one of {', '.join(sorted(service.models))}")
    return await in_thread(
        lambda: service.store.create_classifier(key.tenant, name=wanted.name, model=wanted.model, by=key)
    )


@router.get("/v1/classifiers")
async def list_classifiers(key: Reader, service: Serving) -> list[ClassifierInfo]:
    return await in_thread(service.store.classifiers, key.tenant)


@router.get("/v1/classifiers/{classifier}")
async def show_classifier(key: Reader, service: Serving, classifier: Id) -> ClassifierInfo:
    return await in_thread(service.store.classifier, key.tenant, classifier)


@router.delete("/v1/classifiers/{classifier}")
async def delete_classifier(key: Writer, service: Serving, classifier: Id) -> Forgotten:
    count = await in_thread(lambda: service.store.delete_classifier(key.tenant, classifier, by=key))
    return Forgotten(forgotten=count)
