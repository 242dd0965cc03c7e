"""The store, on both databases: nothing is lost, nothing shown to others, and what is forgotten is gone."""

import hashlib
import inspect
import os
import random
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy import inspect as inspect_database

from sfumato.errors import ConfigError, DataError
from sfumato.serve.store import (
    ConflictError,
    Example,
    Key,
    NotFoundError,
    QuotaError,
    Store,
    StoreError,
    database,
    keys,
)
from sfumato.serve.store import store as of_store
from sfumato.serve.store.schema import metadata
from sfumato.wire.messages import ClassifierInfo, Shares

Open = Callable[[str], Store]
SQLITE, POSTGRESQL = (
    pytest.mark.parametrize("url", [name], indirect=True) for name in ("sqlite", "postgresql")
)
D = 4


def example(number: int, *, weight: float = 1.0, dimension: int = D) -> Example:
    vector = np.random.default_rng(number).normal(size=dimension).astype(np.float32)
    return Example(f"image {number}", vector, weight)


def some(*numbers: int) -> list[Example]:
    return [example(number) for number in numbers]


def mean(examples: list[Example]) -> np.ndarray:
    """The prototype, by its definition."""
    weights = np.array([each.weight for each in examples])
    return np.average([each.embedding.astype(np.float64) for each in examples], axis=0, weights=weights)


def run(store: Store, statement: str, **values: Any) -> Any:
    """Past the methods, straight to the tables."""
    with store._engine.begin() as connection:
        found = connection.execute(text(statement), values)
        return found.all() if found.returns_rows else None


def everything(store: Store) -> dict[str, list[Any]]:
    """All rows of all tables."""
    return {name: sorted(map(repr, run(store, f"select * from {name}"))) for name in metadata.tables}


@pytest.fixture
def hats(store: Store, key: Key) -> ClassifierInfo:
    return store.create_classifier("museum", name="hats", model="fs-pic", by=key)


def test_of_a_secret_only_the_hash_is_kept(store: Store):
    _, secret = store.create_key("zoo", role="read", name="gate")
    assert secret not in str(everything(store))
    assert run(store, "select hash from keys") == [(hashlib.sha256(secret.encode()).digest(),)]


def test_a_key_is_read_back_as_it_was_made_until_it_expires(store: Store, monkeypatch: pytest.MonkeyPatch):
    end = datetime.now(UTC) + timedelta(days=90)
    key, secret = store.create_key("zoo", role="read", name="gate", rate=60, quota=9, expires=end)
    assert store.key(secret) == key == store.recall(secret)
    assert (key.tenant, key.role, key.name) == ("zoo", "read", "gate")
    assert (key.rate, key.quota, key.expires) == (60, 9, end)
    monkeypatch.setattr(keys, "now", lambda: end.timestamp() - keys.REMEMBERED / 2)
    assert store.key(secret) == key
    monotonic = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: monotonic + keys.REMEMBERED / 2)
    assert store.recall(secret) is None
    monkeypatch.setattr(keys, "now", lambda: end.timestamp())
    assert store.key(secret) is None
    assert store.keys("zoo") == [key]


