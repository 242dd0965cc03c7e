"""A port that a service of ours listens on."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from sfumato.base.server import address_of, listen
from sfumato.cli.serve import until_stopped
from sfumato.errors import ConfigError


def test_a_port_that_is_taken_says_what_to_do():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} of 127.0.0.1 \(Address already in use\): choose"
        ):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match="--port 70000: 0 to 65535"):
        listen("127.0.0.1", 70_000)


def test_the_address_is_what_a_browser_takes():
    with listen("127.0.0.1", 0) as listener:
        assert address_of(listener, "https") == f"https://127.0.0.1:{listener.getsockname()[1]}"
    with listen("0.0.0.0", 0) as everywhere:
        assert address_of(everywhere).startswith(f"http://{socket.gethostname()}:")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_was_stopped_has_not_failed(capsys, sent: int):
    with until_stopped():
        os.kill(os.getpid(), sent)
    assert capsys.readouterr().out == "stopped\n"


def test_an_answer_does_not_wait_for_its_first_packet_to_be_acknowledged():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


PROGRAM = """
import asyncio
from sfumato.base import server
from sfumato.cli.serve import until_stopped

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await asyncio.sleep(2 if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})

with server.listen("127.0.0.1", 0) as listener, until_stopped():
    print(listener.getsockname()[1], flush=True)
    server.serve(app, listener)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_headers_are_bounded_and_accepted_requests_are_finished(sent: int):
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())

        def ask(request: bytes) -> socket.socket:
            asked = socket.create_connection(("127.0.0.1", port), timeout=10)
            asked.sendall(request)
            return asked

        with ask(b"GET / HTTP/1.1\r\na: " + b"b" * 20_000) as long:
            assert long.recv(12) == b"HTTP/1.1 400"
        with ask(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n") as slow:
            time.sleep(0.2)
            process.send_signal(sent)
            answer = slow.recv(1000)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"server:" not in answer
        assert process.communicate(timeout=30)[0] == "stopped\n"
        assert process.returncode == 0
