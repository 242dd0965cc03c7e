"""Classification by a table of answers, on the device alone: a query sends nothing.

So an adversary at the service learns nothing from queries; it still has the enrolled examples.
"""

import os
from collections.abc import Callable, Iterable

from sfumato.base.files import read_regular
from sfumato.device.client.client import NONE, Guess
from sfumato.device.client.connection import MOST_REPLY
from sfumato.device.client.demands import words
from sfumato.device.client.outgoing import Source, as_list, fit
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, DataError, ImageError
from sfumato.protect.code import Code
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable


def look_up(
    table: AnswerTable,
    code: Code,
    sources: Source | Iterable[Source],
    *,
    failed: Callable[[Source, ImageError], None] | None = None,
) -> list[list[Guess]]:
    """Return the class of each image as the service would answer; Guess(None) comes first if it is of none.

    The ledger is not charged: nothing leaves. `sources` and `failed` are as for Client.classify_many. Raises
    ConfigError if the code has another artefact than the table, or noise.
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
    guesses: list[list[Guess]] = []
    for source in as_list(sources):
        try:
            image = fit(source, code.shape)[1]
        except ImageError as error:
            if failed is None:
                raise
            failed(source, error)
            guesses.append([])
            continue
        ((label, none),) = table.look_up(code.release(image[None], fresh_noise()).numbers() > 0)
        guesses.append([NONE] * none + [Guess(label, None, None)])
    return guesses


def read(path: str | os.PathLike[str]) -> AnswerTable:
    """Read the table of a file. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, MOST_REPLY))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error
