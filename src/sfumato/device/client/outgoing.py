"""What leaves a device for a service: images, read and protected, and charged in the ledger before."""

import hmac
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from sfumato import wire
from sfumato.device.client.demands import Protecting
from sfumato.device.client.sources import Source, folder_of, image_of, name_of
from sfumato.device.jobs import releasing
from sfumato.device.jobs.releasing import Released
from sfumato.device.jobs.survey import survey
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.errors import BudgetExceededError, ConfigError, ImageError
from sfumato.protect import Protection
from sfumato.protect.code import Code
from sfumato.protect.naming import chances_by_class
from sfumato.protect.parameters import MOST_SHOWN
from sfumato.protect.release import artefact_of

Stopped = ImageError | BudgetExceededError  # why an image does not leave
Failed = Callable[[Source, Stopped], None]

_ID = 16  # bytes of an id


@dataclass(frozen=True)
class Image:
    """An image as a client is given it.

    Attributes:
        source: see above.
        label: of which class it is an example; "" of a query.
        person: who is on it; None where nobody says.
        printed: the fingerprint of the picture as it was read, once it was.
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
        images: those that it is of; of an average, all that went into it.
        numbers: of each release in it, the ledger's own number.
    """

    content: bytes
    images: tuple[Image, ...]
    numbers: tuple[bytes, ...]


def example_id(number: bytes, *, url: str, classifier: str, label: str) -> str:
    """By which one class of one service knows an example again.

    Nobody without the ledger can tell whether the ids of two classes, classifiers or services are of one
    image, nor which image it is: HMAC-SHA256 of their names under the number, which is random and stays here.

    Args:
        number: the ledger's number of the release, see Charged.
        url: of the service, as the device knows it: the service chooses only the id of the classifier.
        classifier: its id.
        label: of the class.
    """
    names = "\n".join((url, classifier, label)).encode()  # none of them has the end of a line
    return hmac.digest(number, names, "sha256")[:_ID].hex()


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
        failed: Callable[[Image, Stopped], None] | None = None,
        *,
        average: bool = False,
    ) -> Sent | None:
        """What leaves of some images; None where nothing does.

        Args:
            protecting: how.
            images: see above.
            shape: C, H and W, as the model takes them.
            failed: called with each image that cannot be read, whose release would be nearly itself, or that
                would pass a budget, and why; None raises that.
            average: of codes of one class: make one of all.

        Raises: as Client.enrol does.
        """
        read: list[tuple[Image, Tensor]] = []
        for image in images:
            try:
                values, printed = image_of(image.source, shape)
                read.append((replace(image, printed=printed), values))
            except ImageError as error:
                if failed is None:
                    raise
                failed(image, error)
        # A private feature or a code is charged, kept and given out as the release of an image is.
        protection = cast(Protection, protecting)
        try:
            released = self._charged(protection, read, average)
        except (ImageError, BudgetExceededError) as error:
            if failed is None:
                raise
            if average:
                for image, _ in read:
                    failed(image, error)
                return None
            read = self._passing(protection, read, failed)
            released = self._charged(protection, read, average)
        if released is None:
            return None
        content = wire.encode(released.release, made_of=artefact_of(protection))
        return Sent(content, tuple(image for image, _ in read), tuple(released.numbers))

    def _passing(
        self,
        protection: Protection,
        read: list[tuple[Image, Tensor]],
        failed: Callable[[Image, Stopped], None],
    ) -> list[tuple[Image, Tensor]]:
        """The images that may leave, each charged by itself; `failed` is called with the others."""
        passing = []
        for image, values in read:
            try:
                self._charged(protection, [(image, values)], average=False)
            except (ImageError, BudgetExceededError) as error:
                failed(image, error)
            else:
                passing.append((image, values))
        return passing

    def _charged(
        self, protection: Protection, read: list[tuple[Image, Tensor]], average: bool
    ) -> Released | None:
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
            names = [name_of(image.source) for image, _ in read]
            printed = [image.printed for image, _ in read]
            if average:
                code, person = cast(Code, protection), people[0]
                return releasing.averaged_release(
                    code, images, ledger, folders=folders, person=person, names=names, printed=printed
                )
            return releasing.charged_release(
                protection,
                images,
                ledger,
                folders=folders,
                people=people,
                names=names,
                printed=printed,
                most_clear=MOST_SHOWN,
            )


def standing_out(
    protection: Protecting,
    images: Mapping[str, Sequence[Image]],
    shape: tuple[int, int, int],
    *,
    at_most: float,
    average: bool,
) -> dict[str, float]:
    """The classes that may not be enrolled, since one of their releases names them more often than `at_most`.

    Among the classes that stay, to the best adversary, who has all their images; see chances_by_class. The
    one that stands out most is left out, until none does. Nothing is charged, and nothing leaves.

    Args:
        protection: a code of at most 12 bits.
        images: of each class; those that cannot be read are passed over here.
        shape: C, H and W, as the model takes them.
        at_most: from 0 to 1.
        average: whether one code of all its images leaves of a class.

    Returns:
        Of each class that is left out, how often it is named.

    Raises:
        ConfigError: another protection, or fewer classes than 1 / at_most.
    """
    if not isinstance(protection, Code):
        raise ConfigError(f"{protection.spec}: who stands out is known of codes of few bits alone")
    numbers: list[Tensor] = []
    classes = []
    for label, sources in images.items():
        read = []
        for image in sources:
            with suppress(ImageError):  # which is said of it when it would be sent
                read.append(image_of(image.source, shape)[0])
        if read:
            made = protection.encode(torch.stack(read))
            numbers.append(made.mean(0, keepdim=True) if average else made)
            classes.append(label)
    left: dict[str, float] = {}
    while staying := [row for row, label in enumerate(classes) if label not in left]:
        if at_most * len(staying) < 1:
            raise ConfigError(
                f"to guess among {len(staying)} classes names each in {1 / len(staying):.1%} already: for at "
                f"most {at_most:.1%} enrol at least {math.ceil(1 / at_most)} classes that do not stand out"
            )
        rows = torch.cat([torch.full((len(numbers[row]),), row) for row in staying])
        each = chances_by_class(protection, torch.cat([numbers[row] for row in staying]), rows)
        worst = int(each.argmax())
        if each[worst] <= at_most * (1 + 1e-9):
            break
        left[classes[staying[worst]]] = float(each[worst])
    return left


def check_averages(protection: Protecting) -> None:
    """Raise ConfigError unless releases of a protection can be averaged here."""
    if not isinstance(protection, Code):
        raise ConfigError(
            f"{protection.spec}: codes alone are averaged on the device: protect by code:artefact=..., or "
            "enrol each image by itself"
        )
