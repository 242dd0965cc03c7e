"""Classification by a table, on the device alone: a query sends nothing.

So an adversary at the service learns nothing from queries; it still has the enrolled examples. Prototypes
are compared by the code of the service, sfumato.learn.gallery.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from sfumato.base.files import read_regular, whole
from sfumato.device.client.conversation import Guess
from sfumato.device.client.demands import words
from sfumato.device.client.exchange import MOST_REPLY
from sfumato.device.client.sources import Source, as_list, fit
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, DataError
from sfumato.learn.gallery import Gallery
from sfumato.learn.refusal import Threshold
from sfumato.protect.code import Code
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable, PrototypeTable, Table

if TYPE_CHECKING:
    from sfumato.protect.feature import Feature

Encoding = Union[Code, "Feature"]


def look_up(
    table: Table, protection: Encoding, sources: Source | Iterable[Source], *, top: int = 1
) -> list[list[Guess]]:
    """Return the classes of each image as the service would answer; Guess(None) comes first if it is of none.

    The ledger is not charged: nothing leaves.

    Args:
        table, protection, top: see answerer.
        sources: as for Client.classify.

    Raises: as answerer; and ImageError for an image that cannot be read.
    """
    return list(map(answerer(table, protection, top=top), as_list(sources)))


def answerer(table: Table, protection: Encoding, *, top: int = 1) -> Callable[[Source], list[Guess]]:
    """Return a function that answers for one image, see look_up.

    Args:
        table: of the classifier.
        protection: with the artefact of the table, without noise.
        top: how many classes; an answer table has one.

    Raises:
        ConfigError: the protection has another artefact, or noise.
        ArtefactError: the artefact cannot be read.
    """
    if protection.draws_noise:
        cure = "remove it" if isinstance(protection, Code) else "write noise=0"
        raise ConfigError(
            f"{protection.spec}: nothing leaves the device, and noise only makes answers worse: {cure}"
        )
    if protection.digest() != table.header.made_of:
        raise ConfigError(
            f"{protection.artefact}: not the artefact that the table was made for: use the one whose SHA-256 "
            f"begins with {table.header.made_of[:16]}"
        )
    find = _in_answers(table) if isinstance(table, AnswerTable) else _by_prototypes(table, top)

    def answer(source: Source) -> list[Guess]:
        image = fit(source, protection.shape)[1]
        guesses, none = find(protection.release(image[None], fresh_noise()).numbers())
        return [Guess(None, None, None)] * none + guesses

    return answer


_Find = Callable[[np.ndarray], tuple[list[Guess], bool]]
"""The (1, D) numbers of a release -> its nearest classes, and whether it belongs to none of them."""


def _in_answers(table: AnswerTable) -> _Find:
    def find(numbers: np.ndarray) -> tuple[list[Guess], bool]:
        ((label, none),) = table.look_up(numbers > 0)
        return [Guess(label, None, None)], none

    return find


def _by_prototypes(table: PrototypeTable, top: int) -> _Find:
    labels, threshold = table.header.labels, table.header.threshold
    gallery = Gallery.of(labels, table.vectors, np.ones(len(labels)), table.shots, None)
    refusal = None if threshold is None else Threshold(threshold)

    def find(numbers: np.ndarray) -> tuple[list[Guess], bool]:
        named = gallery.name(numbers, top=top, refusal=refusal)
        columns = (named.rows[0].tolist(), named.shares[0].tolist(), named.squared[0].tolist())
        guesses = [Guess(labels[row], *confidence) for row, *confidence in zip(*columns, strict=True)]
        return guesses, named.none_of_these is not None and bool(named.none_of_these[0])

    return find


def save(table: Table, path: str | os.PathLike[str]) -> None:
    """Write a table as received, with its signature, whole or not at all."""
    with whole(Path(path)) as temporary:
        temporary.write_bytes(table.content)


def read(path: str | os.PathLike[str]) -> Table:
    """Read the table of a file. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, MOST_REPLY))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error
