"""Judgements of people, who recognised originals in reconstructions: read from files, and combined."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato import images
from sfumato.data.readers.listing import read_rows, source_of, truth_of
from sfumato.errors import DataError, ImageError
from sfumato.images import check_batch, to_float, to_uint8
from sfumato.learn.method import in_batches
from sfumato.networks.encoders.small import to_squares

_COLUMNS = ("original", "reconstruction", "recognised", "source")


@dataclass(frozen=True)
class Judgements:
    """Which of M reconstructions of N originals people recognised."""

    originals: Tensor  # (N, C, H, W) uint8
    reconstructions: Tensor  # (M, C, H, W) uint8
    of: Tensor  # (M,) int64, the index of the original of each
    recognised: Tensor  # (M,) bool, by the majority of annotators
    source: str  # of the images, such as the data set

    def __post_init__(self) -> None:
        check_batch(self.originals)
        check_batch(self.reconstructions)
        ours, theirs = tuple(self.originals.shape[1:]), tuple(self.reconstructions.shape[1:])
        if ours != theirs:
            raise DataError(
                f"{self.source}: originals of {ours} and reconstructions of {theirs}: bring them to one size"
            )
        count = len(self.reconstructions)
        given = " and ".join(f"{tuple(each.shape)} {each.dtype}" for each in (self.of, self.recognised))
        if given != f"({count},) torch.int64 and ({count},) torch.bool":
            raise DataError(
                f"{self.source}: {count} reconstructions, and `of` and `recognised` are {given}: give an "
                "int64 and a bool for each"
            )
        if count and not 0 <= int(self.of.min()) <= int(self.of.max()) < len(self.originals):
            raise DataError(
                f"{self.source}: reconstructions of originals {int(self.of.min())} to {int(self.of.max())}, "
                f"and there are {len(self.originals)}: `of` counts them from 0"
            )

    def card(self) -> dict[str, Any]:
        """The training data on the card of a measure."""
        return {
            "name": self.source,
            "digest": self.digest,
            "originals": len(self.originals),
            "reconstructions": len(self.reconstructions),
            "recognised": int(self.recognised.sum()),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of pixels and judgements."""
        sha = hashlib.sha256(repr((self.originals.shape, self.reconstructions.shape)).encode())
        for part in (self.originals, self.reconstructions, self.of, self.recognised):
            sha.update(part.contiguous().numpy().data)
        return sha.hexdigest()


def combine(sets: Sequence[Judgements], *, size: int) -> Judgements:
    """Combines the judgements of sources, with all images resized to 3 x size x size; DataError for none."""
    if not sets:
        raise DataError("no judgements to combine: name at least one source")
    alike = [resize(judgements, size) for judgements in sets]
    starts = [sum(len(earlier.originals) for earlier in alike[:number]) for number in range(len(alike))]
    return Judgements(
        torch.cat([judgements.originals for judgements in alike]),
        torch.cat([judgements.reconstructions for judgements in alike]),
        torch.cat([judgements.of + start for judgements, start in zip(alike, starts, strict=True)]),
        torch.cat([judgements.recognised for judgements in alike]),
        " + ".join(judgements.source for judgements in alike),
    )


def read(path: str | os.PathLike[str], *, size: int) -> dict[str, Judgements]:
    """Reads the judgements of annotators from a CSV of `sfumato annotate`. -> source -> judgements.

    Its columns are `original` and `reconstruction`, files relative to its folder; `recognised`, true or false
    or 1 or 0; and `source`. If `annotators` are not "people", they are named with the source, and so in the
    artefact. All images are resized to 3 x size x size, as SemSim resizes them in use.

    Raises DataError for a file without such rows, and for a row with a wrong value or image, which it names.
    """
    path = Path(path)
    by_source: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for line, row in read_rows(path, columns=_COLUMNS, of="judgement")[1]:
        by_source.setdefault(source_of(row), []).append((line, row))
    return {source: _gather(source, rows, path.parent, size) for source, rows in by_source.items()}


def _gather(source: str, rows: list[tuple[str, dict[str, str]]], folder: Path, size: int) -> Judgements:
    """The judgements of some rows, with each original once."""
    numbers: dict[str, int] = {}
    originals: list[Tensor] = []
    others: list[Tensor] = []
    for line, row in rows:
        try:
            if row["original"] not in numbers:
                numbers[row["original"]] = len(numbers)
                originals.append(_squares(images.read(folder / row["original"])[None], size))
            others.append(_squares(images.read(folder / row["reconstruction"])[None], size))
        except ImageError as error:
            raise DataError(f"{line}: {error}") from error
    of = torch.tensor([numbers[row["original"]] for _, row in rows])
    recognised = torch.tensor([truth_of(line, row) for line, row in rows])
    return Judgements(torch.cat(originals), torch.cat(others), of, recognised, source)


def resize(judgements: Judgements, size: int) -> Judgements:
    """The judgements with all images resized to 3 x size x size."""
    return replace(
        judgements,
        originals=_squares(judgements.originals, size),
        reconstructions=_squares(judgements.reconstructions, size),
    )


def _squares(batch: Tensor, size: int) -> Tensor:
    return in_batches(lambda part: to_uint8(to_squares(to_float(part), size)), batch)
