"""Requests to a service: read images, charge them in the ledger, and encode their releases."""

import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from sfumato import wire
from sfumato.device.client.demands import Protecting
from sfumato.device.client.sources import Source, image_of, name_of
from sfumato.device.jobs import releasing
from sfumato.device.jobs.releasing import Released
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.errors import BudgetExceededError, ConfigError, ImageError
from sfumato.images import Pixels
from sfumato.protect import Protection
from sfumato.protect.code import Code
from sfumato.protect.parameters import MOST_SHOWN
from sfumato.protect.release import artefact_of

if TYPE_CHECKING:
    pass

Stopped = ImageError | BudgetExceededError  # the errors that stop an image
Failed = Callable[[Source, Stopped], None]

_ID = 16  # bytes of an id


@dataclass(frozen=True)
class Image:
    """An image given to a client.

    Attributes:
        source: the image.
        label: its class as an example; "" for a query.
        person: who is on it; None if unknown.
        printed: the fingerprint of the picture, set after reading.
    """

    source: Source
    label: str = ""
    person: str | None = None
    printed: Fingerprint | None = None


@dataclass(frozen=True)
class Sent:
    """An encoded release.

    Attributes:
        content: the bytes.
        images: its images; for an average, all images that went into it.
        numbers: the ledger's number of each release in it.
    """

    content: bytes
    images: tuple[Image, ...]
    numbers: tuple[bytes, ...]


def example_id(number: bytes, *, url: str, classifier: str, label: str) -> str:
    """Return the id by which one class of one service recognises an example.

    Without the ledger, nobody can tell whether the ids of two classes, classifiers or services are of one
    image, nor of which: HMAC-SHA256 of their names under the number, which is random and stays on the device.

    Args:
        number: the ledger's number of the release, see Charged.
        url: of the service, as the device knows it: the service chooses only the classifier's id.
        classifier: its id.
        label: of the class.
    """
    names = "\n".join((url, classifier, label)).encode()  # none of them contains a line break
    return hmac.digest(number, names, "sha256")[:_ID].hex()


class Outgoing:
    """Makes releases by the ledger of the device."""

    def __init__(self, ledger: str | os.PathLike[str]) -> None:
        self._ledger = ledger

    def release(
        self,
        protecting: Protecting,
        images: Sequence[Image],
        shape: tuple[int, int, int],
        failed: Callable[[Image, Stopped], None] | None = None,
        *,
        average: bool = False,
    ) -> Sent | None:
        """Release some images; None if none may leave.

        Args:
            protecting: the protection.
            images: the images.
            shape: C, H and W, as the model takes them.
            failed: called with each image that cannot be read, is nearly its own release, or would pass a
                budget, and with the error; None raises the error.
            average: for codes of one class: average all into one.

        Raises: as Client.enrol.
        """
        read: list[tuple[Image, Pixels]] = []
        for image in images:
            try:
                values, printed = image_of(image.source, shape)
                read.append((replace(image, printed=printed), values))
            except ImageError as error:
                if failed is None:
                    raise
                failed(image, error)
        # A private feature or a code is charged and stored like the release of an image.
        protection = cast(Protection, protecting)
        try:
            released = self._charge(protection, read, average)
        except (ImageError, BudgetExceededError) as error:
            if failed is None:
                raise
            if average:
                for image, _ in read:
                    failed(image, error)
                return None
            read = self._charge_each(protection, read, failed)
            released = self._charge(protection, read, average)
        if released is None:
            return None
        content = wire.encode(released.release, made_of=artefact_of(protection))
        return Sent(content, tuple(image for image, _ in read), tuple(released.numbers))

    def _charge_each(
        self,
        protection: Protection,
        read: list[tuple[Image, Pixels]],
        failed: Callable[[Image, Stopped], None],
    ) -> list[tuple[Image, Pixels]]:
        """Charge each image by itself and return those that may leave; `failed` gets the others."""
        passing = []
        for image, values in read:
            try:
                self._charge(protection, [(image, values)], average=False)
            except (ImageError, BudgetExceededError) as error:
                failed(image, error)
            else:
                passing.append((image, values))
        return passing

    def _charge(
        self, protection: Protection, read: list[tuple[Image, Pixels]], average: bool
    ) -> Released | None:
        if not read:
            return None
        # Opened here: a ledger is for one thread, a client for any number.
        with Ledger(self._ledger) as ledger:
            images = np.stack([image for _, image in read])
            people = [image.person for image, _ in read]
            names = [name_of(image.source) for image, _ in read]
            printed = [image.printed for image, _ in read]
            if average:
                code, person = cast(Code, protection), people[0]
                return releasing.release_average(
                    code, images, ledger, person=person, names=names, printed=printed
                )
            return releasing.charge_and_release(
                protection,
                images,
                ledger,
                people=people,
                names=names,
                printed=printed,
                most_clear=MOST_SHOWN,
            )


def check_averages(protection: Protecting) -> None:
    """Raise ConfigError unless releases of a protection can be averaged here."""
    if not isinstance(protection, Code):
        raise ConfigError(
            f"{protection.spec}: only codes can be averaged on the device: use code:artefact=..., or "
            "enrol each image by itself"
        )
