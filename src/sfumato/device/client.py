"""The device's side of the service: protect here, by the ledger of this device, and send what may leave.

No pixel that was not released is in anything that is sent: what leaves is a release, as sfumato.wire writes
it, and the address, which holds the label. A label is not protected: choose one that says nothing.

The device decides how images are protected; a service can only ask. What was chosen or accepted for a
classifier of a service is pinned in the ledger, with the size of its images. A service that asks for
something else later gets nothing.
"""

import asyncio
import email.utils
import io
import ipaddress
import json
import os
import random
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote, urlsplit

import torch
from PIL import Image, ImageOps
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from sfumato import images, wire
from sfumato.device import releasing
from sfumato.device.ledger import Ledger, Pin
from sfumato.device.survey import survey
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, ImageError, SfumatoError, SpecError, needs_extra
from sfumato.files import printable
from sfumato.protect import Protection, parse, parse_feature
from sfumato.protect.feature import Feature
from sfumato.protect.release import Release, Trained, made_of
from sfumato.wire.messages import (
    LABEL,
    Answers,
    ClassifierInfo,
    ClassSummary,
    EnrolledExamples,
    Forgotten,
    ImageAnswer,
    ModelInfo,
    as_kept,
    normal,
)

with needs_extra("the client", "serve"):
    import httpx

Source = str | os.PathLike[str] | Image.Image | Tensor
Failed = Callable[[Source, ImageError], None]
Protecting = Protection | Feature

_MOST_IMAGES = 32  # of a request
_MOST_VALUES = 8_000_000  # pixels in all channels of a request
_MOST_SIDE = 2048  # of images that a service may ask for
_MOST_TOLD = 500  # characters of the server's words in a message
_MOST_LISTED = 5  # models in a message
_MOST_REPLY = 16 << 20  # bytes of an answer
_OF = " of images of "  # between spec and size in a pin
_FIRST_WAIT, _LONGEST_WAIT = 0.25, 60.0  # seconds
_OF_FILES = {"mask": "artefact", "feature": "artefact", "outside": "index"}  # which their specs name
_AGAIN = frozenset({502, 503, 504})  # may pass; never 4xx, which say that the request is wrong

_Found = TypeVar("_Found")


