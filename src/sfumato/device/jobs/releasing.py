"""Releases: charged in the ledger first, released after, and the same when asked again."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints
from sfumato.device.ledger.tables import protection_key
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ImageError
from sfumato.images import Images, Pixels, as_array, check_batch, digest
from sfumato.protect.naming import information
from sfumato.protect.parameters import LEAST_DIFFERENCE
from sfumato.protect.region import Region, RegionRelease
from sfumato.protect.release import Protection, Release, file_digest_of


class Released(NamedTuple):
    """A release that the ledger was charged for."""

    release: Any
    new: int  # images that were charged now; the others were charged before
    numbers: list[bytes]  # for each released image, the ledger's number of its release, see Charged


def release(
    protection: Protection, images: Images, ledger: Ledger, *, people: Sequence[str | None] | None = None
) -> Release:
    """Release images; see charge_and_release. Returns the release only."""
    return cast(Release, charge_and_release(protection, images, ledger, people=people).release)


def release_unrecorded(protection: Protection, images: Images) -> Release:
    """Release images outside any ledger, with fresh noise: for copies that stay on this device."""
    check_batch(images)
    released = protection.release(images, fresh_noise())
    if isinstance(released, RegionRelease) and isinstance(protection, Region):
        assert released.covered is not None
        check_covers(protection, list(released.covered), 1.0)
    check_differs(protection, images, released)
    return released


def charge_and_release(
    protection: Protection,
    images: Images,
    ledger: Ledger,
    *,
    people: Sequence[str | None] | None = None,
    names: Sequence[str] | None = None,
    printed: Sequence[Fingerprint | None] | None = None,
    most_clear: float = 1.0,
) -> Released:
    """Release images by the ledger: within its budgets, and each image once.

    An image that this spec released before returns with its earlier noise, also within one batch. When this
    returns, every charge is on disk; when it raises, none is, and nothing has left.

    Args:
        protection: recorded by its spec; a trained one by the digest of its artefact instead of its path.
        people, names, printed: of each image its person, name and fingerprint, see Charge.
        most_clear: for a region, the largest share of the pixels that may stay unprotected.

    Raises:
        BudgetExceededError: one of the images would pass a budget.
        ImageError: the batch is empty or not images; or see check_covers and check_differs.
        SpecError: a parameter does not fit images of this size.
        LedgerError: the ledger cannot be written.
    """
    check_batch(images)
    if not len(images):
        raise ImageError("there are no images to release: give at least one")
    digests = [digest(image) for image in as_array(images)]
    terms = terms_of(protection, (images.shape[1], images.shape[2], images.shape[3]))
    kept = ledger.find_releases(digests, terms["spec"]) if protection.draws_noise else {}
    fresh = {name: i for i, name in enumerate(digests) if name not in kept}
    wanted = images if len(fresh) == len(images) else images[list(fresh.values())]
    released = protection.release(wanted, fresh_noise())
    regions: dict[bytes, tuple[int, NDArray[np.bool_]]] = {}
    if isinstance(released, RegionRelease) and isinstance(protection, Region):
        assert released.covered is not None
        regions = dict(zip(fresh, zip(released.boxes, released.covered, strict=True), strict=True))
        for name, image in zip(digests, as_array(images), strict=True):
            if name not in regions:  # it was released before
                boxes = protection.find(image)
                regions[name] = len(boxes), protection.mask_of(image, boxes)
        check_covers(protection, [covered for _, covered in regions.values()], most_clear)
    check_differs(protection, wanted, released)
    if protection.draws_noise:
        kept |= {name: values.tobytes() for name, values in zip(fresh, released.array, strict=True)}
    count = len(digests)
    if printed is None:
        printed = [None] * count if ledger.near_copies == "ignore" else fingerprints(images)
    facts = zip(digests, names or [""] * count, people or [None] * count, printed, strict=True)
    charged = ledger.charge(
        [
            Charge(image=image, release=kept.get(image), name=name, person=person, fingerprint=seen, **terms)
            for image, name, person, seen in facts
        ]
    )
    if not protection.draws_noise:
        rows = {name: row for row, name in enumerate(fresh)}
        released = released.rows([rows[name] for name in digests])
        return Released(released, charged.new, charged.numbers)
    # The ledger's answer counts, not the draw made here: another process may have been first.
    packets = [packet for packet in charged.releases if packet is not None]  # all, since all are random
    like = released.array
    values = np.frombuffer(bytearray().join(packets), like.dtype).reshape(count, *like.shape[1:])
    released = replace(released, array=values)
    if isinstance(released, RegionRelease):
        released = replace(released, covered=None, boxes=tuple(regions[name][0] for name in digests))
    return Released(released, charged.new, charged.numbers)


def terms_of(protection: Protection, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return what each Charge of a protection says of it, for originals of shape (C, H, W)."""
    spec = protection_key(protection.spec, file_digest_of(protection))
    guarantee, tells = partial(protection.guarantee, shape), information(protection)
    return {"spec": spec, "shape": shape, "guarantee": guarantee, "information": tells}


