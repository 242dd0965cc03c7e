"""The API over HTTP: who may do what, what comes back, and what anybody may send without harm."""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import torch
from cloud import refusing, untrained
from starlette.routing import Match

from sfumato import wire
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import BusyError, ConfigError
from sfumato.protect import Release, parse
from sfumato.serve.engine import Engine
from sfumato.serve.http.app import ServiceConfig, create
from sfumato.serve.served import Served
from sfumato.serve.store import Store, StoreError
from sfumato.serve.store import store as of_store
from sfumato.wire import labelled

SPEC = "pixelize:cell=2"
NOISY = "dp-pix:cell=2,epsilon=3,pixels=16"
LABELLED = {"content-type": labelled.MEDIA_TYPE}
RELEASE = {"content-type": wire.MEDIA_TYPE}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    folder = tmp_path_factory.mktemp("models")
    # Squared distances of an untrained encoder: of the same image 0, of others far above.
    refusal = refusing(1e-6).card()
    return [untrained(folder, "cells", SPEC, refusal=refusal), untrained(folder, "noisy", NOISY)]


def drawing(number: int, *, size: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 256, (1, 3, size, size), generator=generator).to(torch.uint8)


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

    def ask(self, method: str, path: str, *, who: Any = "museum write", **more: Any) -> httpx.Response:
        key = {} if who is None else {"x-api-key": self.keys.get(who, who)}
        more["headers"] = more.get("headers", {}) | key

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

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
def open_site(store: Store, served: list[Served], begun: tuple[Path, dict[str, str]]) -> Open:
    """Begin a server on the test's store."""
    return lambda models=served, **config: Site(store, models, begun[1], **config)


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


def test_models_are_listed_with_the_protection_that_they_demand(site: Site):
    first, second = site.ask("GET", "/v1/models", who="museum read").json()
    assert first == {
        **{"name": "cells", "kind": "few-shot", "spec": SPEC, "made_of": None},
        "naming": "nothing is proved about who it shows",
        **{"shape": [3, 16, 16], "dimension": first["dimension"], "device_side": False},
        "refusal": str(refusing(1e-6)),
    }
    assert second["spec"] == NOISY


def test_what_is_enrolled_is_listed_shown_logged_and_forgotten(site: Site, enrolled: str):
    shown = site.ask("GET", enrolled).json()
    assert (shown["name"], shown["version"]) == ("vases", 2)
    assert shown["model"] == site.ask("GET", "/v1/models").json()[0]
    assert site.ask("GET", "/v1/classifiers").json() == [shown | {"model": "cells"}]
    assert site.ask("GET", "/v1/classifiers/vases").json() == shown
    assert [one["label"] for one in site.ask("GET", f"{enrolled}/classes").json()] == ["amphora", "bowl"]
    lines = site.ask("GET", "/v1/audit", who="museum admin").json()
    assert [(one["action"], one["label"], one["examples"]) for one in lines] == [
        *(("enrol", "bowl", 2), ("enrol", "amphora", 2), ("create classifier", None, 0))
    ]
    example = site.enrol(enrolled, "amphora", 5).json()["classes"][0]["examples"][0]
    assert site.ask("DELETE", f"{enrolled}/examples/{example}").json()["forgotten"] == 1
    for since in ("2026-01-31T09:30:00Z", "2026-01-31T09:30:00.123456%2B05:30", "9999-12-31T23:59:59-12:00"):
        assert site.ask("GET", f"/v1/audit?since={since}", who="museum admin").status_code == 200
    check_problem(site.ask("DELETE", f"{enrolled}/examples/{example}"), 404, "no such object")
    answer = site.ask("DELETE", f"{enrolled}/classes/amphora").json()
    assert answer["forgotten"] == 2
    named = {one["label"] for one in site.ask("GET", "/v1/audit", who="museum admin").json()}
    assert named == {answer["logged_as"], "bowl", None}
    assert [one["label"] for one in site.classify(enrolled, 0)[0]["guesses"]] == ["bowl"]
    assert site.ask("DELETE", enrolled).json()["forgotten"] == 2
    check_problem(site.ask("GET", enrolled), 404, "no such object")
    site.enrol(site.begin(), "amphora", 0)
    assert site.ask("DELETE", "/v1/data", who="museum admin").json()["forgotten"] == 1
    assert site.ask("GET", "/v1/classifiers").json() == []


