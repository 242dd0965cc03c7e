"""A client's conversation with a service: requests and replies, without a connection.

A request is a generator of steps (sfumato.device.client.exchange), driven by a client.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Literal, TypeVar, get_args
from urllib.parse import quote

from pydantic import ValidationError

from sfumato import wire
from sfumato.base.files import check_alike
from sfumato.base.schemas import validate_json
from sfumato.device.client.addresses import check_url, normalise_label
from sfumato.device.client.demands import (
    Accept,
    Notice,
    Policy,
    Protecting,
    number_of,
    parse_protection,
    size_words,
    takes,
    words,
)
from sfumato.device.client.exchange import Request, ServiceError, Steps, exchange
from sfumato.device.client.outgoing import (
    Failed,
    Image,
    Outgoing,
    Sent,
    Stopped,
    check_averages,
    example_id,
)
from sfumato.device.client.sources import Source, as_list, batches, fit
from sfumato.errors import ConfigError, DataError, ImageError, did_you_mean
from sfumato.protect.code import Code, signs
from sfumato.protect.release import Trained
from sfumato.protect.spec import portable
from sfumato.protect.vectors import BitsRelease
from sfumato.wire import labelled, tables
from sfumato.wire.messages import (
    MOST_GUESSES,
    Answers,
    ClassifierInfo,
    ClassSummary,
    EnrolledClass,
    EnrolledClasses,
    EnrolledExamples,
    Forgotten,
    ImageAnswer,
    ModelInfo,
)
from sfumato.wire.tables import Table

Batch = Literal["shuffled", "level"]

MOST_LEVEL_BITS = 12  # of a code, whose 4,096 values are 128 requests

_SYSTEM = random.SystemRandom()
_MOST_SIDE = 2048  # the largest side of the images that a service may ask for
_MOST_LISTED = 5  # models in a message

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Guess:
    """A guess at the class of an image.

    Attributes:
        label: its name; None if the image is of none of the classes.
        probability: among all classes; None without a label, or if the service withholds it.
        distance: squared Euclidean distance to the prototype; None likewise.
    """

    label: str | None
    probability: float | None
    distance: float | None


@dataclass(frozen=True)
class Enrolled:
    """The result for the images of a class; the first three counts add up to all images.

    Attributes:
        new: images that were enrolled now.
        known: images that were enrolled before, or given twice.
        failed: images that cannot be read or may not leave.
        total: number of examples of the class now; None if nothing was sent.
        examples: the ids of examples: in each request the new ones, then the others.
    """

    new: int = 0
    known: int = 0
    failed: int = 0
    total: int | None = None
    examples: tuple[str, ...] = ()

    @property
    def images(self) -> int:
        """The number of all images."""
        return self.new + self.known + self.failed

    def with_part(self, part: EnrolledExamples, images: int) -> "Enrolled":
        """Add a part of the service's answer; `images`: the number that each example stands for."""
        return Enrolled(
            self.new + part.new * images,
            self.known + part.known * images,
            self.failed,
            part.total,
            (*self.examples, *part.examples),
        )

    def with_failed(self) -> "Enrolled":
        """Add an image that failed."""
        return replace(self, failed=self.failed + 1)


@dataclass(frozen=True)
class _Subject:
    """A classifier, the shape that its model takes, and the protection."""

    id: str
    path: str
    shape: tuple[int, int, int]
    protection: Protecting


