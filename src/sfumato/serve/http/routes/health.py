"""The health of a server, for its operators, without a key of a tenant."""

import hmac

from sfumato.errors import needs_extra
from sfumato.serve import metrics
from sfumato.serve.http import problems
from sfumato.serve.http.problems import Problem
from sfumato.serve.service import Serving, in_thread

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Request, Response

router = APIRouter(responses=problems.RESPONSES)
counts = APIRouter()  # for a server with a key for its metrics


@router.get("/health/live")
async def live() -> dict[str, str]:
    """Say that the process answers. Needs no key."""
    return {"status": "live"}


@router.get("/health/ready")
async def ready(service: Serving) -> dict[str, str]:
    """Say that the database answers and that the server is not closing. Needs no key.

    Errors: 503 otherwise; a load balancer then asks another server.
    """
    if not service.engine.alive:
        raise Problem(503, "the server is closing", wait=5)
    await in_thread(service.store.ping)
    return {"status": "ready"}


@counts.get("/metrics", include_in_schema=False)
async def show_metrics(service: Serving, request: Request) -> Response:
    """Counts and times for Prometheus, for whoever sends the key of the metrics as a bearer token."""
    key, sent = service.config.metrics_key, request.headers.get("authorization", "")
    if key is None or not hmac.compare_digest(sent.encode(), f"Bearer {key}".encode()):
        raise Problem(401, "metrics need their own key, as a bearer token")
    return Response(service.metrics.text(), media_type=metrics.MEDIA_TYPE)
