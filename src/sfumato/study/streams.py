"""Releases of a study: by seeded noise, with a stream of its own for every use."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from sfumato.dp.mechanisms import Noise
from sfumato.images import digest
from sfumato.protect import parse
from sfumato.protect.release import KINDS, Trained

# Streams of noise, one for every use: of similarity, adversaries, learners, and what a release tells.
MEASURED, GALLERY, PROBES, OTHERS, RESTORED = range(5)
NUMBERS_TESTED, CLASSIFIER_TRAINED, CLASSIFIER_VALIDATED, CLASSIFIER_TESTED = range(5, 9)
TELLING, TOLD = 9, 10


class Remembering:
    """A protection that releases an image once, and gives the same release whenever it is asked again.

    For those without noise whose release costs much, as that of a network does: all classifiers and
    adversaries of a study look at the same images. State: the releases, up to `room` bytes of them.
    """

    draws_noise = False

    def __init__(self, protection: Any, *, room: int = 2**29) -> None:
        self._protection = protection
        self._known: dict[bytes, Any] = {}
        self._room = room

    def __getattr__(self, name: str) -> Any:
        """All else is as the protection has it."""
        return getattr(self._protection, name)

    def release(self, images: Tensor, noise: Noise) -> Any:
        """See Protection.release."""
        if not len(images):
            return self._protection.release(images, noise)
        keys = [digest(image) for image in images]
        found = {key: self._known[key] for key in keys if key in self._known}
        new = {key: row for row, key in enumerate(keys) if key not in found}
        if new:
            made = self._protection.release(images[list(new.values())], noise)
            for place, key in enumerate(new):
                found[key] = self._keep(key, made.rows([place]))
        rows = [found[key] for key in keys]
        parts = {name: [getattr(each, name) for each in rows] for name in _tensors(rows[0])}
        return replace(rows[0], **{name: torch.cat(part) for name, part in parts.items()})

    def _keep(self, key: bytes, release: Any) -> Any:
        size = sum(getattr(release, name).nbytes for name in _tensors(release))
        if size <= self._room:
            self._known[key] = release
            self._room -= size
        return release


def _tensors(release: Any) -> list[str]:
    """The fields of a release that have a row an image."""
    return [field.name for field in fields(release) if isinstance(getattr(release, field.name), Tensor)]


class Releases:
    """The protections of a study. State: the last one, with what it has read and released.

    One is enough, since the cells of a setting follow each other. Its artefact must not change meanwhile.
    """

    def __init__(self) -> None:
        self._last: tuple[str, Any] | None = None

    def protection(self, spec: str) -> Any:
        """The protection that a spec names; what was trained and draws no noise releases each image once."""
        if self._last is None or self._last[0] != spec:
            protection: Any = parse(spec, takes=KINDS)
            trained = isinstance(protection, Trained)
            if trained and not protection.draws_noise:
                protection = Remembering(protection)
            self._last = spec, protection
        return self._last[1]
