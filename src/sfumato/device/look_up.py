"""Classifying by an answer table: on the device alone, so that a query sends nothing.

An adversary at the service learns as much from a thousand queries as from none. What it still has are the
examples that were enrolled.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from sfumato.device.conversation import Guess
from sfumato.device.demands import words
from sfumato.device.sources import Source, batches, image_of, listed
from sfumato.errors import ConfigError, DataError
from sfumato.files import read_regular, whole
from sfumato.protect.code import Code, signs
from sfumato.wire import tables
from sfumato.wire.tables import AnswerTable

_MOST_FILE = 16 << 20  # bytes, as of any answer of a service


def look_up(table: AnswerTable, code: Code, sources: Source | Iterable[Source]) -> list[list[Guess]]:
    """The class of each image, as the service would answer its code; before it Guess(None), if of none.

    The ledger is not charged: nothing leaves.

    Args:
        table: of the classifier.
        code: by the artefact that the table was made for, without noise.
        sources: as Client.classify takes them.

    Raises:
        ConfigError: a code by another artefact, or with noise.
        ImageError: an image that cannot be read.
        ArtefactError: the artefact cannot be read.
    """
    if code.draws_noise:
        raise ConfigError(
            f"{code.spec}: nothing leaves here, and noise only makes answers worse: leave it out"
        )
    if code.made_of() != table.header.made_of:
        raise ConfigError(
            f"{code.artefact}: another artefact than the table was made for: use the one whose SHA-256 "
            f"begins with {table.header.made_of[:16]}"
        )
    answers: list[list[Guess]] = []
    for batch in batches(listed(sources), code.shape):
        images = torch.stack([image_of(source, code.shape)[0] for source in batch])
        bits: np.ndarray = signs(code.encode(images)).numpy()
        answers += [
            [Guess(None, None, None)] * none + [Guess(label, None, None)]
            for label, none in table.look_up(bits)
        ]
    return answers


def save(table: AnswerTable, path: str | os.PathLike[str]) -> None:
    """Write a table as it came, with its signature, whole or not at all."""
    with whole(Path(path)) as temporary:
        temporary.write_bytes(table.content)


def read(path: str | os.PathLike[str]) -> AnswerTable:
    """The table of a file. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, _MOST_FILE))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error