class ServiceError(SfumatoError):
    """The service refused, failed, or could not be reached; the message is its advice, where it gave any.

    Attributes:
        status: of HTTP; None where there was no answer.
        wait: seconds after which it may be asked again; None where it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.wait = status, wait


@dataclass(frozen=True)
class Guess:
    """A class that an image may be of.

    Attributes:
        label: its name; None says that the image is of none of the classes.
        probability: among all classes; None without a label: the service does not tell how likely that is.
        distance: the squared Euclidean one, from the prototype; None without a label.
    """

    label: str | None
    probability: float | None
    distance: float | None


@dataclass(frozen=True)
class Enrolled:
    """How many examples were new to the class and how many it had, and the ids of all."""

    new: int
    known: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Demanded:
    """How a service wants images for a classifier: for a person to accept, or not.

    Attributes:
        url: of the service.
        classifier: its name.
        spec: the protection.
        shape: (C, H, W), to which images are cut and resized first: the same cells tell more of a larger one.
        guarantee: what a release is proved to hide, in words.
    """

    url: str
    classifier: str
    spec: str
    shape: tuple[int, int, int]
    guarantee: str

    def __str__(self) -> str:
        return (
            f"{self.url} wants images of {_size(self.shape)} for {self.classifier!r}, protected by "
            f"{self.spec}: {self.guarantee}"
        )


Accept = Callable[[Demanded], bool]


@dataclass(frozen=True)
class _Ask:
    """A request. `again`: it may be sent twice, since the second time changes nothing."""

    method: str
    path: str
    again: bool
    content: bytes | None = None
    kind: str | None = None


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class _Lost:
    """No answer came, or not all of it."""

    reason: str


_TOO_LONG = _Lost(f"an answer of more than {_MOST_REPLY >> 20} MiB")


@dataclass(frozen=True)
class _Done(Generic[_Found]):
    value: _Found


@dataclass(frozen=True)
class _Place:
    """A classifier, what its model takes, and how that is made here."""

    path: str
    shape: tuple[int, int, int]
    protection: Protecting


# What is asked for, one request after another. What comes in is the body of each reply, or its error.
_Steps = Generator[_Ask, bytes, _Found]


class _Core:
    """What both clients are made of, without a connection. State: the classifiers that were found so far."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        protection: str | Protecting | None,
        ledger: str | os.PathLike[str],
        classifier: str,
        retries: int,
        insecure: bool,
        accept: Accept | None,
    ) -> None:
        self.url = _checked(url, insecure=insecure)
        # Not in the message: what was typed may be a part of a key. Others would fail in the middle of a
        # request, with an error that shows them.
        if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
            raise ConfigError(
                f"the key of {len(key)} characters is none: it is 1 to 200 printable ones without spaces, as "
                "`sfumato keys create` printed it"
            )
        if retries < 0:
            raise ConfigError(f"retries={retries}: at least 0, for none")
        self._key = key
        self._protection = _parsed(protection) if isinstance(protection, str) else protection
        self._ledger = ledger
        self._default = classifier
        self._accept = accept
        self._retries = retries
        self._places: dict[str, _Place] = {}
        self._surveyed = False

    def headers(self, ask: _Ask) -> dict[str, str]:
        found = {"x-api-key": self._key}
        return found if ask.kind is None else found | {"content-type": ask.kind}

    def judge(self, ask: _Ask, reply: _Reply | _Lost, attempt: int) -> bytes | ServiceError | float:
        """What came of a request: its body, why it failed, or seconds to wait before it is sent again.

        Waits grow from a quarter of a second, and are drawn, so that clients do not come back all at once:
        "full jitter", Brooker 2015.
        """
        if isinstance(reply, _Reply) and 200 <= reply.status < 300:
            return reply.body
        error = self._error(reply)
        passing = error.status is None or error.status in _AGAIN
        if not (passing and ask.again and attempt < self._retries):
            if error.status in (404, 409, 422):
                self._places.clear()  # what was found before may be over
            return error
        if error.wait is not None and error.wait > _LONGEST_WAIT:
            return error
        jitter = random.SystemRandom().uniform(0, min(_LONGEST_WAIT, _FIRST_WAIT * 2**attempt))
        return (error.wait or 0.0) + jitter

    def _error(self, reply: _Reply | _Lost) -> ServiceError:
        if isinstance(reply, _Lost):
            return ServiceError(f"{self.url}: no answer ({reply.reason}): check the address and the network")
        detail = ""
        try:
            detail = str(json.loads(reply.body)["detail"])
        except (ValueError, TypeError, KeyError, RecursionError):
            if 300 <= reply.status < 400:
                detail = "it redirects to another address, which is not followed with a key: give that one"
        detail = detail or "not the answer of a sfumato service: check the address"
        wait = _seconds(reply.headers.get("retry-after"))
        after = "" if wait is None else f" (try again in {wait:.0f} s)"
        told = _words(detail)
        return ServiceError(f"{self.url}: {reply.status}: {told}{after}", status=reply.status, wait=wait)

    def read(self, body: bytes, kind: type[_Found] | Any) -> Any:
        """A reply as messages of the API."""
        try:
            return TypeAdapter(kind).validate_json(body)
        except ValidationError as error:
            problem = f"an answer that is no {getattr(kind, '__name__', kind)}"
            raise ServiceError(f"{self.url}: {problem}: the service may be of another version") from error

    # What may be asked for.

    def models(self) -> _Steps[list[ModelInfo]]:
        body = yield _Ask("GET", "/v1/models", again=True)
        found: list[ModelInfo] = self.read(body, list[ModelInfo])
        return found

    def classifiers(self) -> _Steps[list[ClassifierInfo]]:
        body = yield _Ask("GET", "/v1/classifiers", again=True)
        found: list[ClassifierInfo] = self.read(body, list[ClassifierInfo])
        return found

    def create(self, name: str, model: str) -> _Steps[ClassifierInfo]:
        sent = json.dumps({"name": name, "model": model}).encode()
        body = yield _Ask("POST", "/v1/classifiers", again=False, content=sent, kind="application/json")
        found: ClassifierInfo = self.read(body, ClassifierInfo)
        return found

    def enrol(
        self, label: str, sources: Source | Iterable[Source], classifier: str | None, failed: Failed | None
    ) -> _Steps[Enrolled]:
        label = _as_kept(label)
        path = f"/classes/{_quoted(label)}/examples"
        place = yield from self._place(classifier, begin=True)
        new, known, examples = 0, 0, list[str]()
        for batch in _batches(sources, place.shape):
            content = self._released(place, batch, failed, person=label)
            if content is None:
                continue
            body = yield _Ask("POST", place.path + path, again=True, content=content, kind=wire.MEDIA_TYPE)
            found: EnrolledExamples = self.read(body, EnrolledExamples)
            new, known = new + found.new, known + found.known
            examples += found.examples
        return Enrolled(new, known, tuple(examples))

    def classify(
        self, sources: Source | Iterable[Source], classifier: str | None, top: int
    ) -> _Steps[list[list[Guess]]]:
        place = yield from self._place(classifier, begin=False)
        guesses: list[list[Guess]] = []
        for batch in _batches(sources, place.shape):
            content = self._released(place, batch, None, person=None)
            path = f"{place.path}/classify?top={top}"
            body = yield _Ask("POST", path, again=True, content=content, kind=wire.MEDIA_TYPE)
            answers: Answers = self.read(body, Answers)
            if len(answers.images) != len(batch):
                raise ServiceError(f"{self.url}: {len(answers.images)} answers for {len(batch)} images")
            guesses += [_guesses(each) for each in answers.images]
        return guesses

    def classes(self, classifier: str | None) -> _Steps[list[ClassSummary]]:
        path = yield from self._path(classifier)
        body = yield _Ask("GET", f"{path}/classes", again=True)
        found: list[ClassSummary] = self.read(body, list[ClassSummary])
        return found

    def forget(self, below: str, classifier: str | None) -> _Steps[int]:
        path = yield from self._path(classifier)
        # Not again: where the first reply was lost, the second would say that there is no such thing.
        body = yield _Ask("DELETE", path + below, again=False)
        found: Forgotten = self.read(body, Forgotten)
        return found.forgotten

    # How.

    def _path(self, name: str | None) -> _Steps[str]:
        name = self._default if name is None else name
        found = yield from self._listed(name)
        if found is None:
            raise _no_classifier(name)
        return f"/v1/classifiers/{quote(found.id, safe='')}"

    def _listed(self, name: str) -> _Steps[ClassifierInfo | None]:
        listed = yield from self.classifiers()
        return next((each for each in listed if each.name == name), None)

    def _place(self, name: str | None, *, begin: bool) -> _Steps[_Place]:
        name = self._default if name is None else name
        if name in self._places:
            return self._places[name]
        models = yield from self.models()
        info = yield from self._listed(name)
        if info is None:
            if not begin:
                raise _no_classifier(name)
            info = yield from self._begun(name, models)
        model = next((each for each in models if each.name == info.model), None)
        if model is None:
            model_name = _words(info.model)
            raise ConfigError(f"{name} is for the model {model_name}, which {self.url} does not run now")
        if model.shape[0] not in (1, 3) or not 0 < min(model.shape) <= max(model.shape) <= _MOST_SIDE:
            raise ServiceError(
                f"{self.url}: {name} is for images of {_size(model.shape)}: of 1 or 3 channels, and at most "
                f"{_MOST_SIDE} pixels a side, are made here"
            )
        path = f"/v1/classifiers/{quote(info.id, safe='')}"
        place = _Place(path, model.shape, self._agreed(name, model))
        self._places[name] = place
        return place

    def _begun(self, name: str, models: list[ModelInfo]) -> _Steps[ClassifierInfo]:
        """A new classifier, for the one model that takes what is released here."""
        wanted = self._protection
        spec = None if wanted is None else wire.portable(wanted.spec)
        fit = [each for each in models if wanted is None or _number(each, wanted) is not None]
        if len(fit) > 1 and isinstance(wanted, Trained):
            fit = [each for each in fit if wanted.made_of() in each.made_of]
        if len(fit) != 1:
            taken = "; ".join(_takes(each) for each in models[:_MOST_LISTED])
            if len(models) > _MOST_LISTED:
                taken += f"; and {len(models) - _MOST_LISTED} more"
            raise ConfigError(
                f"no classifier is called {name!r}, and {len(fit)} models take releases of "
                f"{spec or 'any protection'} ({taken}): create it for one of them first"
            )
        self._agreed(name, fit[0])  # before anything is made
        try:
            found = yield from self.create(name, fit[0].name)
        except ServiceError as error:
            if error.status != 409:
                raise
            # Another device was first: the same classifier.
            other = yield from self._listed(name)
            if other is None:
                raise
            found = other
        return found

    def _agreed(self, name: str, model: ModelInfo) -> Protecting:
        """How images are protected for a classifier: as was chosen, or accepted, and never as demanded alone.

        Raises:
            ConfigError: nobody agreed to what the model takes, or something else was agreed on before.
        """
        chosen = self._protection
        if chosen is not None:
            _check_takes(model, chosen)
        elif len(model.specs) == 1:
            _demand(model, model.specs[0])
        with Ledger(self._ledger) as ledger:
            pin = ledger.pin(self.url, name)
        if pin is None:
            protection = chosen or self._accepted(name, model)
        elif chosen is not None:
            # Another spec is another choice; of the size nobody says anything but the service.
            if pin.spec.rpartition(_OF)[2] != _size(model.shape):
                raise self._changed(name, model, pin)
            protection = chosen
        else:
            same = [spec for spec in model.specs if _pinned(spec, model) == pin.spec]
            if not same:
                raise self._changed(name, model, pin)
            protection = _demand(model, same[0])
        pinned = _pinned(protection.spec, model)
        if pin is None or pin.spec != pinned:
            with Ledger(self._ledger) as ledger:
                ledger.set_pin(self.url, name, pinned)
        return protection

    def _accepted(self, name: str, model: ModelInfo) -> Protecting:
        """The one protection that a model takes, if a person accepts it. Raises ConfigError."""
        if len(model.specs) != 1:
            raise ConfigError(f"the model {_takes(model)}: choose one of them as protection")
        protection = _demand(model, model.specs[0])
        proved = str(protection.guarantee(model.shape) or "nothing is proved of it")
        demanded = Demanded(self.url, name, protection.spec, model.shape, proved)
        if self._accept is None:
            raise ConfigError(
                f"{demanded}. Nobody agreed to that on this device, and nothing was sent: choose it with "
                f"protection={protection.spec!r} (--with {protection.spec}), or accept it at a terminal"
            )
        if not self._accept(demanded):
            raise ConfigError(f"{demanded}. It was not accepted, and nothing was sent")
        return protection

    def _changed(self, name: str, model: ModelInfo, pin: Pin) -> ConfigError:
        since = datetime.fromtimestamp(pin.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        cure = f"`sfumato ledger unpin {self.url}`"
        if pin.spec.endswith(_OF + _size(model.shape)):
            cure = f"choose it with protection=... (--with SPEC), or accept it after {cure}"
        return ConfigError(
            f"{self.url}: images leave for {name!r} by {pin.spec} since {since}, and now the service demands "
            f"{_words(', '.join(model.specs))}{_OF}{_size(model.shape)}: nothing was sent. If you agree: "
            f"{cure}"
        )

    def _released(
        self, place: _Place, sources: Sequence[Source], failed: Failed | None, *, person: str | None
    ) -> bytes | None:
        """What leaves of some images, all of one person where that is known; None where nothing does."""
        read: list[tuple[Source, Tensor]] = []
        for source in sources:
            try:
                read.append((source, _image(source, place.shape)))
            except ImageError as error:
                if failed is None:
                    raise
                failed(source, error)
        # A private feature is charged, kept and given out as the release of an image is.
        protection = cast(Protection, place.protection)
        try:
            released = self._charged(protection, read, person)
        except ImageError:
            if failed is None:
                raise
            released = self._charged(protection, _hidden(protection, read, failed), person)
        return None if released is None else wire.encode(released, made_of=made_of(protection))

    def _charged(
        self, protection: Protection, read: list[tuple[Source, Tensor]], person: str | None
    ) -> Release | None:
        if not read:
            return None
        # Opened here: a ledger is for one thread, and a client for any number.
        with Ledger(self._ledger) as ledger:
            if not self._surveyed:
                survey(ledger)
                self._surveyed = True
            return releasing.release(
                protection,
                torch.stack([image for _, image in read]),
                ledger,
                folders=[_folder(source) for source, _ in read],
                people=[person] * len(read),
            )


def _no_classifier(name: str) -> ConfigError:
    return ConfigError(f"no classifier is called {name!r}: enrol an example, create it, or name another")


def _checked(url: str, *, insecure: bool) -> str:
    """The address without a slash at its end, if a key may be sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise ConfigError(
            "the address of the service is none: write scheme and host, as https://cloud.example"
        )
    if parts.username is not None:
        raise ConfigError(f"the address of {host} has a name or a password: leave them out, and give the key")
    if parts.scheme == "http" and not insecure and not _loopback(host):
        raise ConfigError(
            f"http://{host}: key and labels would travel in clear: use https, or ask for it with "
            "insecure=True (--insecure)"
        )
    return url.rstrip("/")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _as_kept(label: str) -> str:
    """A label as the service keeps it, so that one person has one budget. Raises ConfigError."""
    _quoted(label)
    try:
        return as_kept(label)
    except ValueError as error:
        raise ConfigError(f"{label!r} is no label: {error}") from None


def _quoted(label: str) -> str:
    """A label in an address, also one that an earlier service kept. Raises ConfigError for what cannot be."""
    if not re.fullmatch(LABEL, label) or label in (".", ".."):
        raise ConfigError(
            f"{label!r} is no label: 1 to 200 characters without '/' and control characters, and not only a "
            "dot or two; rename the class"
        )
    try:
        return quote(normal(label), safe="")
    except UnicodeEncodeError:
        raise ConfigError(f"{label!r} is no label: it has half of a character: rename the class") from None


def _seconds(value: str | None) -> float | None:
    """Of Retry-After, which is a number of seconds or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        then = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (then - datetime.now(UTC)).total_seconds())


