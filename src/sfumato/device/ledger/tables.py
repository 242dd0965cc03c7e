"""The tables of a ledger, the first rows of a new one, and the names in them: scopes, services, protections.

A scope is what a budget is of, as bytes: every single image, a person, or every person.
"""

import hashlib
import ipaddress
import posixpath
import re
import secrets
import socket
import sqlite3
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from sfumato.base import databases
from sfumato.base.alike import look
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import ConfigError
from sfumato.protect.spec import files_of, with_files

MARKS = databases.Marks(application=0x5346554D, version=8)  # "SFUM": a ledger
EVERY_IMAGE, EVERY_PERSON = b"", b"person:"
_PORTS = {"http": 80, "https": 443}

# The budgets of a new ledger: for an image, and for all images of one person.
DEFAULT_BUDGETS = {EVERY_IMAGE: Budget.parse("releases=5"), EVERY_PERSON: Budget.parse("releases=30")}

SCHEMA = """
create table settings (key text primary key, value text not null);
create table images (
    id integer primary key,
    image blob not null unique,  -- SHA-256 of its shape and pixels
    name blob not null,  -- of its file, for messages on this device; empty where it has none
    fingerprint blob,  -- by which near copies are told; null where it has none
    releases integer not null default 0  -- as many as it has in `charges`, or one of both is damaged
);
create table copies (  -- near copies of each other, each pair both ways, and every image of itself
    image integer not null references images, copy integer not null references images,
    primary key (image, copy)
) without rowid;
create table fingerprint_keys (
    key integer not null, image integer not null references images, primary key (key, image)
) without rowid;
create table people (  -- who is in each image
    image integer not null references images, scope blob not null, primary key (image, scope)
) without rowid;
create index people_by_scope on people (scope);
create table pins (  -- the protection that each service may ask for
    service text not null, classifier text not null, spec text not null, since real not null,
    primary key (service, classifier)
);
create table budgets (
    scope blob not null,  -- of an image or a person
    counted integer not null,  -- 1 for a number of releases, 0 for proved guarantees
    definition text not null, amount real not null, pixels integer not null, words text not null,
    primary key (scope, counted)
);
create table terms (
    id integer primary key,
    spec text not null, channels integer not null, height integer not null, width integer not null,
    guarantees text not null,  -- JSON: the proved ones, for one or more numbers of pixels
    outputs real,  -- bits: log2 of how many different releases there are; null where they are not counted
    leakage real,  -- bits: the maximal leakage of one; null where none is proved
    unique (spec, channels, height, width)
);
create table charges (
    id integer primary key,
    image integer not null references images,
    terms integer not null references terms,
    time real not null,  -- seconds since 1970, UTC
    number blob not null,  -- 16 random bytes, by which a service knows the release again: see outgoing
    digest blob,  -- of the image and the release, to notice damage
    link blob not null,  -- of the charge before and this one, see witness
    release blob,  -- the values; null where the protection draws no noise. Last: all before is read without
    unique (image, terms)
);
create table gathered (  -- answers of classifiers here, which leave as one histogram: see shares
    service text, classifier text, image blob, label text, primary key (service, classifier, image)
);
create table shares (  -- the charges of histograms and alarms
    image integer primary key references images, service text not null, classifier text not null,
    most integer not null, sent integer not null  -- see Plan.most; 1 once the service has confirmed it
);
"""


def begin(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    """Begin a database with these tables. Releases are large: pages of 16 KiB are twice as fast as of 4."""
    return databases.begin(path, SCHEMA, MARKS, page_size=16384)


class DamagedError(Exception):
    """Something in a ledger is not as the ledger wrote it."""


def protection_key(spec: str, made_of: str | None) -> str:
    """Return the name of a protection in a ledger: its canonical spec, with the digest of its file as path.

    A file is the same protection wherever it lies. `made_of` is sfumato.protect.release.file_digest_of.
    """
    if made_of is None:
        return spec
    digits = made_of[:16]
    return with_files(spec, lambda key, path: digits) if files_of(spec) else f"{spec}@{digits}"


def scope_of(person: str | None) -> bytes:
    """Return the scope of a person ("": every person); of every image without one.

    Names that look alike (sfumato.base.alike) are one person with one budget. Raises ConfigError for a name
    without a visible character.
    """
    if person is None:
        return EVERY_IMAGE
    if person and not look(person):
        raise ConfigError(f"{person!a} is not the name of a person: its characters are invisible: rename it")
    return EVERY_PERSON + look(person).encode("utf-8", "surrogateescape")


def person_of(scope: bytes) -> str:
    """Return the name of the person of a scope; "" for every image or person."""
    return scope.removeprefix(EVERY_PERSON).decode("utf-8", "surrogateescape")


def describe(scope: bytes) -> str:
    """Describe a scope: "every image", "every person" or "the person anna"."""
    if person := person_of(scope):
        return f"the person {person}"
    return "every image" if scope == EVERY_IMAGE else "every person"


def service_name(url: str) -> str:
    """Return the canonical address of a service, however it is typed; another text is returned unchanged.

    It is in lower case and ASCII (IDNA), without dot, default port or slash at the end.
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


def digest_of_release(image: bytes, release: bytes | None) -> bytes | None:
    """Digest a stored release, to detect damage: 16 bytes."""
    return None if release is None else hashlib.sha256(image + release).digest()[:16]


def fill(database: sqlite3.Connection) -> None:
    """Write the first rows of a new ledger."""
    database.executemany(
        "insert into settings values (?, ?)",
        [("name", secrets.token_hex(16)), ("began", repr(time.time())), ("near copies", "charge")],
    )
    for scope, budget in DEFAULT_BUDGETS.items():
        insert_budget(database, scope, budget)


def insert_budget(
    database: sqlite3.Connection, scope: bytes, budget: Budget, *, counted: bool | None = None
) -> None:
    """Set a budget of a scope; it replaces the one of its kind (releases, or proved guarantees)."""
    if counted is None:
        counted = budget.definition == "releases"
    database.execute(
        "insert or replace into budgets values (?, ?, ?, ?, ?, ?)",
        (scope, counted, budget.definition, budget.amount, budget.pixels, budget.words),
    )