def test_a_store_that_is_opened_again_has_everything(
    url: str, store: Store, key: Key, hats: ClassifierInfo, open_store: Open
):
    _, secret = store.create_key("museum", role="admin", name="office", rate=60, quota=9)
    store.enrol("museum", hats.id, "anna", some(1, 2), by=key)
    before = everything(store), store.prototypes("museum", hats.id)
    store.close()
    again = open_store(url)
    assert everything(again) == before[0]
    found = again.prototypes("museum", hats.id)
    assert (found.labels, found.vectors.tolist()) == (before[1].labels, before[1].vectors.tolist())
    opened = again.key(secret)
    assert opened is not None
    assert (opened.rate, opened.quota) == (60, 9)
    assert again.enrol("museum", hats.id, "anna", some(2, 3), by=opened).new == 1


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"role": "owner"}, ConfigError, "role 'owner': choose one of read, write, admin"),
        ({"rate": 0}, ConfigError, "rate=0: at least 1 request a minute; to stop a key, revoke it"),
        ({"quota": -1}, ConfigError, "quota=-1: the quota of examples is at least 0"),
        ({"expires": datetime.now(UTC)}, ConfigError, "this time is past: choose a later one"),
        ({"tenant": "zooo"}, NotFoundError, "no tenant 'zooo': create it with --new-tenant"),
    ],
)
@SQLITE
def test_a_key_that_cannot_be_is_refused(
    store: Store, settings: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        store.create_key(**{"tenant": "zoo", "role": "read", "name": "gate", **settings})
    assert store.keys("zoo") == []


def test_names_are_taken_once_by_a_tenant(store: Store, key: Key, hats: ClassifierInfo):
    with pytest.raises(ConflictError, match="a tenant 'zoo' already exists"):
        store.create_tenant("zoo")
    assert store.tenants() == ["museum", "zoo"]
    gate, _ = store.create_key("zoo", role="write", name="gate")
    assert store.create_classifier("zoo", name="hats", model="fs-pic", by=gate).id != hats.id
    with pytest.raises(ConflictError, match="a classifier 'hats' already exists: use it, or choose another"):
        store.create_classifier("museum", name="hats", model="maml", by=key)
    coats = store.create_classifier("museum", name="coats", model="maml", by=key)
    assert store.classifier("museum", hats.id) == store.classifier("museum", "hats") == hats
    assert store.classifiers("museum") == [hats, coats]
    assert (hats.name, hats.model, hats.version) == ("hats", "fs-pic", 0)


def test_a_prototype_is_the_mean_of_all_images(store: Store, key: Key, hats: ClassifierInfo):
    """By their weights, and equal releases of different images count each."""
    same = [Example(f"other {i}", example(3).embedding) for i in range(90)]
    given = [example(1, weight=0.5), example(2, weight=3.0), *same, example(3)]
    assert store.enrol("museum", hats.id, "anna", given[:2], by=key).new == 2
    assert store.enrol("museum", hats.id, "anna", given[2:], by=key).new == 91
    found = store.prototypes("museum", hats.id)
    assert (found.labels, found.examples, found.vectors.dtype) == (("anna",), (93,), np.float32)
    np.testing.assert_allclose(found.vectors[0], mean(given), rtol=1e-5)


def test_many_classes_are_enrolled_as_one_by_one(store: Store, key: Key, hats: ClassifierInfo):
    given = {"anna": some(1, 2), "bert": some(1), "carl": [example(3, weight=0.5), example(4)]}
    store.enrol("museum", hats.id, "bert", some(1), by=key)
    found = store.enrol_many("museum", hats.id, given, by=key)
    assert {each.label: (each.new, each.known) for each in found} == {
        **{"anna": (2, 0), "bert": (0, 1), "carl": (2, 0)}
    }
    other = store.create_classifier("museum", name="caps", model="fs-pic", by=key)
    for label in ("bert", "anna", "carl"):
        store.enrol("museum", other.id, label, given[label], by=key)
    one, many = store.prototypes("museum", other.id), store.prototypes("museum", hats.id)
    assert (many.labels, many.examples) == (one.labels, one.examples)
    np.testing.assert_array_equal(many.vectors, one.vectors)
    np.testing.assert_array_equal(many.weights, one.weights)
    assert store.classifier("museum", hats.id).version == 2
    noted = [(line.label, line.examples) for line in store.audit("museum") if line.classifier == hats.id]
    assert noted[:3] == [("carl", 2), ("anna", 2), ("bert", 1)]
    again = store.enrol_many("museum", hats.id, given, by=key)
    assert [each.new for each in again] == [0, 0, 0]
    assert [set(each.examples) for each in again] == [set(each.examples) for each in found]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        *(
            ({label: some(4)}, DataError, "label: 1 to 200 characters without control characters")
            for label in ("", "a" * 201, "a\0b", "a\nb", "\ud800")
        ),
        ({"carl": [example(5, dimension=3)]}, DataError, "of 3 numbers, and this classifier has 4: embed"),
        ({"carl": [Example("x", np.array([1, np.nan, 0, 0], np.float32))]}, DataError, "is not finite"),
        ({"carl": [Example("x", np.array([1e300, 0, 0, 0]))]}, DataError, "an embedding is not finite"),
        (
            {"carl": [Example("x", np.zeros((2, 2), np.float32))]},
            *(DataError, r"of shape \(2, 2\): it is one row of 1 to 16,000 numbers"),
        ),
        ({"carl": [example(2, weight=0.0)]}, DataError, "a weight of 0.0: it must be above 0 and finite"),
        ({"carl": some(4, 5)}, QuotaError, "4 new examples, but only 3 of the 4 of this key are left"),
        ({}, RuntimeError, "failed at the end"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_of_many_classes_all_are_enrolled_or_none(
    store: Store, hats: ClassifierInfo, monkeypatch: Any, given: Any, error: type[Exception], message: str
):
    key, _ = store.create_key("museum", role="write", name="few", quota=4)
    store.enrol("museum", hats.id, "anna", some(1), by=key)
    before = everything(store)
    if error is RuntimeError:
        monkeypatch.setattr(of_store, "note", Mock(side_effect=RuntimeError(message)))
    with pytest.raises(error, match=message):
        store.enrol_many("museum", hats.id, {"anna": some(2), "bert": some(3), **given}, by=key)
    assert everything(store) == before


def test_labels_come_back_as_they_were_given_and_in_order(store: Store, key: Key, hats: ClassifierInfo):
    labels = ["zoë", "'; drop table classes; --", "100% %s :x", "Anna", "anna", "👩‍🎨 " * 50, "a" * 200]
    for label in labels:
        store.enrol("museum", hats.id, label, some(1), by=key)
    assert [each.label for each in store.classes("museum", hats.id)] == labels


def test_a_key_stores_no_more_than_its_quota_by_calls_at_once_too(
    store: Store, key: Key, hats: ClassifierInfo
):
    coats = store.create_classifier("museum", name="coats", model="fs-pic", by=key)
    small, _ = store.create_key("museum", role="write", name="visitor", quota=3)
    (first, _) = store.enrol("museum", hats.id, "anna", some(1, 2), by=small).examples
    store.enrol("museum", hats.id, "anna", some(7, 8, 9), by=key)  # of another key
    with pytest.raises(QuotaError, match="2 new examples, but only 1 of the 3 of this key are left: forget"):
        store.enrol("museum", coats.id, "bert", some(3, 4), by=small)
    assert store.classes("museum", coats.id) == []
    store.forget_example("museum", hats.id, first, by=small)
    assert store.enrol("museum", coats.id, "bert", some(3, 4), by=small).new == 2
    five, _ = store.create_key("museum", role="write", name="visitors", quota=5)

    def enrol(number: int) -> bool:
        try:
            store.enrol("museum", (hats, coats)[number % 2].id, "carl", some(number), by=five)
        except QuotaError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(enrol, range(16))) == 5


def test_nothing_of_a_forgotten_example_stays_in_the_prototype(store: Store, key: Key, hats: ClassifierInfo):
    # Adding 1e8 to a sum and subtracting it again would leave rounding, which tells of the 1e8.
    large = Example("large", np.array([1e8, -1e8, 1e8, 1e8], np.float32), weight=3.3)
    enrolled = store.enrol("museum", hats.id, "anna", [*some(1, 2), large], by=key)
    store.enrol("museum", hats.id, "never", some(1, 2), by=key)
    for name in enrolled.examples:
        if run(store, "select given_id from examples where id = :id", id=name) == [("large",)]:
            store.forget_example("museum", hats.id, name, by=key)
    (first, second) = run(store, "select sum, weight, examples from classes order by id")
    assert first == second


def test_all_of_a_tenant_is_forgotten(store: Store, key: Key, hats: ClassifierInfo):
    gate, _ = store.create_key("zoo", role="write", name="gate")
    theirs = store.create_classifier("zoo", name="hats", model="fs-pic", by=gate)
    store.enrol("zoo", theirs.id, "carl", some(1), by=gate)
    store.enrol("museum", hats.id, "anna", some(1, 2), by=key)
    assert store.forget_everything("museum", by=key).forgotten == 2
    assert (store.classifiers("museum"), len(store.classifiers("zoo"))) == ([], 1)
    assert "anna" not in str(everything(store))
    assert [each.label for each in store.audit("zoo")] == ["carl", None]
    assert store.delete_classifier("zoo", theirs.id, by=gate).forgotten == 1
    assert [everything(store)[name] for name in ("classifiers", "classes", "examples")] == [[], [], []]
    with pytest.raises(NotFoundError, match="no such classifier here: list your classifiers"):
        store.enrol("zoo", theirs.id, "anna", some(1), by=gate)


@SQLITE
def test_what_is_forgotten_is_not_in_the_files_of_sqlite_any_more(
    store: Store, key: Key, hats: ClassifierInfo, tmp_path: Path
):
    gone = [example(number, dimension=1500) for number in range(40)]
    traces = [each.embedding.tobytes()[:64] for each in gone] + [b"image 7", b"anna"]
    first = store.enrol("museum", hats.id, "bert", gone[:3], by=key).examples
    store.enrol("museum", hats.id, "anna", gone[3:], by=key)

    def found() -> list[bool]:
        files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return [trace in files for trace in traces]

    assert all(found())
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}  # for its owner
    for name in first:
        store.forget_example("museum", hats.id, name, by=key)
    assert not any(found()[:3])
    store.forget_everything("museum", by=key)
    assert not any(found())


