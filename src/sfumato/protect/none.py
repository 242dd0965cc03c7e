"""No protection at all: the clear image leaves. The baseline of every study, never a default."""

from dataclasses import dataclass

from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, as_array, check_batch
from sfumato.protect.release import Release


@dataclass(frozen=True)
class Clear:
    """The image as it is."""

    cell = 1
    draws_noise = False
    spec = "none"

    def release(self, images: Images, noise: Noise) -> Release:
        """The images unchanged. See Protection.release."""
        check_batch(images)
        return Release(as_array(images), self.spec, (images.shape[2], images.shape[3]))

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> None:
        """None: everything is shown."""
        return

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> None:
        """None: clear images are its releases."""
        return
