"""The connections of a service: their number, their deadlines, and which one closes to make room.

uvicorn waits for ever for the rest of a header, and accepts until no file descriptor is left. Here each
connection that keeps the service waiting has a deadline, and there is always room for the next one: at the
limit, connections that keep the service waiting are closed, the oldest of the address that has most of
them first. So opening thousands closes one's own.

This relies on three habits of asyncio and uvicorn, and the tests check each: asyncio's own event loop calls
`accept` of the given socket, and `close` of the socket that this returned; on a system without free
descriptors, it rests for a second; and uvicorn's HTTP/1.1 takes every event in `handle_events`.
"""

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from sfumato.errors import ConfigError, needs_extra

with needs_extra("a server", "serve"):
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.server import ServerState

_DEFAULT = 1000  # connections
_DEFAULT_TLS = 500  # asyncio needs 0.4 MB for each over TLS
_RESERVED = 192  # descriptors of the store, of files that are read, and of closing connections
_BURST = 64  # connections that are accepted in one turn of the loop, or are closing
_PIECE = 16_384  # bytes of a header that are parsed at once, and h11's bound for an unfinished one
_TAKEN = 16_384  # bytes of an answer that a client takes within answer_seconds, or is closed
_REST = 0.5  # seconds without accepting after descriptors ran out; asyncio's own rest is 1 s
_SELDOM = 60.0  # seconds between two equal lines