@pytest.mark.parametrize("seed", [0, 1])
def test_any_mix_of_calls_keeps_the_means(store: Store, key: Key, hats: ClassifierInfo, seed: int):
    draw = random.Random(seed)
    held: dict[str, dict[str, Example]] = {}  # label -> id -> example
    changes = 0
    for _ in range(60):
        label = draw.choice("abc")
        mine = held.setdefault(label, {})
        action = draw.choice(["enrol", "enrol", "enrol", "forget", "class"])
        if action == "enrol":
            numbers = draw.sample(range(12), 3)
            given = [example(each, weight=draw.uniform(0.01, 10)) for each in numbers]
            ids = {each.given_id for each in mine.values()}
            fresh = [each for each in given if each.given_id not in ids]
            enrolled = store.enrol("museum", hats.id, label, given, by=key)
            assert (enrolled.new, enrolled.known) == (len(fresh), 3 - len(fresh))
            mine.update(zip(enrolled.examples[: enrolled.new], fresh, strict=True))
            changes += bool(fresh)
        elif mine and action == "forget":
            name = draw.choice(sorted(mine))
            store.forget_example("museum", hats.id, name, by=key)
            del mine[name]
            changes += 1
        elif mine:
            assert store.forget_class("museum", hats.id, label, by=key).forgotten == len(mine)
            mine.clear()
            changes += 1
    found = store.prototypes("museum", hats.id)
    assert found.version == changes
    assert dict(zip(found.labels, found.examples, strict=True)) == {k: len(v) for k, v in held.items() if v}
    for label, vector in zip(found.labels, found.vectors, strict=True):
        np.testing.assert_allclose(vector, mean(list(held[label].values())), rtol=1e-6, atol=1e-6)
    for label in found.labels:
        store.forget_class("museum", hats.id, label, by=key)
    empty = store.prototypes("museum", hats.id)
    assert (empty.labels, empty.vectors.shape) == ((), (0, D))
    assert store.version("museum", hats.id) == empty.version == changes + len(found.labels)


