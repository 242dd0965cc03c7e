"""`sfumato keys`: tenants and keys of a store, made, listed and revoked."""

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from commands import Command, Said, check_mistake

from sfumato.serve.store import Store

STORE = "sqlite:///store.db"


@pytest.fixture
def on_store(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`sfumato keys` with arguments, on the store that the environment names."""
    monkeypatch.setenv("SFUMATO_STORE", STORE)
    return partial(command, "keys")


@pytest.fixture
def museum(on_store: Command) -> str:
    with Store(STORE) as store:
        store.create_tenant("museum")
    return "museum"


def made(said: Said) -> tuple[str, str]:
    """The id and the secret that were printed."""
    found = re.fullmatch(r"key: (k-\w+) \(.*\)\nsecret, shown this once: (\S+)\n", said.out)
    assert found is not None
    return found[1], found[2]


def test_a_new_key_opens_what_it_says(on_store: Command, museum: str):
    said = on_store("create", museum, "camera", "--role", "read", "--rate", "60", "--quota", "9")
    name, secret = made(said)
    assert said.out.startswith(f"key: {name} (read, of museum)\n")
    with Store(STORE) as store:
        key = store.key(secret)
    assert key is not None
    assert (key.id, key.tenant, key.role, key.name) == (name, "museum", "read", "camera")
    assert (key.rate, key.quota) == (60, 9)


def test_a_key_may_begin_its_tenant_and_leaves_one_that_is_there(on_store: Command):
    first, _ = made(on_store("create", "museum", "camera", "--new-tenant"))
    second, _ = made(on_store("create", "museum", "gate", "--new-tenant"))
    with Store(STORE) as store:
        assert store.tenants() == ["museum"]
        assert {key.id for key in store.keys("museum")} == {first, second}


def test_keys_are_listed_by_tenant_without_their_secrets(on_store: Command, museum: str):
    with Store(STORE) as store:
        store.create_tenant("zoo")
    first, secret = made(on_store("create", museum, "camera", "--rate", "60", "--quota", "9"))
    second, _ = made(on_store("create", "zoo", "gate", "--role", "admin"))
    said = on_store("list")
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    assert said.out.splitlines() == [
        "tenant: museum",
        f"  {first} write camera (60 a minute, 9 examples, created {day})",
        "tenant: zoo",
        f"  {second} admin gate (created {day})",
    ]
    assert secret not in said.out


def test_a_revoked_key_opens_nothing_and_is_listed_as_revoked(on_store: Command, museum: str):
    name, secret = made(on_store("create", museum, "camera"))
    assert on_store("revoke", name).out == f"revoked: {name}\n"
    with Store(STORE) as store:
        assert store.key(secret) is None
    assert f"revoked {datetime.now(UTC):%Y-%m-%d})" in on_store("list").out


def test_a_key_may_expire_and_its_end_is_said_and_listed(on_store: Command, museum: str):
    said = on_store("create", museum, "camera", "--expires", "90d")
    name, secret = made(said)
    with Store(STORE) as store:
        key = store.key(secret)
    assert key is not None
    assert key.expires is not None
    assert abs(key.expires - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)
    end = f"expires {key.expires:%Y-%m-%d %H:%M} UTC"
    assert said.out.startswith(f"key: {name} (write, of museum, {end})\n")
    assert end in on_store("list").out


@pytest.mark.parametrize("lasting", ["90", "d", "0d", "-1d", "1.5d", "9w", "²d"])
def test_an_end_that_cannot_be_read_is_one_line(on_store: Command, museum: str, lasting: str):
    check_mistake(on_store("create", museum, "camera", "--expires", lasting), "such as 90d, 12h or 30m")


def test_mistakes_are_one_line(on_store: Command, museum: str):
    check_mistake(on_store("create", "museun", "camera"), "no tenant 'museun': create it with --new-tenant")
    check_mistake(on_store("create", museum, "camera", "--role", "root"), "choose one of read, write, admin")
    check_mistake(on_store("revoke", "k-1"), "no key 'k-1'")
    check_mistake(on_store("list", "--store", "nonsense"), "the store is not a URL of a database")


def test_the_store_is_the_one_that_serve_takes_where_none_is_named(command: Command):
    assert command("keys", "create", "museum", "camera", "--new-tenant").code == 0
    with Store("sqlite:///sfumato.db") as store:
        assert store.tenants() == ["museum"]


def test_quietly_the_secret_alone_is_printed(command: Command, tmp_path: Path):
    store = f"sqlite:///{tmp_path / 'keys.db'}"
    secret = command(
        "-q", "keys", "create", "me", "laptop", "--new-tenant", "--store", store
    ).out.removesuffix("\n")
    with Store(store) as opened:
        assert opened.key(secret).name == "laptop"
