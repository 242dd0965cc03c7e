"""One budget of bytes for all requests at once: their bodies, and everything made from them.

Anybody with a key may send bodies of the largest size and never finish them. The largest unfinished body then
makes room, so that small ones are accepted as if the others were not there.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sfumato.errors import BusyError

_WAIT = 2.0  # seconds to wait before trying again


class Share:
    """The bytes that one request holds. State: their number, and the timeout of its body while it arrives.

    Attributes:
        bytes: the bytes that it holds, or will hold once its body has arrived.
        coming: the timeout; None before and after.
        lost: whether it had to make room.
    """

    def __init__(self, room: "Room") -> None:
        self.bytes = 0
        self.coming: asyncio.Timeout | None = None
        self.lost = False
        self._room = room

    def take(self, more: int) -> None:
        """Hold more bytes. Raises BusyError if there is no room; the share is then unchanged."""
        self._room.make(more, beside=self)
        self._hold(self.bytes + more)

    def lose(self) -> None:
        """Make room: let the body time out now."""
        self._hold(0)
        self.lost = True
        if self.coming is not None and not self.coming.expired():
            self.coming.reschedule(asyncio.get_running_loop().time())

    def end(self) -> None:
        """Release all bytes: the request is answered."""
        self._hold(0)

    def _hold(self, amount: int) -> None:
        self._room.held += amount - self.bytes
        self.bytes = amount


class Room:
    """The bytes that all requests may hold together. State: their shares. For one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self._shares: set[Share] = set()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Open the share of one request, until it is answered."""
        share = Share(self)
        self._shares.add(share)
        try:
            yield share
        finally:
            share.end()
            self._shares.discard(share)

    def make(self, more: int, *, beside: Share) -> None:
        """Make room for more bytes of a share. Raises BusyError if that is impossible."""
        while self.held + more > self._most:
            coming = [share for share in self._shares if share.coming is not None and share is not beside]
            largest = max(coming, key=lambda share: share.bytes, default=None)
            if largest is None or largest.bytes <= beside.bytes + more:
                raise no_room()
            largest.lose()


def no_room() -> BusyError:
    """Make the error for a request that finds no room, or loses it to smaller ones."""
    return BusyError(
        "the server has no room for more requests: send this again later, or fewer images at once",
        seconds=_WAIT,
    )
