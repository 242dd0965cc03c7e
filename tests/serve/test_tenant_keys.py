"""Keys over HTTP: an admin of a tenant lists, makes and revokes the keys of that tenant, and of no other."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from sfumato.serve.http.app import create
from sfumato.serve.served import Demand, Served
from sfumato.serve.store import Key, Store

Ask = Callable[..., httpx.Response]


@pytest.fixture
def app(sqlite_url: str) -> Iterator[FastAPI]:
    """Of a model that computes nothing."""
    demand, shape = Demand("none", None, None), (1, 2, 2)
    model = Served(
        *(
            "plain",
            "private feature",
            (demand,),
            shape,
            4,
            None,
            lambda *_: np.zeros((1, 4), np.float32),
            np.abs,
        )
    )
    with Store(sqlite_url) as store:
        for tenant in ("museum", "zoo"):
            store.create_tenant(tenant)
        made = create(store, [model])
        yield made
        made.state.service.engine.close()


@pytest.fixture
def store(app: FastAPI) -> Store:
    found: Store = app.state.service.store
    return found


@pytest.fixture
def ask(app: FastAPI) -> Ask:
    async def asked(method: str, path: str, secret: str, **more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, headers={"x-api-key": secret}, **more)

    return lambda *request, **more: asyncio.run(asked(*request, **more))


@pytest.fixture
def admin(store: Store) -> tuple[Key, str]:
    return store.create_key("museum", role="admin", name="office")


def test_a_key_that_an_admin_makes_opens_what_its_role_may(admin: tuple[Key, str], ask: Ask):
    made = ask("POST", "/v1/keys", admin[1], json={"name": "gate", "role": "read", "rate": 60})
    assert made.status_code == 201
    key = made.json()
    assert (key["name"], key["role"], key["rate"], key["quota"]) == ("gate", "read", 60, None)
    assert ask("GET", "/v1/models", key["secret"]).status_code == 200
    assert ask("GET", "/v1/keys", key["secret"]).status_code == 403


def test_keys_are_listed_without_their_secrets_and_those_of_others_are_not(
    admin: tuple[Key, str], ask: Ask, store: Store
):
    store.create_key("zoo", role="admin", name="keeper")
    secret = ask("POST", "/v1/keys", admin[1], json={"name": "gate"}).json()["secret"]
    reply = ask("GET", "/v1/keys", admin[1])
    assert [(key["name"], key["role"], key["revoked"]) for key in reply.json()] == [
        *(("office", "admin", None), ("gate", "write", None))
    ]
    assert secret not in reply.text


def test_a_key_that_an_admin_revokes_opens_nothing_more(admin: tuple[Key, str], ask: Ask):
    made = ask("POST", "/v1/keys", admin[1], json={"name": "gate"}).json()
    assert ask("DELETE", f"/v1/keys/{made['id']}", admin[1]).status_code == 204
    assert ask("GET", "/v1/models", made["secret"]).status_code == 401
    (revoked,) = (key["revoked"] for key in ask("GET", "/v1/keys", admin[1]).json() if key["name"] == "gate")
    assert revoked is not None


def test_the_key_of_another_tenant_is_missing(admin: tuple[Key, str], ask: Ask, store: Store):
    theirs, secret = store.create_key("zoo", role="read", name="keeper")
    nobodys = ask("DELETE", "/v1/keys/k-" + "0" * 24, admin[1])
    reply = ask("DELETE", f"/v1/keys/{theirs.id}", admin[1])
    assert (reply.status_code, reply.content) == (404, nobodys.content)
    assert ask("GET", "/v1/models", secret).status_code == 200


def test_an_admin_cannot_revoke_the_key_that_asks(admin: tuple[Key, str], ask: Ask):
    reply = ask("DELETE", f"/v1/keys/{admin[0].id}", admin[1])
    assert reply.status_code == 409
    assert reply.json()["detail"] == "this is the key that asks: revoke it with another key of the role admin"


@pytest.mark.parametrize("limit", [{"rate": 100}, {"quota": 5}])
def test_a_key_with_a_limit_makes_no_keys_which_would_lift_it(limit: dict[str, int], ask: Ask, store: Store):
    _, secret = store.create_key("museum", role="admin", name="limited", **limit)
    reply = ask("POST", "/v1/keys", secret, json={"name": "free"})
    assert reply.status_code == 403
    assert "which a new key would lift: ask the operator of the service" in reply.json()["detail"]
    assert [key.name for key in store.keys("museum")] == ["limited"]


def test_a_key_that_expires_makes_keys_that_expire_by_then(ask: Ask, store: Store):
    end = datetime.now(UTC) + timedelta(days=9)
    _, secret = store.create_key("museum", role="admin", name="office", expires=end)
    for later in ({}, {"expires": (end + timedelta(seconds=1)).isoformat()}):
        reply = ask("POST", "/v1/keys", secret, json={"name": "gate", **later})
        assert reply.status_code == 403
        assert "a new key must expire by then" in reply.json()["detail"]
    reply = ask("POST", "/v1/keys", secret, json={"name": "gate", "expires": end.isoformat()})
    assert datetime.fromisoformat(reply.json()["expires"]) == end


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a", "role": "owner"},
        {"name": "a", "rate": 0},
        {"name": "a", "x": 1},
        {"name": "a", "expires": "2099-01-01T00:00:00"},
    ],
)
def test_a_key_that_cannot_be_is_refused(wrong: dict[str, Any], admin: tuple[Key, str], ask: Ask):
    assert ask("POST", "/v1/keys", admin[1], json=wrong).status_code == 422


def test_who_made_and_revoked_which_key_is_in_the_audit_log(admin: tuple[Key, str], ask: Ask):
    made = ask("POST", "/v1/keys", admin[1], json={"name": "gate"}).json()["id"]
    ask("DELETE", f"/v1/keys/{made}", admin[1])
    lines = ask("GET", "/v1/audit", admin[1]).json()
    assert [(line["key"], line["action"], line["label"]) for line in lines] == [
        *((admin[0].id, "revoke key", made), (admin[0].id, "create key", made))
    ]
