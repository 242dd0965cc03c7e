"""A request to a service and its reply, without a connection: retries and error messages.

Steps are a generator: it yields requests and pauses, receives the reply to each request (None after a pause),
and returns the answer.
"""

import email.utils
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import TypeVar

from sfumato.base.files import parse_json
from sfumato.device.client.demands import words
from sfumato.errors import SfumatoError

MOST_REPLY = 16 << 20  # bytes of an answer

_MOST_PROBLEM = 100_000  # bytes of a refusal that are read
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 60.0  # seconds
_WAITS = 4  # a whole reply may take this many timeouts
_SLOWEST = 10_000  # bytes a second, the slowest upload
_MOST_DIGITS = 9  # of Retry-After: decades
_TOO_MANY = 429  # requests of a key: refused before anything was done, and right a little later
_AGAIN = frozenset({_TOO_MANY, 502, 503, 504})  # may pass; another 4xx never does: the request is wrong

_Answer = TypeVar("_Answer")


class ServiceError(SfumatoError):
    """The service refused, failed, or could not be reached; the message is its advice, if it gave any.

    Attributes:
        status: of HTTP; None without an answer.
        wait: seconds to wait before asking again; None if it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.wait = status, wait


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        again: whether it is safe to send it twice.
        known: the ETag of the local copy: if it is current, the reply has an empty body.
    """

    method: str
    path: str
    again: bool
    content: bytes | None = None
    kind: str | None = None  # of the content
    known: str | None = None


@dataclass(frozen=True)
class Reply:
    """A reply of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Lost:
    """No reply came, or not all of it.

    Attributes:
        reason: why.
        cure: what to do.
        lasting: whether sending the request again would give the same.
    """

    reason: str
    cure: str = "check the address and the network"
    lasting: bool = False


@dataclass(frozen=True)
class Pause:
    """Seconds to wait before the next request."""

    seconds: float


class Receiving:
    """A reply that is being received; bytes are counted as they arrive. State: the part so far.

    Nothing is unpacked: some hundred bytes of nested gzip become gigabytes. The client asks for no packing,
    and refuses a packed reply.
    """

    def __init__(self, status: int, headers: Mapping[str, str], *, until: float) -> None:
        """`until`: the deadline for all of it, by time.monotonic."""
        self._status, self._headers, self._until = status, headers, until
        self._body = bytearray()

    def refuse(self) -> Lost | None:
        """Refuse a packed reply: why it is not read, or None."""
        packed = self._headers.get("content-encoding", "identity").strip().lower()
        return None if packed in ("", "identity") else Lost("a packed answer to a request for a plain one")

    def add(self, part: bytes) -> Lost | None:
        """Take more bytes. Returns why the rest is not read, or None."""
        self._body += part
        if len(self._body) > MOST_REPLY:
            return Lost(f"an answer of more than {MOST_REPLY >> 20} MiB")
        return TOO_SLOW if time.monotonic() > self._until else None

    def reply(self) -> Reply:
        """Return the whole reply."""
        return Reply(self._status, self._headers, bytes(self._body))


TOO_SLOW = Lost("the answer came too slowly")
NOT_PACKED = {"accept-encoding": "identity"}


def most_seconds(request: Request, timeout: float) -> float:
    """Return the time limit of a request and its whole reply: short waits alone could go on forever."""
    return _WAITS * timeout + len(request.content or b"") / _SLOWEST


# Yields requests and pauses, receives replies, returns the answer.
Steps = Generator[Request | Pause, Reply | Lost | None, _Answer]


def exchange(request: Request, url: str, *, retries: int) -> Steps[bytes]:
    """Send a request to a service, with retries if they may help. Returns the body of its reply.

    Waits grow from 0.25 s and are random, so that clients return apart ("full jitter", Brooker 2015).

    Raises:
        ServiceError: it refused, failed, or could not be reached.
    """
    attempt = 0
    while True:
        reply = yield request
        assert reply is not None
        if isinstance(reply, Reply) and 200 <= reply.status < 300:
            return reply.body
        if isinstance(reply, Reply) and reply.status == 304 and request.known is not None:
            return b""
        error = _error(url, reply)
        lasting = reply.lasting if isinstance(reply, Lost) else reply.status not in _AGAIN
        again = request.again or error.status == _TOO_MANY
        if lasting or not (again and attempt < retries):
            raise error
        if error.wait is not None and error.wait > _LONGEST_WAIT:
            raise error
        jitter = random.SystemRandom().uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt))
        yield Pause((error.wait or 0.0) + jitter)
        attempt += 1


def _error(url: str, reply: Reply | Lost) -> ServiceError:
    if isinstance(reply, Lost):
        return ServiceError(f"{url}: no answer ({reply.reason}): {reply.cure}")
    detail = ""
    try:
        detail = str(parse_json(reply.body[:_MOST_PROBLEM])["detail"])
    except (ValueError, TypeError, KeyError):
        if 300 <= reply.status < 400:
            detail = (
                "it redirects to another address, where the key is not sent: use that address if it is right"
            )
    if reply.status == 401:
        detail += " (on the command line: SFUMATO_KEY, or --key-file)"
    detail = words(detail or "not the answer of a sfumato service: check the address")
    wait = _seconds(reply.headers.get("retry-after"), reply.headers.get("date"))
    after = "" if wait is None else f" (try again in {wait:.0f} s)"
    return ServiceError(f"{url}: {reply.status}: {detail}{after}", status=reply.status, wait=wait)


def _seconds(value: str | None, sent: str | None) -> float | None:
    """Read Retry-After, which is a number of seconds or a date.

    A date is by the clock of the service, which `sent` gives; this device's own clock may be years off.
    """
    if value is None:
        return None
    digits = value.strip()
    if digits.isascii() and digits.isdecimal():
        return float(digits[:_MOST_DIGITS])
    then, now = _moment(value), _moment(sent)
    return None if then is None else max(0.0, then - (time.time() if now is None else now))


def _moment(value: str | None) -> float | None:
    """Parse a date of HTTP into seconds since 1970; None if it is not one."""
    if value is None:
        return None
    try:
        then = email.utils.parsedate_to_datetime(value)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()  # a zone of -0000, or no zone
    except (ValueError, TypeError, IndexError, OverflowError):  # depending on the error
        return None
