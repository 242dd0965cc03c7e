"""Who has to go where a service is full: the address with most connections, who asked nothing, the oldest."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from sfumato.base.connections import Limits, _Connection, _Door, _Waits

Arrive = Callable[..., _Connection]


@pytest.fixture
def door() -> Iterator[_Door]:
    """Of a service of two connections: it closes one at a time."""
    with closing(_Door(socket.create_server(("127.0.0.1", 0)), Limits(connections=2), tls=False)) as made:
        yield made


@pytest.fixture
def arrive(door: _Door) -> Iterator[Arrive]:
    """Connections that are open, each of an address, with what it waits for and since when."""
    pairs: list[tuple[socket.socket, socket.socket]] = []

    def connection(address: str, waits: _Waits, since: float) -> _Connection:
        accepted, client = socket.socketpair()
        made = _Connection(door, accepted, (address, 0))
        made.waits, made.since = waits, since
        door._open[made.fileno()] = made
        pairs.append((made, client))
        return made

    yield connection
    for pair in pairs:
        for each in pair:
            each.close()


def order(door: _Door, connections: dict[str, _Connection]) -> list[str]:
    """The names of the connections, in the order in which they have to go."""
    gone: list[str] = []
    while door._make_room():
        gone += [name for name, each in connections.items() if each.leaving and name not in gone]
    return gone


def test_of_one_address_the_oldest_goes_first(door: _Door, arrive: Arrive):
    waiting = {str(since): arrive("192.0.2.1", _Waits.HEADER, since) for since in (3.0, 1.0, 2.0)}
    assert order(door, waiting) == ["1.0", "2.0", "3.0"]


def test_who_has_most_connections_loses_them_before_an_older_one_of_somebody_else(
    door: _Door, arrive: Arrive
):
    waiting = {
        "alone": arrive("192.0.2.1", _Waits.HEADER, 0.0),
        "many, new": arrive("192.0.2.2", _Waits.HEADER, 9.0),
        "many, old": arrive("192.0.2.2", _Waits.HEADER, 8.0),
        "many, asked": arrive("192.0.2.2", _Waits.BODY, 1.0),
    }
    assert order(door, waiting)[:2] == ["many, old", "many, new"]


@pytest.mark.parametrize("asked", [_Waits.BODY, _Waits.TAKING])
@pytest.mark.parametrize("silent", [_Waits.HEADER, _Waits.REQUEST])
def test_who_has_asked_nothing_goes_before_whose_request_is_under_way(
    door: _Door, arrive: Arrive, asked: _Waits, silent: _Waits
):
    waiting = {"asked": arrive("192.0.2.1", asked, 1.0), "silent": arrive("192.0.2.2", silent, 2.0)}
    assert order(door, waiting) == ["silent", "asked"]


def test_what_is_being_answered_never_goes(door: _Door, arrive: Arrive):
    answered = arrive("192.0.2.1", _Waits.ANSWER, 0.0)
    assert not door._make_room()
    assert not answered.leaving


def test_half_of_a_small_service_goes_at_once(arrive: Arrive, door: _Door):
    waiting = [arrive("192.0.2.1", _Waits.HEADER, float(number)) for number in range(5)]
    assert door._make_room()
    assert [each.leaving for each in waiting] == [True, False, False, False, False]
