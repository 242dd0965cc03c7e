"""Histograms that a service keeps: once each, of its own classes, forgotten with what they name."""

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from cloud import Wire, encoder

from sfumato.device.client import Client
from sfumato.errors import DataError
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.store import Example, Key, NotFoundError, Store
from sfumato.wire.messages import ClassifierInfo, Shares

SENT = Shares(labels=["awake", "drowsy", None], parts=5, per="quarter", histogram=19)


@pytest.fixture
def drivers(store: Store, key: Key) -> ClassifierInfo:
    made = store.create_classifier("museum", name="drivers", model="code", by=key)
    for label in ("awake", "drowsy"):
        store.enrol("museum", made.id, label, [Example(label, np.ones(4, np.float32))], by=key)
    return made


def test_a_histogram_is_kept_once_under_its_id_with_its_key_and_time(
    store: Store, key: Key, drivers: ClassifierInfo
):
    for _ in range(2):
        store.share("museum", drivers.id, "a1", SENT, by=key)
    store.share(
        "museum", drivers.id, "a2", Shares(labels=["drowsy"], parts=1, per="week", histogram=0), by=key
    )
    first, second = store.shares("museum", drivers.id)
    assert (first.id, first.key) == ("a1", key.id)
    assert (first.labels, first.counts) == (["awake", "drowsy", None], [4, 1, 0])
    assert (second.id, second.per, second.parts, second.counts) == ("a2", "week", 1, [1])
    assert first.received <= second.received
    assert [line.action for line in store.audit("museum")][:2] == ["share", "share"]


def test_one_of_another_class_classifier_or_tenant_is_refused(
    store: Store, key: Key, drivers: ClassifierInfo
):
    asleep = SENT.model_copy(update={"labels": ["awake", "asleep", None]})
    with pytest.raises(DataError, match="no such class: 'asleep': fetch the answer table again"):
        store.share("museum", drivers.id, "a1", asleep, by=key)
    other = store.create_key("zoo", role="admin", name="gate")[0]
    for ask in (
        lambda: store.share("zoo", drivers.id, "a1", SENT, by=other),
        lambda: store.share("museum", "0" * 24, "a1", SENT, by=key),
        lambda: store.shares("zoo", drivers.id),
    ):
        with pytest.raises(NotFoundError):
            ask()
    assert store.shares("museum", drivers.id) == []


def test_it_is_forgotten_with_a_class_that_it_names_and_with_its_classifier(
    store: Store, key: Key, drivers: ClassifierInfo
):
    store.enrol("museum", drivers.id, "away", [Example("1", np.ones(4, np.float32))], by=key)
    alarm = Shares(labels=["drowsy"], parts=1, per="week", histogram=0)
    for given_id, sent in (("a1", SENT), ("a2", alarm)):
        store.share("museum", drivers.id, given_id, sent, by=key)
    store.forget_class("museum", drivers.id, "awake", by=key)
    assert [each.id for each in store.shares("museum", drivers.id)] == ["a2"]
    store.delete_classifier("museum", drivers.id, by=key)
    again = store.create_classifier("museum", name="drivers", model="code", by=key)
    assert store.shares("museum", again.id) == []
    store.forget_everything("museum", by=key)


class Site:
    """A service of one code, with two classes, and keys of each role."""

    def __init__(self, store: Store, folder: Path) -> None:
        path = encoder(folder / "code.safetensors", bits=4)
        self.wire, self.store = Wire(create(store, [models.load(path)])), store
        made = {role: store.create_key("museum", role=role, name=role) for role in ("read", "write", "admin")}
        self.secrets = {role: secret for role, (_, secret) in made.items()}
        writer = made["write"][0]
        self.classifier = store.create_classifier("museum", name="drivers", model="code", by=writer)
        for label in ("awake", "drowsy"):
            example = Example(label, np.ones(4, np.float32))
            store.enrol("museum", self.classifier.id, label, [example], by=writer)

    def ask(self, method: str, below: str, *, role: str = "write", **given: Any) -> httpx.Response:
        with httpx.Client(transport=self.wire, base_url="http://127.0.0.1:9") as client:
            place = f"/v1/classifiers/{self.classifier.id}/{below}"
            return client.request(method, place, headers={"x-api-key": self.secrets[role]}, **given)


@pytest.fixture
def site(sqlite_url: str, open_store: Any, tmp_path: Path) -> Site:
    opened = open_store(sqlite_url)
    opened.create_tenant("museum")
    return Site(opened, tmp_path)


def test_devices_of_the_role_write_send_and_the_role_admin_lists(site: Site):
    body = {"labels": ["awake", "drowsy"], "parts": 5, "per": "quarter", "histogram": 2}
    assert site.ask("POST", "shares/a1", json=body).status_code == 204
    assert site.ask("POST", "shares/a1", json=body).status_code == 204
    assert site.ask("POST", "shares/a2", role="read", json=body).status_code == 403
    assert site.ask("GET", "shares").status_code == 403
    (kept,) = site.ask("GET", "shares", role="admin").json()
    assert (kept["id"], kept["labels"], kept["counts"]) == ("a1", ["awake", "drowsy"], [2, 3])
    how = {"key": site.secrets["admin"], "ledger": "l.db", "transport": site.wire}
    with Client("http://127.0.0.1:9", classifier="drivers", **how) as cloud:
        assert [each.counts for each in cloud.shares()] == [[2, 3]]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"histogram": 6}, "histogram=6: of 5 parts and 2 values there are 6, from 0"),
        ({"histogram": -1}, "histogram: "),
        ({"histogram": 10**30}, "there are 6, from 0"),
        ({"parts": 0}, "parts: "),
        ({"parts": 101}, "parts: "),
        ({"per": "century"}, "per: "),
        ({"labels": ["awake", "awake"]}, "labels: each answer once"),
        ({"labels": []}, "labels: "),
        ({"labels": ["awake", "a/b"]}, "labels.1"),
        ({"counts": [2, 3]}, "counts: "),
        ({"labels": ["awake", "asleep"]}, "no such class: 'asleep'"),
    ],
)
def test_what_is_no_histogram_of_the_classifier_is_refused_and_not_kept(site: Site, changed: Any, words: str):
    body = {"labels": ["awake", "drowsy"], "parts": 5, "per": "quarter", "histogram": 2}
    reply = site.ask("POST", "shares/a1", json=body | changed)
    assert (reply.status_code, words in reply.json()["detail"]) == (422, True), reply.json()
    assert site.ask("GET", "shares", role="admin").json() == []
