"""Who may ask: every role at every door, secrets that are none, and requests that are too many."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from sfumato.serve.http.access import Admin, Needs, Reader, Writer, admit
from sfumato.serve.http.problems import Problem
from sfumato.serve.store import Key, Role

ROLES: tuple[Role, ...] = ("read", "write", "admin")
RIGHT = "r" * 200  # as long as a secret may be


class Doors:
    """A store that knows one secret. State: what it was asked."""

    def __init__(self, role: Role = "read", *, remembered: bool = False, wait: float = 0.0) -> None:
        self.known = Key("k-1", "museum", role, "gate", 60, None, datetime.now(UTC), None, None)
        self.remembered, self.wait = remembered, wait
        self.asked: list[str] = []

    def admit(self, secret: str) -> Key | None:
        self.asked.append("admitted")
        return self.known if self.remembered else None

    def key(self, secret: str) -> Key | None:
        self.asked.append("key")
        return self.known if secret == RIGHT else None

    def take(self, key: Key) -> float:
        self.asked.append("take")
        return self.wait


def ask(store: Doors, secret: str | None = RIGHT, role: Role | None = None) -> Key:
    service: Any = SimpleNamespace(store=store)
    return asyncio.run(admit(service, secret) if role is None else Needs(role)(service, secret))


@pytest.mark.parametrize("needed", ROLES)
@pytest.mark.parametrize("held", ROLES)
def test_each_role_opens_its_own_doors_and_those_of_lesser_roles(held: Role, needed: Role):
    """The table, written out: who reads may not write, who writes may read, and an admin may both."""
    opens = {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}
    store = Doors(held)
    if needed in opens[held]:
        assert ask(store, role=needed) is store.known
    else:
        with pytest.raises(
            Problem, match=f"needs a key of the role {needed}, and yours has {held}"
        ) as refused:
            ask(store, role=needed)
        assert refused.value.status == 403


def test_the_doors_of_the_routes_need_what_their_names_say():
    needed = [get_args(door)[1].dependency.role for door in (Reader, Writer, Admin)]
    assert needed == ["read", "write", "admin"]


@pytest.mark.parametrize("secret", [None, "", "r" * 201])
def test_what_cannot_be_a_secret_is_refused_before_the_store_is_asked(secret: str | None):
    store = Doors(remembered=True)
    with pytest.raises(Problem, match="no valid key: send yours in the header x-api-key") as refused:
        ask(store, secret)
    assert (refused.value.status, store.asked) == (401, [])


def test_a_secret_that_is_nobodys_is_refused_and_counts_for_nobody():
    store = Doors()
    with pytest.raises(Problem, match="no valid key") as refused:
        ask(store, "wrong")
    assert (refused.value.status, store.asked) == (401, ["admitted", "key"])


def test_a_key_that_is_remembered_is_admitted_without_the_database():
    store = Doors(remembered=True)
    assert ask(store) is store.known
    assert store.asked == ["admitted"]


def test_a_key_that_is_not_is_looked_up_and_its_request_counted():
    store = Doors()
    assert ask(store) is store.known
    assert store.asked == ["admitted", "key", "take"]


@pytest.mark.parametrize("wait", [0.001, 1.0, 60.0])
def test_a_request_too_many_is_refused_with_how_long_to_wait(wait: float):
    with pytest.raises(Problem, match="more requests than the 60 a minute of this key: wait") as refused:
        ask(Doors(wait=wait))
    assert (refused.value.status, refused.value.wait) == (429, wait)
