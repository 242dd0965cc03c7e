"""Every exception that sfumato raises on purpose.

All share one base, so that a caller can catch the family, and each is also of the built-in kind that
a caller would expect. A message says what was asked, what was found, and what to do.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

_MOST, _END = 2000, 400  # characters of a message, and of its end, which says what to do


def shorten(text: str, most: int = 200, *, end: int = 0) -> str:
    """Shortens a text of others for a message: if it is long, to its beginning and its last `end`."""
    if len(text) <= most + 40:  # about the length of the words between
        return text
    return f"{text[: most - end]}... ({len(text):,} characters){f' ...{text[-end:]}' if end else ''}"


class SfumatoError(Exception):
    """The base of every error raised on purpose. Its message is bounded, even if it repeats long texts."""

    def __init__(self, message: str = "", **more: Any) -> None:
        super().__init__(shorten(message, _MOST, end=_END), **more)


class ConfigError(SfumatoError, ValueError):
    """A setting has a value that cannot work."""


class SpecError(ConfigError):
    """A protection spec is malformed, or does not fit the images."""


class DataError(SfumatoError, ValueError):
    """A data set, a table or a label does not fit the request."""


class ImageError(DataError):
    """A file is not an image, or is refused; `cause` has no names, so that failures are counted by it."""

    def __init__(self, message: str, *, cause: str = "not an image that can be used") -> None:
        super().__init__(message)
        self.cause = cause


class ArtefactError(SfumatoError, ValueError):
    """A weights file is damaged, foreign, or of another kind."""


class LedgerError(SfumatoError):
    """A ledger is damaged, foreign, or cannot be written."""


class BudgetExceededError(LedgerError):
    """A release would pass a privacy budget: nothing was charged, and nothing may leave."""

    def __init__(self, message: str, *, cause: str = "over budget") -> None:
        super().__init__(message)
        self.cause = cause


class BusyError(SfumatoError):
    """Others are using what this needs: nothing was done. Try again, after `seconds` if they are known."""

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class MissingExtraError(SfumatoError, ImportError):
    """An optional dependency is not installed."""


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Wraps the imports of an optional library: if it is missing, the error names its extra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {error.name}: in the clone of sfumato, run "
            f"pip install -c constraints.txt -e '.[{extra}]'",
            name=error.name,
        ) from error


def require(what: str, extra: str, *libraries: str) -> None:
    """Raises MissingExtraError before the work if modules that it needs cannot be imported."""
    with needs_extra(what, extra):
        for library in libraries:
            if find_spec(library) is None:
                raise ImportError(name=library)


def first_problem(error: Any, whole: str = "body") -> str:
    """Words the first problem of a pydantic error: its place, or `whole`, and what is wrong."""
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc'])) or whole}: {problem['msg']}"


def did_you_mean(wrong: str, known: Iterable[str], inner: Iterable[str] = ()) -> str:
    """Names the words with `wrong` as a part, else the nearest, and all known: the end of an error message.

    `inner` are further words, as dotted keys, whose last part may be meant; the message does not list them.
    """
    words, inner, wrong = sorted(known), list(inner), wrong[:200]
    parts = [*words, *(word.rpartition(".")[2] for word in inner)]
    near: list[str] = []
    for part in (wrong, *difflib.get_close_matches(wrong, parts, n=1, cutoff=0.5)):
        having = [word for word in (*words, *inner) if f"-{part}-" in f"-{word.replace('.', '-')}-"]
        near = near or ([part] if part in words else sorted(having, key=len)[:3])
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}Known: {', '.join(words)}"
