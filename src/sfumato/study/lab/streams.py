"""Releases of a study: by seeded noise, with a stream of its own for every use."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sfumato.dp.mechanisms import Noise
from sfumato.images import digest
from sfumato.protect import parse
from sfumato.protect.release import KINDS, Trained

# Streams of noise, one for every use: of similarity, adversaries, learners, and labels.
MEASURED, GALLERY, PROBES, OTHERS, RESTORED = range(5)
NUMBERS_TESTED, CLASSIFIER_TRAINED, CLASSIFIER_VALIDATED, CLASSIFIER_TESTED = range(5, 9)
TELLING, TOLD, MANY = 9, 10, 11


class Remembering:
    """A protection that puts an image through its network once, and remembers the result.

    All classifiers and adversaries of a study look at the same images. It remembers the release; for
    protections that encode, the encoding, on which each release has its own noise. State: that, up to
    `room` bytes of it.
    """

    def __init__(self, protection: Any, *, room: int = 2**29) -> None:
        self._protection = protection
        self._known: dict[bytes, Any] = {}
        self._room = room

    def __getattr__(self, name: str) -> Any:
        """All else is as the protection has it."""
        return getattr(self._protection, name)

    def release(self, images: Tensor, noise: Noise) -> Any:
        """See Protection.release."""
        protection = self._protection
        if not len(images):
            return protection.release(images, noise)
        if hasattr(protection, "encode"):
            encoded = self._remember(images, lambda new: list(protection.encode(new).split(1)))
            return protection.release_of(torch.cat(encoded), noise)
        rows = self._remember(images, lambda new: _rows(protection.release(new, noise)))
        parts = {name: [getattr(row, name) for row in rows] for name in _row_fields(rows[0])}
        return replace(rows[0], **{name: _join(part) for name, part in parts.items()})

    def _remember(self, images: Tensor, make: Callable[[Tensor], list[Any]]) -> list[Any]:
        """The results of `make` for each image; it calls `make` for unknown images only."""
        keys = [digest(image) for image in images]
        made = {key: self._known[key] for key in keys if key in self._known}
        new = {key: row for row, key in enumerate(keys) if key not in made}
        if new:
            for key, row in zip(new, make(images[list(new.values())]), strict=True):
                made[key] = row
                if (size := _bytes(row)) <= self._room:
                    self._known[key] = row
                    self._room -= size
        return [made[key] for key in keys]


def _rows(release: Any) -> list[Any]:
    """The releases of each of its images."""
    return [release.rows([row]) for row in range(len(release.values))]


def _bytes(row: Any) -> int:
    if isinstance(row, Tensor):
        return row.nbytes
    return sum(int(getattr(row, name).nbytes) for name in _row_fields(row))


def _row_fields(release: Any) -> list[str]:
    """The fields of a release that have a row for each image."""
    kinds = (Tensor, np.ndarray)
    return [field.name for field in fields(release) if isinstance(getattr(release, field.name), kinds)]


def _join(rows: list[Any]) -> Any:
    """Tensors or arrays, one after the other, as a copy."""
    return torch.cat(rows) if isinstance(rows[0], Tensor) else np.concatenate(rows)


class Releases:
    """The protections of a study. State: the last one, with its network and releases.

    One is enough, since the cells of a setting follow each other. Its artefact must not change meanwhile.
    """

    def __init__(self) -> None:
        self._last: tuple[str, Any] | None = None

    def protection(self, spec: str) -> Any:
        """The protection that a spec names; a trained network sees each image once."""
        if self._last is None or self._last[0] != spec:
            protection: Any = parse(spec, takes=KINDS)
            costly, encodes = isinstance(protection, Trained), hasattr(protection, "encode")
            if costly and (encodes or not protection.draws_noise):
                protection = Remembering(protection)
            self._last = spec, protection
        return self._last[1]
