"""Classification by an answer table, on the device alone: a query sends nothing.

So an adversary at the service learns nothing from queries; it still has the enrolled examples.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sfumato.base.files import read_regular, whole
from sfumato.device.client.conversation import Guess
from sfumato.device.client.demands import words
from sfumato.device.client.exchange import MOST_REPLY
from sfumato.device.client.sources import Source, as_list, fit
from sfumato.errors import ConfigError, DataError
from sfumato.protect.code import Code, signs
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable


def look_up(table: AnswerTable, code: Code, sources: Source | Iterable[Source]) -> list[list[Guess]]:
    """Return the class of each image as the service would answer; Guess(None) comes first if it is of none.

    The ledger is not charged: nothing leaves.

    Args:
        table, code: see answerer.
        sources: as for Client.classify.

    Raises: as answerer; and ImageError for an image that cannot be read.
    """
    return list(map(answerer(table, code), as_list(sources)))


def answerer(table: AnswerTable, code: Code) -> Callable[[Source], list[Guess]]:
    """Return a function that answers for one image, see look_up.

    Args:
        table: of the classifier.
        code: with the artefact of the table, without noise.

    Raises:
        ConfigError: the code has another artefact, or noise.
        ArtefactError: the artefact cannot be read.
    """
    if code.draws_noise:
        raise ConfigError(
            f"{code.spec}: nothing leaves the device, and noise only makes answers worse: remove it"
        )
    if code.digest() != table.header.made_of:
        raise ConfigError(
            f"{code.artefact}: not the artefact that the table was made for: use the one whose SHA-256 "
            f"begins with {table.header.made_of[:16]}"
        )

    def answer(source: Source) -> list[Guess]:
        image = fit(source, code.shape)[1]
        ((label, none),) = table.look_up(signs(code.encode(image[None])).numpy())
        return [Guess(None, None, None)] * none + [Guess(label, None, None)]

    return answer


def save(table: AnswerTable, path: str | os.PathLike[str]) -> None:
    """Write a table as received, with its signature, whole or not at all."""
    with whole(Path(path)) as temporary:
        temporary.write_bytes(table.content)


def read(path: str | os.PathLike[str]) -> AnswerTable:
    """Read the table of a file. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, MOST_REPLY))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error