def _parsed(spec: str) -> Protecting:
    return parse_feature(spec) if spec.strip().startswith("feature:") else parse(spec)


def _number(model: ModelInfo, protection: Protecting) -> int | None:
    """Which of a model's protections this is; None where it is none of them."""
    spec = wire.portable(protection.spec)
    for number, each in enumerate(model.specs):
        # Of a private feature, noise and norm are the device's choice; made_of says whether it is that one.
        if each == spec or (isinstance(protection, Feature) and each.startswith("feature:")):
            return number
    return None


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def _pinned(spec: str, model: ModelInfo) -> str:
    """What a pin says: how images leave, and how large they are."""
    return f"{wire.portable(spec)}{_OF}{_size(model.shape)}"


def _words(text: str) -> str:
    """What a service wrote, for a message that people read."""
    return printable(text[:_MOST_TOLD])


def _takes(model: ModelInfo) -> str:
    return _words(f"{model.name} takes releases of {', '.join(model.specs)}")


def _demand(model: ModelInfo, spec: str) -> Protection:
    """The protection that a service demands, if that may be accepted at all.

    Raises:
        ConfigError: clear images, which are sent only where somebody asks for them by name; or a file of the
            service's choice, where the device names its own.
        SpecError: it protects nothing, or is none.
    """
    name = spec.partition(":")[0].strip()
    if name == "none":
        raise ConfigError(
            f"the model {_words(model.name)} takes clear images: to send them unprotected, ask for "
            "protection='none' by name (--with none)"
        )
    if name in _OF_FILES:
        raise ConfigError(
            f"the model {_takes(model)}: name your own copy of that {_OF_FILES[name]} in the protection"
        )
    try:
        return parse(spec)
    except SpecError as error:
        raise SpecError(f"the model {_words(model.name)} demands {_words(str(error))}") from error


