"""Classifying by an answer table: on the device alone, so that a query sends nothing.

An adversary at the service learns as much from a thousand queries as from none. What it still has are the
examples that were enrolled.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sfumato.base.files import read_regular, whole
from sfumato.device.client.conversation import Guess
from sfumato.device.client.demands import words
from sfumato.device.client.exchange import MOST_REPLY
from sfumato.device.client.sources import Source, fitted, listed
from sfumato.errors import ConfigError, DataError
from sfumato.protect.code import Code, signs
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable


def look_up(table: AnswerTable, code: Code, sources: Source | Iterable[Source]) -> list[list[Guess]]:
    """The class of each image, as the service would answer its code; before it Guess(None), if of none.

    The ledger is not charged: nothing leaves.

    Args:
        table, code: see by_table.
        sources: as Client.classify takes them.

    Raises: as by_table does; and ImageError for an image that cannot be read.
    """
    return list(map(by_table(table, code), listed(sources)))


def by_table(table: AnswerTable, code: Code) -> Callable[[Source], list[Guess]]:
    """A function that answers for one image, see look_up.

    Args:
        table: of the classifier.
        code: by the artefact that the table was made for, without noise.

    Raises:
        ConfigError: a code by another artefact, or with noise.
        ArtefactError: the artefact cannot be read.
    """
    if code.draws_noise:
        raise ConfigError(
            f"{code.spec}: nothing leaves here, and noise only makes answers worse: leave it out"
        )
    if code.digest() != table.header.made_of:
        raise ConfigError(
            f"{code.artefact}: another artefact than the table was made for: use the one whose SHA-256 "
            f"begins with {table.header.made_of[:16]}"
        )

    def answer(source: Source) -> list[Guess]:
        image = fitted(source, code.shape)[1]
        ((label, none),) = table.look_up(signs(code.encode(image[None])).numpy())
        return [Guess(None, None, None)] * none + [Guess(label, None, None)]

    return answer


def save(table: AnswerTable, path: str | os.PathLike[str]) -> None:
    """Write a table as it came, with its signature, whole or not at all."""
    with whole(Path(path)) as temporary:
        temporary.write_bytes(table.content)


def read(path: str | os.PathLike[str]) -> AnswerTable:
    """The table of a file. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, MOST_REPLY))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error
