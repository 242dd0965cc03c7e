"""How images leave for a service: as the device chose, or somebody on it accepted, never as demanded alone.

What was chosen or accepted for a classifier of a service is pinned in the ledger, with the size of its
images. A service that asks for something else later gets nothing.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sfumato.base.files import printable
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.summary import Pin
from sfumato.errors import ConfigError, SpecError, shorten
from sfumato.protect import Protection, parse
from sfumato.protect.code import Code
from sfumato.protect.feature import Feature
from sfumato.protect.naming import guarantee_words, naming_words
from sfumato.protect.release import Trained
from sfumato.protect.spec import files_of, portable
from sfumato.wire.messages import ModelInfo

Protecting = Protection | Feature | Code

SIGNER = ""  # among pins: in place of a classifier, whose public key signs the answer tables

_MOST_WORDS = 500  # characters of the server's words in a message
_OF = " of images of "  # between spec and size in a pin


@dataclass(frozen=True)
class Demanded:
    """How a service wants images for a classifier: for a person to accept, or not.

    Attributes:
        url: of the service.
        classifier: its name.
        spec: the protection.
        shape: (C, H, W), to which images are cut and resized first: the same cells tell more of a larger one.
        guarantee: what a release is proved to hide, in words.
        naming: what is proved of who is on an image, in words.
    """

    url: str
    classifier: str
    spec: str
    shape: tuple[int, int, int]
    guarantee: str
    naming: str

    def __str__(self) -> str:
        return (
            f"{self.url} wants images of {size_words(self.shape)} for {self.classifier!r}, protected by "
            f"{self.spec}: {self.guarantee}; {self.naming}"
        )


Accept = Callable[[Demanded], bool]
Notice = Callable[[Demanded], None]


@dataclass(frozen=True)
class Policy:
    """What a device lets a service have.

    Attributes:
        url: of the service.
        chosen: the protection that somebody on this device asked for; None for what is pinned or accepted.
        accept: asks a person; None never accepts.
        ledger: the path of the ledger that has the pins.
        notice: shows what somebody chose, when it is pinned; None shows nothing.
    """

    url: str
    chosen: Protecting | None
    accept: Accept | None
    ledger: str | os.PathLike[str]
    notice: Notice | None = None

    def agreed(self, classifier: str, model: ModelInfo) -> Protecting:
        """How images are protected for a classifier of a model; pinned, where that is news.

        Raises:
            ConfigError: nobody agreed to what the model takes, or something else was agreed on before.
        """
        if self.chosen is not None:
            check_takes(model, self.chosen)
        elif len(model.specs) == 1:
            demand(model, model.specs[0])
        with Ledger(self.ledger) as ledger:
            pin = ledger.pin(self.url, classifier)
        if pin is None:
            protection = self.chosen or self._accepted(classifier, model)
        else:
            protection = self._as_pinned(classifier, model, pin)
        pinned = _pinned(protection.spec, model)
        if pin is None or pin.spec != pinned:
            if self.notice is not None and self.chosen is not None:
                self.notice(self._demanded(classifier, model, self.chosen))
            with Ledger(self.ledger) as ledger:
                ledger.set_pin(self.url, classifier, pinned)
        return protection

    def check_signer(self, signer: str) -> None:
        """Pin the public key that signs the service's answer tables, the first time.

        Raises ConfigError if another key was pinned before.
        """
        with Ledger(self.ledger) as ledger:
            pin = ledger.pin(self.url, SIGNER)
            if pin is None:
                ledger.set_pin(self.url, SIGNER, signer)
        if pin is not None and pin.spec != signer:
            raise ConfigError(
                f"{self.url}: its answer tables are signed by {words(signer[:16])}..., and by "
                f"{words(pin.spec[:16])}... before: ask who runs it whether its key is new; if so, "
                f"`sfumato ledger unpin {self.url}`"
            )

    def _as_pinned(self, classifier: str, model: ModelInfo, pin: Pin) -> Protecting:
        if self.chosen is not None:
            # Another spec is another choice; of the size nobody says anything but the service.
            if pin.spec.rpartition(_OF)[2] != size_words(model.shape):
                raise self._changed(classifier, model, pin)
            return self.chosen
        same = [spec for spec in model.specs if _pinned(spec, model) == pin.spec]
        if not same:
            raise self._changed(classifier, model, pin)
        return demand(model, same[0])

    def _accepted(self, classifier: str, model: ModelInfo) -> Protecting:
        """The one protection that a model takes, if a person accepts it. Raises ConfigError."""
        if len(model.specs) != 1:
            raise ConfigError(f"the model {takes(model)}: choose one of them as protection")
        protection = demand(model, model.specs[0])
        demanded = self._demanded(classifier, model, protection)
        if self.accept is None:
            raise ConfigError(
                f"{demanded}. Nobody agreed to that on this device, and nothing was sent: choose it with "
                f"protection={protection.spec!r} (--with {protection.spec}), or accept it at a terminal"
            )
        if not self.accept(demanded):
            raise ConfigError(f"{demanded}. It was not accepted, and nothing was sent")
        return protection

    def _demanded(self, classifier: str, model: ModelInfo, protection: Protecting) -> Demanded:
        shape, spec = model.shape, protection.spec
        proved, naming = guarantee_words(protection, shape), naming_words(protection, shape)
        return Demanded(self.url, classifier, spec, shape, proved, naming)

    def _changed(self, classifier: str, model: ModelInfo, pin: Pin) -> ConfigError:
        since = datetime.fromtimestamp(pin.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        cure = f"`sfumato ledger unpin {self.url}`"
        if pin.spec.endswith(_OF + size_words(model.shape)):
            cure = f"choose it with protection=... (--with SPEC), or accept it after {cure}"
        demanded = f"{words(', '.join(model.specs))}{_OF}{size_words(model.shape)}"
        return ConfigError(
            f"{self.url}: images leave for {classifier!r} by {pin.spec} since {since}, and now the service "
            f"demands {demanded}: nothing was sent. If you agree: {cure}"
        )


def parsed(spec: str) -> Protecting:
    """The protection that a person wrote, private features and codes among them.

    Raises:
        SpecError: a malformed spec.
        ArtefactError: the artefact of a code cannot be read.
    """
    protection: Protecting = parse(spec, takes=("pixels", "shape", "numbers", "bits"))
    return protection


def demand(model: ModelInfo, spec: str) -> Protection:
    """The protection that a service demands, if that may be accepted at all.

    Raises:
        ConfigError: clear images, which are sent only where somebody asks for them by name; or a file of the
            service's choice, where the device names its own.
        SpecError: it protects nothing, or is not a spec.
    """
    name = spec.partition(":")[0].strip()
    if name == "none":
        raise ConfigError(
            f"the model {words(model.name)} takes clear images: to send them unprotected, ask for "
            "protection='none' by name (--with none)"
        )
    if files := files_of(spec):
        raise ConfigError(
            f"the model {takes(model)}: a service chooses no file of this device: name your own copy of that "
            f"{files[0]} in the protection (--with {name}:{files[0]}=...)"
        )
    try:
        return parse(spec)
    except SpecError as error:
        raise SpecError(f"the model {words(model.name)} demands {words(str(error))}") from error


def check_takes(model: ModelInfo, protection: Protecting) -> None:
    """Raise ConfigError unless a model takes releases of a protection, made of the same artefact."""
    number = number_of(protection, model)
    if number is None:
        spec = portable(protection.spec)
        raise ConfigError(
            f"the model {takes(model)}, and not of {spec}: protect with one of these, or use another model"
        )
    wanted = model.made_of[number] if number < len(model.made_of) else None
    if isinstance(protection, Trained) and wanted not in (None, protection.digest()):
        raise ConfigError(
            f"{protection.spec}: another artefact than {words(model.name)} was made for: use the one whose "
            f"SHA-256 begins with {words(str(wanted)[:16])}"
        )


def number_of(protection: Protecting, model: ModelInfo) -> int | None:
    """Which of a model's protections this is; None where it is none of them."""
    spec = portable(protection.spec)
    for number, taken in enumerate(model.specs):
        # Of a private feature or a code, noise is the device's choice; made_of says whether it is that one.
        if taken == spec or (isinstance(protection, Feature | Code) and _family(taken) == _family(spec)):
            return number
    return None


def _family(spec: str) -> str:
    """The name that a spec begins with."""
    return spec.partition(":")[0]


def takes(model: ModelInfo) -> str:
    """What a model takes, for a message."""
    return words(f"{model.name} takes releases of {', '.join(model.specs)}")


def size_words(shape: tuple[int, int, int]) -> str:
    """A shape as messages and pins have it, such as "3x84x84"."""
    return "x".join(map(str, shape))


def words(text: str) -> str:
    """What a service wrote, for a message that people read."""
    return printable(shorten(text, _MOST_WORDS))


def _pinned(spec: str, model: ModelInfo) -> str:
    """What a pin says: how images leave, and how large they are."""
    return f"{portable(spec)}{_OF}{size_words(model.shape)}"