def _check_takes(model: ModelInfo, protection: Protecting) -> None:
    """Raise ConfigError unless a model takes releases of a protection, made of the same artefact."""
    number = _number(model, protection)
    if number is None:
        spec = wire.portable(protection.spec)
        raise ConfigError(f"the model {_takes(model)}, and not of {spec}: protect so, or use another model")
    wanted = model.made_of[number] if number < len(model.made_of) else None
    if isinstance(protection, Trained) and wanted not in (None, protection.made_of()):
        raise ConfigError(
            f"{protection.spec}: another artefact than {_words(model.name)} was made for: use the one whose "
            f"SHA-256 begins with {_words(str(wanted)[:16])}"
        )


def _hidden(
    protection: Protection, read: list[tuple[Source, Tensor]], failed: Failed
) -> list[tuple[Source, Tensor]]:
    """The images whose releases are not nearly themselves; `failed` is told of the others."""
    hidden = []
    for source, image in read:
        try:
            # To look at alone: no noise is drawn where this is asked, and nothing of it leaves.
            released = protection.release(image[None], fresh_noise())
            releasing.check_differs(protection, image[None], released)
        except ImageError as error:
            failed(source, error)
        else:
            hidden.append((source, image))
    return hidden


def _folder(source: Source) -> Path:
    """Where an image lies, for the budgets of folders; of one that is no file, nowhere."""
    return Path(source).resolve().parent if isinstance(source, str | os.PathLike) else Path()


