"""What anybody may do to the connections of a service, and that others are answered all the while."""

import json
import resource
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sfumato.base.connections import Limits, _network
from sfumato.errors import ConfigError

PROGRAM = """
import asyncio, json, os, resource, sys
from pathlib import Path
from sfumato.base.connections import Limits, serve
from sfumato.base.listening import address_of, listen

settings, descriptors, certificate = json.loads(sys.argv[1])
if descriptors is not None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
counts = {"left": 0, "begun": 0}

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    counts["begun"] += 1
    body, path = b"ok", scope["path"]
    if path == "/body":
        more, length = True, 0
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                counts["left"] += 1
                return
            length += len(message["body"])
            more = message["more_body"]
        body = str(length).encode()
    elif path == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
    elif path == "/counts":
        body = json.dumps(counts).encode()
    elif path == "/take":
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            await asyncio.sleep(2.5)
        for each in taken:
            os.close(each)
    if path != "/large":
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await receive()
    waits = asyncio.create_task(receive())
    for _ in range(1000):
        await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        if waits.done():
            counts["left"] += 1
            return
    await send({"type": "http.response.body", "body": b""})

paths = {} if certificate is None else {"certificate": certificate[0], "private_key": certificate[1]}
with listen("127.0.0.1", 0) as listener:
    print(address_of(listener, "https" if paths else "http"), flush=True)
    serve(app, listener, limits=Limits(**settings), **paths)
"""


class Service:
    """A small service in a process of its own. State: the process, and the connections of the test."""

    def __init__(self, log: Path, limits: dict[str, Any], descriptors: int | None, pair: Any) -> None:
        self.log = log
        with log.open("wb") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps([limits, descriptors, pair])],
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
            )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])
        self._opened: list[socket.socket] = []

    def connect(
        self, sent: bytes = b"", *, source: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))
        if tls is not None:
            opened = tls.wrap_socket(opened, server_hostname="localhost")
        self._opened.append(opened)
        opened.sendall(sent)
        return opened

    def ask(self, path: str = "/") -> str:
        """On a connection of its own."""
        reply = httpx.get(self.url + path, timeout=30, trust_env=False, verify=False)
        return reply.raise_for_status().text

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = json.loads(self.ask("/counts"))
        return counts

    def close(self) -> str:
        """Stop it; what it wrote to stderr."""
        for each in self._opened:
            each.close()
        self._process.terminate()
        self._process.communicate(timeout=60)
        return self.log.read_text()


Serve = Callable[..., Service]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    begun: list[Service] = []

    def begin(*, descriptors: int | None = None, pair: Any = None, **limits: Any) -> Service:
        begun.append(Service(tmp_path / f"log-{len(begun)}", limits, descriptors, pair))
        return begun[-1]

    yield begin
    for service in begun:
        assert "Traceback" not in service.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes it; it waits until it does, and is at a loss after 30 s."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def trickled(connection: socket.socket, piece: bytes) -> bool:
    """Whether the other side closes a connection that sends a piece ten times a second."""
    for _ in range(300):
        try:
            connection.sendall(piece)
        except OSError:
            return True
        readable, _, _ = select.select([connection], [], [], 0.1)
        if readable:
            try:
                if not connection.recv(65536):
                    return True
            except ConnectionError:
                return True
    return False


