"""The two clients are one: the same methods, arguments and answers, and only one of them is awaited.

What they say to a service is in tests/serve/test_client.py, where there is one.
"""

import asyncio
import inspect
import ssl
import threading
from pathlib import Path

import httpx
import pytest

from sfumato.device.client import AsyncClient, Client, ServiceError
from sfumato.device.client.conversation import Guess

HERE, KEY = "http://127.0.0.1:9", "sfumato_not-a-real-secret"
METHODS = [
    "models",
    "classifiers",
    "create",
    "enrol",
    "classify",
    "classify_many",
    "classes",
    "forget",
    "forget_example",
    "forget_classifier",
]


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


@pytest.mark.parametrize("name", METHODS)
def test_both_clients_have_the_same_method_and_one_is_awaited(name: str):
    method, awaited = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.signature(method) == inspect.signature(awaited)
    assert method.__doc__
    assert method.__doc__ == awaited.__doc__
    assert (inspect.iscoroutinefunction(method), inspect.iscoroutinefunction(awaited)) == (False, True)


def test_the_signature_of_a_method_says_what_it_answers():
    assert inspect.signature(Client.classify).return_annotation == list[Guess]


def test_an_error_of_the_service_is_raised_where_it_was_asked(settings: dict[str, object]):
    with (
        Client(HERE, **settings) as client,
        pytest.raises(ServiceError, match="not GET /v1/models") as raised,
    ):
        client.models()
    names = [entry.name for entry in raised.traceback]
    assert names.index("models") < names.index("exchange")  # the trace leads through the question


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (
            certificate_error(10),
            "the clock of this machine; if it is right, ask for the service to renew its cert",
        ),
        (certificate_error(18), "name the certificate of this authority in the variable SSL_CERT_FILE"),
        (certificate_error(62), "its certificate is for another host: use the address that it is for"),
        (ssl.SSLError(1, "unsupported protocol"), "TLS 1.2 or later at this port: check it, or .* use http"),
    ],
    ids=["expired", "self-signed", "another host", "TLS 1.0"],
)
def test_wrong_tls_is_refused_with_a_cure_and_not_asked_again(
    settings: dict[str, object], error: ssl.SSLError, cure: str
):
    asked = []

    def unsafe(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ConnectError(str(error)) from error

    settings["transport"] = httpx.MockTransport(unsafe)
    with Client(HERE, **settings) as client, pytest.raises(ServiceError, match=cure):
        client.models()
    assert len(asked) == 1


def test_a_handshake_that_breaks_off_is_tried_again(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    asked = []

    def broken(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ConnectError("EOF") from ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    settings |= {"transport": httpx.MockTransport(broken), "retries": 1}
    with Client(HERE, **settings) as client, pytest.raises(ServiceError, match="check the address"):
        client.models()
    assert len(asked) == 2


def test_within_a_running_event_loop_either_client_may_be_used(settings: dict[str, object]):
    async def both() -> list[str]:
        messages = []
        with Client(HERE, **settings) as client, pytest.raises(ServiceError) as raised:
            client.models()
        messages.append(str(raised.value))
        async with AsyncClient(HERE, **settings) as client:
            with pytest.raises(ServiceError) as raised:
                await client.models()
        return [*messages, str(raised.value)]

    first, second = asyncio.run(both())
    assert first == second


def test_an_asynchronous_client_works_on_images_in_another_thread_than_the_loops(settings: dict[str, object]):
    def steps():
        return threading.get_ident()
        yield

    async def ask() -> int:
        async with AsyncClient(HERE, **settings) as client:
            return await client._run(steps())

    assert asyncio.run(ask()) != threading.get_ident()


def test_nothing_but_an_answer_ends_a_question(settings: dict[str, object]):
    """A StopIteration that an image source raises is an error, and no answer."""

    def steps():
        next(iter(()))
        yield

    with (
        Client(HERE, **settings) as client,
        pytest.raises(RuntimeError, match="generator raised StopIteration"),
    ):
        client._run(steps())
