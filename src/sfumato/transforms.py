"""A protection as one step of another pipeline: torch.utils.data, torchvision v2, albumentations.

    dataset = ImageFolder("photos", transform=Protect("pixelize:cell=8", ledger="ledger.db"))
    albumentations.Compose([albumentations.Lambda(image=Protect("pixelize:cell=8", ledger="ledger.db"))])

It takes one picture or a batch, see images.take, and never a whole sample: another picture in it would pass
unprotected. Random crops and flips come AFTER it: before it, each makes another image, which is charged.
"""

import os
import threading
from pathlib import Path
from typing import Any

from torch import nn

from sfumato.device.jobs.releasing import release, release_unrecorded
from sfumato.device.ledger import Ledger
from sfumato.errors import ConfigError
from sfumato.images import Pixels, take
from sfumato.protect import parse


class Protect(nn.Module):
    """Protects pictures of any library. State: connections to the ledger, one for each process and thread.

    Workers of a DataLoader may share one: it is pickled without its connections, no connection crosses a
    fork, and all noise comes from the operating system, so that no two workers draw the same.

    Attributes:
        protection: of the spec.
        ledger: the path; None outside a ledger.
    """

    def __init__(
        self,
        spec: str,
        *,
        ledger: str | os.PathLike[str] | None = None,
        outside_ledger: bool = False,
    ) -> None:
        """Make a transform.

        Args:
            spec: the protection, such as "dp-pix:cell=4,epsilon=3"; one that releases images.
            ledger: each image is charged there before its release is returned, and the same image gives the
                same release, as `sfumato protect` does. `device.ledger.default_path()` is the ledger of
                that command.
            outside_ledger: True without a ledger, for copies that stay on this device: an image that a random
                protection releases again and again can be averaged, and no budget stops it.

        Raises:
            ConfigError: neither a ledger nor `outside_ledger`, or both.
            LedgerError: the ledger cannot be opened.
            SpecError: see protect.parse.
        """
        super().__init__()
        self.protection = parse(spec)
        if (ledger is None) != outside_ledger:
            both = "names a ledger and" if outside_ledger else "names no ledger, and not"
            raise ConfigError(
                f"Protect({self.protection.spec}): {both} outside_ledger=True: name a ledger, which counts "
                "all releases of an image; or write outside_ledger=True alone, for copies that stay on this "
                "device"
            )
        self.ledger = None if ledger is None else Path(ledger).absolute()
        self._open: dict[tuple[int, int], Ledger] = {}
        if self.ledger is not None:
            Ledger(self.ledger).close()  # fails now, not in a worker

    def forward(self, image: Any, **parameters: Any) -> Any:
        """Protect a picture or a batch of one size; see images.take for the kinds.

        Args:
            image: the original.
            parameters: of albumentations, which tells its functions the size of an image; they change
                nothing.

        Returns:
            the release as its receiver sees it, of the kind and size of `image`.

        Raises:
            ImageError: not a picture; or its release would be nearly the picture itself.
            BudgetExceededError, LedgerError, SpecError: see releasing.charge_and_release.
        """
        pixels, give_back = take(image)
        return give_back(self._release(pixels))

    def _release(self, pixels: Pixels) -> Pixels:
        if self.ledger is None:
            return release_unrecorded(self.protection, pixels).pictures()
        here = os.getpid(), threading.get_ident()
        if here not in self._open:  # one of another process is neither used nor closed
            self._open[here] = Ledger(self.ledger)
        return release(self.protection, pixels, self._open[here]).pictures()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connections, which no other process can use."""
        return {**self.__dict__, "_open": {}}

    def extra_repr(self) -> str:
        """Name the protection and the ledger, or say that there is none."""
        where = "outside any ledger: no budget" if self.ledger is None else f"ledger={self.ledger}"
        return f"{self.protection.spec}, {where}"
