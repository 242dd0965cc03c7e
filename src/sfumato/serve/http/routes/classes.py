"""The classes of a classifier."""

from sfumato.errors import needs_extra
from sfumato.serve.http import problems
from sfumato.serve.http.access import Reader, Writer
from sfumato.serve.http.routes.parameters import Id, Kept
from sfumato.serve.service import Serving, in_thread
from sfumato.wire.messages import ClassSummary, Forgotten

with needs_extra("the server", "serve"):
    from fastapi import APIRouter

router = APIRouter(responses=problems.RESPONSES)


@router.get("/v1/classifiers/{classifier}/classes")
async def list_classes(key: Reader, service: Serving, classifier: Id) -> list[ClassSummary]:
    """List the classes of a classifier, and how many examples each has. The role `read` is enough.

    Errors: 404 if you have no such classifier.
    """
    return await in_thread(service.store.classes, key.tenant, classifier)


@router.delete("/v1/classifiers/{classifier}/classes/{label}")
async def forget_class(key: Writer, service: Serving, classifier: Id, label: Kept) -> Forgotten:
    """Forget a class with all its examples. Needs the role `write`.

    The answer says how many examples were forgotten, and by which random name the audit log calls the class
    from now on: its label is forgotten as well. Errors: 404 if you have no such class.
    """
    return await in_thread(lambda: service.store.forget_class(key.tenant, classifier, label, by=key))
