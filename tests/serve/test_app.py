"""The API over HTTP: who may do what, what comes back, and what anybody may send without harm."""

import asyncio
import hashlib
import json
import logging
import re
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pytest
import torch
from cloud import refusing
from starlette.routing import Match

from sfumato import images, wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import BusyError, ConfigError
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.protect import Release, parse
from sfumato.serve import models
from sfumato.serve.engine import Engine
from sfumato.serve.http.app import ServiceConfig, create
from sfumato.serve.served import Served
from sfumato.serve.store import Example, Key, Store, StoreError
from sfumato.serve.store import store as of_store
from sfumato.wire import labelled

SPEC = "pixelize:cell=2"
NOISY = "dp-pix:cell=2,epsilon=3,pixels=16"
LABELLED = {"content-type": labelled.MEDIA_TYPE}
RELEASE = {"content-type": wire.MEDIA_TYPE}


def model(folder: Path, name: str, spec: str, *, refusal: dict[str, float] | None = None) -> Served:
    config = FewShotConfig(denoiser_depth=None, precision="float32")
    card = {
        **{"config": asdict(config), "spec": spec, "channels": 1, "precision": "float32"},
        **{"shape": [1, 16, 16], "weights": {spec: 0.5}, "refusal": refusal},
    }
    path = folder / f"{name}.safetensors"
    few_shot.make_untrained(1, config, parse(spec), card=card).save(path)
    return models.load(path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    folder = tmp_path_factory.mktemp("models")
    # Squared distances of an untrained encoder: of the same image 0, of others far above.
    refusal = refusing(1e-6).card()
    return [model(folder, "cells", SPEC, refusal=refusal), model(folder, "noisy", NOISY)]


def drawing(number: int, *, size: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 256, (1, 1, size, size), generator=generator).to(torch.uint8)


def released(*numbers: int, spec: str = SPEC, size: int = 16) -> Release:
    clean = torch.cat([drawing(number, size=size) for number in numbers])
    return parse(spec).release(clean, seeded_noise(0))


def body(*numbers: int, **how: Any) -> bytes:
    return wire.encode(released(*numbers, **how))


class Site:
    """A server on a real store, and keys of two tenants."""

    def __init__(self, store: Store, served: list[Served], keys: dict[str, str], **config: Any) -> None:
        self.store = store
        self.app = create(store, served, ServiceConfig(**config))
        self.keys = keys

    def close(self) -> None:
        self.app.state.service.engine.close()

    def ask(self, method: str, path: str, *, who: str | None = "museum write", **more: Any) -> httpx.Response:
        return self.ask_all([(method, path, who, more)])[0]

    def ask_all(self, asked: list[tuple[str, str, str | None, dict[str, Any]]]) -> list[httpx.Response]:
        """Several requests, all at once."""

        async def one(
            client: httpx.AsyncClient, method: str, path: str, who: str | None, more: dict[str, Any]
        ) -> httpx.Response:
            headers = more.pop("headers", {}) | (
                {} if who is None else {"x-api-key": self.keys.get(who, who)}
            )
            return await client.request(method, path, headers=headers, **more)

        async def all_of_them() -> list[httpx.Response]:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await asyncio.gather(*(one(client, *each) for each in asked))

        return asyncio.run(all_of_them())

    def begin(self, *, who: str = "museum write", model: str = "cells", name: str = "vases") -> str:
        reply = self.ask("POST", "/v1/classifiers", who=who, json={"name": name, "model": model})
        assert reply.status_code == 201, reply.text
        return f"/v1/classifiers/{reply.json()['id']}"

    def enrol(self, place: str, label: str, *numbers: int, **how: Any) -> httpx.Response:
        return many(self, place, [label] * len(numbers), body(*numbers, **how))

    def classify(self, place: str, *numbers: int, top: int = 5) -> list[dict[str, Any]]:
        path = f"{place}/classify?top={top}"
        reply = self.ask("POST", path, who="museum read", content=body(*numbers), headers=RELEASE)
        assert reply.status_code == 200, reply.text
        found: list[dict[str, Any]] = reply.json()["images"]
        return found


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store with keys of two tenants, for each test to copy; and their secrets."""
    path, secrets = tmp_path_factory.mktemp("store") / "store.db", {}
    with Store(f"sqlite:///{path}") as store:
        for tenant in ("museum", "zoo"):
            store.create_tenant(tenant)
            for role in ("read", "write", "admin"):
                secrets[f"{tenant} {role}"] = store.create_key(tenant, role=role, name=role)[1]
    return path, secrets


@pytest.fixture
def store(tmp_path: Path, begun: tuple[Path, dict[str, str]]) -> Iterator[Store]:
    shutil.copy(begun[0], tmp_path / "store.db")
    with Store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


Open = Callable[..., Site]


@pytest.fixture
def open_site(store: Store, served: list[Served], begun: tuple[Path, dict[str, str]]) -> Iterator[Open]:
    """Begin a server on the test's store."""
    opened: list[Site] = []

    def new(models: list[Served] = served, **config: Any) -> Site:
        opened.append(Site(store, models, begun[1], **config))
        return opened[-1]

    yield new
    for site in opened:
        site.close()


@pytest.fixture
def site(open_site: Open) -> Site:
    return open_site()


@pytest.fixture
def enrolled(site: Site) -> str:
    """A classifier of the museum: amphorae are drawings 0 and 1, bowls 2 and 3."""
    place = site.begin()
    for label, numbers in (("amphora", (0, 1)), ("bowl", (2, 3))):
        assert site.enrol(place, label, *numbers).status_code == 201
    return place


def check_problem(reply: httpx.Response, status: int, detail: str) -> None:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    said = reply.json()
    assert said["status"] == status
    assert detail in said["detail"]


# What it does.


def test_models_are_listed_with_the_protection_that_they_demand(site: Site):
    first, second = site.ask("GET", "/v1/models", who="museum read").json()
    assert first == {
        **{"name": "cells", "kind": "few-shot", "specs": [SPEC], "made_of": [None]},
        "naming": ["nothing is proved about who it shows"],
        **{"shape": [1, 16, 16], "dimension": first["dimension"], "device_side": False},
        "refusal": str(refusing(1e-6)),
    }
    assert second["specs"] == [NOISY]


def test_an_image_is_of_the_class_whose_prototype_is_nearest(site: Site, served: list[Served]):
    place = site.begin()
    site.enrol(place, "amphora", 0)
    site.enrol(place, "bowl", 2, 3)
    embed = served[0]
    vectors = embed.run(embed.prepare(released(0, 2, 3, 7), embed.demands[0]))
    means = np.stack([vectors[0], vectors[1:3].mean(0)])
    squared = np.square(vectors[3] - means).sum(1)
    shares = np.exp(-squared) / np.exp(-squared).sum()
    found = {one["label"]: one for one in site.classify(place, 7)[0]["guesses"]}
    for number, label in enumerate(("amphora", "bowl")):
        assert found[label]["distance"] == pytest.approx(squared[number], rel=1e-4)
        assert found[label]["probability"] == pytest.approx(shares[number], abs=1e-4)


def test_every_image_of_a_release_is_answered_in_order(site: Site):
    place = site.begin()
    for number in range(3):
        site.enrol(place, f"class {number}", number)
    assert [one["guesses"][0]["label"] for one in site.classify(place, 2, 0, 1)] == [
        *("class 2", "class 0", "class 1")
    ]


def test_what_is_far_from_all_prototypes_is_none_of_these(site: Site):
    place = site.begin()
    site.enrol(place, "amphora", 0)
    assert [one["none_of_these"] for one in site.classify(place, 0, 9)] == [False, True]


def test_a_model_without_a_threshold_cannot_tell_that_it_is_none_of_these(site: Site):
    place = site.begin(model="noisy")
    assert site.enrol(place, "a", 0, spec=NOISY).status_code == 201
    sent = body(0, spec=NOISY)
    reply = site.ask("POST", f"{place}/classify", content=sent, headers=RELEASE).json()
    assert reply["images"][0]["none_of_these"] is None


def test_support_images_weigh_what_the_model_says(site: Site, monkeypatch: pytest.MonkeyPatch):
    weights: list[float] = []
    real = site.store.enrol_many

    def enrol(tenant: str, place: str, given: dict[str, list[Example]], *, by: Key) -> Any:
        weights.extend(each.weight for each in given["amphora"])
        return real(tenant, place, given, by=by)

    monkeypatch.setattr(site.store, "enrol_many", enrol)
    site.enrol(site.begin(), "amphora", 0, 1)
    assert weights == [0.5, 0.5]


def test_classes_are_listed_and_forgotten(site: Site, enrolled: str):
    assert [one["label"] for one in site.ask("GET", f"{enrolled}/classes").json()] == ["amphora", "bowl"]
    answer = site.ask("DELETE", f"{enrolled}/classes/amphora").json()
    assert answer["forgotten"] == 2
    named = {one["label"] for one in site.ask("GET", "/v1/audit", who="museum admin").json()}
    assert named == {answer["logged_as"], "bowl", None}
    assert [one["label"] for one in site.ask("GET", f"{enrolled}/classes").json()] == ["bowl"]
    assert [one["label"] for one in site.classify(enrolled, 0)[0]["guesses"]] == ["bowl"]


def test_on_a_full_disk_nothing_is_forgotten_and_the_answer_says_what_to_do(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE  # at the first write of a process
        raise error

    with monkeypatch.context() as hindered:
        hindered.setattr(of_store, "note", fails)
        answer = site.ask("DELETE", f"{enrolled}/classes/amphora")
    detail = "the disk of the service is full, and nothing was changed: its operator has to make room"
    check_problem(answer, 503, detail)
    assert answer.headers["retry-after"] == "60"
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 2


def test_an_example_is_forgotten_by_its_id(site: Site, enrolled: str):
    example = site.enrol(enrolled, "amphora", 5).json()["classes"][0]["examples"][0]
    assert site.ask("DELETE", f"{enrolled}/examples/{example}").json()["forgotten"] == 1
    check_problem(site.ask("DELETE", f"{enrolled}/examples/{example}"), 404, "no such object")


def test_a_classifier_is_listed_shown_and_deleted(site: Site, enrolled: str):
    shown = site.ask("GET", enrolled).json()
    assert (shown["name"], shown["version"]) == ("vases", 2)
    assert shown["model"] == site.ask("GET", "/v1/models").json()[0]
    assert site.ask("GET", "/v1/classifiers").json() == [shown | {"model": "cells"}]
    assert site.ask("GET", "/v1/classifiers/vases").json() == shown
    assert site.ask("DELETE", enrolled).json()["forgotten"] == 4
    check_problem(site.ask("GET", enrolled), 404, "no such object")


def test_an_admin_sees_who_did_what_and_forgets_everything(site: Site, enrolled: str):
    lines = site.ask("GET", "/v1/audit", who="museum admin").json()
    assert [(one["action"], one["label"], one["examples"]) for one in lines] == [
        *(("enrol", "bowl", 2), ("enrol", "amphora", 2), ("create classifier", None, 0))
    ]
    assert site.ask("DELETE", "/v1/data", who="museum admin").json()["forgotten"] == 4
    assert site.ask("GET", "/v1/classifiers").json() == []


def test_requests_at_once_get_the_answers_that_they_would_get_alone(site: Site, enrolled: str):
    asked = [
        ("POST", f"{enrolled}/classify", "museum read", {"content": body(number), "headers": RELEASE})
        for number in range(20)
    ]
    together = [reply.json()["images"][0] for reply in site.ask_all(asked)]
    for number, found in enumerate(together):
        (alone,) = site.classify(enrolled, number)
        assert found["guesses"][0]["label"] == alone["guesses"][0]["label"]
        assert found["guesses"][0]["distance"] == pytest.approx(
            alone["guesses"][0]["distance"], rel=1e-3, abs=1e-4
        )


# Who may.

EVERYTHING = [
    ("GET", "/v1/models", "read"),
    ("GET", "/v1/models/cells/device", "read"),
    ("GET", "/v1/classifiers", "read"),
    ("GET", "{place}", "read"),
    ("GET", "{place}/classes", "read"),
    ("GET", "{place}/table", "read"),
    ("POST", "{place}/classify", "read"),
    ("POST", "/v1/classifiers", "write"),
    ("DELETE", "{place}", "write"),
    ("POST", "{place}/examples", "write"),
    ("DELETE", "{place}/classes/amphora", "write"),
    ("DELETE", "{place}/examples/e", "write"),
    ("DELETE", "/v1/data", "admin"),
    ("GET", "/v1/audit", "admin"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/k-0", "admin"),
]


def test_the_table_of_roles_has_all_that_the_api_offers(site: Site):
    offered = [
        method.upper()
        for path, methods in site.app.openapi()["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    ]
    assert sorted(offered) == sorted(method for method, _, _ in EVERYTHING)


@pytest.mark.parametrize("who", [None, "", "sfumato_guessed", "x" * 5000, "é"])
def test_nothing_is_told_to_who_has_no_key(site: Site, enrolled: str, who: str | None):
    for method, path, _ in EVERYTHING:
        reply = site.ask(
            method, path.format(place=enrolled), who=None if who is None else who.encode("latin-1")
        )
        check_problem(reply, 401, "send yours in the header x-api-key")
        assert "WWW-Authenticate" in reply.headers


def test_a_role_may_do_what_is_below_it_and_no_more(site: Site, enrolled: str):
    order = ["read", "write", "admin"]
    for method, path, needed in EVERYTHING:
        for role in order[: order.index(needed)]:
            reply = site.ask(method, path.format(place=enrolled), who=f"museum {role}")
            check_problem(reply, 403, f"this needs a key of the role {needed}, and yours has {role}")


def test_a_revoked_key_is_as_good_as_none(site: Site, enrolled: str):
    key = next(one for one in site.store.keys("museum") if one.role == "write")
    assert site.ask("GET", enrolled).status_code == 200
    site.store.revoke(key.id)
    revoked, guessed = site.ask("GET", enrolled), site.ask("GET", enrolled, who="guessed")
    check_problem(revoked, 401, "no valid key")
    assert revoked.content == guessed.content


def test_what_belongs_to_another_tenant_is_missing_and_no_different_from_what_nobody_has(
    site: Site, enrolled: str
):
    nobody = "/v1/classifiers/" + "0" * 24
    for method, path, _ in EVERYTHING:
        if "{place}" not in path:
            continue
        more: dict[str, Any] = {"content": body(0), "headers": RELEASE} if method == "POST" else {}
        if path == "{place}/examples":
            more = {"content": labelled.join([("cup", "0")], body(0)), "headers": LABELLED}
        theirs = site.ask(method, path.format(place=enrolled), who="zoo admin", **dict(more))
        missing = site.ask(method, path.format(place=nobody), who="zoo admin", **dict(more))
        check_problem(theirs, 404, "you have no such object")
        assert theirs.content == missing.content
    assert site.ask("GET", "/v1/classifiers", who="zoo admin").json() == []
    assert site.ask("GET", "/v1/audit", who="zoo admin").json() == []
    assert site.ask("DELETE", "/v1/data", who="zoo admin").json()["forgotten"] == 0
    assert len(site.classify(enrolled, 0)[0]["guesses"]) == 2


def test_a_key_that_asks_too_often_is_told_how_long_to_wait(site: Site):
    _, secret = site.store.create_key("museum", role="read", name="hasty", rate=2)
    statuses = [site.ask("GET", "/v1/models", who=secret) for _ in range(3)]
    assert [reply.status_code for reply in statuses] == [200, 200, 429]
    check_problem(statuses[2], 429, "more requests than the 2 a minute of this key")
    assert 1 <= int(statuses[2].headers["retry-after"]) <= 60


@pytest.mark.parametrize("who", ["museum read", "zoo read", "sfumato_guessed", None])
@pytest.mark.parametrize("query", ["", "?top=1", "?top=0", "?top=01", "?top=101", "?top=1&top=2", "?top=x"])
def test_a_question_is_answered_and_refused_as_the_framework_would(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, who: str | None, query: str
):
    asked = [
        (f"{place}/classify{query}", {"content": content, "headers": RELEASE})
        for place in (enrolled, "/v1/classifiers/" + "0" * 24)
        for content in (body(0), b"")
    ]
    ours = [site.ask("POST", path, who=who, **dict(more)) for path, more in asked]
    monkeypatch.setattr(site.app.router.routes[0], "matches", lambda scope: (Match.NONE, {}))
    theirs = [site.ask("POST", path, who=who, **dict(more)) for path, more in asked]
    for one, other in zip(ours, theirs, strict=True):
        assert (one.status_code, one.content) == (other.status_code, other.content)
        assert set(one.headers) == set(other.headers)


# Many classes in one call.


def id_of(sent: bytes, row: int) -> str:
    return hashlib.sha256(sent + bytes([row])).hexdigest()[:32]


def many(site: Site, place: str, labels: list[str], sent: bytes, **more: Any) -> httpx.Response:
    content = labelled.join([(label, id_of(sent, row)) for row, label in enumerate(labels)], sent)
    return site.ask("POST", f"{place}/examples", content=content, headers=LABELLED, **more)


def test_images_of_many_classes_are_enrolled_by_one_call_as_by_many(site: Site):
    place, other = site.begin(), site.begin(name="cups")
    reply = many(site, place, ["cup", "jug", "cup"], body(0, 1, 2))
    assert reply.status_code == 201
    found = reply.json()["classes"]
    assert [(each["label"], each["new"], each["known"]) for each in found] == [("cup", 2, 0), ("jug", 1, 0)]
    assert [len(each["examples"]) for each in found] == [2, 1]
    site.enrol(other, "cup", 0, 2)
    site.enrol(other, "jug", 1)
    for one, alone in zip(site.classify(place, 0, 1, 3), site.classify(other, 0, 1, 3), strict=True):
        pairs = list(zip(one["guesses"], alone["guesses"], strict=True))
        assert all(ours["label"] == theirs["label"] for ours, theirs in pairs)
        for ours, theirs in pairs:  # embeddings do not depend on their batch, beyond rounding
            assert ours["distance"] == pytest.approx(theirs["distance"], rel=1e-3, abs=1e-5)
    again = many(site, place, ["cup", "jug", "cup"], body(0, 1, 2)).json()["classes"]
    assert [(each["label"], each["new"], each["known"]) for each in again] == [("cup", 0, 2), ("jug", 0, 1)]


@pytest.mark.parametrize(
    ("labels", "sent", "status", "detail"),
    [
        (["cup"], body(0, 1), 422, "1 labels for 2 images: send one for each"),
        (["cup", "a/b"], body(0, 1), 422, "the labels of a release: 1.label: "),
        (["cup", "jug"], body(0, 1, spec="none"), 422, f"the model cells takes releases of {SPEC}"),
        (["cup"] * 65, body(*range(65)), 422, "a release of 65 images, of at most 64 at once"),
        (["cup", "jug"], body(0, 1)[:-1], 422, "bytes of images, and the header needs"),
    ],
)
def test_of_many_classes_none_is_kept_where_one_cannot_be(
    site: Site, labels: list[str], sent: bytes, status: int, detail: str
):
    place = site.begin()
    check_problem(many(site, place, labels, sent), status, detail)
    assert site.ask("GET", f"{place}/classes").json() == []


def test_one_call_for_many_classes_is_looked_at_by_the_guard_and_held_to_the_quota(site: Site):
    place = site.begin(model="noisy")
    smooth = torch.arange(8, dtype=torch.uint8).expand(1, 1, 8, 8) * 5 + 100
    clear = wire.encode(Release(smooth.contiguous(), NOISY, (16, 16), 2))
    check_problem(many(site, place, ["cup"], clear), 422, "image 1 has less noise than that has")
    _, secret = site.store.create_key("museum", role="write", name="small", quota=1)
    place = site.begin(name="cups")
    check_problem(many(site, place, ["a", "b"], body(0, 1), who=secret), 403, "2 new examples, but only 1")
    assert site.ask("GET", f"{place}/classes").json() == []


def test_a_release_without_labels_is_not_taken_for_one_that_has_them(site: Site):
    place = site.begin()
    reply = site.ask("POST", f"{place}/examples", content=body(0), headers=RELEASE)
    check_problem(reply, 415, "a body of type application/vnd.sfumato.labelled-release is needed")
    reply = site.ask("POST", f"{place}/examples", content=body(0), headers=LABELLED)
    check_problem(reply, 422, "these bytes are not a labelled release")


# What is refused.


@pytest.mark.parametrize(
    ("sent", "headers", "status", "detail"),
    [
        (
            body(0),
            {"content-type": "application/json"},
            415,
            "a body of type application/vnd.sfumato.release",
        ),
        (body(0), {}, 415, "a body of type application/vnd.sfumato.release"),
        (body(0), RELEASE | {"content-encoding": "gzip"}, 415, "a compressed body: send it as it is"),
        (b"", RELEASE, 422, "0 bytes are not a release"),
        (body(0)[:-1], RELEASE, 422, "bytes of images, and the header needs"),
        (body(0, spec="none"), RELEASE, 422, f"the model cells takes releases of {SPEC}"),
        (body(0, size=32), RELEASE, 422, "images of 1x32x32, and the model's are 1x16x16"),
        (body(*range(65)), RELEASE, 422, "a release of 65 images, of at most 64 at once"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_with_what_to_do(
    site: Site, enrolled: str, sent: bytes, headers: dict[str, str], status: int, detail: str
):
    check_problem(site.ask("POST", f"{enrolled}/classify", content=sent, headers=headers), status, detail)


def test_a_clean_image_under_the_name_of_a_protection_is_refused_and_nothing_is_kept(
    site: Site, enrolled: str
):
    clean = wire.encode(Release(drawing(0), SPEC, (16, 16), 1))
    reply = many(site, enrolled, ["cup"], clean)
    check_problem(reply, 422, f"this is not a release of {SPEC}: it has a value for each ")
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 2


def test_a_classifier_without_classes_cannot_answer(site: Site):
    reply = site.ask("POST", f"{site.begin()}/classify", content=body(0), headers=RELEASE)
    check_problem(reply, 409, "the classifier has no class: enrol examples first")


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (b"{", "Invalid JSON"),
        (b'{"name": "a"}', "model: Field required"),
        (b'{"name": "a", "model": "other"}', "no such model: choose one of cells, noisy"),
        (b'{"name": "", "model": "cells"}', "name: "),
        (b'{"name": "a\\u0000", "model": "cells"}', "name: "),
        (b'{"name": "a", "model": "cells", "tenant": "zoo"}', "tenant: Extra inputs"),
    ],
)
def test_a_classifier_that_cannot_be_is_refused(site: Site, sent: bytes, detail: str):
    check_problem(site.ask("POST", "/v1/classifiers", content=sent), 422, detail)


def test_a_classifier_of_a_model_that_is_not_run_here_says_so(
    open_site: Open, enrolled: str, served: list[Served]
):
    other = open_site(served[1:])
    reply = other.ask("POST", f"{enrolled}/classify", content=body(0), headers=RELEASE)
    check_problem(reply, 409, "is for the model cells, which this server does not run")
    check_problem(other.ask("GET", enrolled), 409, "is for the model cells")


@pytest.mark.parametrize("label", ["a%00b", "a%0Ab", "x" * 201, "%2E", "%2E%2E"])
def test_a_label_that_no_line_or_address_can_hold_is_refused(site: Site, enrolled: str, label: str):
    check_problem(site.ask("DELETE", f"{enrolled}/classes/{label}"), 422, "path.label")
    check_problem(site.enrol(enrolled, unquote(label), 0), 422, "the labels of a release: 0.label: ")


def test_a_body_that_is_too_long_is_not_read(open_site: Open):
    site = open_site(most_bytes=1000)
    place = site.begin()
    reply = site.ask("POST", f"{place}/classify", content=body(*range(20)), headers=RELEASE)
    check_problem(reply, 413, "a body of more than 1000 bytes: send fewer images at once")

    async def endless() -> Any:
        while True:
            yield b"x" * 100

    reply = site.ask("POST", f"{place}/classify", content=endless(), headers=RELEASE)
    check_problem(reply, 413, "a body of more than 1000 bytes")


def test_a_body_that_comes_too_slowly_is_not_waited_for(open_site: Open):
    site = open_site(body_seconds=0.05)
    place = site.begin()

    async def slow() -> Any:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    reply = site.ask("POST", f"{place}/classify", content=slow(), headers=RELEASE)
    check_problem(reply, 408, "the body took longer than 0.05 s")


def test_while_the_queue_is_full_no_body_is_read(site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch):
    def full(self: Engine) -> None:
        raise BusyError("512 images wait already: send this again later", seconds=2.5)

    async def unread() -> Any:
        pytest.fail("the body was read")
        yield b""

    monkeypatch.setattr(Engine, "check", full)
    reply = site.ask("POST", f"{enrolled}/classify", content=unread(), headers=RELEASE)
    check_problem(reply, 503, "512 images wait already: send this again later")
    assert reply.headers["retry-after"] == "3"


def test_a_database_that_is_gone_asks_to_come_again_and_shows_nothing_of_itself(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch
):
    def gone(*_: Any) -> None:
        raise StoreError("postgresql://secret-host/db: connection refused")

    monkeypatch.setattr(site.store, "classifiers", gone)
    reply = site.ask("GET", "/v1/classifiers")
    check_problem(reply, 503, "the database cannot be used now: send this again later")
    assert "secret-host" not in reply.text
    assert "retry-after" in reply.headers


def test_what_nobody_expected_shows_nothing_and_logs_no_text(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*_: Any) -> None:
        raise RuntimeError("amphora")

    monkeypatch.setattr(site.store, "classes", broken)
    reply = site.ask("GET", f"{enrolled}/classes")
    check_problem(reply, 500, "it is not your fault")
    assert "amphora" not in reply.text + caplog.text
    assert '"error": "RuntimeError"' in caplog.text


def test_bodies_that_were_tampered_with_never_break_the_server(site: Site, enrolled: str):
    random = np.random.default_rng(0)
    originals = [body(0), body(1, 2), images.encode(released(0).images()[0]), images.encode(drawing(0)[0])]

    def tampered() -> bytes:
        data = bytearray(originals[random.integers(len(originals))])
        match random.integers(5):
            case 0:
                del data[random.integers(len(data)) :]
            case 1:
                data += random.bytes(random.integers(1, 50))
            case 2:
                data[5:9] = struct.pack("<I", random.integers(1 << 32))
            case 3:
                start = random.integers(len(data))
                del data[start : start + random.integers(1, 20)]
        for place in random.integers(len(data), size=random.integers(1, 6)) if data else ():
            data[place] = random.integers(256)
        return bytes(data)

    statuses: set[int] = set()
    for _ in range(6):
        asked = [
            (
                *("POST", f"{enrolled}/classify", "museum read"),
                {"content": tampered(), "headers": RELEASE},
            )
            for _ in range(100)
        ]
        replies = site.ask_all(asked)
        statuses |= {reply.status_code for reply in replies}
    assert statuses <= {200, 422}
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 2


@pytest.mark.parametrize("byte", ["ff", "fe", "c3", "ed%a0%80", "c0%af"])
def test_a_label_whose_bytes_are_no_utf_8_is_refused_and_deletes_nothing(
    site: Site, enrolled: str, byte: str
):
    site.enrol(enrolled, "�", 5)
    for method, path in (
        ("DELETE", f"{enrolled}/classes/%{byte}"),
        ("POST", f"{enrolled}/classify?top=%{byte}"),
    ):
        reply = site.ask(method, path, content=body(0), headers=RELEASE)
        check_problem(reply, 422, "the address has bytes that are not UTF-8")
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 3


@pytest.mark.parametrize("label", ["caf\u00e9", "cafe\u0301"])
def test_a_label_is_one_however_its_letters_were_composed(site: Site, label: str):
    place = site.begin()
    site.enrol(place, "cafe\u0301", 0)
    site.enrol(place, "caf\u00e9", 1)
    (row,) = site.ask("GET", f"{place}/classes").json()
    assert (row["label"], row["examples"]) == ("caf\u00e9", 2)
    assert site.ask("DELETE", f"{place}/classes/{label}").json()["forgotten"] == 2


@pytest.mark.parametrize(
    ("label", "detail"),
    [
        ("cup ", "begins or ends with a space"),
        ("\u3000cup", "begins or ends with a space"),
        ("\u202epuc", "U+202E is invisible, or turns the text around it"),
        ("c\u200bup", "U+200B is invisible"),
        ("cup\u2028", "begins or ends with a space"),
        ("c\u2028up", "U+2028 is invisible"),
        ("\U0001d160" * 100, "300 characters, in Unicode's NFC: choose at most 200"),
    ],
)
def test_a_label_that_looks_like_another_is_refused_in_addresses_and_in_names(
    site: Site, enrolled: str, label: str, detail: str
):
    reply = site.enrol(enrolled, label, 0)
    check_problem(reply, 422, "the labels of a release: 0.label: ")
    assert detail in reply.json()["detail"]
    reply = site.ask("POST", "/v1/classifiers", json={"name": label, "model": "cells"})
    check_problem(reply, 422, "name: ")
    assert detail in reply.json()["detail"]


@pytest.mark.parametrize(
    "since",
    [
        *("0.5", "0", "1767225600", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "today", ""),
        *("2026-01-01T00:00:00+01:00", "2026-13-01T00:00:00Z", "²026-01-01T00:00:00Z", "inf", "nan"),
    ],
)
def test_a_time_that_is_no_iso_8601_with_its_offset_is_refused(site: Site, since: str):
    reply = site.ask("GET", f"/v1/audit?since={since}", who="museum admin")
    check_problem(reply, 422, "query.since: ")


@pytest.mark.parametrize(
    "since", ["2026-01-31T09:30:00Z", "2026-01-31T09:30:00.123456%2B05:30", "9999-12-31T23:59:59-12:00"]
)
def test_a_time_with_its_offset_is_taken(site: Site, since: str):
    site.begin()
    kept = site.ask("GET", f"/v1/audit?since={since}", who="museum admin")
    assert kept.status_code == 200, kept.text


@pytest.mark.parametrize("number", ["1.0", "1e1", "true", "%201", "%2B1", "1_0", "٣", "0x1", "", "-1"])
def test_a_number_that_is_not_written_in_digits_is_refused(site: Site, enrolled: str, number: str):
    reply = site.ask("POST", f"{enrolled}/classify?top={number}", content=body(0), headers=RELEASE)
    check_problem(reply, 422, "query.top: ")
    check_problem(site.ask("GET", f"/v1/audit?most={number}", who="museum admin"), 422, "query.most: ")


@pytest.mark.parametrize("page", [False, True])
def test_a_method_that_is_not_offered_is_answered_by_those_that_are(
    open_site: Open, tmp_path: Path, page: bool
):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("")
    site = open_site(web=tmp_path / "web" if page else None)
    place = site.begin()
    for method, path, allow in (
        ("PUT", "/v1/classifiers", "GET, HEAD, OPTIONS, POST"),
        ("GET", f"{place}/classify", "OPTIONS, POST"),
        ("HEAD", f"{place}/classify", "OPTIONS, POST"),
        ("POST", place, "DELETE, GET, HEAD, OPTIONS"),
        ("BREW", "/health/live", "GET, HEAD, OPTIONS"),
        *([("POST", "/index.html", "GET, HEAD, OPTIONS")] if page else []),
    ):
        reply = site.ask(method, path)
        assert (reply.status_code, reply.headers["allow"]) == (405, allow), path
        asked = site.ask("OPTIONS", path, who=None)
        assert (asked.status_code, asked.headers["allow"], asked.content) == (204, allow, b"")
    assert site.ask("OPTIONS", "/v1/nothing").status_code == (204 if page else 404)


def test_head_is_get_without_its_body(site: Site, enrolled: str):
    for path in ("/health/live", enrolled, "/v1/nothing"):
        head, get = site.ask("HEAD", path), site.ask("GET", path)
        assert head.content == b""
        assert (head.status_code, head.headers["content-length"]) == (
            get.status_code,
            get.headers["content-length"],
        )


# Room for bodies.


class Sent:
    """A body of so many bytes, which is held back before its last one. State: whether it was asked for."""

    def __init__(self, length: int) -> None:
        self.length, self.begun, self.go = length, asyncio.Event(), asyncio.Event()

    async def parts(self) -> Any:
        self.begun.set()
        yield bytes(self.length - 1)
        await self.go.wait()
        yield b"x"


def ask_in_turn(
    site: Site, place: str, lengths: list[int], *, announced: bool
) -> tuple[list[httpx.Response], list[bool]]:
    """Begin requests one after the other, then let their bodies end; the answers, and which were read."""

    async def ask() -> tuple[list[httpx.Response], list[bool]]:
        transport = httpx.ASGITransport(app=site.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            bodies, asked = [Sent(length) for length in lengths], []
            for sent in bodies:
                headers = RELEASE | {"x-api-key": site.keys["museum read"]}
                headers |= {"content-length": str(sent.length)} if announced else {}
                request = client.post(f"{place}/classify", content=sent.parts(), headers=headers)
                asked.append(asyncio.create_task(request))
                begun = asyncio.create_task(sent.begun.wait())
                await asyncio.wait([asked[-1], begun], return_when=asyncio.FIRST_COMPLETED)
                begun.cancel()
                await asyncio.sleep(0.05)  # what it has sent is read
            for sent in bodies:
                sent.go.set()
            return await asyncio.gather(*asked), [sent.begun.is_set() for sent in bodies]

    return asyncio.run(ask())


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_finds_no_room_is_refused_before_it_is_read(open_site: Open, announced: bool):
    site = open_site(most_bytes=10_000, most_held=25_000)
    replies, read = ask_in_turn(site, site.begin(), [10_000, 10_000, 10_000], announced=announced)
    assert read == [True, True, False]
    assert [reply.status_code for reply in replies] == [422, 422, 503]  # zeros are no release
    check_problem(replies[2], 503, "the server has no room for more requests: send this again later")
    assert replies[2].headers["retry-after"] == "2"


def test_the_room_of_a_body_is_free_once_it_was_answered(open_site: Open):
    site = open_site(most_bytes=10_000, most_held=10_000, body_seconds=0.2)
    place = site.begin()
    site.enrol(place, "amphora", 0)

    async def slow() -> Any:
        yield bytes(9_000)
        await asyncio.sleep(60)

    for _ in range(3):
        headers = RELEASE | {"content-length": "9500"}
        reply = site.ask("POST", f"{place}/classify", content=slow(), headers=headers)
        check_problem(reply, 408, "the body took longer than 0.2 s")
        assert len(site.classify(place, 0)) == 1
    cut = site.ask("POST", f"{place}/classify", content=bytes(9_500), headers=RELEASE)
    check_problem(cut, 422, "these bytes are not a release")
    assert len(site.classify(place, 0)) == 1


def test_what_is_made_of_a_body_counts_as_well(open_site: Open):
    site = open_site(most_bytes=5_000, most_held=20_000)
    place = site.begin()
    site.enrol(place, "amphora", 0)
    reply = site.ask("POST", f"{place}/classify", content=body(*range(20)), headers=RELEASE)
    check_problem(reply, 503, "or fewer images at once")  # 20 images of 256 values, in 6 bytes each
    assert len(site.classify(place, *range(10))) == 10


# Around it.


def test_health_is_open_and_tells_whether_the_database_is_there(site: Site, monkeypatch: pytest.MonkeyPatch):
    assert site.ask("GET", "/health/live", who=None).json() == {"status": "live"}
    assert site.ask("GET", "/health/ready", who=None).json() == {"status": "ready"}

    def gone(*_: Any) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(site.store, "ping", gone)
    assert site.ask("GET", "/health/ready", who=None).status_code == 503


def test_a_server_that_closes_is_not_ready_and_accepts_nothing(site: Site, enrolled: str):
    site.close()
    assert site.ask("GET", "/health/ready", who=None).status_code == 503
    reply = site.ask("POST", f"{enrolled}/classify", content=body(0), headers=RELEASE)
    check_problem(reply, 503, "the server is closing")


def test_metrics_are_closed_without_a_key_of_their_own(site: Site, open_site: Open):
    assert site.ask("GET", "/metrics", who="museum admin").status_code == 404
    key = "a key of sixteen or more"
    watched = open_site(metrics_key=key)
    assert watched.ask("GET", "/metrics", who="museum admin").status_code == 401
    place = watched.begin(name="cups")
    watched.enrol(place, "a secret label", 0)
    text = watched.ask("GET", "/metrics", who=None, headers={"authorization": f"Bearer {key}"}).text
    route = "/v1/classifiers/{classifier}/examples"
    assert f'sfumato_requests_total{{method="POST",route="{route}",status="201"}} 1.0' in text
    assert "sfumato_batch_images_count 1.0" in text
    assert "a secret label" not in text


def test_a_line_is_logged_for_each_request_without_key_label_or_image(
    site: Site, enrolled: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, logger="sfumato.serve")
    caplog.clear()
    site.enrol(enrolled, "amphora", 8)
    (line,) = [json.loads(record.message) for record in caplog.records if record.name == "sfumato.serve"]
    assert (line["method"], line["status"]) == ("POST", 201)
    assert line["route"] == "/v1/classifiers/{classifier}/examples"
    assert "amphora" not in caplog.text
    assert all(secret not in caplog.text for secret in site.keys.values())


def test_all_lines_of_a_request_have_the_id_that_its_answer_has(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def gone(*_: Any) -> None:
        raise StoreError("connection refused")

    monkeypatch.setattr(site.store, "classes", gone)
    caplog.set_level(logging.INFO, logger="sfumato.serve")
    caplog.clear()
    replies = [site.ask("GET", f"{enrolled}/classes") for _ in range(2)]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert len(set(ids)) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)
    logged = [json.loads(record.message)["request"] for record in caplog.records]
    assert logged == [ids[0], ids[0], ids[1], ids[1]]  # what failed, and that it was answered


def test_an_id_that_a_client_sends_is_not_taken(site: Site, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="sfumato.serve")
    reply = site.ask("GET", "/v1/models", headers={"x-request-id": "amphora"})
    assert reply.headers["x-request-id"] != "amphora"
    assert "amphora" not in caplog.text


def test_every_answer_forbids_what_a_browser_need_not_do(site: Site):
    for path in ("/v1/models", "/health/live", "/nothing"):
        headers = site.ask("GET", path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_other_sites_may_not_ask_unless_they_are_named(site: Site, open_site: Open):
    origin = {"origin": "https://museum.example"}
    assert "access-control-allow-origin" not in site.ask("GET", "/v1/models", headers=dict(origin)).headers
    open_to = open_site(allow_origins=("https://museum.example",))
    reply = open_to.ask("GET", "/v1/models", headers=dict(origin))
    assert reply.headers["access-control-allow-origin"] == "https://museum.example"
    other = open_to.ask("GET", "/v1/models", headers={"origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


def test_a_folder_with_a_page_is_served_beside_the_api(open_site: Open, tmp_path: Path):
    (tmp_path / "web" / "assets").mkdir(parents=True)
    (tmp_path / "web" / "index.html").write_text("<title>sfumato</title>")
    (tmp_path / "web" / "assets" / "main-4f1e.js").write_text("")
    site = open_site(web=tmp_path / "web")
    page, part = (site.ask("GET", path, who=None) for path in ("/", "/assets/main-4f1e.js"))
    assert "<title>" in page.text
    assert page.headers["cache-control"] == "no-store"
    assert "immutable" in part.headers["cache-control"]  # its name changes with what is in it
    assert site.ask("GET", "/../store.db", who=None).status_code == 404
    check_problem(site.ask("GET", "/v1/nothing", who=None), 404, "nothing at this address")


def test_the_description_of_the_api_is_open_and_of_version_3_1(site: Site):
    said = site.ask("GET", "/openapi.json", who=None).json()
    assert said["openapi"].startswith("3.1")
    enrolling = said["paths"]["/v1/classifiers/{classifier}/examples"]["post"]
    assert set(enrolling["requestBody"]["content"]) == {labelled.MEDIA_TYPE}
    refused = enrolling["responses"]["4XX"]["content"]["application/problem+json"]["schema"]
    assert "detail" in refused["properties"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"most_bytes": 0}, "most_bytes=0: must be above 0"),
        ({"most_held": 15_000_000}, "most_held=15000000: at least most_bytes=16000000"),
        ({"allow_origins": ("*",)}, r"'\*' is not an origin: write scheme and host"),
        ({"metrics_key": "short"}, "shorter than 16 characters"),
        ({"confidence": "lable"}, "confidence=.lable.: did you mean"),
        ({"confidence_step": 0}, "confidence_step=0: above 0"),
        ({"web": Path("nowhere")}, "nowhere: has no index.html: build the page first"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        ServiceConfig(**settings)


def test_models_need_names_of_their_own(store: Store, served: list[Served]):
    with pytest.raises(ConfigError, match="2 models of 1 names"):
        create(store, [served[0], served[0]])
    with pytest.raises(ConfigError, match="0 models of 0 names"):
        create(store, [])


def telling(site: Site, monkeypatch: pytest.MonkeyPatch, **confidence: Any) -> None:
    """The same server with other settings of its answers."""
    service = site.app.state.service
    monkeypatch.setattr(site.app.state, "service", replace(service, config=ServiceConfig(**confidence)))


@pytest.mark.parametrize(("step", "likely"), [(0.25, {0.0, 0.25, 0.5, 0.75, 1.0}), (1.0, {0.0, 1.0})])
def test_a_rounded_confidence_is_a_multiple_of_the_step_and_has_no_distance(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, step: float, likely: set[float]
):
    (exact,) = site.classify(enrolled, 0)
    telling(site, monkeypatch, confidence="rounded", confidence_step=step)
    (told,) = site.classify(enrolled, 0)
    assert [guess["label"] for guess in told["guesses"]] == [guess["label"] for guess in exact["guesses"]]
    assert {guess["probability"] for guess in told["guesses"]} <= likely
    assert {guess["distance"] for guess in told["guesses"]} == {None}


def test_a_label_is_all_that_a_service_of_labels_tells_however_many_are_asked_for(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch
):
    (exact,) = site.classify(enrolled, 0, top=5)
    telling(site, monkeypatch, confidence="label")
    first = exact["guesses"][0]["label"]
    (told,) = site.classify(enrolled, 0, top=5)
    assert told == exact | {"guesses": [{"label": first, "probability": None, "distance": None}]}


def test_redirects_name_no_scheme_and_no_host(open_site: Open, tmp_path: Path):
    """Behind a proxy that ends TLS, "http://" would have a client send its key in clear."""
    (tmp_path / "page" / "part").mkdir(parents=True)
    for folder in ("page", "page/part"):
        (tmp_path / folder / "index.html").write_text("<p>page</p>")
    with_page, without = open_site(web=tmp_path / "page"), open_site()
    for site, path, to in (
        (without, "/v1/classifiers/", "/v1/classifiers"),
        (without, "/v1/models/?top=1", "/v1/models?top=1"),
        (with_page, "/part", "/part/"),
        (with_page, "//elsewhere.example/part", "/part/"),
    ):
        location = site.ask("GET", path, headers={"host": "cloud.example"}).headers.get("location")
        assert location == to
