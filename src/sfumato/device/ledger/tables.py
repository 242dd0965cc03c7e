"""The tables of a ledger, the first rows of a new one, and the names and digests in them."""

import hashlib
import secrets
import sqlite3
import time

from sfumato.base.databases import Marks
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.scopes import EVERY_IMAGE, EVERY_PERSON
from sfumato.protect.spec import files_of, with_files

MARKS = Marks(application=0x5346554D, version=7)  # "SFUM": a ledger
# 2025, in seconds since 1970: no release was made before there was a ledger. A clock that says so is wrong.
EARLIEST = 1_735_689_600.0
PAGE = 16384  # releases are large: twice as fast as 4096

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
    scope blob not null,  -- see scopes; '' is every single image
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
"""


class DamagedError(Exception):
    """Something in a ledger is not as the ledger wrote it."""


def protection_key(spec: str, made_of: str | None) -> str:
    """Return the name of a protection in a ledger: its spec, with the digest of its file instead of the path.

    A file is the same protection wherever it lies; a file trained again at the same path is another. The spec
    is the canonical one; `made_of` is sfumato.protect.release.file_digest_of, None without an artefact.
    """
    if made_of is None:
        return spec
    digits = made_of[:16]
    return with_files(spec, lambda key, path: digits) if files_of(spec) else f"{spec}@{digits}"


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