def test_on_a_full_disk_nothing_is_forgotten_and_the_answer_says_what_to_do(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch
):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE  # at the first write of a process
    with monkeypatch.context() as hindered:
        hindered.setattr(of_store, "note", Mock(side_effect=error))
        answer = site.ask("DELETE", f"{enrolled}/classes/amphora")
    detail = "the disk of the service is full, and nothing was changed: its operator has to make room"
    check_problem(answer, 503, detail)
    assert answer.headers["retry-after"] == "60"
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 2


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
    ("POST", "{place}/shares/s", "write"),
    ("GET", "{place}/shares", "admin"),
    ("DELETE", "/v1/data", "admin"),
    ("GET", "/v1/audit", "admin"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/k-0", "admin"),
]


def test_every_route_needs_a_key_and_its_role_and_no_more(site: Site, enrolled: str):
    offered = [
        method.upper()
        for path, methods in site.app.openapi()["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    ]
    assert sorted(offered) == sorted(method for method, _, _ in EVERYTHING)
    roles = ["read", "write", "admin"]
    for method, path, needed in EVERYTHING:
        path = path.format(place=enrolled)
        for who in (None, b"", b"sfumato_guessed", b"x" * 5000, b"\xe9"):
            reply = site.ask(method, path, who=who)
            check_problem(reply, 401, "send yours in the header x-api-key")
            assert "WWW-Authenticate" in reply.headers
        for role in roles[: roles.index(needed)]:
            reply = site.ask(method, path, who=f"museum {role}")
            check_problem(reply, 403, f"this needs a key of the role {needed}, and yours has {role}")


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
        if path == "{place}/shares/s" and method == "POST":
            more = {"json": {"labels": ["amphora"], "parts": 1, "per": "week", "histogram": 0}}
        theirs = site.ask(method, path.format(place=enrolled), who="zoo admin", **more)
        missing = site.ask(method, path.format(place=nobody), who="zoo admin", **more)
        check_problem(theirs, 404, "you have no such object")
        assert theirs.content == missing.content
    keys = (site.store.keys("museum")[0].id, "k-" + "0" * 24)
    theirs, missing = (site.ask("DELETE", f"/v1/keys/{key}", who="zoo admin") for key in keys)
    assert (theirs.status_code, theirs.content) == (404, missing.content)
    assert site.ask("GET", "/v1/models", who="museum read").status_code == 200
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
def test_a_question_is_answered_and_refused_as_the_framework_would(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, who: str | None
):
    asked = [
        (f"{place}/classify{query}", {"content": content, "headers": RELEASE})
        for place in (enrolled, "/v1/classifiers/" + "0" * 24)
        for content in (body(0), b"")
        for query in ("", "?top=1", "?top=0", "?top=01", "?top=101", "?top=1&top=2", "?top=x")
    ]
    ours = [site.ask("POST", path, who=who, **more) for path, more in asked]
    monkeypatch.setattr(site.app.router.routes[0], "matches", lambda scope: (Match.NONE, {}))
    theirs = [site.ask("POST", path, who=who, **more) for path, more in asked]
    for one, other in zip(ours, theirs, strict=True):
        assert (one.status_code, one.content) == (other.status_code, other.content)
        assert set(one.headers) == set(other.headers)


def many(site: Site, place: str, labels: list[str], sent: bytes, **more: Any) -> httpx.Response:
    ids = [hashlib.sha256(sent + bytes([row])).hexdigest()[:32] for row in range(len(labels))]
    content = labelled.join(list(zip(labels, ids, strict=True)), sent)
    return site.ask("POST", f"{place}/examples", content=content, headers=LABELLED, **more)


def test_one_call_for_many_classes_is_looked_at_by_the_guard_and_held_to_the_quota(site: Site):
    place = site.begin(model="noisy")
    smooth = torch.arange(8, dtype=torch.uint8).expand(1, 3, 8, 8) * 5 + 100
    clear = wire.encode(Release(smooth.contiguous(), NOISY, (16, 16), 2))
    check_problem(many(site, place, ["cup"], clear), 422, "image 1 has less noise than that has")
    _, secret = site.store.create_key("museum", role="write", name="small", quota=1)
    place = site.begin(name="cups")
    check_problem(many(site, place, ["a", "b"], body(0, 1), who=secret), 403, "2 new examples, but only 1")
    assert site.ask("GET", f"{place}/classes").json() == []


def classify(content: bytes, headers: dict[str, str] = RELEASE, query: str = "") -> tuple[Any, ...]:
    return "POST", f"{{place}}/classify{query}", {"content": content, "headers": headers}


def enrolling(labels: list[str], sent: bytes) -> tuple[Any, ...]:
    content = labelled.join([(label, str(row)) for row, label in enumerate(labels)], sent)
    return "POST", "{place}/examples", {"content": content, "headers": LABELLED}


def creating(content: bytes) -> tuple[Any, ...]:
    return "POST", "/v1/classifiers", {"content": content}


TAKES, NOT_RELEASE = f"the model cells takes releases of {SPEC}", "a body of type application/vnd.sfumato."
REFUSED = [
    (classify(body(0), {"content-type": "application/json"}), 415, f"{NOT_RELEASE}release"),
    (classify(body(0), {}), 415, f"{NOT_RELEASE}release"),
    (classify(body(0), RELEASE | {"content-encoding": "gzip"}), 415, "a compressed body: send it as it is"),
    (classify(b""), 422, "0 bytes are not a release"),
    (classify(body(0)[:-1]), 422, "bytes of images, and the header needs"),
    (classify(body(0, spec="none")), 422, TAKES),
    (classify(body(0, size=32)), 422, "images of 3x32x32, and the model's are 3x16x16"),
    (classify(body(*range(65))), 422, "a release of 65 images, of at most 64 at once"),
    (enrolling(["cup"], body(0, 1)), 422, "1 labels for 2 images: send one for each"),
    (enrolling(["cup", "a/b"], body(0, 1)), 422, "the labels of a release: 1.label: "),
    (enrolling(["cup", "jug"], body(0, 1, spec="none")), 422, TAKES),
    (enrolling(["cup"] * 65, body(*range(65))), 422, "a release of 65 images, of at most 64 at once"),
    (enrolling(["cup", "jug"], body(0, 1)[:-1]), 422, "bytes of images, and the header needs"),
    (("POST", "{place}/examples", {"content": body(0), "headers": RELEASE}), 415, f"{NOT_RELEASE}labelled"),
    (("POST", "{place}/examples", {"content": body(0), "headers": LABELLED}), 422, "not a labelled release"),
    (creating(b"{"), 422, "Invalid JSON"),
    (creating(b'{"name": "a"}'), 422, "model: Field required"),
    (creating(b'{"name": "a", "model": "other"}'), 422, "no such model: choose one of cells, noisy"),
    (creating(b'{"name": "", "model": "cells"}'), 422, "name: "),
    (creating(b'{"name": "a\\u0000", "model": "cells"}'), 422, "name: "),
    (creating(b'{"name": "a", "model": "cells", "tenant": "zoo"}'), 422, "tenant: Extra inputs"),
    *(
        (("DELETE", f"{{place}}/classes/{label}", {}), 422, "path.label")
        for label in ("a%00b", "a%0Ab", "x" * 201, "%2E", "%2E%2E")
    ),
    *(
        (enrolling([label], body(0)), 422, "the labels of a release: 0.label: ")
        for label in ("a\0b", "a\nb", "x" * 201, ".", "..")
    ),
    *(
        (asked, 422, "the address has bytes that are not UTF-8")
        for byte in ("ff", "fe", "c3", "ed%a0%80", "c0%af")
        for asked in (("DELETE", f"{{place}}/classes/%{byte}", {}), classify(body(0), query=f"?top=%{byte}"))
    ),
    *(
        (("GET", f"/v1/audit?since={since}", {}), 422, "query.since: ")
        for since in (
            *("0.5", "0", "1767225600", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "today"),
            *("", "2026-01-01T00:00:00+01:00", "2026-13-01T00:00:00Z", "²026-01-01T00:00:00Z", "inf", "nan"),
        )
    ),
    *(
        asked
        for number in ("1.0", "1e1", "true", "%201", "%2B1", "1_0", "٣", "0x1", "", "-1")
        for asked in (
            (classify(body(0), query=f"?top={number}"), 422, "query.top: "),
            (("GET", f"/v1/audit?most={number}", {}), 422, "query.most: "),
        )
    ),
]


def test_what_cannot_be_used_is_refused_with_what_to_do_and_changes_nothing(site: Site, enrolled: str):
    site.enrol(enrolled, "\ufffd", 5)  # by which a bad byte of an address could be replaced
    before = site.ask("GET", f"{enrolled}/classes").json()
    for (method, path, more), status, detail in REFUSED:
        reply = site.ask(method, path.format(place=enrolled), who="museum admin", **more)
        check_problem(reply, status, detail)
    assert site.ask("GET", f"{enrolled}/classes").json() == before
    assert len(site.ask("GET", "/v1/classifiers").json()) == 1


def test_a_clean_image_under_the_name_of_a_protection_is_refused_and_nothing_is_kept(
    site: Site, enrolled: str
):
    clean = wire.encode(Release(drawing(0), SPEC, (16, 16), 1))
    reply = many(site, enrolled, ["cup"], clean)
    check_problem(reply, 422, f"this is not a release of {SPEC}: it has a value for each ")
    assert len(site.ask("GET", f"{enrolled}/classes").json()) == 2


def test_a_classifier_without_a_class_or_without_its_model_says_so(
    open_site: Open, site: Site, enrolled: str, served: list[Served]
):
    reply = site.ask("POST", f"{site.begin(name='cups')}/classify", content=body(0), headers=RELEASE)
    check_problem(reply, 409, "the classifier has no class: enrol examples first")
    other = open_site(served[1:])
    reply = other.ask("POST", f"{enrolled}/classify", content=body(0), headers=RELEASE)
    check_problem(reply, 409, "is for the model cells, which this server does not run")
    check_problem(other.ask("GET", enrolled), 409, "is for the model cells")


def test_a_body_that_is_too_long_or_too_slow_is_not_read(open_site: Open):
    site = open_site(most_bytes=1000, body_seconds=0.05)
    path = f"{site.begin()}/classify"

    async def endless(size: int, pause: float) -> Any:
        while True:
            yield bytes(size)
            await asyncio.sleep(pause)

    for content in (body(*range(20)), endless(100, 0)):
        reply = site.ask("POST", path, content=content, headers=RELEASE)
        check_problem(reply, 413, "a body of more than 1000 bytes: send fewer images at once")
    reply = site.ask("POST", path, content=endless(1, 0.01), headers=RELEASE)
    check_problem(reply, 408, "the body took longer than 0.05 s")


def test_while_the_queue_is_full_no_body_is_read(site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch):
    full = BusyError("512 images wait already: send this again later", seconds=2.5)
    monkeypatch.setattr(Engine, "check", Mock(side_effect=full))
    reply = site.ask("POST", f"{enrolled}/classify", content=unread(), headers=RELEASE)
    check_problem(reply, 503, "512 images wait already: send this again later")
    assert reply.headers["retry-after"] == "3"


def test_what_fails_shows_nothing_of_itself(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    assert site.ask("GET", "/health/live", who=None).json() == {"status": "live"}
    assert site.ask("GET", "/health/ready", who=None).json() == {"status": "ready"}
    gone, store = StoreError("postgresql://amphora/db: connection refused"), "the database cannot be used now"
    for broken, error, path, status, detail in (
        ("classifiers", gone, "/v1/classifiers", 503, f"{store}: send this again later"),
        ("ping", gone, "/health/ready", 503, store),
        ("classes", RuntimeError("amphora"), f"{enrolled}/classes", 500, "it is not your fault"),
    ):
        caplog.clear()
        monkeypatch.setattr(site.store, broken, Mock(side_effect=error))
        reply = site.ask("GET", path)
        check_problem(reply, status, detail)
        assert ("retry-after" in reply.headers) == (status == 503)
        assert "amphora" not in reply.text
    assert "amphora" not in caplog.text
    assert '"error": "RuntimeError"' in caplog.text


def test_a_label_is_one_however_its_letters_were_composed(site: Site):
    place = site.begin()
    for label in ("caf\u00e9", "cafe\u0301"):
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
    for path in ("/health/live", place, "/v1/nothing"):
        head, get = site.ask("HEAD", path), site.ask("GET", path)
        assert (head.content, head.status_code) == (b"", get.status_code)
        assert head.headers["content-length"] == get.headers["content-length"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_finds_no_room_is_refused_before_it_is_read(open_site: Open, announced: bool):
    site = open_site(most_bytes=10_000, most_held=25_000)
    place, headers = site.begin(), RELEASE | ({"content-length": "10000"} if announced else {})
    with site.app.state.service.room.share() as take:
        take(20_000)
        reply = site.ask("POST", f"{place}/classify", content=unread(), headers=headers)
    check_problem(reply, 503, "the server has no room for more requests: send this again later")
    assert reply.headers["retry-after"] == "2"
    reply = site.ask("POST", f"{place}/classify", content=bytes(10_000), headers=RELEASE)
    check_problem(reply, 422, "these bytes are not a release")


async def unread() -> Any:
    pytest.fail("the body was read")
    yield b""


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
    site = open_site(most_bytes=5_000, most_held=60_000)
    place = site.begin()
    site.enrol(place, "amphora", 0)
    reply = site.ask("POST", f"{place}/classify", content=body(*range(20)), headers=RELEASE)
    check_problem(reply, 503, "or fewer images at once")  # 20 images of 768 values, in 6 bytes each
    assert len(site.classify(place, *range(10))) == 10


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
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """And all lines of a request have the id that its answer has, which is never the client's."""

    monkeypatch.setattr(site.store, "classes", Mock(side_effect=StoreError("connection refused")))
    caplog.set_level(logging.INFO, logger="sfumato.serve")
    caplog.clear()
    replies = [site.enrol(enrolled, "amphora", 8)]
    replies.append(site.ask("GET", f"{enrolled}/classes", headers={"x-request-id": "amphora"}))
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert len(set(ids)) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "sfumato.serve"]
    assert [line["request"] for line in lines] == [ids[0], ids[1], ids[1]]  # it failed, and was answered
    assert (lines[0]["method"], lines[0]["status"]) == ("POST", 201)
    assert lines[0]["route"] == "/v1/classifiers/{classifier}/examples"
    assert "amphora" not in caplog.text
    assert all(secret not in caplog.text for secret in site.keys.values())


def test_a_browser_is_forbidden_what_it_need_not_do_and_other_sites_may_not_ask(site: Site, open_site: Open):
    for path in ("/v1/models", "/health/live", "/nothing"):
        headers = site.ask("GET", path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    allowed, open_to = "access-control-allow-origin", open_site(allow_origins=("https://museum.example",))
    for asked, origin, answered in (
        (site, "https://museum.example", None),
        (open_to, "https://museum.example", "https://museum.example"),
        (open_to, "https://other.example", None),
    ):
        assert asked.ask("GET", "/v1/models", headers={"origin": origin}).headers.get(allowed) == answered


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


@pytest.mark.filterwarnings("ignore")  # of the test client that schemathesis brings
def test_no_request_of_the_description_fails(site: Site, enrolled: str):
    """Whatever the description of the API allows to be sent, the answer is one, and no failure."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from hypothesis import HealthCheck, given, settings

    for kind in (labelled.MEDIA_TYPE, wire.MEDIA_TYPE):
        schemathesis.serializer.alias(kind, "application/octet-stream")
    # Each call would begin and end the server.
    site.app.router.lifespan_context = lambda _: contextlib.nullcontext()
    answered: set[int] = set()
    for operation in schemathesis.openapi.from_asgi("/openapi.json", site.app).get_all_operations():

        @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        @given(case=operation.ok().as_strategy())
        def ask(case: Any) -> None:
            reply = case.call(headers={"x-api-key": site.keys["museum admin"]})
            answered.add(reply.status_code)
            assert reply.status_code < 500
            if reply.status_code >= 400:
                assert reply.headers["content-type"] == ["application/problem+json"]

        ask()
    assert {200, 404, 422} <= answered


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"most_bytes": 0}, "most_bytes=0: must be above 0"),
        ({"most_held": 15_000_000}, "most_held=15000000: at least most_bytes=16000000"),
        *(
            (wrong, "window=.*, most_batch=.*, most_waiting=.*: a window of 0 to 1 s")
            for wrong in ({"window": -1}, {"most_batch": 0}, {"most_batch": 8, "most_waiting": 4})
        ),
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
    for given in ([served[0]] * 2, []):
        with pytest.raises(ConfigError, match=f"{len(given)} models of {len(given[:1])} names"):
            create(store, given)


def test_answers_have_the_numbers_that_the_operator_allows_and_no_others(
    site: Site, enrolled: str, monkeypatch: pytest.MonkeyPatch
):
    def classify(**confidence: Any) -> dict[str, Any]:
        monkeypatch.setattr(site.app.state.service, "config", ServiceConfig(**confidence))
        return site.classify(enrolled, 0, top=5)[0]

    exact = classify()
    labels = [guess["label"] for guess in exact["guesses"]]
    for step, likely in ((0.25, {0.0, 0.25, 0.5, 0.75, 1.0}), (1.0, {0.0, 1.0})):
        told = classify(confidence="rounded", confidence_step=step)["guesses"]
        assert [guess["label"] for guess in told] == labels
        assert {guess["probability"] for guess in told} <= likely
        assert {guess["distance"] for guess in told} == {None}
    only = {"label": labels[0], "probability": None, "distance": None}
    assert classify(confidence="label") == exact | {"guesses": [only]}


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


def make_key(site: Site, who: str = "museum admin", **settings: Any) -> httpx.Response:
    return site.ask("POST", "/v1/keys", who=who, json={"name": "gate", **settings})


def test_an_admin_makes_lists_and_revokes_the_keys_of_a_tenant(site: Site):
    made = make_key(site, role="read", rate=60)
    assert made.status_code == 201
    key = made.json()
    assert (key["name"], key["role"], key["rate"], key["quota"]) == ("gate", "read", 60, None)
    assert site.ask("GET", "/v1/models", who=key["secret"]).status_code == 200
    assert site.ask("GET", "/v1/keys", who=key["secret"]).status_code == 403
    reply = site.ask("GET", "/v1/keys", who="museum admin")
    assert [each["name"] for each in reply.json()] == ["read", "write", "admin", "gate"]
    assert reply.json()[-1] == {name: key[name] for name in key if name != "secret"}
    assert "tenant" not in key
    assert site.ask("DELETE", f"/v1/keys/{key['id']}", who="museum admin").status_code == 204
    revoked = site.ask("GET", "/v1/models", who=key["secret"])
    check_problem(revoked, 401, "no valid key")
    assert revoked.content == site.ask("GET", "/v1/models", who="guessed").content
    assert site.ask("GET", "/v1/keys", who="museum admin").json()[-1]["revoked"] is not None
    lines = site.ask("GET", "/v1/audit", who="museum admin").json()
    (admin,) = (each.id for each in site.store.keys("museum") if each.role == "admin")
    assert [(line["key"], line["action"], line["label"]) for line in lines] == [
        *((admin, "revoke key", key["id"]), (admin, "create key", key["id"]))
    ]
    own = site.ask("DELETE", f"/v1/keys/{admin}", who="museum admin")
    check_problem(own, 409, "this is the key that asks: revoke it with another key of the role admin")


def test_a_key_makes_no_keys_that_would_lift_its_limits(site: Site):
    for limit in ({"rate": 100}, {"quota": 5}):
        _, secret = site.store.create_key("museum", role="admin", name="limited", **limit)
        check_problem(make_key(site, secret), 403, "which a new key would lift: ask the operator of the")
    end = datetime.now(UTC) + timedelta(days=9)
    _, secret = site.store.create_key("museum", role="admin", name="office", expires=end)
    for later in ({}, {"expires": (end + timedelta(seconds=1)).isoformat()}):
        check_problem(make_key(site, secret, **later), 403, "a new key must expire by then")
    reply = make_key(site, secret, expires=end.isoformat())
    assert datetime.fromisoformat(reply.json()["expires"]) == end


def test_a_key_that_cannot_be_is_refused(site: Site):
    for wrong in (
        *({"name": ""}, {"role": "owner"}, {"rate": 0}, {"x": 1}, {"expires": "2099-01-01T00:00:00"}),
    ):
        assert make_key(site, **wrong).status_code == 422
    assert len(site.store.keys("museum")) == 3
