"""What leaves a device for a service: images, read and protected, and charged in the ledger before."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from sfumato import wire
from sfumato.device import releasing
from sfumato.device.demands import Protecting
from sfumato.device.ledger import Ledger
from sfumato.device.sources import Source, folder_of, image_of
from sfumato.device.survey import survey
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError
from sfumato.protect import Protection
from sfumato.protect.code import Code
from sfumato.protect.release import Release, made_of

Failed = Callable[[Source, ImageError], None]


@dataclass(frozen=True)
class Image:
    """An image as a client is given it, and who is on it; None where nobody says."""

    source: Source
    person: str | None = None


@dataclass(frozen=True)
class Sent:
    """An encoded release, and who is on each of its images."""

    content: bytes
    people: tuple[str | None, ...]


class Outgoing:
    """Makes what leaves, by the ledger of the device. State: whether that was surveyed."""

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self._ledger = ledger
        self._surveyed = False

    def released(
        self,
        protecting: Protecting,
        images: Sequence[Image],
        shape: tuple[int, int, int],
        failed: Failed | None = None,
        *,
        average: bool = False,
    ) -> Sent | None:
        """What leaves of some images; None where nothing does.

        Args:
            protecting: how.
            images: see above.
            shape: C, H and W, as the model takes them.
            failed: called with each image that cannot be read, or whose release would be nearly itself, and
                why; None raises that.
            average: of codes of one person: make one of all.

        Raises: as Client.enrol does.
        """
        read: list[tuple[Image, Tensor]] = []
        for image in images:
            try:
                read.append((image, image_of(image.source, shape)))
            except ImageError as error:
                if failed is None:
                    raise
                failed(image.source, error)
        # A private feature or a code is charged, kept and given out as the release of an image is.
        protection = cast(Protection, protecting)
        try:
            released = self._charged(protection, read, average)
        except ImageError:
            if failed is None:
                raise
            read = _hidden(protection, read, failed)
            released = self._charged(protection, read, average)
        if released is None:
            return None
        people = tuple(image.person for image, _ in read)
        return Sent(wire.encode(released, made_of=made_of(protection)), people)

    def _charged(
        self, protection: Protection, read: list[tuple[Image, Tensor]], average: bool
    ) -> Release | None:
        if not read:
            return None
        # Opened here: a ledger is for one thread, and a client for any number.
        with Ledger(self._ledger) as ledger:
            if not self._surveyed:
                survey(ledger)
                self._surveyed = True
            images = torch.stack([image for _, image in read])
            folders = [folder_of(image.source) for image, _ in read]
            people = [image.person for image, _ in read]
            if average:
                code, person = cast(Code, protection), people[0]
                together = releasing.averaged_release(code, images, ledger, folders=folders, person=person)
                return cast(Release, together[0])
            return releasing.release(protection, images, ledger, folders=folders, people=people)


def check_averages(protection: Protecting) -> None:
    """Raise ConfigError unless releases of a protection can be averaged here."""
    if not isinstance(protection, Code):
        raise ConfigError(
            f"{protection.spec}: codes alone are averaged on the device: protect by code:artefact=..., or "
            "enrol each image by itself"
        )


def _hidden(
    protection: Protection, read: list[tuple[Image, Tensor]], failed: Failed
) -> list[tuple[Image, Tensor]]:
    """The images whose releases are not nearly themselves; `failed` is told of the others."""
    hidden = []
    for image, values in read:
        try:
            # To look at alone: no noise is drawn where this is asked, and nothing of it leaves.
            released = protection.release(values[None], fresh_noise())
            releasing.check_differs(protection, values[None], released)
        except ImageError as error:
            failed(image.source, error)
        else:
            hidden.append((image, values))
    return hidden
