"""All answers of a classifier at once, or its prototypes, for devices that send no query."""

from typing import Annotated

from sfumato.errors import needs_extra
from sfumato.serve.answer_tables import why_no_table
from sfumato.serve.http import problems
from sfumato.serve.http.access import Reader
from sfumato.serve.http.problems import Problem
from sfumato.serve.http.routes.parameters import Id
from sfumato.serve.service import Serving, in_thread
from sfumato.wire.tables import MEDIA_TYPE, tag_of

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Header, Request, Response

router = APIRouter(responses=problems.RESPONSES)


@router.get("/v1/classifiers/{classifier}/table", response_class=Response)
async def answer_table(
    key: Reader,
    service: Serving,
    classifier: Id,
    request: Request,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Give what a device looks its answers up in, signed, so that it sends no query.

    For a code of at most 16 bits, the answers to all codes; for other codes and private features, the
    prototypes, unless this service withholds confidence. The format is that of sfumato.wire.tables. The role
    `read` is enough: queries tell the same, one by one. 304 if the classifier is still as `If-None-Match`
    says. A table is made once for each version of a classifier, one at a time.

    Errors: 404 if you have no such classifier; 409 if it has no class, if its model is not served, or if that
    runs on the service alone; 503 if other tables are made now.
    """
    name = await service.model_name(key.tenant, classifier)
    model = service.models.get(name)
    if model is None:
        raise Problem(409, f"the classifier is for the model {name}, which this server does not run")
    if reason := why_no_table(model, confidence=service.config.confidence):
        raise Problem(409, reason)
    info = await in_thread(service.store.classifier, key.tenant, classifier)
    made_of = model.demands[0].made_of
    if made_of is not None and if_none_match == tag_of(info.version, made_of):
        return Response(status_code=304)
    with service.room.share() as share:
        table = await service.tables.make(key.tenant, info, model, share, request.is_disconnected)
    if table is None:
        raise Problem(409, "the classifier has no class: enrol examples first")
    return Response(table.content, media_type=MEDIA_TYPE, headers={"etag": table.header.version_tag})
