"""The keys of a tenant, for its admins: list them, make one, revoke one."""

from dataclasses import asdict

from sfumato.errors import needs_extra
from sfumato.serve.http import problems
from sfumato.serve.http.access import Admin
from sfumato.serve.http.bodies import json_body, receive_json
from sfumato.serve.http.routes.parameters import Id
from sfumato.serve.service import Serving, in_thread
from sfumato.wire.messages import KeyInfo, MadeKey, NewKey

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, Request

router = APIRouter(responses=problems.RESPONSES)


@router.get("/v1/keys")
async def list_keys(key: Admin, service: Serving) -> list[KeyInfo]:
    """List the keys of your tenant, without their secrets. Needs the role `admin`."""
    return [KeyInfo(**asdict(each)) for each in await in_thread(service.store.keys, key.tenant)]


@router.post("/v1/keys", status_code=201, openapi_extra=json_body(NewKey))
async def create_key(key: Admin, service: Serving, request: Request) -> MadeKey:
    """Create a key of your tenant. Needs the role `admin`.

    The answer has the secret, which is not shown again.

    Errors: 403 if your own key has a rate, a quota or an earlier end, which a new key would lift.
    """
    new = await receive_json(NewKey, request, service)
    made, secret = await in_thread(lambda: service.store.create_key(key.tenant, **new.model_dump(), by=key))
    return MadeKey(**asdict(made), secret=secret)


@router.delete("/v1/keys/{key_id}", status_code=204)
async def revoke_key(key: Admin, service: Serving, key_id: Id) -> None:
    """Revoke a key of your tenant; what it enrolled stays. Needs the role `admin`.

    Errors: 404 if your tenant has no such key; 409 if it is the key of this request.
    """
    await in_thread(lambda: service.store.revoke(key_id, by=key))
