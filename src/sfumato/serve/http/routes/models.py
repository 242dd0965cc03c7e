"""The models that a server runs."""

from sfumato.errors import needs_extra
from sfumato.protect.naming import Counted, naming_words
from sfumato.serve.http import problems
from sfumato.serve.http.access import Reader
from sfumato.serve.http.problems import Problem
from sfumato.serve.served import Demand, Served
from sfumato.serve.service import Serving
from sfumato.wire.messages import ModelInfo

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Response

router = APIRouter(responses=problems.RESPONSES)


@router.get("/v1/models")
async def list_models(key: Reader, service: Serving) -> list[ModelInfo]:
    """List the models of the server: which releases each takes, and what is proved about them.

    The role `read` is enough.
    """
    return [_describe(model) for model in service.models.values()]


@router.get("/v1/models/{model}/device", response_class=Response)
async def device_side(key: Reader, service: Serving, model: str) -> Response:
    """Give the file by which a browser makes the codes that a model takes: ONNX, as `sfumato export` writes.

    The role `read` is enough. Whoever runs it draws noise, if any, by themselves, and sends only the code.

    Errors: 404 if there is no such model, or no such file beside its artefact.
    """
    served = service.models.get(model)
    if served is None or served.device_side is None:
        raise Problem(404, "no device side here: whoever runs the service exports it with `sfumato export`")
    return Response(served.device_side, media_type="application/octet-stream")


def _describe(model: Served) -> ModelInfo:
    return ModelInfo(
        name=model.name,
        kind=model.kind,
        specs=[demand.spec for demand in model.demands],
        naming=[_naming(model, demand) for demand in model.demands],
        made_of=[demand.made_of for demand in model.demands],
        shape=model.shape,
        dimension=model.dimension,
        device_side=model.device_side is not None,
        refusal=None if model.refusal is None else str(model.refusal),
    )


def _naming(model: Served, demand: Demand) -> str:
    """State what is proved about naming; devices choose the noise of a feature or a code, so without it."""
    counted = Counted(2**model.dimension if demand.kind == "bits" else None)
    return naming_words(demand.protection or counted, model.shape)