def calls(store: Store, classifier: str, example_id: str, by: Key) -> dict[str, Callable[[], Any]]:
    """Every method that takes a tenant and an object, called by the zoo for an object."""
    zoo, alarm = "zoo", Shares(labels=["anna"], parts=1, per="week", histogram=0)
    return {
        "classifier": lambda: store.classifier(zoo, classifier),
        "delete_classifier": lambda: store.delete_classifier(zoo, classifier, by=by),
        "enrol": lambda: store.enrol(zoo, classifier, "anna", some(5), by=by),
        "enrol_many": lambda: store.enrol_many(zoo, classifier, {"anna": some(5)}, by=by),
        "count": lambda: store.count(zoo, classifier),
        "classes": lambda: store.classes(zoo, classifier),
        "forget_example": lambda: store.forget_example(zoo, classifier, example_id, by=by),
        "forget_class": lambda: store.forget_class(zoo, classifier, "anna", by=by),
        "version": lambda: store.version(zoo, classifier),
        "prototypes": lambda: store.prototypes(zoo, classifier),
        "share": lambda: store.share(zoo, classifier, "a1", alarm, by=by),
        "shares": lambda: store.shares(zoo, classifier),
        "nearest": lambda: store.nearest(zoo, classifier, np.zeros((1, D)), count=1),
    }


def test_to_another_tenant_objects_are_missing_as_if_nobody_had_them(
    store: Store, key: Key, hats: ClassifierInfo
):
    (name, _) = store.enrol("museum", hats.id, "anna", some(1, 2), by=key).examples
    gate, _ = store.create_key("zoo", role="admin", name="gate")
    before = everything(store)
    theirs, nobodys = calls(store, hats.id, name, gate), calls(store, "f" * 24, "f" * 24, gate)
    for method in theirs.keys() - ({"nearest"} if "sqlite" in str(store._url) else set()):
        with pytest.raises(NotFoundError) as found:
            theirs[method]()
        with pytest.raises(NotFoundError) as missing:
            nobodys[method]()
        assert str(found.value) == str(missing.value)
    assert (store.keys("zoo"), store.classifiers("zoo"), store.audit("zoo")) == ([gate], [], [])
    for change in (
        lambda: store.enrol("museum", hats.id, "anna", some(2), by=gate),
        lambda: store.forget_class("museum", hats.id, "anna", by=gate),
        lambda: store.forget_everything("museum", by=gate),
        lambda: store.create_classifier("museum", name="x", model="m", by=gate),
    ):
        with pytest.raises(NotFoundError, match=f"no key '{gate.id}' in this tenant"):
            change()
    assert everything(store) == before
    own = store.create_classifier("zoo", name="hats", model="fs-pic", by=gate)
    store.enrol("zoo", own.id, "anna", some(2), by=gate)
    with pytest.raises(NotFoundError, match="no such example in this classifier"):
        store.forget_example("zoo", own.id, name, by=gate)
    assert store.forget_class("zoo", own.id, "anna", by=gate).forgotten == 1
    assert store.forget_everything("zoo", by=gate).forgotten == 0
    assert [each.examples for each in store.classes("museum", hats.id)] == [2]


