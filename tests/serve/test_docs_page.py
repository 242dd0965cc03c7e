"""`/docs`: what the API offers, for people, by the server alone."""

import asyncio
import re
from collections.abc import Iterator

import httpx
import pytest
import torch
from fastapi import FastAPI

from sfumato.serve.http.app import create
from sfumato.serve.served import Demand, Served
from sfumato.serve.store import Store


@pytest.fixture
def app(sqlite_url: str) -> Iterator[FastAPI]:
    demand, shape = Demand("none", None, None), (1, 2, 2)
    model = Served(
        *("plain", "private feature", (demand,), shape, 4, None, lambda *_: torch.zeros(1, 4), torch.abs)
    )
    with Store(sqlite_url) as store:
        made = create(store, [model])
        yield made
        made.state.service.engine.close()


def ask(app: FastAPI, path: str) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here:8000") as client:
            return await client.get(path)

    return asyncio.run(asked())


def test_every_route_and_message_is_there_with_the_key_that_it_needs(app: FastAPI):
    reply = ask(app, "/docs")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    described = app.openapi()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<h2>{method.upper()} {path}</h2>" in reply.text
    for name in described["components"]["schemas"]:
        assert f'id="{name}"' in reply.text
    assert "<p>Show Audit; needs a key of the role admin.</p>" in reply.text
    assert "<p>Live; needs no key.</p>" in reply.text
    assert "(NewClassifier: name, model)" in reply.text
    assert "http://here:8000/v1/classifiers" in reply.text


def test_every_link_within_the_page_leads_somewhere(app: FastAPI):
    text = ask(app, "/docs").text
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r' id="([^"]+)"', text))


def test_nothing_of_it_is_a_script_or_comes_from_another_host(app: FastAPI):
    text = ask(app, "/docs").text
    assert re.findall(r'(?:href|src)="([^#"][^"]*)"', text) == ["docs.css", "openapi.json"]
    assert "<script" not in text
    assert "<style" not in text  # which the policy of the server forbids
    assert ask(app, "/docs.css").headers["content-type"] == "text/css; charset=utf-8"


def test_it_is_no_part_of_what_it_describes(app: FastAPI):
    assert not any(path.startswith("/docs") for path in app.openapi()["paths"])
