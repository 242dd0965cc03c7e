"""No protection at all: the clear image leaves. The baseline of every study, never a default."""

from dataclasses import dataclass

from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, as_array, check_batch
from sfumato.protect.parameters import Parametrised
from sfumato.protect.release import Release


@dataclass(frozen=True)
class Clear(Parametrised):
    """The image as it is."""

    name = "none"
    cell = 1
    draws_noise = False

    def release(self, images: Images, noise: Noise) -> Release:
        """The images unchanged. See Protection.release."""
        check_batch(images)
        return Release(as_array(images), self.spec, (images.shape[2], images.shape[3]))
