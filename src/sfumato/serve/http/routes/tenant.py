"""A tenant as a whole: its audit log, and forgetting everything."""

from typing import Annotated

from sfumato.errors import needs_extra
from sfumato.serve.http import problems
from sfumato.serve.http.access import Admin
from sfumato.serve.http.routes.parameters import DIGITS, Moment
from sfumato.serve.service import Serving, in_thread
from sfumato.wire.messages import AuditLine, Forgotten

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Query

router = APIRouter(responses=problems.RESPONSES)


@router.delete("/v1/data")
async def forget_everything(key: Admin, service: Serving) -> Forgotten:
    """Forget every classifier and example of your tenant. Needs the role `admin`.

    The answer says how many examples were forgotten. The keys and the audit log stay, but the log names no
    class any more.
    """
    return await in_thread(lambda: service.store.forget_everything(key.tenant, by=key))


@router.get("/v1/audit")
async def show_audit(
    key: Admin,
    service: Serving,
    since: Moment = None,
    most: Annotated[int, DIGITS, Query(ge=1, le=10_000, description="How many changes to list.")] = 1000,
) -> list[AuditLine]:
    """Say which key changed what, and when, the newest change first. Needs the role `admin`."""
    return await in_thread(lambda: service.store.audit(key.tenant, since=since, most=most))