@pytest.mark.parametrize("strange", ["", "\0", "\ud800", "%", "é" * 24, "F" * 24, "0" * 24 + "\n"])
def test_what_cannot_be_stored_is_missing(store: Store, key: Key, hats: ClassifierInfo, strange: str):
    for method in (
        lambda: store.classifier("museum", strange),
        lambda: store.enrol("museum", strange, "anna", some(1), by=key),
        lambda: store.forget_example("museum", hats.id, strange, by=key),
        lambda: store.forget_class("museum", hats.id, strange, by=key),
        lambda: store.prototypes("museum", strange),
        lambda: store.revoke(strange),
    ):
        with pytest.raises(NotFoundError):
            method()


def test_every_method_that_takes_a_tenant_is_tested_for_another_one(store: Store, key: Key):
    elsewhere = {"create_key", "keys", "create_classifier", "classifiers", "forget_everything", "audit"}
    takes = {
        name
        for name, method in inspect.getmembers(Store, inspect.isfunction)
        if "tenant" in inspect.signature(method).parameters and not name.startswith("_")
    }
    assert takes == calls(store, "", "", key).keys() | elsewhere


def test_every_statement_names_the_tenant(store: Store, key: Key):
    gate, _ = store.create_key("zoo", role="admin", name="gate", quota=9, rate=9)
    own = store.create_classifier("zoo", name="hats", model="fs-pic", by=gate)
    statements: list[str] = []
    event.listen(store._engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    (one, _) = store.enrol("zoo", own.id, "anna", some(1, 2), by=gate).examples
    methods = calls(store, own.id, one, gate)
    last = ("forget_class", "delete_classifier")
    if "sqlite" in str(store._url):
        del methods["nearest"]
    for method in (*methods.keys() - {*last}, *last):
        methods[method]()
    store.forget_everything("zoo", by=gate)
    store.audit("zoo")
    store.keys("zoo")
    store.classifiers("zoo")
    rows = [each for each in statements if re.match("(select|insert|update|delete) ", each, re.IGNORECASE)]
    rows = [each for each in rows if "pg_index" not in each]
    assert len(rows) > 30
    named = re.compile(r"insert into \w+ \(.*\btenant\b|\bwhere\b.*\btenant = ", re.IGNORECASE | re.DOTALL)
    assert [each for each in rows if not named.search(each)] == []
    gate_of_museum = store.create_classifier("museum", name="hats", model="fs-pic", by=key)
    store.enrol("museum", gate_of_museum.id, "anna", some(1), by=key)
    with pytest.raises(Exception, match=r"(?i)foreign key"):  # no row can point at another tenant's
        run(store, "update examples set tenant = 'zoo'")


def test_the_log_says_who_enrolled_and_forgot_what(store: Store, key: Key, hats: ClassifierInfo):
    (first, _) = store.enrol("museum", hats.id, "anna", some(1, 2), by=key).examples
    assert store.forget_example("museum", hats.id, first, by=key).logged_as is None
    assert {each.label for each in store.audit("museum")} == {"anna", None}
    called = store.forget_class("museum", hats.id, "anna", by=key).logged_as
    log = store.audit("museum")
    assert [(each.action, each.label, each.example, each.examples) for each in log] == [
        ("forget class", called, None, 1),
        ("forget example", called, first, 1),
        ("enrol", called, None, 2),
        ("create classifier", None, None, 0),
    ]
    assert {(each.key, each.classifier) for each in log} == {(key.id, hats.id)}
    assert store.audit("museum", most=2) == log[:2]
    assert store.audit("museum", since=log[2].time) == log[:3]


def test_the_log_forgets_a_label_with_its_class_and_calls_no_other_otherwise(
    store: Store, key: Key, hats: ClassifierInfo
):
    other = store.create_classifier("museum", name="other", model="fs-pic", by=key)
    for classifier, label in ((hats, "anna"), (hats, "bert"), (other, "anna")):
        store.enrol("museum", classifier.id, label, some(1), by=key)
    assert store.forget_class("museum", other.id, "anna", by=key).logged_as is not None
    (only,) = store.enrol("museum", other.id, "anna", some(1), by=key).examples
    called = store.forget_example("museum", other.id, only, by=key).logged_as  # the last of its class
    names = [(each.classifier, each.label) for each in store.audit("museum")]
    assert (other.id, "anna") not in names
    assert len({name for name in names if name[0] == other.id}) == 3  # the two classes, and the classifier
    assert re.fullmatch("forgotten-[0-9a-f]{8}", called or "")
    assert {(hats.id, "anna"), (hats.id, "bert")} < set(names)
    store.delete_classifier("museum", hats.id, by=key)
    assert not {"anna", "bert"} & {each.label for each in store.audit("museum")}


def full(store: Store) -> Exception:
    """What the driver of a database says of a disk without room."""
    if store.is_postgresql:
        return psycopg.errors.DiskFull("could not extend file")
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


@pytest.mark.parametrize("at", ["delete from classes", "update classifiers", "update audit", "insert into a"])
def test_on_a_full_disk_a_class_is_not_half_forgotten(store: Store, key: Key, hats: ClassifierInfo, at: str):
    store.enrol("museum", hats.id, "anna", some(1, 2), by=key)
    before = everything(store)

    def fails(_: object, statement: str, *__: object) -> None:
        if statement.lower().startswith(at):
            raise full(store)

    event.listen(store._engine, "do_execute", fails)
    with pytest.raises(StoreError, match="full: make room and ask again; nothing was saved") as told:
        store.forget_class("museum", hats.id, "anna", by=key)
    event.remove(store._engine, "do_execute", fails)
    assert told.value.full
    assert everything(store) == before
    assert store.forget_class("museum", hats.id, "anna", by=key).forgotten == 2


def test_a_store_that_is_not_tidied_up_has_forgotten(
    store: Store, key: Key, hats: ClassifierInfo, monkeypatch: pytest.MonkeyPatch, caplog: Any
):
    store.enrol("museum", hats.id, "anna", some(1, 2), by=key)
    monkeypatch.setattr(store, "_cursor", Mock(side_effect=StoreError("no room")))
    assert store.forget_class("museum", hats.id, "anna", by=key).forgotten == 2
    assert store.classes("museum", hats.id) == []
    assert ("no room" in caplog.text) == ("sqlite" in str(store._url))


def test_stores_that_enrol_at_once_lose_nothing(
    url: str, store: Store, key: Key, hats: ClassifierInfo, open_store: Open
):
    def enrol(number: int) -> int:
        return stores[number % 2].enrol("museum", hats.id, "anna", some(number // 2 % 20), by=key).new

    stores = [open_store(url), open_store(url)]
    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(enrol, range(80))) == 20  # each image twice by each store
    found = store.prototypes("museum", hats.id)
    assert (found.examples, found.version) == ((20,), 20)
    np.testing.assert_allclose(found.vectors[0], mean(some(*range(20))), atol=1e-6)


def enrol_forever(url: str, classifier: str) -> None:
    """Enrol three examples at a time; print their ids when they are acknowledged."""
    with Store(url) as store:
        (key,) = store.keys("museum")
        number = 0
        while True:
            label = f"class {number % 7}"
            given = some(number, number + 1, number + 2)
            print(*store.enrol("museum", classifier, label, given, by=key).examples, flush=True)
            number += 3


def test_after_kill_9_what_was_acknowledged_is_there_and_nothing_is_half_there(
    url: str, store: Store, key: Key, hats: ClassifierInfo
):
    code = (
        "import importlib.util, sys; "
        f"spec = importlib.util.spec_from_file_location('tests_of_the_store', {__file__!r}); "
        "module = importlib.util.module_from_spec(spec); sys.modules[spec.name] = module; "
        "spec.loader.exec_module(module); module.enrol_forever(*sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, url, hats.id]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = [name for _ in range(25) for name in process.stdout.readline().split()]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    # It goes on at once; and what PostgreSQL may still be finishing comes before it.
    (later,) = store.enrol("museum", hats.id, "later", some(1), by=key).examples
    assert store.forget_example("museum", hats.id, later, by=key).forgotten == 1
    kept = {name for (name,) in run(store, "select id from examples")}
    assert kept >= set(acknowledged)
    assert len(kept) in {len(acknowledged), len(acknowledged) + 3}  # the last may have missed its answer
    classes = store.classes("museum", hats.id)
    assert sum(each.examples for each in classes) == len(kept)
    assert {each.examples % 3 for each in classes} == {0}
    assert store.classifier("museum", hats.id).version == len(kept) / 3 + 2


def test_a_new_store_can_be_begun_by_several_at_once(new_url: str):
    def begin(_: int) -> list[str]:
        with Store(new_url) as store:
            return store.tenants()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(begin, range(6))) == [[]] * 6


def test_requests_past_the_rate_wait_for_the_next_minute(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Of all threads together, by a clock that nobody sets."""
    key, _ = store.create_key("zoo", role="read", name="gate", rate=7)
    with ThreadPoolExecutor(6) as pool:
        waits = list(pool.map(lambda _: store.take(key), range(24)))
    assert waits.count(0.0) == 7
    assert all(50 < wait <= 60 for wait in waits if wait)
    wall, monotonic = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: wall() + 3600)
    assert store.take(key) > 0
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 60)
    assert [store.take(key) > 0 for _ in range(8)] == [False] * 7 + [True]


def test_a_revoked_key_is_refused_at_once_and_elsewhere_within_a_second(
    url: str, store: Store, open_store: Open, monkeypatch: pytest.MonkeyPatch
):
    other = open_store(url)
    key, secret = store.create_key("zoo", role="read", name="gate")
    assert store.key(secret) == other.key(secret) == key
    store.revoke(key.id)
    assert store.recall(secret) is None
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + keys.REMEMBERED)
    assert other.recall(secret) is None
    assert other.key(secret) is None
    (listed,) = store.keys("zoo")
    assert listed.revoked is not None
    assert listed.model_copy(update={"revoked": None}) == key
    late, secret = store.create_key("zoo", role="read", name="gate")
    real = store._all

    def revoked_meanwhile(query: Any) -> Any:
        rows = real(query)
        store.revoke(late.id)
        return rows

    monkeypatch.setattr(store, "_all", revoked_meanwhile)
    assert store.key(secret) == late
    assert store.recall(secret) is None  # it was read before it was revoked


@POSTGRESQL
def test_the_nearest_are_those_of_an_exhaustive_search_with_an_index_and_without(
    store: Store, key: Key, hats: ClassifierInfo, monkeypatch: pytest.MonkeyPatch
):
    assert [near.labels for near in store.nearest("museum", hats.id, np.zeros((2, D)), count=3)] == [(), ()]
    given, queries = some(*range(60)), np.random.default_rng(0).normal(size=(3, D))
    for number, one in enumerate(given):
        store.enrol("museum", hats.id, f"class {number}", [one], by=key)
    vectors = np.stack([each.embedding for each in given])
    order = ((queries[:, None] - vectors) ** 2).sum(-1).argsort(1)[:, :5]  # of (3, 60) squared distances

    def check() -> None:
        found = store.nearest("museum", hats.id, queries, count=5)
        assert [near.labels for near in found] == [tuple(f"class {n}" for n in row) for row in order]
        for near, row in zip(found, order, strict=True):
            np.testing.assert_allclose(near.vectors, vectors[row], atol=1e-6)
            assert (near.examples, near.weights.tolist()) == ((1,) * 5, [1.0] * 5)
        assert len(store.nearest("museum", hats.id, queries, count=100)[0].labels) == 60

    check()
    for wrong in (np.zeros((2, 3)), np.full((1, D), np.inf), np.zeros(D)):
        with pytest.raises(DataError, match=f"they must be rows of {D} finite numbers"):
            store.nearest("museum", hats.id, wrong, count=1)


@SQLITE
def test_sqlite_searches_no_vectors_and_says_what_does(store: Store):
    with pytest.raises(ConflictError, match="a gallery of more than 1 GiB needs a store in PostgreSQL"):
        store.nearest("museum", "any", np.zeros((1, D)), count=1)


def test_there_is_no_column_for_an_image(store: Store):
    with store._engine.connect() as connection:
        inspector = inspect_database(connection)
        binary = {
            (table, column["name"])
            for table in inspector.get_table_names()
            for column in inspector.get_columns(table)
            if str(column["type"]) in {"BLOB", "BYTEA"}
        }
    assert binary - {("classes", "vector")} == {
        ("keys", "hash"),
        ("signing", "private"),
        ("classes", "sum"),
        ("examples", "embedding"),
    }


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("drop table sfumato_version", "the tables of another program: name a database of its own"),
        ("update sfumato_version set version = 9999", "of version 9999, not 1: create a new store"),
    ],
)
def test_tables_of_another_program_or_version_are_left_alone(
    new_url: str, open_store: Open, statement: str, message: str
):
    run(open_store(new_url), statement)
    with pytest.raises(StoreError, match=message):
        Store(new_url)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("store.db", "not a URL of a database: write sqlite:///FILE or postgresql"),
        ("mysql://root:hush@host/db", "a store of 'mysql': write sqlite:///FILE or postgresql"),
        ("sqlite://", "in memory would vanish with the process: write sqlite:///FILE"),
    ],
)
def test_a_url_of_something_else_is_refused(wrong: str, message: str):
    with pytest.raises(ConfigError, match=message) as found:
        Store(wrong)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize(
    ("pragma", "back", "message"),
    [
        # SQLite answers with the code of a disk that is full, and of a file that is read-only.
        ("max_page_count = 1", "max_page_count = 4294967294", "the disk is full: make room and ask again"),
        ("query_only = on", "query_only = off", "it cannot be written: check its permissions"),
    ],
)
@SQLITE
def test_a_file_that_takes_nothing_more_is_told_and_used_again_when_it_does(
    store: Store, key: Key, hats: ClassifierInfo, pragma: str, back: str, message: str
):
    before = everything(store)
    state = [pragma]

    def hinder(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(f"pragma {state[0]}").close()

    event.listen(store._engine, "checkout", hinder)
    many = [example(number, dimension=1000) for number in range(20)]
    with pytest.raises(StoreError, match=message):
        store.enrol("museum", hats.id, "anna", many, by=key)
    state[0] = back
    assert everything(store) == before
    assert store.enrol("museum", hats.id, "anna", many, by=key).new == 20


def test_a_file_that_is_damaged_or_no_database_is_told_and_left_alone(tmp_path: Path):
    path = tmp_path / "store.db"
    with Store(f"sqlite:///{path}") as store:
        store.create_tenant("museum")
    path.write_bytes(path.read_bytes()[:9000])
    with (
        pytest.raises(StoreError, match=r"malformed.*: damaged, or not a store: restore it from a backup"),
        Store(f"sqlite:///{path}") as store,
    ):
        store.create_key("museum", role="read", name="gate")
    path.write_bytes(b"dear diary" * 1000)
    with pytest.raises(StoreError, match="file is not a database: damaged, or not a store"):
        Store(f"sqlite:///{path}")
    assert path.read_bytes() == b"dear diary" * 1000
    with pytest.raises(StoreError, match=r"none/store.db: No such file or directory: name a writable file"):
        Store(f"sqlite:///{tmp_path}/none/store.db")


def test_a_writer_that_holds_the_file_for_long_is_told(
    tmp_path: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "_WAIT", 0.05)
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreError, match="locked: another process holds it: ask again; nothing was"):
            store.create_tenant("museum")
        other.execute("rollback")
    store.create_tenant("museum")


@POSTGRESQL
def test_a_postgresql_that_was_stopped_and_started_is_used_again(
    postgresql: Any, store: Store, key: Key, hats: ClassifierInfo
):
    postgresql.stop()
    for method in (store.ping, lambda: store.enrol("museum", hats.id, "anna", some(1), by=key)):
        with pytest.raises(StoreError, match="check that the database runs and can be reached"):
            method()
    postgresql.ensure_postgres_running()
    assert store.enrol("museum", hats.id, "anna", some(1), by=key).new == 1


@POSTGRESQL
def test_a_connection_that_breaks_in_a_transaction_leaves_nothing(
    store: Store, key: Key, hats: ClassifierInfo, monkeypatch: pytest.MonkeyPatch
):
    before = everything(store)
    note = of_store.note

    def broken(connection: Any, *arguments: Any, **what: Any) -> None:
        note(connection, *arguments, **what)
        connection.execute(text("select pg_terminate_backend(pg_backend_pid())"))

    monkeypatch.setattr(of_store, "note", broken)
    with pytest.raises(StoreError, match="terminating connection"):
        store.enrol("museum", hats.id, "anna", some(1), by=key)
    monkeypatch.undo()
    assert everything(store) == before
    assert store.enrol("museum", hats.id, "anna", some(1), by=key).new == 1


def test_an_error_of_the_database_shows_no_label_and_no_password(new_url: str, open_store: Open):
    store = open_store(new_url)
    store.create_tenant("museum")
    key, _ = store.create_key("museum", role="write", name="camera")
    hats = store.create_classifier("museum", name="hats", model="fs-pic", by=key)
    run(store, "drop table examples")
    run(store, "create table examples (id text check (id = ''), tenant text, class text, given_id text)")
    with pytest.raises(StoreError) as found:
        store.enrol("museum", hats.id, "Q" * 50, some(1), by=key)
    assert "Q" * 50 not in "".join(traceback.format_exception(found.value))
    with pytest.raises(StoreError, match="check that the database runs and can be reached") as unreached:
        Store("postgresql+psycopg://postgres:hush@/none?host=/nowhere")
    assert "hush" not in str(unreached.value)