def answer(connection: socket.socket) -> bytes:
    """The next answer, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1)
        if not part:
            return data
        data += part
    length = int(data.lower().partition(b"content-length: ")[2].split()[0])
    while length:
        part = connection.recv(length)
        length -= len(part)
        data += part
    return data


HALF = b"GET / HTTP/1.1\r\nhost: here\r\nx-"
ASKED = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
BODY = b"POST /body HTTP/1.1\r\nhost: here\r\ncontent-length: 100000\r\n\r\n"
REFUSED = BODY.replace(b"/body", b"/")


@pytest.mark.parametrize("sent", [b"", HALF, ASKED + HALF, BODY, BODY + b"half of it"])
def test_a_request_that_is_not_finished_in_time_is_not_waited_for(serve: Serve, sent: bytes):
    service = serve(header_seconds=0.3, body_seconds=0.3)
    assert is_closed(service.connect(sent))


@pytest.mark.parametrize("sent", [HALF, ASKED + HALF, BODY, REFUSED])
def test_a_byte_now_and_then_gains_no_time(serve: Serve, sent: bytes):
    # The last is answered at once, and what it announced goes on coming.
    service = serve(header_seconds=0.5, body_seconds=0.5)
    assert trickled(service.connect(sent), b"x")


def test_an_application_is_told_that_a_body_does_not_come(serve: Serve):
    service = serve(body_seconds=0.3)
    assert is_closed(service.connect(BODY))
    assert service.counts()["left"] == 1


def test_a_client_that_does_not_take_its_answer_is_not_waited_for(serve: Serve):
    service = serve(answer_seconds=0.3)
    service.connect(b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n")
    for _ in range(300):
        if service.counts()["left"]:
            break
        time.sleep(0.1)
    assert service.counts()["left"] == 1


def test_a_client_that_takes_its_answer_slowly_gets_it_whole(serve: Serve):
    service = serve(answer_seconds=1.0)
    connection = service.connect(b"GET /large HTTP/1.0\r\n\r\n")
    length = 0
    while part := connection.recv(400_000):
        length += len(part)
        time.sleep(0.01)
    assert length > 1000 * 65536


def test_more_half_headers_than_descriptors_keep_nobody_out(serve: Serve):
    service = serve(descriptors=64)
    for _ in range(150):
        service.connect(HALF)
    assert [service.ask() for _ in range(5)] == ["ok"] * 5
    assert len(service.close()) < 500


def test_over_tls_a_handshake_that_does_not_end_is_not_waited_for(serve: Serve, pair: list[str]):
    service = serve(header_seconds=0.5, pair=pair)
    assert is_closed(service.connect())
    assert is_closed(service.connect(b"\x16\x03\x01\x02\x00\x01"))
    assert service.ask() == "ok"


def test_over_tls_handshakes_that_do_not_end_keep_nobody_out(serve: Serve, pair: list[str]):
    service = serve(descriptors=64, pair=pair)
    for _ in range(150):
        service.connect()
    assert [service.ask() for _ in range(3)] == ["ok"] * 3


def test_over_tls_half_a_header_and_an_unread_answer_are_not_waited_for(serve: Serve, pair: list[str]):
    service = serve(header_seconds=1.0, answer_seconds=0.5, pair=pair)
    context = ssl.create_default_context(cafile=pair[0])
    half = service.connect(HALF, tls=context)
    service.connect(b"GET /large HTTP/1.1\r\nhost: here\r\n\r\n", tls=context)
    assert is_closed(half)
    for _ in range(300):
        if service.counts()["left"]:
            break
        time.sleep(0.1)
    assert service.counts()["left"] == 1


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    paths = [str(folder / "certificate.pem"), str(folder / "key.pem")]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-out", paths[0], "-keyout", paths[1]),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def test_who_opens_most_connections_closes_their_own(serve: Serve):
    service = serve(connections=8)
    other = service.connect(HALF, source="127.0.0.2")
    flood = [service.connect(HALF) for _ in range(40)]
    assert service.ask() == "ok"
    other.sendall(b"a: b\r\n\r\n")
    assert answer(other).endswith(b"ok")
    assert is_closed(flood[0])


def test_the_addresses_of_one_customer_are_one():
    assert _network("192.0.2.1") != _network("192.0.2.2")
    assert _network("2001:db8:0:1::1") == _network("2001:db8:0:1:ffff::2") != _network("2001:db8:0:2::1")
    assert _network("fe80::1%eth0") == _network("fe80::2")


def test_what_is_being_answered_is_not_closed_for_what_comes_later(serve: Serve):
    service = serve(connections=2)
    answered = [service.connect(b"GET /wait HTTP/1.1\r\nhost: here\r\n\r\n")]
    while service.counts()["begun"] < 2:
        time.sleep(0.01)
    answered.append(service.connect(b"GET /wait HTTP/1.1\r\nhost: here\r\n\r\n"))
    time.sleep(0.5)  # should it not have begun by now, the next may take its room, and the test fails
    assert is_closed(service.connect(HALF))
    readable, _, _ = select.select(answered, [], [], 0)
    assert readable == []


def test_without_descriptors_it_says_so_in_a_line_and_goes_on_once_there_are_some(serve: Serve):
    service = serve(descriptors=256)
    service.connect(b"GET /take HTTP/1.1\r\nhost: here\r\n\r\n")  # for a while
    while len(list(Path(f"/proc/{service.pid}/fd").iterdir())) < 256:
        time.sleep(0.01)
    waiting = [service.connect(ASKED) for _ in range(20)]
    assert [answer(each)[-2:] for each in waiting] == [b"ok"] * 20
    lines = service.close().splitlines()
    assert len(lines) == 1
    assert "out of system resource" in lines[0]


def test_a_header_of_thousands_of_lines_is_refused(serve: Serve):
    service = serve()
    many = ASKED[:-2] + b"a: b\r\n" * 20_000 + b"\r\n"
    for sent in (many, ASKED + many, BODY + bytes(100_000) + many):
        connection = service.connect(sent)
        data = b""
        try:
            while part := connection.recv(65536):
                data += part
        except ConnectionError:
            pass
        assert data.count(b"HTTP/1.1 200") == (sent is not many)
    assert service.counts()["begun"] == 3


def test_requests_that_come_before_the_last_answer_are_answered_in_order(serve: Serve):
    service = serve()
    sent = [
        b"POST /body HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % n + bytes(n) for n in range(3000)
    ]
    connection = service.connect()
    for first in range(0, len(sent), 100):
        connection.sendall(b"".join(sent[first : first + 100]))
        replies = [answer(connection).rpartition(b"\r\n")[2] for _ in range(100)]
        assert replies == [str(n).encode() for n in range(first, first + 100)]


def test_a_large_body_comes_whole(serve: Serve):
    service = serve()
    for length in (16_000, 70_000, 5_000_000):
        reply = httpx.post(f"{service.url}/body", content=bytes(length), trust_env=False, timeout=30)
        assert reply.text == str(length)


def test_http_1_0_is_answered_and_closed(serve: Serve):
    connection = serve().connect(b"GET / HTTP/1.0\r\n\r\n")
    assert answer(connection).endswith(b"ok")
    assert is_closed(connection)


CHUNKED = b"POST /body HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        bytes(range(256)) * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ASKED[:-2] + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED.replace(b"/body", b"/") + b"5\r\nab",
        CHUNKED.replace(b"/body", b"/wait") + b"zz\r\n",
        CHUNKED.replace(b"/body", b"/large") + b"zz\r\n",
        ASKED + b"zz\r\n\r\n",
    ],
)
def test_what_is_no_http_is_closed_and_no_traceback_is_written(serve: Serve, sent: bytes):
    service = serve(header_seconds=1.0, body_seconds=1.0)
    assert all(is_closed(each) for each in [service.connect(sent) for _ in range(20)])
    assert service.ask() == "ok"
    assert len(service.close().splitlines()) <= 2


def test_an_upgrade_that_is_not_offered_is_answered_and_is_one_line_a_minute(serve: Serve):
    service = serve()
    upgrade = ASKED[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    assert all(answer(service.connect(upgrade)).endswith(b"ok") for _ in range(20))
    lines = service.close().splitlines()
    assert len(lines) == len(set(lines))


def test_connections_need_descriptors():
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with pytest.raises(ConfigError, match=rf"{descriptors} connections, and {descriptors} file descriptors"):
        Limits(connections=descriptors).most()
    assert Limits(connections=7).most() == 7
    # Where the system gives enough of them.
    assert (Limits().most(), Limits().most(tls=True)) == (
        min(1000, descriptors - 192),
        min(500, descriptors - 192),
    )


@pytest.mark.parametrize("name", ["connections", "header_seconds", "body_seconds", "answer_seconds"])
def test_limits_are_above_0(name: str):
    with pytest.raises(ConfigError, match=f"{name}=0: above 0"):
        Limits(**{name: 0})
