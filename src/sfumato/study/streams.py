"""Releases of a study: by seeded noise, with a stream of its own for every use."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.images import digest
from sfumato.protect import Protection, Release, parse
from sfumato.protect.release import IMAGES, KINDS, Trained, kind_of

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

    def __init__(self, protection: Protection, *, room: int = 2**29) -> None:
        self.spec, self.cell, self.kind = protection.spec, protection.cell, kind_of(protection)
        self._protection = protection
        self._known: dict[bytes, Release] = {}
        self._room = room

    def release(self, images: Tensor, noise: Noise) -> Release:
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
        shown = [each.shown for each in rows if each.shown is not None]
        return replace(
            rows[0],
            values=torch.cat([each.values for each in rows]),
            shown=torch.cat(shown) if shown else None,
        )

    def _keep(self, key: bytes, one: Release) -> Release:
        size = one.values.nbytes + (0 if one.shown is None else one.shown.nbytes)
        if size <= self._room:
            self._known[key] = one
            self._room -= size
        return one

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """See Protection.guarantee."""
        return self._protection.guarantee(shape, pixels)


class Releases:
    """The protections of a study. State: the last one, with what it has read and released.

    One is enough, since the cells of a setting follow each other. Its artefact must not change meanwhile.
    """

    def __init__(self) -> None:
        self._last: tuple[str, Any] | None = None

    def protection(self, spec: str) -> Any:
        """The protection that a spec names; one of images that was trained releases each image once."""
        if self._last is None or self._last[0] != spec:
            protection: Any = parse(spec, takes=KINDS)
            trained = isinstance(protection, Trained) and kind_of(protection) in IMAGES
            if trained and not protection.draws_noise:
                protection = Remembering(protection)
            self._last = spec, protection
        return self._last[1]
