"""Releases to send: read images as a model takes them, charge them in the ledger, encode their releases."""

import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from sfumato import images, wire
from sfumato.device.client.demands import Protecting
from sfumato.device.jobs.releasing import Released, charge_and_release
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints
from sfumato.errors import BudgetExceededError, ImageError
from sfumato.images import Images, Pixels, as_array
from sfumato.protect.parameters import MOST_SHOWN
from sfumato.protect.release import artefact_of

if TYPE_CHECKING:  # a client that sends pixels needs no PyTorch
    from torch import Tensor

Source = Union[str, os.PathLike[str], "Tensor", Pixels]
Failed = Callable[[Source, ImageError | BudgetExceededError], None]

_ID = 16  # bytes of an id


@dataclass(frozen=True)
class Image:
    """An image given to a client; of an example its class, and who is on it."""

    source: Source
    label: str = ""
    person: str | None = None


def example_id(number: bytes, url: str, classifier: str, label: str) -> str:
    """Return the id by which one class of one service recognises an example.

    Without the ledger, nobody can tell whether the ids of two classes, classifiers or services are of one
    image, nor of which: HMAC-SHA256 of their names under the ledger's number of the release, which is random
    and stays on the device. The service chooses only the classifier's id, and the device knows its address.
    """
    names = "\n".join((url, classifier, label)).encode()  # none of them contains a line break
    return hmac.digest(number, names, "sha256")[:_ID].hex()


def as_list(sources: Source | Iterable[Source]) -> Iterable[Source]:
    """Return images as an iterable; a single image becomes a list of one."""
    if isinstance(sources, str | os.PathLike) or getattr(sources, "ndim", 0) == 3:  # an array or a tensor
        return [sources]  # type: ignore[list-item]
    return sources  # type: ignore[return-value]


def release(
    ledger: Ledger,
    protecting: Protecting,
    given: Sequence[Image],
    shape: tuple[int, int, int],
    failed: Failed | None = None,
) -> tuple[bytes, list[bytes | None]]:
    """Release images, as a model takes them. For `failed` and errors see Client.

    Returns the encoded release, and for each image the ledger's number of its release; None if it failed.
    """
    read: dict[int, tuple[Pixels, Fingerprint | None]] = {}  # by place
    # A private feature or a code is charged and stored like the release of an image.
    protection = protecting

    def charge(places: Sequence[int]) -> Released | None:
        sources = [given[place].source for place in places]
        try:
            return charge_and_release(
                protection,
                np.stack([read[place][0] for place in places]),
                ledger,
                people=[given[place].person for place in places],
                names=[Path(each).name if isinstance(each, str | os.PathLike) else "" for each in sources],
                printed=[read[place][1] for place in places],
                most_clear=MOST_SHOWN,
            )
        except (ImageError, BudgetExceededError) as error:
            if failed is None:
                raise
            if len(places) == 1:
                read.pop(places[0])
                failed(sources[0], error)
                return None
        for place in places:  # by itself: one image over its budget stops no other
            charge([place])
        return charge(list(read)) if read else None

    for place, image in enumerate(given):
        try:
            picture, values = fit(image.source, shape)
            read[place] = values, fingerprints(picture[None])[0]
        except ImageError as error:
            if failed is None:
                raise
            failed(image.source, error)
    released = charge(list(read)) if read else None
    if released is None:
        return b"", [None] * len(given)
    numbers = dict(zip(read, released.numbers, strict=True))
    content = wire.encode(released.release, made_of=artefact_of(protection))
    return content, [numbers.get(place) for place in range(len(given))]


def fit(source: Source, shape: tuple[int, int, int]) -> tuple[Pixels, Pixels]:
    """Read a picture. Returns it as read, and as a model takes it: (C, H, W) uint8. Raises ImageError."""
    channels, height, width = shape
    content: str | os.PathLike[str] | bytes
    if isinstance(source, str | os.PathLike):
        content = source
    else:
        given: Images = source[None]
        images.check_batch(given)
        pixels = as_array(given)[0]
        if pixels.shape == shape:
            return pixels, pixels
        content = images.encode(pixels)
    picture = images.read_array(content, channels=channels)
    image = images.resize(picture, height) if height == width else picture
    if image.shape != shape:
        raise ImageError(
            f"an image of {image.shape[1]}x{image.shape[2]} pixels, and the model's are {height}x{width}: "
            "resize it yourself: only squares are cropped here",
            cause="of another size",
        )
    return picture, image
