"""Whatever the description of the API allows to be sent, the answer is one, and no failure of the server."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from sfumato import wire
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import parse
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Store
from sfumato.wire import labelled

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
for kind in (labelled.MEDIA_TYPE, wire.MEDIA_TYPE):
    schemathesis.serializer.alias(kind, "application/octet-stream")

SPEC = "pixelize:cell=2"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """An application, and the secret of an admin."""
    folder = tmp_path_factory.mktemp("site")
    config = FewShotConfig(denoiser_depth=None, precision="float32")
    card = {
        **{"config": asdict(config), "spec": SPEC, "channels": 1, "precision": "float32"},
        **{"shape": [1, 16, 16]},
    }
    few_shot.make_untrained(1, config, parse(SPEC), card=card).save(folder / "m.safetensors")
    with Store(f"sqlite:///{folder}/store.db") as store:
        store.create_tenant("museum")
        _, secret = store.create_key("museum", role="admin", name="keeper")
        app = create(store, [models.load(folder / "m.safetensors")])
        # Each call would begin and end the server.
        app.router.lifespan_context = lambda _: contextlib.nullcontext()
        yield app, secret
        app.state.service.engine.close()


@pytest.mark.filterwarnings("ignore")  # of the test client that schemathesis brings
def test_no_request_of_the_description_fails(site: tuple[Any, str]):
    from hypothesis import HealthCheck, given, settings

    app, secret = site
    answered: set[int] = set()
    for operation in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():

        @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(case=operation.ok().as_strategy())
        def ask(case: Any) -> None:
            reply = case.call(headers={"x-api-key": secret})
            answered.add(reply.status_code)
            assert reply.status_code < 500
            if reply.status_code >= 400:
                assert reply.headers["content-type"] == ["application/problem+json"]

        ask()
    assert {200, 404, 422} <= answered
