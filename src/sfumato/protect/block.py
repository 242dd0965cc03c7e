"""A black block over the centre of the image, where an aligned face is."""

from dataclasses import dataclass

from torch import Tensor

from sfumato.dp.mechanisms import Noise
from sfumato.images import check_batch
from sfumato.protect.parameters import canonical, check_bounds
from sfumato.protect.recognition import first_image
from sfumato.protect.release import Release

SHARE = "it is the part of the side, up to 1"


def centre(images: Tensor, share: float) -> tuple[slice, slice]:
    """Rows and columns of the centre part of (N, C, H, W) images whose sides are `share` of theirs."""
    return _middle(images.shape[2], share), _middle(images.shape[3], share)


def _middle(length: int, share: float) -> slice:
    hidden = max(1, round(share * length))
    start = (length - hidden) // 2
    return slice(start, start + hidden)


@dataclass(frozen=True)
class Block:
    """The centre square, whose side is `share` of the image's, made black.

    Source: the "Block" baseline of the mask paper (docs/papers.md, "Mask"), which blacks out the centre of
    aligned faces and does not say how much; 0.6 of the side hides brows to chin there.
    """

    share: float = 0.6

    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("block", "share", self.share, SHARE)

    @property
    def spec(self) -> str:
        """See Protection.spec."""
        return canonical("block", self)

    def release(self, images: Tensor, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        rows, columns = centre(images, self.share)
        released = images.clone()
        released[:, :, rows, columns] = 0
        return Release(released, self.spec, (images.shape[2], images.shape[3]))

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> None:
        """None: the block hides its pixels wholly and all others not at all."""
        return

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """See Protection.suspicious."""
        rows, columns = centre(release.values, self.share)
        shows = release.values[:, :, rows, columns].flatten(1).any(1)
        return first_image(shows.tolist(), "shows something in its centre")
