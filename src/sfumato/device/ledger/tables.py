"""The tables of a ledger, and the first rows of a new one."""

import hashlib
import os
import secrets
import sqlite3
import time
import unicodedata
from operator import itemgetter
from pathlib import Path

from sfumato.base.alike import look
from sfumato.base.databases import Marks, transaction
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.scopes import EVERY_IMAGE, EVERY_PERSON, person_scope, service_name
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
create table pins (  -- what each service may have
    service text not null, classifier text not null, spec text not null, since real not null,
    primary key (service, classifier)
);
create table budgets (
    scope blob not null,  -- see scopes; '' is every single image
    counted integer not null,  -- 1 for a number of releases, 0 for what is proved
    definition text not null, amount real not null, pixels integer not null, words text not null,
    primary key (scope, counted)
);
create table terms (
    id integer primary key,
    spec text not null, channels integer not null, height integer not null, width integer not null,
    guarantees text not null,  -- JSON: what a release is proved to hide, for one or more numbers of pixels
    outputs real,  -- bits: log2 of how many different releases there are; null where they are not counted
    leakage real,  -- bits: the maximal leakage of one; null where none is proved
    averaged integer not null default 0,  -- 1: ONE release, of the average of all images that are charged
    unique (spec, channels, height, width)
);
create table charges (
    id integer primary key,
    image blob not null,
    terms integer not null references terms,
    time real not null,  -- seconds since 1970, UTC
    number blob not null,  -- 16 random bytes, by which a service knows the release again: see outgoing
    digest blob,  -- of the image and the release, to notice damage
    link blob not null,  -- of the charge before and this one, see chain
    release blob,  -- the values; null where the protection draws no noise. Last: all before is read without
    unique (image, terms)
);
create table folders (id integer primary key, path blob not null unique);
create table places (  -- who is in each image
    image blob not null, folder integer not null references folders, primary key (image, folder)
) without rowid;
create index places_by_folder on places (folder);
"""

AVERAGE_OF = "; average of "
_DIGITS = 16  # of a digest


def protection_key(spec: str, made_of: str | None) -> str:
    """Return the name of a protection in a ledger: its spec, with the digest of its file instead of the path.

    A file is the same protection wherever it lies; a file trained again at the same path is another.

    Args:
        spec: the canonical one.
        made_of: in hexadecimal, see sfumato.protect.release.file_digest_of; None without an artefact.
    """
    if made_of is None:
        return spec
    digits = made_of[:_DIGITS]
    return with_files(spec, lambda key, path: digits) if files_of(spec) else f"{spec}@{digits}"


def digest_of_release(image: bytes, release: bytes | None) -> bytes | None:
    """Digest a stored release, to detect damage: 16 bytes."""
    if release is None:
        return None
    digested = hashlib.sha256(image)
    digested.update(release)
    return digested.digest()[:16]


def fill(database: sqlite3.Connection) -> None:
    """Write the first rows of a new ledger."""
    database.executemany(
        "insert into settings values (?, ?)",
        [("name", secrets.token_hex(16)), ("began", repr(time.time())), ("near copies", "charge")],
    )
    for scope, budget in DEFAULT_BUDGETS.items():
        insert_budget(database, scope, True, budget)


def join_names(database: sqlite3.Connection) -> None:
    """Make two names of one thing one, in a ledger that was written by an earlier rule.

    People whose names look alike share the images of all, and the smaller of two budgets of one kind. A
    service with two pins keeps the first.
    """
    rule = f"looks of Unicode {unicodedata.unidata_version}"
    query = "select value from settings where key = 'names'"
    if database.execute(query).fetchone() == (rule,):
        return
    pins: list[tuple[str, str, str, float]] = []
    with transaction(database):
        for pin in database.execute("delete from pins returning *, since").fetchall():
            pins.append((service_name(pin[0]), *pin[1:4]))
        pins.sort(key=itemgetter(3))
        database.executemany("insert or ignore into pins values (?, ?, ?, ?)", pins)
        people = "select path from folders union select scope from budgets"
        for (old,) in database.execute(people).fetchall():
            name = old.removeprefix(EVERY_PERSON).decode("utf-8", "surrogateescape")
            if not old.startswith(EVERY_PERSON) or not look(name) or (new := person_scope(name)) == old:
                continue
            database.execute("insert or ignore into folders (path) values (?)", (new,))
            pair = "(select id from folders where path = ?)"
            database.execute(
                f"insert or ignore into places select image, {pair} from places where folder = {pair}",
                (new, old),
            )
            database.execute(f"delete from places where folder = {pair}", (old,))
            database.execute("delete from folders where path = ?", (old,))
            database.execute(
                "delete from budgets where scope = ? and exists (select 1 from budgets as other where "
                "other.scope = ? and other.counted = budgets.counted and other.definition = "
                "budgets.definition and other.amount < budgets.amount)",
                (new, old),
            )
            database.execute("update or ignore budgets set scope = ? where scope = ?", (new, old))
            database.execute("delete from budgets where scope = ?", (old,))
        database.execute("insert or replace into settings values ('names', ?)", (rule,))


def insert_budget(database: sqlite3.Connection, scope: bytes, counted: bool, budget: Budget) -> None:
    """Set a budget of a scope; it replaces the one of its kind (releases, or proved guarantees)."""
    database.execute(
        "insert or replace into budgets values (?, ?, ?, ?, ?, ?)",
        (scope, counted, budget.definition, budget.amount, budget.pixels, budget.words),
    )


def copy_without_releases(database: sqlite3.Connection, path: Path) -> None:
    """Copy a ledger without its releases into a new one."""
    database.execute("attach ? as copy", (os.fspath(path),))
    with transaction(database):
        database.execute("delete from copy.budgets")
        database.execute(
            "update copy.settings set value = (select value from main.settings where key = 'near copies') "
            "where key = 'near copies'"
        )
        for table in ("terms", "folders", "places", "images", "copies", "fingerprint_keys", "budgets"):
            database.execute(f"insert into copy.{table} select * from main.{table}")
        database.execute(
            "insert into copy.charges select id, image, terms, time, number, digest, link, null from "
            "main.charges"
        )
    database.execute("detach copy")
