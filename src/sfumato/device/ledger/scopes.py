"""Scopes of budgets, as bytes: every single image, a person, or every person; and the names of services."""

import ipaddress
import posixpath
import re
import shlex
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from sfumato.base.alike import look
from sfumato.errors import ConfigError

EVERY_IMAGE = b""
EVERY_PERSON = b"person:"
_PORTS = {"http": 80, "https": 443}


def person_scope(name: str) -> bytes:
    """Return the scope of one person.

    Names that look alike (sfumato.base.alike) are one person with one budget. Raises ConfigError for a name
    without a visible character; "" is every person.
    """
    if name and not look(name):
        raise ConfigError(f"{name!a} is not the name of a person: its characters are invisible: rename it")
    return EVERY_PERSON + look(name).encode("utf-8", "surrogateescape")


def scope_of(person: str | None) -> bytes:
    """Return the scope of a person ("": every person); of every image without one."""
    return EVERY_IMAGE if person is None else person_scope(person)


def describe(scope: bytes) -> str:
    """Describe a scope: "every image", "every person" or "the person anna"."""
    if not is_named_person(scope):
        return "every image" if scope == EVERY_IMAGE else "every person"
    return f"the person {scope.removeprefix(EVERY_PERSON).decode('utf-8', 'surrogateescape')}"


def kind_of(scope: bytes) -> str:
    """Describe a scope without naming a person."""
    return "an image" if scope == EVERY_IMAGE else "a person"


def option_of(scope: bytes) -> str:
    """Return the option of `sfumato ledger budget` for a scope, with a leading space; "" for every image."""
    if scope == EVERY_IMAGE:
        return ""
    return f" --person {shlex.quote(scope.removeprefix(EVERY_PERSON).decode('utf-8', 'surrogateescape'))}"


def is_named_person(scope: bytes) -> bool:
    """Whether a scope is of one person."""
    return scope.startswith(EVERY_PERSON) and scope != EVERY_PERSON


def service_name(url: str) -> str:
    """Return the canonical address of a service, however it is typed.

    Scheme and host are in lower case, the host in ASCII (IDNA) and without a dot at its end; a default port
    and a slash at the end are removed. Another text is returned unchanged.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
        if not host or parts.scheme not in _PORTS:
            return url
        if ":" in host:
            host = f"[{ipaddress.ip_address(host)}]"
        elif re.fullmatch(r"[0-9a-fx.]+", host):
            with suppress(OSError):  # 127.1 is 127.0.0.1
                host = socket.inet_ntoa(socket.inet_aton(host))
        else:
            host = host.encode("idna").decode()
    except ValueError:
        return url
    path = posixpath.normpath(parts.path).strip("/")
    end = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{host}{end}{'' if path in ('', '.') else f'/{path}'}"