def _batches(sources: Source | Iterable[Source], shape: tuple[int, int, int]) -> Iterator[list[Source]]:
    """The images of each request. One image stands for itself."""
    single = isinstance(sources, str | os.PathLike | Image.Image)
    if single or (isinstance(sources, Tensor) and sources.ndim == 3):
        sources = [sources]  # type: ignore[list-item]
    values = shape[0] * shape[1] * shape[2]
    count = max(1, min(_MOST_IMAGES, _MOST_VALUES // values))
    left = iter(sources)  # type: ignore[arg-type]
    while batch := list(islice(left, count)):
        yield batch


def _image(source: Source, shape: tuple[int, int, int]) -> Tensor:
    """An image as a model wants it: (C, H, W) uint8.

    Raises:
        ImageError: it cannot be read; or the model's images are not square, and this is of another size.
    """
    channels, height, width = shape
    size = height if height == width else None
    if isinstance(source, Tensor):
        images.check_batch(source[None])
        if source.shape == shape:
            return source
        found = images.read(images.encode(source), channels=channels, size=size)
    elif isinstance(source, Image.Image):
        # TIFF has every mode of Pillow's; what cannot be an image is refused as in a file.
        buffer = io.BytesIO()
        try:
            # By default it is compressed as the file was that it came from, which may lose something.
            ImageOps.exif_transpose(source).save(buffer, "TIFF", compression="raw")
        except (OSError, ValueError, SyntaxError) as error:
            raise ImageError(f"{source!r}: cannot be used ({error})") from error
        found = images.read(buffer.getvalue(), channels=channels, size=size)
    else:
        found = images.read(source, channels=channels, size=size)
    if tuple(found.shape) != shape:
        raise ImageError(
            f"an image of {found.shape[1]}x{found.shape[2]} pixels, and the model's are {height}x{width}: "
            "resize it, since only squares are cut here",
            cause="of another size",
        )
    return found


def _guesses(answer: ImageAnswer) -> list[Guess]:
    found = [Guess(each.label, each.probability, each.distance) for each in answer.guesses]
    return [Guess(None, None, None), *found] if answer.none_of_these else found


def _next(steps: _Steps[_Found], outcome: bytes | ServiceError | None) -> _Ask | _Done[_Found]:
    """Go on with what came of the last request, to the next request or the end."""
    try:
        if isinstance(outcome, ServiceError):
            return steps.throw(outcome)
        return steps.send(outcome)  # type: ignore[arg-type]  # None begins
    except StopIteration as end:
        return _Done(end.value)


def _settings(core: _Core, timeout: float) -> dict[str, Any]:
    return {
        "base_url": core.url,
        "timeout": timeout,
        "follow_redirects": False,
        # A proxy of the environment would be sent an http request whole, with the key.
        "trust_env": core.url.startswith("https:"),
    }


def _lost(error: httpx.HTTPError) -> _Lost:
    return _Lost(printable(f"{type(error).__name__}: {error}".rstrip(": "))[:_MOST_TOLD])


class Client:
    """A service, asked from a device on which every image is protected first. State: its connections.

    An image is charged in the ledger at the size that the model takes. For a model of another size it has
    another release, which the ledger counts with the first: they are near copies.

    Threads may share one. Where a reply is lost or the service is busy, what can be repeated without harm is
    sent again: questions, and enrolments, which the service knows by their releases.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        protection: str | Protecting | None = None,
        accept: Accept | None = None,
        ledger: str | os.PathLike[str],
        classifier: str = "default",
        timeout: float = 30.0,
        retries: int = 4,
        insecure: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: of the service, such as "https://cloud.example".
            key: the secret that `sfumato keys create` printed.
            protection: a spec, or a protection; None for what was chosen or accepted before for this service
                and classifier, as the ledger has it. Clear images are sent only where "none" is asked for;
                a private feature is named with its noise, such as
                "feature:artefact=f.safetensors,noise=0.5".
            accept: asked where there is no protection and nothing was accepted before: whether images may
                leave as the model demands. True pins that. None never accepts.
            ledger: the path of this device's ledger, which is begun where there is none.
            classifier: the name of the one that is meant where a call names none.
            timeout: seconds for a connection, and for each wait for bytes.
            retries: how often a request is sent again at most.
            insecure: also send to an http address of another machine: key and labels travel in clear.
            transport: what sends, in place of the network: for tests.

        Raises:
            ConfigError: an address, a key or a number that cannot be.
            SpecError: a malformed spec.
        """
        self._core = _Core(
            url,
            key=key,
            protection=protection,
            ledger=ledger,
            classifier=classifier,
            retries=retries,
            insecure=insecure,
            accept=accept,
        )
        self._http = httpx.Client(**_settings(self._core, timeout), transport=transport)

    def __repr__(self) -> str:
        return f"Client({self._core.url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def models(self) -> list[ModelInfo]:
        """The models that the service runs, and the protections that each takes.

        This and all other methods raise ServiceError where the service refuses or cannot be reached.
        """
        return self._run(self._core.models())

    def classifiers(self) -> list[ClassifierInfo]:
        """The classifiers of this tenant."""
        return self._run(self._core.classifiers())

    def create(self, name: str, model: str) -> ClassifierInfo:
        """Begin a classifier for a model. ServiceError of status 409 where there is one of that name."""
        return self._run(self._core.create(name, model))

    def enrol(
        self,
        label: str,
        sources: Source | Iterable[Source],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
    ) -> Enrolled:
        """Make images examples of a class; the classifier is begun where it is new and one model fits.

        Images are protected and sent 32 at a time. After an error, those before it are enrolled, and the same
        call goes on: the same image is the same release, charged once and enrolled once.

        Args:
            label: of the class.
            sources: files, Pillow images, (C, H, W) uint8 tensors, or one of these. A centre square of each
                is resized to what the model takes.
            classifier: its name; None for the client's own.
            failed: called with each image that cannot be read, or whose release would be nearly itself, and
                why; None raises that instead.

        Raises:
            ConfigError: the model takes another protection, or one that nobody chose or accepted; or demands
                another than it did; no model fits, or several do; no label.
            BudgetExceededError: an image would pass a budget of the ledger; of its 32, none was sent.
            ImageError: an image that cannot be read, or whose release would be nearly itself.
            LedgerError: the ledger cannot be used.
        """
        return self._run(self._core.enrol(label, sources, classifier, failed))

    def classify(self, source: Source, *, top: int = 5, classifier: str | None = None) -> list[Guess]:
        """The classes that an image may be of, the likeliest first; before them Guess(None), if of none.

        Raises: as enrol does.
        """
        return self._run(self._core.classify([source], classifier, top))[0]

    def classify_many(
        self, sources: Iterable[Source], *, top: int = 5, classifier: str | None = None
    ) -> list[list[Guess]]:
        """As classify, for each of many images, 32 in a request."""
        return self._run(self._core.classify(sources, classifier, top))

    def classes(self, *, classifier: str | None = None) -> list[ClassSummary]:
        """The classes of a classifier, and of how many examples each is."""
        return self._run(self._core.classes(classifier))

    def forget(self, label: str, *, classifier: str | None = None) -> int:
        """Forget a class. Returns how many examples were forgotten."""
        return self._run(self._core.forget(f"/classes/{_quoted(label)}", classifier))

    def forget_example(self, example: str, *, classifier: str | None = None) -> int:
        """Forget one example, by the id that `enrol` gave: 1."""
        return self._run(self._core.forget(f"/examples/{quote(example, safe='')}", classifier))

    def forget_classifier(self, classifier: str) -> int:
        """Forget a classifier with all its classes. Returns how many examples were forgotten."""
        return self._run(self._core.forget("", classifier))

    def _run(self, steps: _Steps[_Found]) -> _Found:
        step = _next(steps, None)
        while isinstance(step, _Ask):
            step = _next(steps, self._outcome(step))
        return step.value

    def _outcome(self, ask: _Ask) -> bytes | ServiceError:
        attempt = 0
        while isinstance(found := self._core.judge(ask, self._once(ask), attempt), float):
            time.sleep(found)
            attempt += 1
        return found

    def _once(self, ask: _Ask) -> _Reply | _Lost:
        try:
            with self._http.stream(
                ask.method, ask.path, content=ask.content, headers=self._core.headers(ask)
            ) as reply:
                body = bytearray()
                for part in reply.iter_bytes():
                    body += part
                    if len(body) > _MOST_REPLY:
                        return _TOO_LONG
                return _Reply(reply.status_code, reply.headers, bytes(body))
        except httpx.HTTPError as error:
            # Not as a cause: it holds the request, and that the key.
            return _lost(error)


class AsyncClient:
    """As Client, for a program with an event loop, which images do not hold up: they are protected beside it.

    State: its connections. Arguments, methods, promises and errors are those of Client.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        protection: str | Protecting | None = None,
        accept: Accept | None = None,
        ledger: str | os.PathLike[str],
        classifier: str = "default",
        timeout: float = 30.0,
        retries: int = 4,
        insecure: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """See Client; `accept` is called in another thread."""
        self._core = _Core(
            url,
            key=key,
            protection=protection,
            ledger=ledger,
            classifier=classifier,
            retries=retries,
            insecure=insecure,
            accept=accept,
        )
        self._http = httpx.AsyncClient(**_settings(self._core, timeout), transport=transport)

    def __repr__(self) -> str:
        return f"AsyncClient({self._core.url!r})"

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def models(self) -> list[ModelInfo]:
        """See Client."""
        return await self._run(self._core.models())

    async def classifiers(self) -> list[ClassifierInfo]:
        """See Client."""
        return await self._run(self._core.classifiers())

    async def create(self, name: str, model: str) -> ClassifierInfo:
        """See Client."""
        return await self._run(self._core.create(name, model))

    async def enrol(
        self,
        label: str,
        sources: Source | Iterable[Source],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
    ) -> Enrolled:
        """See Client; `failed` is called in another thread."""
        return await self._run(self._core.enrol(label, sources, classifier, failed))

    async def classify(self, source: Source, *, top: int = 5, classifier: str | None = None) -> list[Guess]:
        """See Client."""
        return (await self._run(self._core.classify([source], classifier, top)))[0]

    async def classify_many(
        self, sources: Iterable[Source], *, top: int = 5, classifier: str | None = None
    ) -> list[list[Guess]]:
        """See Client."""
        return await self._run(self._core.classify(sources, classifier, top))

    async def classes(self, *, classifier: str | None = None) -> list[ClassSummary]:
        """See Client."""
        return await self._run(self._core.classes(classifier))

    async def forget(self, label: str, *, classifier: str | None = None) -> int:
        """See Client."""
        return await self._run(self._core.forget(f"/classes/{_quoted(label)}", classifier))

    async def forget_example(self, example: str, *, classifier: str | None = None) -> int:
        """See Client."""
        return await self._run(self._core.forget(f"/examples/{quote(example, safe='')}", classifier))

    async def forget_classifier(self, classifier: str) -> int:
        """See Client."""
        return await self._run(self._core.forget("", classifier))

    async def _run(self, steps: _Steps[_Found]) -> _Found:
        step = await asyncio.to_thread(_next, steps, None)
        while isinstance(step, _Ask):
            step = await asyncio.to_thread(_next, steps, await self._outcome(step))
        return step.value

    async def _outcome(self, ask: _Ask) -> bytes | ServiceError:
        attempt = 0
        while isinstance(found := self._core.judge(ask, await self._once(ask), attempt), float):
            await asyncio.sleep(found)
            attempt += 1
        return found

    async def _once(self, ask: _Ask) -> _Reply | _Lost:
        try:
            async with self._http.stream(
                ask.method, ask.path, content=ask.content, headers=self._core.headers(ask)
            ) as reply:
                body = bytearray()
                async for part in reply.aiter_bytes():
                    body += part
                    if len(body) > _MOST_REPLY:
                        return _TOO_LONG
                return _Reply(reply.status_code, reply.headers, bytes(body))
        except httpx.HTTPError as error:
            return _lost(error)
