"""Routes and access by themselves: each is a function that can be imported, and needs no server."""

import asyncio
import inspect
from collections.abc import Iterator

import numpy as np
import pytest
from fastapi import Request
from fastapi.routing import APIRoute

from sfumato.serve.config import ServiceConfig
from sfumato.serve.http import access, routes
from sfumato.serve.http.access import admit
from sfumato.serve.http.problems import Problem
from sfumato.serve.served import Demand, Served
from sfumato.serve.service import Service
from sfumato.serve.store import Example, Key, NotFoundError, Store


def model() -> Served:
    """It computes nothing: what is released is the embedding."""
    demand = Demand("none", None, None)
    shape = (1, 2, 2)
    return Served(
        "plain", "private feature", (demand,), shape, 4, None, lambda *_: np.zeros((1, 4), np.float32), np.abs
    )


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Service]:
    with Store(sqlite_url) as store:
        store.create_tenant("museum")
        made = Service.begin(store, [model()], ServiceConfig())
        yield made
        made.engine.close()


@pytest.fixture
def key(service: Service) -> Key:
    return service.store.create_key("museum", role="admin", name="keeper")[0]


def test_a_route_is_a_function_of_a_key_and_a_service(service: Service, key: Key):
    vases = service.store.create_classifier("museum", name="vases", model="plain", by=key)
    service.store.enrol("museum", vases.id, "cup", [Example("d", np.ones(4, np.float32))], by=key)

    async def answers():
        assert [each.name for each in await routes.list_models(key, service)] == ["plain"]
        (listed,) = await routes.list_classifiers(key, service)
        shown = await routes.show_classifier(key, service, vases.id)
        assert (shown.id, shown.model.name) == (listed.id, listed.model)
        assert [each.label for each in await routes.list_classes(key, service, vases.id)] == ["cup"]
        assert (await routes.forget_class(key, service, vases.id, "cup")).forgotten == 1
        assert [each.action for each in await routes.show_audit(key, service, most=2)] == [
            *("forget class", "enrol")
        ]
        with pytest.raises(NotFoundError):
            await routes.show_classifier(key, service, "0" * 24)

    asyncio.run(answers())


def test_every_route_of_the_api_names_the_key_that_it_needs():
    for route in routes.router.routes:
        assert isinstance(route, APIRoute)
        needed = inspect.signature(route.endpoint).parameters.get("key")
        if route.path.startswith("/v1/"):
            assert needed is not None
            assert needed.annotation in (access.Reader, access.Writer, access.Admin)
        else:
            assert (route.path, needed) in {("/health/live", None), ("/health/ready", None)}


ROLES = ("read", "write", "admin")


@pytest.mark.parametrize("secret", [None, "", "guessed", "x" * 201])
def test_a_secret_that_is_nobodys_is_refused(service: Service, secret: str | None):
    with pytest.raises(Problem, match="no valid key: send yours in the header x-api-key") as refused:
        asyncio.run(admit(service, secret))
    assert refused.value.status == 401


def test_no_token_opens_the_counts_of_a_server_that_has_no_key_of_them(service: Service):
    asked = Request({"type": "http", "headers": [(b"authorization", b"Bearer None")]})
    with pytest.raises(Problem, match="metrics need their own key"):
        asyncio.run(routes.show_metrics(service, asked))
