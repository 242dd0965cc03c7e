"""What a budget is for, as bytes: every single image, a folder, a URL, a person, or every person.

Images lie in scopes: an image counts in its folder and in all above it, in those of its copies, and for the
people who are in it.
"""

import os
import re
import shlex
import unicodedata
from pathlib import Path

from sfumato.errors import ConfigError

EVERY_IMAGE = b""
EVERY_PERSON = b"person:"


def person_scope(name: str) -> bytes:
    """The scope of the images of one person, which is not a folder: these begin with a slash or have "://"."""
    return EVERY_PERSON + unicodedata.normalize("NFC", name).encode("utf-8", "surrogateescape")


def scope_of(folder: str | os.PathLike[str] | None, person: str | None) -> bytes:
    """The scope of a folder or URL, or of a person ("" for every person); of every image without either.

    Raises:
        ConfigError: both.
    """
    if folder is not None and person is not None:
        raise ConfigError("a sum is of a folder or of a person: name one of them")
    if folder is not None:
        return folder_name(folder)
    return EVERY_IMAGE if person is None else person_scope(person)


def described(scope: bytes) -> str:
    """A scope in words: "every image", "the person anna", or a path or URL."""
    if scope == EVERY_IMAGE:
        return "every image"
    if scope == EVERY_PERSON:
        return "every person"
    if scope.startswith(EVERY_PERSON):
        return f"the person {scope.removeprefix(EVERY_PERSON).decode('utf-8', 'surrogateescape')}"
    return os.fsdecode(scope)


def kind_of(scope: bytes) -> str:
    """A scope in words that name nobody and no place of this device."""
    if scope == EVERY_IMAGE:
        return "an image"
    return "a person" if scope.startswith(EVERY_PERSON) else "a folder"


def option_of(scope: bytes) -> str:
    """The option that names a scope to `sfumato ledger budget`, after a space; "" for every image."""
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
    """Whether one folder or URL is another, or lies above it."""
    return other == folder or other.startswith(folder.rstrip(b"/") + b"/")


def folder_name(where: str | os.PathLike[str]) -> bytes:
    """What tells a folder from all others: its path without links; or a URL, without user and password.

    A URL is a folder of its own, whatever it leads to, with all below it: a budget of `s3://photos/anna` is
    for `s3://photos/anna/2024` too. A budget of a folder of this machine, `/` among them, is for what lies on
    this machine; `file:///photos` is `/photos`.
    """
    if is_url(where) and not str(where).startswith("file://"):
        return os.fsencode(without_password(str(where)).rstrip("/"))
    return os.fsencode(Path(os.fspath(where).removeprefix("file://")).resolve())


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether something names a place by a URL, such as s3://bucket/folder; a Path never does."""
    return isinstance(where, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", where) is not None


def without_password(url: str) -> str:
    """A URL without the "user:password@" that it may have; a user alone stays; a container is not one."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    before, _, host = authority.rpartition("@")
    return f"{scheme.lower()}://{host if ':' in before else authority}{slash}{path}"
