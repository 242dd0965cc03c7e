"""A connection to a service: requests with a deadline, retries, and errors that say what to do."""

import ipaddress
import random
import re
import ssl
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from urllib.parse import urlsplit

from sfumato.base.files import parse_json, printable
from sfumato.device.client.demands import words
from sfumato.device.ledger.tables import service_name
from sfumato.errors import ConfigError, SfumatoError, needs_extra

with needs_extra("the client", "serve"):
    import httpx

MOST_REPLY = 16 << 20  # bytes of an answer
SYSTEM = random.SystemRandom()

_MOST_PROBLEM = 100_000  # bytes of a refusal that are read
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 60.0  # seconds
_WAITS = 4  # a whole reply may take this many timeouts
_SLOWEST = 10_000  # bytes a second, the slowest upload
_MOST_DIGITS = 9  # of Retry-After: decades
_TOO_MANY = 429  # requests of a key: refused before anything was done, and right a little later
_AGAIN = frozenset({None, 502, 503, 504})  # may pass; another 4xx never does: the request is wrong


class ServiceError(SfumatoError):
    """The service refused, failed, or could not be reached; the message is its advice, if it gave any."""

    def __init__(
        self, message: str, *, status: int | None = None, wait: float | None = None, lasting: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status  # of HTTP; None without an answer
        self.wait = wait  # seconds to wait before asking again; None if the service did not say
        self.lasting = lasting  # sending the request again would give the same


class Connection:
    """A connection to a service, for any number of threads. State: its open sockets."""

    def __init__(
        self, url: str, key: str, *, timeout: float, retries: int, transport: httpx.BaseTransport | None
    ) -> None:
        # Not in the message: the input may be part of a key. Other characters would fail in the middle of a
        # request, with an error that shows them.
        if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
            raise ConfigError(
                f"the key has {len(key)} characters: it needs 1 to 200 printable ones without spaces, as "
                "`sfumato keys create` printed it (on the command line: SFUMATO_KEY, or --key-file)"
            )
        if retries < 0:
            raise ConfigError(f"retries={retries}: at least 0 (no retry)")
        self.url, self._timeout, self._retries = url, timeout, retries
        self.http = httpx.Client(
            base_url=url,
            timeout=timeout,
            headers={"x-api-key": key, "accept-encoding": "identity"},
            follow_redirects=False,
            # A proxy of the environment would get a whole http request, with the key.
            trust_env=url.startswith("https:"),
            transport=transport,
        )

    def ask(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], *, again: bool = True
    ) -> bytes:
        """Send a request, with retries if they may help. Returns the body of its reply."""
        attempt = 0
        while True:
            try:
                return self._reply(method, path, content, headers)
            except ServiceError as error:
                may = error.status == _TOO_MANY or (again and not error.lasting and error.status in _AGAIN)
                wait = error.wait or 0.0
                if not may or attempt >= self._retries or wait > _LONGEST_WAIT:
                    raise
            # Random, so that clients return apart ("full jitter", Brooker 2015).
            time.sleep(wait + SYSTEM.uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt)))
            attempt += 1

    def _reply(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> bytes:
        """Send a request within its time. A thread that still waits, as for a header, is abandoned."""
        seconds = _WAITS * self._timeout + len(content or b"") / _SLOWEST  # short waits could go on for ever
        until = time.monotonic() + seconds
        received: Future[bytes] = Future()

        def receive() -> None:
            try:
                received.set_result(self._receive(method, path, content, headers, until))
            except BaseException as error:  # raised in the caller's thread
                received.set_exception(error)

        threading.Thread(target=receive, name="sfumato-reply", daemon=True).start()
        try:
            return received.result(timeout=seconds)
        except TimeoutError:
            raise self._no_answer(_TOO_SLOW) from None

    def _receive(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], until: float
    ) -> bytes:
        try:
            with self.http.stream(method, path, content=content, headers=headers) as reply:
                packed = reply.headers.get("content-encoding", "identity").strip().lower()
                if packed not in ("", "identity"):  # some hundred bytes of nested gzip become gigabytes
                    raise self._no_answer("a packed answer to a request for a plain one")
                body = bytearray()
                assert isinstance(reply.stream, httpx.SyncByteStream)
                for part in reply.stream:  # raw bytes
                    body += part
                    if len(body) > MOST_REPLY:
                        raise self._no_answer(f"an answer of more than {MOST_REPLY >> 20} MiB")
                    if time.monotonic() > until:
                        raise self._no_answer(_TOO_SLOW)
                if reply.is_success:
                    return bytes(body)
                raise _refusal(self.url, reply.status_code, reply.headers, bytes(body))
        except httpx.HTTPError as error:
            reason, cure = f"{type(error).__name__}: {error}".rstrip(": "), _cure_of_tls(error)
        # Not chained: the error holds the request, and the request holds the key.
        raise self._no_answer(printable(reason)[:500], cure)

    def _no_answer(self, reason: str, cure: str | None = None) -> ServiceError:
        how = cure or "check the address and the network"
        return ServiceError(f"{self.url}: no answer ({reason}): {how}", lasting=cure is not None)


