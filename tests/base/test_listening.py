"""A port that a service of ours listens on."""

import os
import signal
import socket

import pytest

from sfumato.base.listening import address_of, listen, stop_failed, until_stopped
from sfumato.errors import ConfigError, SfumatoError


def test_a_port_that_is_taken_says_what_to_do():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} of 127.0.0.1 \(Address already in use\): choose"
        ):
            listen("127.0.0.1", port)


def test_a_port_is_a_number_below_65536():
    with pytest.raises(ConfigError, match="--port 70000: 0 to 65535"):
        listen("127.0.0.1", 70_000)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_address_is_what_a_browser_takes(scheme: str):
    with listen("127.0.0.1", 0) as listener:
        assert address_of(listener, scheme) == f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    with listen("0.0.0.0", 0) as everywhere:
        assert address_of(everywhere).startswith(f"http://{socket.gethostname()}:")


def test_a_service_that_was_stopped_has_not_failed_and_one_that_failed_has(capsys):
    with until_stopped():
        os.kill(os.getpid(), signal.SIGTERM)
    assert capsys.readouterr().out == "stopped\n"
    with pytest.raises(SfumatoError, match="the service stopped: no memory: start it again"), until_stopped():
        stop_failed("no memory")


def test_an_answer_does_not_wait_for_its_first_packet_to_be_acknowledged():
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
