"""The client's connection: TLS that fails, and programs with an event loop.

What it says to a service is in tests/serve/test_client.py, where there is one.
"""

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from sfumato.device.client import Client, ServiceError

HERE, KEY = "http://127.0.0.1:9", "sfumato_not-a-real-secret"


def certificate_error(code: int) -> ssl.SSLError:
    """As OpenSSL raises it, by its X509_V_ERR_*."""
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    return error


def refusing(request: httpx.Request) -> httpx.Response:
    return httpx.Response(403, json={"detail": f"not {request.method} {request.url.path}"})


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, object]:
    return {"key": KEY, "ledger": tmp_path / "ledger.db", "transport": httpx.MockTransport(refusing)}


@pytest.mark.parametrize(
    ("error", "cure", "times"),
    [
        (certificate_error(10), "the clock of this machine; if it is right, ask for .* to renew its cert", 1),
        (certificate_error(18), "name the certificate of this authority in the variable SSL_CERT_FILE", 1),
        (certificate_error(62), "its certificate is for another host: use the address that it is for", 1),
        (ssl.SSLError(1, "unsupported"), "TLS 1.2 or later at this port: check it, or .* use http", 1),
        (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "check the address", 2),
    ],
    ids=["expired", "self-signed", "another host", "TLS 1.0", "broken off"],
)
def test_tls_that_is_wrong_is_refused_with_a_cure_and_a_handshake_that_breaks_off_is_tried_again(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch, error: ssl.SSLError, cure: str, times: int
):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    asked = []

    def unsafe(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ConnectError(str(error)) from error

    settings |= {"transport": httpx.MockTransport(unsafe), "retries": 1}
    with Client(HERE, **settings) as client, pytest.raises(ServiceError, match=cure):
        client.models()
    assert len(asked) == times


def test_within_a_running_event_loop_a_client_works_in_another_thread(settings: dict[str, object]):
    async def ask() -> None:
        with Client(HERE, **settings) as client:
            await asyncio.to_thread(client.models)

    with pytest.raises(ServiceError, match="not GET /v1/models"):
        asyncio.run(ask())
