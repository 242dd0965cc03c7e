"""A black block over the centre of the image, which holds an aligned face."""

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, as_array, check_batch
from sfumato.protect.parameters import Parametrised, check_bounds
from sfumato.protect.recognition import first_image
from sfumato.protect.release import Release

SHARE = "it is the part of the side, up to 1"


def centre(shape: Sequence[int], share: float) -> tuple[slice, slice]:
    """Rows and columns of the centre of images of shape (N, C, H, W): its sides are `share` of theirs."""
    return _middle(shape[2], share), _middle(shape[3], share)


def _middle(length: int, share: float) -> slice:
    hidden = max(1, round(share * length))
    start = (length - hidden) // 2
    return slice(start, start + hidden)


@dataclass(frozen=True)
class Block(Parametrised):
    """Blackens the centre square, whose side is `share` of the image's.

    Source: the "Block" baseline of the mask paper (docs/papers.md, "Mask"), which blackens the centre of
    aligned faces and does not say how much; 0.6 of the side hides brows to chin there. Nothing is proved: it
    hides its pixels wholly and all others not at all.
    """

    share: float = 0.6

    name = "block"
    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("block", "share", self.share, SHARE)

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        rows, columns = centre(images.shape, self.share)
        released = as_array(images).copy()
        released[:, :, rows, columns] = 0
        return Release(released, self.spec, (images.shape[2], images.shape[3]))

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """See Suspecting.suspicious."""
        rows, columns = centre(release.array.shape, self.share)
        shows = (bool(image[:, rows, columns].any()) for image in release.array)
        return first_image(shows, "shows something in its centre")