log = logging.getLogger("sfumato.base.connections")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The number of connections of a service, and how long one may keep it waiting.

    Attributes:
        connections: at most; None for 1,000, or 500 over TLS, or fewer with few file descriptors.
        header_seconds: from a connection to the end of its TLS handshake and first header; from an answer to
            the first byte of the next header, and from there to its end.
        body_seconds: from the end of a header to the end of the body.
        answer_seconds: in which a client takes 16 kB of its answer, or the rest of it.
    """

    connections: int | None = None
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    answer_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name in ("connections", "header_seconds", "body_seconds", "answer_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name}={value}: above 0, or no request is answered")

    def most(self, *, tls: bool = False) -> int:
        """The most connections, here and now. Raises ConfigError if they need more descriptors."""
        default = _DEFAULT_TLS if tls else _DEFAULT
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors == resource.RLIM_INFINITY:
            return self.connections or default
        room = max(1, descriptors - min(_RESERVED, descriptors // 2))
        if self.connections is not None and self.connections > room:
            raise ConfigError(
                f"{self.connections} connections, and {descriptors} file descriptors leave {room}: raise "
                f"`ulimit -n` (LimitNOFILE of systemd) to {self.connections + _RESERVED}, or ask for fewer"
            )
        return self.connections or min(default, room)


class _Waits(Enum):
    """The next event of a connection: the service's answer, or the client's turn."""

    HEADER = auto()  # the TLS handshake, or the rest of a header
    REQUEST = auto()  # the first byte of the next request
    BODY = auto()
    ANSWER = auto()
    TAKING = auto()  # the client takes the answer


_OURS = (_Waits.ANSWER, _Waits.TAKING)  # while a request is answered


class _Connection(socket.socket):
    """An accepted connection. State: the awaited event, and since when."""

    def __init__(self, door: "_Door", accepted: socket.socket, address: Any) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self.network = _network(address[0])
        self.waits, self.since = _Waits.HEADER, time.monotonic()
        self.leaving = False
        self.transport: asyncio.Transport | None = None  # None until it is made, and the TLS handshake done
        self._unsent = 0  # bytes, at the last look
        self._door = door

    def wait(self, what: _Waits) -> None:
        """Sets the event that comes next."""
        self.waits, self.since = what, time.monotonic()
        if what in (_Waits.REQUEST, _Waits.TAKING) and self.transport is not None:
            self._unsent = self.transport.get_write_buffer_size()

    def takes(self) -> bool:
        """Whether the client has taken a fair part of its answer; if so, it has as long again."""
        if self.transport is None or self.waits not in (_Waits.REQUEST, _Waits.TAKING):
            return False
        left = self.transport.get_write_buffer_size()
        if not 0 < left <= self._unsent - _TAKEN:
            return False
        self._unsent, self.since = left, time.monotonic()
        return True

    def drop(self) -> None:
        """Closes it now, with unsent bytes or without."""
        self.leaving = True
        self._door.leaving += 1
        if self.transport is not None:
            self.transport.abort()
        else:
            with suppress(OSError):  # the client has left
                self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.leave(self)
        super().close()


class _Door(socket.socket):
    """A listening socket with a limited number of connections. State: those that are open."""

    def __init__(self, listener: socket.socket, limits: Limits, *, tls: bool) -> None:
        self._most = limits.most(tls=tls)
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._seconds = {
            _Waits.HEADER: limits.header_seconds,
            # uvicorn closes it after header_seconds, and waits for unsent bytes; this ends that wait.
            _Waits.REQUEST: limits.header_seconds + limits.answer_seconds,
            _Waits.BODY: limits.body_seconds,
            _Waits.TAKING: limits.answer_seconds,
            _Waits.ANSWER: float("inf"),
        }
        self.shortest = min(limits.header_seconds, limits.body_seconds, limits.answer_seconds, 2.0)
        self._open: dict[int, _Connection] = {}
        self.leaving = 0  # open connections that are closing
        self._accepted = 0  # in this turn of the loop
        self._rests_until = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises BlockingIOError if there is none, or other work comes first."""
        while True:
            now = time.monotonic()
            full = len(self._open) >= self._most + _BURST
            if full or self._accepted >= _BURST or now < self._rests_until:
                self._accepted = 0
                raise BlockingIOError("it continues in the next turn of the loop")
            self._accepted += 1
            try:
                accepted, address = super().accept()
            except BlockingIOError:
                self._accepted = 0
                raise
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # asyncio tries again at once, 2,048 times, and logs each.
                    self._rests_until = now + _REST
                    self._make_room()
                raise
            connection = _Connection(self, accepted, address)
            if len(self._open) - self.leaving >= self._most and not self._make_room():
                log.warning("a connection was closed at once: %d are being answered", self._most)
                connection.close()
                continue
            self._open[connection.fileno()] = connection
            return connection, address

    def connection(self, descriptor: int) -> _Connection:
        """The open connection of a descriptor."""
        return self._open[descriptor]

    def leave(self, connection: _Connection) -> None:
        """Counts a connection that is closing."""
        if self._open.pop(connection.fileno(), None) is not None:
            self.leaving -= connection.leaving

    def sweep(self) -> None:
        """Closes connections that have kept the service waiting for too long."""
        now = time.monotonic()
        for connection in list(self._open.values()):
            late = now - connection.since >= self._seconds[connection.waits]
            if late and not connection.leaving and not connection.takes():
                connection.drop()

    def _make_room(self) -> bool:
        """Closes some of those that keep the service waiting; False if none does."""
        waiting = [
            each for each in self._open.values() if each.waits is not _Waits.ANSWER and not each.leaving
        ]
        networks = Counter(each.network for each in waiting)
        asked = (_Waits.BODY, _Waits.TAKING)  # these close after those that have asked nothing yet
        waiting.sort(key=lambda each: (-networks[each.network], each.waits in asked, each.since))
        leaving = waiting[: max(1, min(_BURST, self._most) // 2)]
        for connection in leaving:
            connection.drop()
        if leaving:
            log.warning(
                "connections that kept the service waiting were closed: there is room for %d", self._most
            )
        return bool(leaving)


def _network(host: str) -> str:
    """The owner of an address: with IPv6, which gives each customer 2**64 of them, the first half."""
    if ":" not in host or "." in host:
        return host
    return IPv6Address(host.partition("%")[0]).exploded[:19]


class _Settings(uvicorn.Config):
    """The settings of uvicorn, and the door. No installed package changes them by chance."""

    def __init__(
        self,
        app: Any,
        door: _Door,
        header_seconds: float,
        certificate: str | os.PathLike[str] | None,
        private_key: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(
            app,
            loop="asyncio",
            http=_Http,
            ws="none",
            log_config=None,
            access_log=False,  # its lines hold labels, or links
            server_header=False,
            timeout_keep_alive=math.ceil(header_seconds),
            timeout_graceful_shutdown=30,
            h11_max_incomplete_event_size=_PIECE,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
        )
        self.door = door


class _Http(H11Protocol):
    """uvicorn's HTTP/1.1, which sets the `_Waits` of its connection. State: early bytes of requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        assert isinstance(config, _Settings)
        super().__init__(config, server_state, app_state, _loop)
        self._door = config.door
        self._connection: _Connection
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._door.connection(transport.get_extra_info("socket").fileno())
        self._connection.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._connection.waits is _Waits.REQUEST:
            self._connection.wait(_Waits.HEADER)
        if self._early or len(data) > _PIECE or self._connection.waits in _OURS:
            self._early += data
            self._read_early()
        else:
            super().data_received(data)

    def _read_early(self) -> None:
        """Parses the received bytes until a request is whole: h11 bounds a header only between pieces."""
        while self._early and not self.transport.is_closing():
            match self._connection.waits:
                case _Waits.HEADER:
                    piece, self._early = self._early[:_PIECE], self._early[_PIECE:]
                case _Waits.BODY:
                    piece, self._early = self._early, b""
                case _:
                    self.flow.pause_reading()  # until the answer is written
                    return
            super().data_received(piece)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before or self._connection.waits is _Waits.BODY:
            unfinished = self.conn.their_state is h11.SEND_BODY
            if not unfinished:
                self._connection.wait(_Waits.ANSWER)
            elif self.cycle is not before:
                self._connection.wait(_Waits.BODY)

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # The application may be about to answer: it learns that the client has left, and stops.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # part of an answer is written: no other can follow
            self.transport.close()

    def on_response_complete(self) -> None:
        self._connection.wait(_Waits.REQUEST)
        super().on_response_complete()  # h11's bytes of a next request begin it
        begun = self._early or self.conn.trailing_data[0]
        if begun and self._connection.waits is _Waits.REQUEST:
            self._connection.wait(_Waits.HEADER)
        if self._early:
            self._read_early()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.wait(_Waits.TAKING)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._connection.waits is _Waits.TAKING:
            self._connection.wait(_Waits.ANSWER)


class _Server(uvicorn.Server):
    """uvicorn's server, which sweeps its connections and logs their fate in few lines."""

    def __init__(self, settings: _Settings) -> None:
        super().__init__(settings)
        self._door = settings.door

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_failure)
        period = self._door.shortest / 4

        def sweep() -> None:
            self._door.sweep()
            loop.call_later(period, sweep)

        sweep()
        await super().startup(sockets)


class _Seldom(logging.Filter):
    """Passes a line once a minute, with how often it was repeated since. State: the last time of each."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, tuple[float, int]] = {}  # its time, and how often it was held back since

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        last, more = self._lines.get(record.msg, (now - _SELDOM, 0))
        if now - last < _SELDOM:
            self._lines[record.msg] = (last, more + 1)
            return False
        self._lines[record.msg] = (now, 0)
        record.msg = f"{record.msg} (and {more} times since the last such line)" if more else record.msg
        return True


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs asyncio's message about a failure, without a traceback, which many connections would repeat."""
    error = context.get("exception")
    kind = error.__name__ if isinstance(error, type) else type(error).__name__
    frame = getattr(error, "__traceback__", None)
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = "" if frame is None else f", {Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
    log.error(f"{context['message']} ({kind}{where})")


def serve(
    app: Any,
    listener: socket.socket,
    *,
    limits: Limits | None = None,
    certificate: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
) -> None:
    """Serves an application until stopped, and finishes accepted requests within 30 s.

    Args:
        app: of ASGI.
        listener: it is taken over, and closed.
        limits: of its connections; None for the defaults.
        certificate, private_key: PEM files, for TLS.

    Raises:
        ConfigError: an unusable certificate or key, or more connections than file descriptors.
    """
    if (certificate is None) != (private_key is None):
        raise ConfigError("a certificate and its private key come together: name both, or neither")
    limits = limits or Limits()
    with _Door(listener, limits, tls=certificate is not None) as door:
        settings = _Settings(app, door, limits.header_seconds, certificate, private_key)
        try:
            settings.load()
        except OSError as error:
            raise ConfigError(
                f"{certificate}: not a certificate that can be used with {private_key} ({error}): name PEM "
                "files that belong together"
            ) from error
        seldom, loggers = _Seldom(), (log, logging.getLogger("uvicorn.error"))
        for logger in loggers:
            logger.addFilter(seldom)
        try:
            _Server(settings).run(sockets=[door])
        finally:
            for logger in loggers:
                logger.removeFilter(seldom)