class Conversation:
    """All requests to a service. State: the classifiers seen so far."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        protection: str | Protecting | None,
        accept: Accept | None,
        notice: Notice | None,
        ledger: str | os.PathLike[str],
        classifier: str,
        retries: int,
        insecure: bool,
    ) -> None:
        """See sfumato.device.client.Client."""
        self.url = check_url(url, insecure=insecure)
        # Not in the message: the input may be part of a key. Other characters would fail in the middle of a
        # request, with an error that shows them.
        if not re.fullmatch(r"[\x21-\x7e]{1,200}", key):
            raise ConfigError(
                f"the key has {len(key)} characters: it needs 1 to 200 printable ones without spaces, as "
                "`sfumato keys create` printed it (on the command line: SFUMATO_KEY, or --key-file)"
            )
        if retries < 0:
            raise ConfigError(f"retries={retries}: at least 0 (no retry)")
        self._key = key
        self._chosen = parse_protection(protection) if isinstance(protection, str) else protection
        self._policy = Policy(self.url, self._chosen, accept, ledger, notice)
        self._outgoing = Outgoing(ledger)
        self._default = classifier
        self._retries = retries
        self._subjects: dict[tuple[str, bool], _Subject] = {}

    def headers(self, request: Request) -> dict[str, str]:
        """Return the headers of a request."""
        kind = {} if request.kind is None else {"content-type": request.kind}
        known = {} if request.known is None else {"if-none-match": request.known}
        return {"x-api-key": self._key, **kind, **known}

    # Requests.

    def models(self) -> Steps[list[ModelInfo]]:
        """See Client; so for all methods below."""
        return (yield from self._ask(list[ModelInfo], Request("GET", "/v1/models", again=True)))

    def classifiers(self) -> Steps[list[ClassifierInfo]]:
        """List the classifiers of this tenant."""
        return (yield from self._ask(list[ClassifierInfo], Request("GET", "/v1/classifiers", again=True)))

    def create(self, name: str, model: str) -> Steps[ClassifierInfo]:
        """Create a classifier."""
        content = json.dumps({"name": name, "model": model}).encode()
        request = Request("POST", "/v1/classifiers", again=False, content=content, kind="application/json")
        return (yield from self._ask(ClassifierInfo, request))

    def enrol(
        self,
        label: str,
        sources: Source | Iterable[Source],
        classifier: str | None,
        failed: Failed | None,
        *,
        people: bool,
        average: bool,
    ) -> Steps[Enrolled]:
        """Make images examples of a class."""
        images = {label: sources}
        enrolled = yield from self.enrol_many(images, classifier, failed, people=people, average=average)
        return enrolled[normalise_label(label)]

    def enrol_many(
        self,
        images: Mapping[str, Source | Iterable[Source]],
        classifier: str | None,
        failed: Failed | None,
        *,
        people: bool,
        average: bool,
    ) -> Steps[dict[str, Enrolled]]:
        """Make images examples of many classes."""
        given = [(normalise_label(label), sources) for label, sources in images.items()]
        check_alike("the classes to enrol", "are called", {label for label, _ in given})
        each: list[Iterable[Image]] = [_examples(label, sources, people=people) for label, sources in given]
        subject = yield from self._subject(classifier, begin=True)
        if average:
            check_averages(subject.protection)
        enrolled = {label: Enrolled() for label, _ in given}

        def miss(image: Image, error: Stopped) -> None:
            enrolled[image.label] = enrolled[image.label].with_failed()
            if failed is not None:
                failed(image.source, error)

        parts: Iterable[list[Image]] = map(list, each)
        if not average:
            parts = batches(chain.from_iterable(each), subject.shape)
        for batch in parts:
            sent = self._outgoing.release(
                *(subject.protection, batch, subject.shape, None if failed is None else miss), average=average
            )
            if sent is not None:
                for part in (yield from self._enrol(subject, sent)):
                    label = part.label
                    enrolled[label] = enrolled[label].with_part(part, len(sent.images) if average else 1)
        return enrolled

    def _enrol(self, subject: _Subject, sent: Sent) -> Steps[list[EnrolledClass]]:
        """Send examples, and check that the answer is about them."""
        labels = [image.label for image, _ in zip(sent.images, sent.numbers, strict=False)]  # or one average
        ids = [
            example_id(number, url=self.url, classifier=subject.id, label=label)
            for number, label in zip(sent.numbers, labels, strict=True)
        ]
        content = labelled.join(list(zip(labels, ids, strict=True)), sent.content)
        path = f"{subject.path}/examples"
        parts = yield from self._send(EnrolledClasses, path, content, kind=labelled.MEDIA_TYPE)
        if {part.label: part.new + part.known for part in parts.classes} != Counter(labels):
            raise ServiceError(f"{self.url}: the answer is about other images")
        return parts.classes

    def classify(
        self,
        sources: Source | Iterable[Source],
        classifier: str | None,
        top: int,
        batch: Batch | None = None,
        failed: Failed | None = None,
    ) -> Steps[list[list[Guess]]]:
        """Guess the classes of each image; of an image that `failed` was called with, none."""
        if not 1 <= top <= MOST_GUESSES:
            raise ConfigError(f"top={top}: from 1 to {MOST_GUESSES} classes")
        if batch not in (None, *get_args(Batch)):
            raise ConfigError(f"batch={batch!r}: {did_you_mean(str(batch), get_args(Batch))}")
        subject = yield from self._subject(classifier, begin=False)
        if batch == "level":
            return (yield from self._classify_level(subject, sources, top, failed))
        images: Iterable[Image] = map(Image, as_list(sources))
        if batch == "shuffled":
            images = list(images)
            order = _SYSTEM.sample(range(len(images)), len(images))
            images = [images[place] for place in order]
        guesses: list[list[Guess]] = []
        for part in batches(images, subject.shape):
            sent = self._outgoing.release(
                *(subject.protection, part, subject.shape),
                None if failed is None else lambda image, error: failed(image.source, error),
            )
            released = () if sent is None else sent.images
            answers = [] if sent is None else (yield from self._ask_classes(subject, sent.content, top))
            if len(answers) != len(released):
                raise ServiceError(f"{self.url}: {len(answers)} answers for {len(released)} images")
            answered = dict(zip((id(image.source) for image in released), answers, strict=True))
            guesses += [answered.get(id(image.source), []) for image in part]
        if batch != "shuffled":
            return guesses
        return [row for _, row in sorted(zip(order, guesses, strict=True), key=itemgetter(0))]

    def _classify_level(
        self, subject: _Subject, sources: Source | Iterable[Source], top: int, failed: Failed | None
    ) -> Steps[list[list[Guess]]]:
        """Asks for every code once, in order, and looks up each image: no request depends on an image."""
        code = subject.protection
        bits = code.outputs.bit_length() - 1 if isinstance(code, Code) and code.outputs else None
        if not isinstance(code, Code) or bits is None or code.draws_noise or bits > MOST_LEVEL_BITS:
            raise ConfigError(
                f"{portable(subject.protection.spec)}: batch='level' asks for every code once, which takes a "
                f"code of at most {MOST_LEVEL_BITS} bits without noise: use such a code, or the answer table"
            )
        codes = tables.codes_of(bits)
        answers: list[list[Guess]] = []
        for part in batches(range(len(codes)), (1, 1, 1)):
            content = wire.encode(BitsRelease(codes[part], code.spec), made_of=code.digest())
            answers += yield from self._ask_classes(subject, content, top)
        if len(answers) != len(codes):
            raise ServiceError(f"{self.url}: {len(answers)} answers for {len(codes)} codes")
        guesses: list[list[Guess]] = []
        for source in as_list(sources):
            try:
                own = signs(code.encode(fit(source, subject.shape)[1][None])).numpy()
            except ImageError as error:
                if failed is None:
                    raise
                failed(source, error)
                guesses.append([])
                continue
            guesses.append(answers[tables.word_of(own)[0]])
        return guesses

    def _ask_classes(self, subject: _Subject, content: bytes, top: int) -> Steps[list[list[Guess]]]:
        answers = yield from self._send(Answers, f"{subject.path}/classify?top={top}", content)
        return [_guesses(answer) for answer in answers.images]

    def classes(self, classifier: str | None) -> Steps[list[ClassSummary]]:
        """List the classes of a classifier."""
        path = yield from self._path(classifier)
        return (yield from self._ask(list[ClassSummary], Request("GET", f"{path}/classes", again=True)))

    def table(self, classifier: str | None, known: Table | None) -> Steps[Table]:
        """Fetch the table of a classifier; returns `known` if it is current."""
        name = self._default if classifier is None else classifier
        info = yield from self._find(name)
        if info is None:
            raise _no_classifier(name)
        if known is not None and known.header.classifier != info.id:
            known = None
        tag = None if known is None else known.header.version_tag
        request = Request("GET", f"{_path_of(info)}/table", again=True, known=tag)
        content = yield from exchange(request, self.url, retries=self._retries)
        try:
            table = known if known is not None and not content else tables.decode(content)
        except DataError as error:
            raise ServiceError(f"{self.url}: {words(str(error))}") from error
        if (table.header.classifier, table.header.name) != (info.id, info.name):
            raise ServiceError(f"{self.url}: the table is of another classifier")
        self._policy.check_signer(table.header.signer, first=True)
        return table

    def forget(self, below: str, classifier: str | None) -> Steps[int]:
        """Forget the entry at a path below a classifier; "" for the whole classifier."""
        path = yield from self._path(classifier)
        # Not repeated: if the first reply was lost, the second would be 404.
        forgotten = yield from self._ask(Forgotten, Request("DELETE", path + below, again=False))
        return forgotten.forgotten

    def _send(
        self, answer: type[_Answer], path: str, content: bytes, *, kind: str = wire.MEDIA_TYPE
    ) -> Steps[_Answer]:
        """Send releases; it is safe to send them again."""
        request = Request("POST", path, again=True, content=content, kind=kind)
        return (yield from self._ask(answer, request))

    def _ask(self, kind: type[_Answer], request: Request) -> Steps[_Answer]:
        """Send a request, and read the reply as a message of the API."""
        try:
            body = yield from exchange(request, self.url, retries=self._retries)
        except ServiceError as error:
            if error.status in (404, 409, 422):
                self._subjects.clear()  # they may have changed
            raise
        try:
            answer: _Answer = validate_json(kind, body)
            return answer
        except ValidationError as error:
            problem = f"the answer is not a {getattr(kind, '__name__', kind)}"
            raise ServiceError(f"{self.url}: {problem}: the service may be of another version") from error

    # Classifiers.

    def _path(self, name: str | None) -> Steps[str]:
        name = self._default if name is None else name
        info = yield from self._find(name)
        if info is None:
            raise _no_classifier(name)
        return _path_of(info)

    def _find(self, name: str) -> Steps[ClassifierInfo | None]:
        listed = yield from self.classifiers()
        return next((info for info in listed if info.name == name), None)

    def _subject(self, name: str | None, *, begin: bool) -> Steps[_Subject]:
        """Look up a classifier by its name, before images are sent to it.

        Everything that could refuse the images is checked before any is charged: the key, the classifier, its
        model, the protection, and for a query whether there is a class.

        Args:
            name: None for the client's own.
            begin: create it if it is new; otherwise it must have a class.
        """
        name = self._default if name is None else name
        if (name, begin) in self._subjects:
            return self._subjects[name, begin]
        models = yield from self.models()
        info = yield from self._find(name)
        if info is None:
            if not begin:
                raise _no_classifier(name)
            info = yield from self._begin(name, models)
        model = next((model for model in models if model.name == info.model), None)
        if model is None:
            raise ConfigError(
                f"{name} is for the model {words(info.model)}, which {self.url} does not run now"
            )
        channels, height, width = model.shape
        if channels not in (1, 3) or not (1 <= height <= _MOST_SIDE and 1 <= width <= _MOST_SIDE):
            raise ServiceError(
                f"{self.url}: {name} is for images of {size_words(model.shape)}: this client makes images of "
                f"1 or 3 channels and at most {_MOST_SIDE} pixels a side"
            )
        if begin and not info.may_enrol:
            raise ServiceError(
                f"{self.url}: 403: your key may only ask, and enrolling in {name} needs one of the role "
                "write: nothing was sent or charged",
                status=403,
            )
        if not (begin or info.classes):
            raise ConfigError(f"{name} has no class: enrol an example first; nothing was sent or charged")
        subject = _Subject(info.id, _path_of(info), model.shape, self._policy.agree(name, model))
        self._subjects[name, begin] = subject
        return subject

    def _begin(self, name: str, models: list[ModelInfo]) -> Steps[ClassifierInfo]:
        """Create a classifier for the one model that takes this device's releases."""
        wanted = self._chosen
        fit = [model for model in models if wanted is None or number_of(wanted, model) is not None]
        if len(fit) > 1 and isinstance(wanted, Trained):
            fit = [model for model in fit if wanted.digest() in model.made_of]
        if len(fit) != 1:
            spec = "any protection" if wanted is None else portable(wanted.spec)
            taken = "; ".join(takes(model) for model in models[:_MOST_LISTED])
            if len(models) > _MOST_LISTED:
                taken += f"; and {len(models) - _MOST_LISTED} more"
            raise ConfigError(
                f"no classifier is called {name!r}, and {len(fit)} models take releases of {spec} ({taken}): "
                "create it for one of them first"
            )
        self._policy.agree(name, fit[0])  # before anything is created
        try:
            return (yield from self.create(name, fit[0].name))
        except ServiceError as error:
            if error.status != 409:
                raise
            # Another device created the same classifier first.
            other = yield from self._find(name)
            if other is None:
                raise
            return other


def _examples(label: str, sources: Source | Iterable[Source], *, people: bool) -> Iterator[Image]:
    """Return the images of a class; `people`: its label is a person's name."""
    return (Image(source, label, label if people else None) for source in as_list(sources))


def _no_classifier(name: str) -> ConfigError:
    return ConfigError(f"no classifier is called {name!r}: enrol an example, create it, or name another")


def _path_of(info: ClassifierInfo) -> str:
    return f"/v1/classifiers/{quote(info.id, safe='')}"


def _guesses(answer: ImageAnswer) -> list[Guess]:
    guesses = [Guess(guess.label, guess.probability, guess.distance) for guess in answer.guesses]
    return [Guess(None, None, None), *guesses] if answer.none_of_these else guesses
