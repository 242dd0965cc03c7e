"""The way off a device: charged in the ledger first, released after, and the same again when asked again."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from sfumato.device.ledger import Charge, Ledger
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ImageError
from sfumato.images import check_batch, digest
from sfumato.protect.release import Protection, Release, made_of


def release(
    protection: Protection,
    images: Tensor,
    ledger: Ledger,
    *,
    folders: Sequence[str | os.PathLike[str]],
) -> Release:
    """See charged_release; the release alone."""
    return charged_release(protection, images, ledger, folders=folders)[0]


def charged_release(
    protection: Protection,
    images: Tensor,
    ledger: Ledger,
    *,
    folders: Sequence[str | os.PathLike[str]],
) -> tuple[Release, int]:
    """Release images as `protection` does, by the ledger: within its budgets, and each image only once.

    An image that this spec released before comes back with the noise that it had, also within one batch. When
    this returns, every charge is on disk; when it raises, none of them is, and nothing was shown.

    Args:
        protection: how. The ledger has its spec and, of one that was trained, what is in its artefact.
        images: (N, C, H, W) uint8, the originals.
        ledger: of this device.
        folders: where each of the N images lies, for the budgets of folders: a path, or a URL (a str), which
            counts as a folder by its name and those above it, without user and password; see
            sfumato.device.ledger.folder_name.

    Returns:
        the release, and how many of the images were charged for it; the others were before.

    Raises:
        BudgetExceededError: one of the images would pass a budget.
        ImageError: the batch is empty, or none.
        SpecError: a parameter does not fit images of this size.
        LedgerError: the ledger cannot be written.
    """
    check_batch(images)
    if not len(images):
        raise ImageError("there are no images to release: give at least one")
    shape = (images.shape[1], images.shape[2], images.shape[3])
    digests = [digest(image) for image in images]
    spec, made = protection.spec, made_of(protection)
    if made is not None:
        spec = f"{spec}@{made[:16]}"  # trained again at the same path, it is another protection
    kept = ledger.kept(digests, spec) if protection.draws_noise else {}
    fresh = {name: i for i, name in enumerate(digests) if name not in kept}
    wanted = images if len(fresh) == len(images) else images[list(fresh.values())]
    released = protection.release(wanted, fresh_noise())
    if protection.draws_noise:
        kept |= {
            name: values.contiguous().numpy().tobytes()
            for name, values in zip(fresh, released.values, strict=True)
        }
    charged = ledger.charge(
        [
            Charge(
                image=name,
                spec=spec,
                shape=shape,
                guarantee=partial(protection.guarantee, shape),
                release=kept.get(name),
                folder=folder,
            )
            for name, folder in zip(digests, folders, strict=True)
        ]
    )
    if protection.draws_noise:
        # What the ledger returns, not what was drawn here: another process may have been first.
        # (None comes from a copy without releases: nothing leaves by that.)
        packets = [
            kept[name] if one is None else one for name, one in zip(digests, charged.releases, strict=True)
        ]
        packed = torch.frombuffer(bytearray().join(packets), dtype=released.values.dtype)
        values = packed.reshape(len(images), *released.values.shape[1:])
        return replace(released, values=values), charged.new
    rows = {name: row for row, name in enumerate(fresh)}
    return released.rows([rows[name] for name in digests]), charged.new
