"""Labels of classes, and names of classifiers, tenants and keys: one rule for all of them."""

import re
import unicodedata
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote as quoted

from pydantic import AfterValidator, Field

from sfumato.base.alike import find_disguise, find_hidden
from sfumato.errors import ConfigError

LABEL = r"^[^\x00-\x1f\x7f-\x9f/]{1,200}$"  # no control characters, and no slash in an address
_MOST = 200  # characters
_RULE = "1 to 200 characters without '/' and control characters, and more than one or two dots; rename it"


def normal(label: str) -> str:
    """A label as Unicode composes it (NFC): the same letters are the same bytes, however they were typed.

    Raises ValueError if it fits no address, which loses names that are one or two dots.
    """
    if label in (".", "..") or not re.fullmatch(LABEL, label):
        raise ValueError(_RULE)
    kept = unicodedata.normalize("NFC", label)
    if len(kept) > _MOST:
        raise ValueError(f"{len(kept)} characters, in Unicode's NFC: choose at most {_MOST}")
    if any("\ud800" <= letter <= "\udfff" for letter in kept):
        raise ValueError("half a surrogate pair: rename it")
    return kept


def as_kept(label: str) -> str:
    """A label as the service keeps it, see normal. Raises ValueError also for one that looks like another."""
    kept = normal(label)
    if kept != kept.strip():
        raise ValueError("it begins or ends with a space, which nobody sees: remove it")
    if mark := find_hidden(kept):
        raise ValueError(f"U+{ord(mark):04X} is invisible, or turns the text around it: remove it")
    if letter := find_disguise(kept):
        raise ValueError(
            f"{letter} (U+{ord(letter):04X}) looks like a Latin letter among Latin letters: type that letter"
        )
    return kept


Label = Annotated[str, Field(pattern=LABEL), AfterValidator(as_kept)]


def normalise(label: str, *, rule: Callable[[str], str] = as_kept) -> str:
    """The same for a label that a user wrote, so that a person has one budget. Raises ConfigError."""
    try:
        return rule(label)
    except ValueError as error:
        raise ConfigError(f"{label!r} is not a label: {error}") from None


def quote(label: str) -> str:
    """A label in an address. Raises ConfigError if it fits none."""
    return quoted(normalise(label, rule=normal), safe="")
