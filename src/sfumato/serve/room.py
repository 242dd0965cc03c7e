"""One budget of bytes for all that requests hold at once: their bodies, and what is made of these.

Whoever has a key may send bodies of the largest size and never finish them. Room is then made by the largest
body that is still coming, so that small ones are taken as if the others were not there.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sfumato.errors import BusyError

_WAIT = 2.0  # seconds, after which it is worth trying again


class Share:
    """What one request holds. State: how many bytes, and the clock of its body while this is coming.

    Attributes:
        bytes: that it holds, or will when its body has come.
        coming: the clock; None before and after.
        lost: whether it had to make room.
    """

    def __init__(self, room: "Room") -> None:
        self.bytes = 0
        self.coming: asyncio.Timeout | None = None
        self.lost = False
        self._room = room

    def take(self, more: int) -> None:
        """Hold more bytes. Raises BusyError where there is no room for them: then it holds what it held."""
        self._room.make(more, beside=self)
        self._hold(self.bytes + more)

    def lose(self) -> None:
        """Make room: the clock of the body runs out now."""
        self._hold(0)
        self.lost = True
        if self.coming is not None and not self.coming.expired():
            self.coming.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        """The request is answered."""
        self._hold(0)

    def _hold(self, amount: int) -> None:
        self._room.held += amount - self.bytes
        self.bytes = amount


class Room:
    """The bytes that all requests may hold together. State: their shares. One thread alone uses it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self._shares: set[Share] = set()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Of one request, until it is answered."""
        share = Share(self)
        self._shares.add(share)
        try:
            yield share
        finally:
            share.end()
            self._shares.discard(share)

    def make(self, more: int, *, beside: Share) -> None:
        """See to it that there is room for more bytes of a share. Raises BusyError where there cannot be."""
        while self.held + more > self._most:
            coming = [share for share in self._shares if share.coming is not None and share is not beside]
            largest = max(coming, key=lambda share: share.bytes, default=None)
            if largest is None or largest.bytes <= beside.bytes + more:
                raise no_room()
            largest.lose()


def no_room() -> BusyError:
    """What a request is told that finds none, or loses it to smaller ones."""
    return BusyError(
        "the server has no room for more requests: send this again later, or fewer images at once",
        seconds=_WAIT,
    )
