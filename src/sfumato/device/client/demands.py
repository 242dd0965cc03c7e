"""Demands: a service asks for a protection; the device chooses one, or a person accepts the demand.

The chosen or accepted protection of each classifier of a service is pinned in the ledger, with the size of
its images. A service that asks for something else later gets nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sfumato.base.files import printable
from sfumato.device.ledger import Ledger
from sfumato.errors import ConfigError, SpecError, shorten
from sfumato.protect import Protection, parse
from sfumato.protect.naming import guarantee_words, naming_words
from sfumato.protect.release import Trained
from sfumato.protect.spec import files_of, portable
from sfumato.wire.messages import ModelInfo

if TYPE_CHECKING:  # not at run time: a client that sends pixels has no PyTorch
    from sfumato.protect.code import Code
    from sfumato.protect.feature import Feature

    Protecting = Protection | Feature | Code
else:
    Protecting = Protection

SIGNER = ""  # in pins, instead of a classifier: the public key that signs the answer tables

_MOST_WORDS = 500  # characters of the server's words in a message
_OF = " of images of "  # between spec and size in a pin
_NOISY = ("feature", "code")  # protections whose noise the device chooses


@dataclass(frozen=True)
class Demanded:
    """The protection that a service demands for a classifier, for a person to accept or refuse."""

    url: str
    classifier: str
    spec: str
    shape: tuple[int, int, int]  # images are resized to it: equal cells reveal more of a larger image
    guarantee: str  # of a release, in words
    naming: str  # the bound on naming the person on an image, in words

    def __str__(self) -> str:
        return (
            f"{self.url} wants images of {size_words(self.shape)} for {self.classifier!r}, protected by "
            f"{self.spec}: {self.guarantee}; {self.naming}"
        )


Accept = Callable[[Demanded], bool]
Notice = Callable[[Demanded], None]


@dataclass(frozen=True)
class Policy:
    """The protections this device allows a service; for `accept` and `notice` see Client."""

    url: str
    chosen: Protecting | None  # by a user of this device; None for the pinned or accepted one
    accept: Accept | None
    notice: Notice | None

    def agree(self, ledger: Ledger, classifier: str, model: ModelInfo) -> Protecting:
        """Return the protection agreed for a classifier of a model, and pin it if it is new.

        Raises ConfigError if nobody agreed to a protection that the model takes, or to another one before.
        """
        pin, size = ledger.pin(self.url, classifier), size_words(model.shape)
        same_size = pin is not None and pin.spec.rpartition(_OF)[2] == size
        if pin is None:
            protection = self.chosen or demand(model)
        elif self.chosen is not None and same_size:
            protection = self.chosen  # a new spec is the user's choice; the size comes from the service alone
        elif self.chosen is None and pin.spec == _pin_words(model.spec, model):
            protection = demand(model)
        else:
            moment = datetime.fromtimestamp(pin.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
            cure = f"`sfumato ledger unpin {self.url}`"
            if same_size:
                cure = f"choose it with protection=... (--with SPEC), or accept it after {cure}"
            raise ConfigError(
                f"{self.url}: images leave for {classifier!r} by {pin.spec} since {moment}, but now the "
                f"service demands {words(model.spec)}{_OF}{size}: nothing was sent. If you agree: {cure}"
            )
        pinned = _pin_words(protection.spec, model)
        if pin is None or pin.spec != pinned:
            shape, spec = model.shape, protection.spec
            proved, naming = guarantee_words(protection, shape), naming_words(protection, shape)
            demanded = Demanded(self.url, classifier, spec, shape, proved, naming)
            if self.chosen is not None:
                if self.notice is not None:
                    self.notice(demanded)
            elif self.accept is None:
                raise ConfigError(
                    f"{demanded}. Nobody on this device agreed, and nothing was sent: choose it with "
                    f"protection={spec!r} (--with {spec}), or accept it at a terminal"
                )
            elif not self.accept(demanded):
                raise ConfigError(f"{demanded}. It was not accepted, and nothing was sent")
            ledger.set_pin(self.url, classifier, pinned)
        return protection


def check_signer(ledger: Ledger, url: str, signer: str, *, first: bool) -> None:
    """Check the public key that signs the answer tables of a service. Raises ConfigError for another key.

    `first` pins it if none is: the service itself sent it, or a person vouches for it.
    """
    pin = ledger.pin(url, SIGNER)
    if pin is None and first:
        ledger.set_pin(url, SIGNER, signer)
    elif pin is None:
        raise ConfigError(
            f"the table is signed by {words(signer[:16])}..., and this device does not know the key of "
            f"{url}: anybody can sign a table: ask the service once, with --refresh"
        )
    elif pin.spec != signer:
        raise ConfigError(
            f"{url}: its answer tables are signed by {words(signer[:16])}..., and were signed by "
            f"{words(pin.spec[:16])}... before: ask the operator whether the key is new; if so, "
            f"`sfumato ledger unpin {url}`"
        )


def parse_protection(spec: str) -> Protecting:
    """Parse the protection that a user wrote, private features and codes included. Raises as Client."""
    protection: Protecting = parse(spec, takes=("pixels", "shape", "numbers", "bits"))
    return protection


def demand(model: ModelInfo) -> Protection:
    """Parse the protection that a service demands. Raises ConfigError, or SpecError for an invalid spec."""
    spec = model.spec
    name = spec.partition(":")[0].strip()
    if name == "none":
        raise ConfigError(
            f"the model {words(model.name)} takes clear images: to send them unprotected, ask for "
            "protection='none' by name (--with none)"
        )
    if files := files_of(spec):
        raise ConfigError(
            f"the model {takes(model)}: a service cannot choose a file here: name your own copy of that "
            f"{files[0]} in the protection (--with {name}:{files[0]}=...)"
        )
    try:
        return parse(spec)
    except SpecError as error:
        raise SpecError(f"the model {words(model.name)} demands {words(str(error))}") from error


def check_takes(model: ModelInfo, protection: Protecting) -> None:
    """Raise ConfigError unless a model takes releases of a protection, made of the same artefact."""
    if not is_taken(protection, model):
        raise ConfigError(
            f"the model {takes(model)}, and not of {portable(protection.spec)}: use that protection, or "
            "another model"
        )
    if isinstance(protection, Trained) and model.made_of not in (None, protection.digest()):
        raise ConfigError(
            f"{protection.spec}: not the artefact that {words(model.name)} was made for: use the one whose "
            f"SHA-256 begins with {words(str(model.made_of)[:16])}"
        )


def is_taken(protection: Protecting, model: ModelInfo) -> bool:
    """Whether a model takes releases of this protection, of whichever artefact."""
    spec, name = portable(protection.spec), protection.spec.partition(":")[0]
    # The device chooses the noise of a private feature or a code; made_of identifies its artefact.
    return model.spec == spec or (name in _NOISY and model.spec.partition(":")[0] == name)


def takes(model: ModelInfo) -> str:
    """Say which releases a model takes, for a message."""
    return words(f"{model.name} takes releases of {model.spec}")


def size_words(shape: tuple[int, int, int]) -> str:
    """Format a shape as in messages and pins, such as "3x84x84"."""
    return "x".join(map(str, shape))


def words(text: str) -> str:
    """Clean the text of a service for a message to people."""
    return printable(shorten(text, _MOST_WORDS))


def _pin_words(spec: str, model: ModelInfo) -> str:
    return f"{portable(spec)}{_OF}{size_words(model.shape)}"
