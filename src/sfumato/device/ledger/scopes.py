"""Scopes of budgets, as bytes: every single image, a folder, a URL, a person, or every person.

An image counts in its folder, all folders above, the folders of its copies, and for the people in it.
"""

import ipaddress
import os
import posixpath
import re
import shlex
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from sfumato.base.alike import look
from sfumato.errors import ConfigError

EVERY_IMAGE = b""
EVERY_PERSON = b"person:"
_PORTS = {"http": 80, "https": 443}


def person_scope(name: str) -> bytes:
    """Return the scope of one person; it cannot be a folder, which begins with a slash or has "://".

    Names that look alike (sfumato.base.alike) are one person with one budget. Raises ConfigError for a name
    without a visible character; "" is every person.
    """
    if name and not look(name):
        raise ConfigError(f"{name!a} is not the name of a person: its characters are invisible: rename it")
    return EVERY_PERSON + look(name).encode("utf-8", "surrogateescape")


def scope_of(folder: str | os.PathLike[str] | None, person: str | None) -> bytes:
    """Return the scope of a folder or URL, or of a person ("": every person); of every image without either.

    Raises:
        ConfigError: both a folder and a person.
    """
    if folder is not None and person is not None:
        raise ConfigError("a sum is for a folder or for a person: name one of them")
    if folder is not None:
        return folder_name(folder)
    return EVERY_IMAGE if person is None else person_scope(person)


def describe(scope: bytes) -> str:
    """Describe a scope: "every image", "the person anna", or a path or URL."""
    if scope == EVERY_IMAGE:
        return "every image"
    if scope == EVERY_PERSON:
        return "every person"
    if scope.startswith(EVERY_PERSON):
        return f"the person {scope.removeprefix(EVERY_PERSON).decode('utf-8', 'surrogateescape')}"
    return os.fsdecode(scope)


def kind_of(scope: bytes) -> str:
    """Describe a scope without naming a person or folder."""
    if scope == EVERY_IMAGE:
        return "an image"
    return "a person" if scope.startswith(EVERY_PERSON) else "a folder"


def option_of(scope: bytes) -> str:
    """Return the option of `sfumato ledger budget` for a scope, with a leading space; "" for every image."""
    if scope == EVERY_IMAGE:
        return ""
    name = scope.removeprefix(EVERY_PERSON)
    option = "--person" if scope.startswith(EVERY_PERSON) else "--folder"
    return f" {option} {shlex.quote(name.decode('utf-8', 'surrogateescape'))}"


def is_folder(scope: bytes) -> bool:
    """Whether a scope is a folder or a URL."""
    return scope != EVERY_IMAGE and not scope.startswith(EVERY_PERSON)


def is_named_person(scope: bytes) -> bool:
    """Whether a scope is of one person."""
    return scope.startswith(EVERY_PERSON) and scope != EVERY_PERSON


def covers(folder: bytes, other: bytes) -> bool:
    """Whether one folder or URL equals another, or lies above it."""
    return other == folder or other.startswith(folder.rstrip(b"/") + b"/")


def folder_name(where: str | os.PathLike[str]) -> bytes:
    """Identify a folder: by its path without links; or a URL, without user and password.

    A URL is a folder of its own and contains all URLs below it, whatever they lead to: a budget of
    `s3://photos/anna` holds for `s3://photos/anna/2024` too. A budget of a local folder, even of `/`, holds
    for this machine only; `file:///photos` is `/photos`.
    """
    if is_url(where) and not str(where).startswith("file://"):
        return os.fsencode(without_password(str(where)).rstrip("/"))
    return os.fsencode(Path(os.fspath(where).removeprefix("file://")).resolve())


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether this is a URL, such as s3://bucket/folder; a Path never is."""
    return isinstance(where, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", where) is not None


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


def without_password(url: str) -> str:
    """Remove "user:password@" from a URL. A user without a password stays: it may be a container."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    before, _, host = authority.rpartition("@")
    return f"{scheme.lower()}://{host if ':' in before else authority}{slash}{path}"
