"""The answers of a classifier."""

from typing import Annotated

from sfumato.errors import needs_extra
from sfumato.serve.http import problems
from sfumato.serve.http.access import Reader
from sfumato.serve.http.bodies import receive
from sfumato.serve.http.confidence import limit_confidence
from sfumato.serve.http.problems import Problem
from sfumato.serve.http.routes.parameters import DIGITS, RELEASE_BODY, Id, Spec
from sfumato.serve.service import Serving
from sfumato.wire.messages import MOST_GUESSES, Answers

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Query, Request, Response
    from pydantic_core import to_json

PATH = "/v1/classifiers/{classifier}/classify"

router = APIRouter(responses=problems.RESPONSES)


@router.post(PATH, openapi_extra=RELEASE_BODY, response_model=Answers)
async def classify(
    key: Reader,
    service: Serving,
    classifier: Id,
    request: Request,
    top: Annotated[
        int, DIGITS, Query(ge=1, le=MOST_GUESSES, description="How many classes to name for each image.")
    ] = 5,
    spec: Spec = None,
) -> Response:
    """Name what images show, by the nearest enrolled classes. The role `read` is enough.

    The body is a release, or a PNG with `spec`. The answer has one entry for each image, the likeliest class
    first; its class is null where the image is of no enrolled class. No image is kept.

    Errors: 404 if you have no such classifier; 409 if it has no class, or if its model is not served; 413 if
    the body is too large; 415 if it is of another type; 422 if it was not protected as the model demands.
    """
    with service.room.share() as share:
        body = await receive(service, request, share, tenant=key.tenant, classifier=classifier, spec=spec)
        embeddings = await service.embed(body.model, body.inputs)
    answers = await service.galleries.answer(
        *(key.tenant, classifier, embeddings),
        top=top,
        refusal=body.model.refusal_of(body.release),
        codes=body.model.codes,
    )
    if not answers[0].guesses:
        raise Problem(409, "the classifier has no class: enrol examples first")
    # Not as Answers, which would be checked again. JSON has no infinity, a possible distance of the largest
    # features.
    text = to_json({"images": limit_confidence(answers, service.config)}, inf_nan_mode="null")
    return Response(text, media_type="application/json")
