"""The classifiers of a tenant."""

from sfumato.errors import needs_extra
from sfumato.serve.http import problems
from sfumato.serve.http.access import WRITES, Reader, Writer
from sfumato.serve.http.bodies import json_body, receive_json
from sfumato.serve.http.problems import Problem
from sfumato.serve.http.routes.parameters import Id
from sfumato.serve.service import Serving, in_thread
from sfumato.serve.store import Key
from sfumato.wire.messages import ClassifierInfo, Forgotten, NewClassifier

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Request

router = APIRouter(responses=problems.RESPONSES)


@router.post("/v1/classifiers", status_code=201, openapi_extra=json_body(NewClassifier))
async def create_classifier(key: Writer, service: Serving, request: Request) -> ClassifierInfo:
    """Create a classifier for one of the models. Needs the role `write`.

    Errors: 409 if you have a classifier of this name; 422 if the server does not run the model.
    """
    new = await receive_json(NewClassifier, request, service)
    if new.model not in service.models:
        raise Problem(422, f"no such model: choose one of {', '.join(sorted(service.models))}")
    made = await in_thread(
        lambda: service.store.create_classifier(key.tenant, name=new.name, model=new.model, by=key)
    )
    return _view_for(key, made)


@router.get("/v1/classifiers")
async def list_classifiers(key: Reader, service: Serving) -> list[ClassifierInfo]:
    """List your classifiers. The role `read` is enough."""
    listed = await in_thread(service.store.classifiers, key.tenant)
    return [_view_for(key, each) for each in listed]


@router.get("/v1/classifiers/{classifier}")
async def show_classifier(key: Reader, service: Serving, classifier: Id) -> ClassifierInfo:
    """Describe one classifier. The role `read` is enough.

    Errors: 404 if you have no such classifier.
    """
    return _view_for(key, await in_thread(service.store.classifier, key.tenant, classifier))


@router.delete("/v1/classifiers/{classifier}")
async def delete_classifier(key: Writer, service: Serving, classifier: Id) -> Forgotten:
    """Delete a classifier with all its classes and examples. Needs the role `write`.

    The answer says how many examples were forgotten. The audit log loses the labels of the classes. Errors:
    404 if you have no such classifier.
    """
    return await in_thread(lambda: service.store.delete_classifier(key.tenant, classifier, by=key))


def _view_for(key: Key, classifier: ClassifierInfo) -> ClassifierInfo:
    return classifier.model_copy(update={"may_enrol": WRITES.admits(key)})