def check_covers(protection: Region, covered: Sequence[NDArray[np.bool_]], most_clear: float) -> None:
    """Raise ImageError if a region covers nothing of an image, or leaves too much of it unprotected.

    This holds for a region with noise as well, which `check_differs` does not compare: no guarantee counts
    what lies outside of the region, and everybody sees its outline. `covered` is (1, H, W) bool, of each.
    """
    for each in covered:
        clear = 1 - float(each.mean())
        if clear == 1 or clear > most_clear:
            _, height, width = each.shape
            bound = "" if clear == 1 else f", and at most {most_clear:.0%} may"
            raise ImageError(
                f"{protection.spec}: {clear:.2%} of the pixels of a {height}x{width} image would leave as "
                f"they are{bound}: cut the image closer, or protect all of it",
                cause="its release would be nearly the image itself",
            )


def check_differs(protection: Protection, images: Images, released: Release) -> None:
    """Raise ImageError if the release of an image is nearly the image itself, unless "none" was asked for.

    Without noise, the receiver's view decides: a root mean square difference of at most LEAST_DIFFERENCE grey
    levels over all values; for a mask, all pixels shown. A blank image fails for every blur.

    With noise there is no check: a refusal would be a function of the image that no guarantee counts.
    Instead the parameters are bounded when they are read (sfumato.protect.parameters).
    A private feature or a code is not an image and is not compared.
    """
    if protection.draws_noise or protection.spec == "none" or not isinstance(released, Release):
        return
    height, width = images.shape[2:]
    for i, (image, seen) in enumerate(zip(as_array(images), released.pictures(), strict=True)):
        if released.shown is not None:
            if not released.shown[i].all():
                continue
            likeness = f"the release of a {height}x{width} image would show all pixels"
        else:
            covered = released.covered if isinstance(released, RegionRelease) else None
            squares, values = square_difference(image, seen, None if covered is None else covered[i])
            difference = math.sqrt(squares / max(1, values))
            if difference > LEAST_DIFFERENCE:
                continue
            likeness = (
                f"the release of a {height}x{width} image would differ from it by {difference:.2g} grey "
                f"level{'s' * (difference != 1)} (root mean square), and must differ by more than "
                f"{LEAST_DIFFERENCE:g}"
            )
        raise ImageError(
            f"{protection.spec}: {likeness}: choose stronger parameters, such as a larger cell or radius, "
            "which larger images need; or write none to send images in clear",
            cause="its release would be nearly the image itself",
        )


def square_difference(
    image: Pixels, seen: Pixels, covered: NDArray[np.bool_] | None = None
) -> tuple[int, int]:
    """Sum the squared differences of two (C, H, W) uint8 images, in pixels of `covered`; count the values."""
    apart = np.maximum(image, seen) - np.minimum(image, seen)  # fits uint8
    if covered is not None:
        apart = apart[:, covered[0]]
    if not apart.size:
        return 0, 0
    # A histogram of differences is exact, and several times as fast as squares in floating point.
    counts = Image.fromarray(apart.reshape(-1, apart.shape[-1])).histogram()
    return sum(count * level**2 for level, count in enumerate(counts)), apart.size