def check_url(url: str, *, insecure: bool) -> str:
    """Return a service's address, see service_name. Raises ConfigError if no key may be sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        named = "cloud.example" if "://" in url or not url[:1].isalnum() else url
        like = f"http{'' if _is_loopback(re.split('[:/?#]', named)[0]) else 's'}://{named}"
        raise ConfigError(f"this is not the address of a service: write scheme and host, such as {like}")
    if parts.username is not None:
        raise ConfigError(f"the address of {host} has a user name or a password: remove it, and give the key")
    if parts.scheme == "http" and not insecure and not _is_loopback(host):
        raise ConfigError(
            f"http://{host}: key and labels would travel in clear: use https, or allow it with "
            "insecure=True (--insecure)"
        )
    return service_name(url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
    detail = "not the answer of a sfumato service: check the address"
    if 300 <= status < 400:
        detail = "it redirects to another address, where the key is not sent: use that address if it is right"
    with suppress(ValueError, TypeError, KeyError):
        detail = str(parse_json(body[:_MOST_PROBLEM])["detail"]) or detail
    detail = words(detail + " (on the command line: SFUMATO_KEY, or --key-file)" * (status == 401))
    value = headers.get("retry-after", "").strip()  # seconds
    wait = float(value[:_MOST_DIGITS]) if value.isascii() and value.isdecimal() else None
    if wait is not None:
        longest = f"; a client waits {_LONGEST_WAIT:.0f} s at most" * (wait > _LONGEST_WAIT)
        detail += f" (try again in {wait:.0f} s{longest})"
    return ServiceError(f"{url}: {status}: {detail}", status=status, wait=wait)


def _cure_of_tls(error: httpx.HTTPError) -> str | None:
    """Return what to do about a failure of TLS, which lasts; None for another failure."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if not isinstance(error, httpx.ConnectError) or cause is None or isinstance(cause, ssl.SSLEOFError):
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _CERTIFICATES.get(cause.verify_code, _UNTRUSTED)
    return _NO_TLS


_TOO_SLOW = "the answer came too slowly"
_NO_TLS = "it must offer TLS 1.2 or later at this port: check it, or ask for TLS (on this machine, use http)"
_UNTRUSTED = (
    "this machine does not trust the authority that signed its certificate: if it is your own service, name "
    "the certificate of this authority in the variable SSL_CERT_FILE"
)
_PERIOD = "check the clock of this machine; if it is right, ask for the service to renew its certificate"
_ELSEWHERE = "its certificate is for another host: use the address that it is for"
_CERTIFICATES = {9: _PERIOD, 10: _PERIOD, 62: _ELSEWHERE, 64: _ELSEWHERE}  # X509_V_ERR_* of OpenSSL
