"""The client of a service: protects images here, charges the ledger of this device, and sends releases.

A request contains no unreleased pixel: it contains a release, as sfumato.wire writes it, and the label, which
is not protected: choose one that says nothing.

The device decides how images are protected; a service can only ask (sfumato.device.client.demands).
"""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from sfumato import wire
from sfumato.base.files import check_alike, read_regular
from sfumato.base.schemas import validate_json
from sfumato.device.client import demands, outgoing
from sfumato.device.client.connection import MOST_REPLY, Connection, ServiceError, check_url
from sfumato.device.client.demands import Accept, Notice, Policy, Protecting, size_words, words
from sfumato.device.client.outgoing import Failed, Image, Source, as_list, fit
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.shares import Plan, Prepared
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, DataError, ImageError
from sfumato.images import digest
from sfumato.protect.release import Trained
from sfumato.protect.spec import portable
from sfumato.wire import labelled, labels, messages, tables
from sfumato.wire.messages import ClassifierDetails, ClassifierInfo, ClassSummary, KeptShares, ModelInfo
from sfumato.wire.tables import AnswerTable

if TYPE_CHECKING:
    from httpx import BaseTransport

    from sfumato.protect.code import Code

_CHANGED = frozenset({404, 409, 422})  # what is known of classifiers may have changed
_MOST_SIDE = 2048  # the largest side of the images that a service may ask for
_MOST_LISTED = 5  # models in a message
_MOST_IMAGES = 32  # of a request
_MOST_VALUES = 8_000_000  # pixels in all channels of a request

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Guess:
    """A guess at the class of an image; a number is None if the service withholds it."""

    label: str | None  # None if no class fits the image, and then without numbers
    probability: float | None  # among all classes
    distance: float | None  # squared Euclidean distance to the prototype


NONE = Guess(None, None, None)  # no class fits


@dataclass(frozen=True)
class Enrolled:
    """The result for the images of a class; the first three counts add up to all images."""

    new: int = 0  # enrolled now
    known: int = 0  # enrolled before, or given twice
    failed: int = 0  # not readable, or may not leave
    total: int | None = None  # examples of the class now; None if nothing was sent
    examples: tuple[str, ...] = ()  # ids: in each request the new ones, then the others

    def plus(self, new: int = 0, known: int = 0, failed: int = 0) -> "Enrolled":
        """Add some images."""
        return replace(self, new=self.new + new, known=self.known + known, failed=self.failed + failed)


class Client(AbstractContextManager["Client"]):
    """A client that protects every image on the device first. State: its connection; classifiers seen so far.

    An image is charged in the ledger at the size that the model takes: another size is another release, a
    near copy. Threads may share one; with an event loop, `await asyncio.to_thread(client.classify, photo)`.
    If a reply is lost or the service is busy, questions and enrolments are sent again.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        protection: str | Protecting | None = None,
        accept: Accept | None = None,
        notice: Notice | None = None,
        ledger: str | os.PathLike[str],
        classifier: str = "default",
        timeout: float = 30.0,
        retries: int = 4,
        insecure: bool = False,
        transport: "BaseTransport | None" = None,
    ) -> None:
        """Check the arguments; nothing is sent yet.

        Args:
            key: the secret that `sfumato keys create` printed.
            protection: a spec, or a protection; None for the one that was chosen or accepted before for this
                service and classifier, by the ledger. Clear images need an explicit "none"; a private feature
                or a code needs its noise, such as "code:artefact=c.safetensors,flip=0.1".
            accept: asked, without a protection or an earlier acceptance, whether images may leave as the
                model demands. True pins that. None never accepts.
            notice: called with the guarantee of `protection` when it is first used for this service and
                classifier, before anything is sent.
            timeout: seconds for a connection, and for each wait for bytes; four times as long for an answer.
            retries: the most times that a request is sent again, after at most a minute each.
            insecure: allow http to another machine: key and labels travel in clear.

        Raises ConfigError, SpecError or ArtefactError for an argument that cannot be used.
        """
        self.url = check_url(url, insecure=insecure)
        self._connection = Connection(self.url, key, timeout=timeout, retries=retries, transport=transport)
        chosen = demands.parse_protection(protection) if isinstance(protection, str) else protection
        self._policy = Policy(self.url, chosen, accept, notice)
        self._ledger, self._default = ledger, classifier
        # By name, and whether to enrol: the id of a classifier, the shape that it takes, the protection.
        self._subjects: dict[tuple[str, bool], tuple[str, tuple[int, int, int], Protecting]] = {}

    def close(self) -> None:
        """Close the connections."""
        self._connection.http.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def models(self) -> list[ModelInfo]:
        """List the models that the service runs. All methods raise ServiceError if it refuses or is away."""
        return self._ask(list[ModelInfo], "GET", "/v1/models")

    def classifiers(self) -> list[ClassifierInfo]:
        """List the classifiers of this tenant."""
        return self._ask(list[ClassifierInfo], "GET", "/v1/classifiers")

    def find(self, name: str) -> ClassifierDetails | None:
        """Describe a classifier and its model, by its name; None if there is none."""
        try:
            info = self._ask(ClassifierDetails, "GET", f"/v1/classifiers/{labels.quote(name)}")
        except ServiceError as error:
            if error.status != 404:
                raise
            return None
        return info if info.name == labels.normal(name) else None  # and not the id of another

    def create(self, name: str, model: str) -> ClassifierInfo:
        """Create a classifier for a model. Raises ServiceError (409) if the name exists."""
        content, kind = json.dumps({"name": name, "model": model}).encode(), "application/json"
        return self._ask(ClassifierInfo, "POST", "/v1/classifiers", content, kind=kind, again=False)

    def enrol(
        self,
        label: str,
        sources: Source | Iterable[Source],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
        people: bool = False,
    ) -> Enrolled:
        """Make images examples of a class. A new classifier is created if one model fits.

        Images are protected and sent 32 at a time. If the service would refuse them, for example with a
        read-only key, nothing is charged. After a later error, the same call resumes: the same image is the
        same release, charged once and enrolled once in this class, by an id that this ledger makes; another
        class, classifier or service gets another id. Different images count each.

        Args:
            sources: files, (C, H, W) uint8 tensors or arrays, or one of these. A centre square of each
                is resized to the size of the model.
            failed: called with each image that cannot be read, is nearly its own release, or would pass a
                budget, and with the error; None raises the error, and none of the 32 images was sent.
            people: whether the label is a person's name: images then count for the budget of that person.

        Raises ConfigError if the model takes another protection, or one that nobody agreed to; if no model
        fits, or several do; or if it is not a label. LedgerError if the ledger cannot be used.
        """
        enrolled = self.enrol_many({label: sources}, classifier=classifier, failed=failed, people=people)
        return enrolled[labels.normalise(label)]

    def enrol_many(
        self,
        images: Mapping[str, Source | Iterable[Source]],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
        people: bool = False,
    ) -> dict[str, Enrolled]:
        """Like enrol, for many classes, 32 images of any in a request. Returns results by label, in NFC."""
        given = [(labels.normalise(label), sources) for label, sources in images.items()]
        enrolled = {label: Enrolled() for label, _ in given}
        check_alike("the classes to enrol", "are called", enrolled)

        each = chain.from_iterable(
            (Image(source, label, label if people else None) for source in as_list(sources))
            for label, sources in given
        )
        for found, batch, release, numbers in self._release(each, classifier, failed, begin=True):
            examples = [
                (image.label, outgoing.example_id(number, self.url, found, image.label))
                for image, number in zip(batch, numbers, strict=True)
                if number is not None
            ]
            counts = Counter(label for label, _ in examples)
            for label, lost in (Counter(image.label for image in batch) - counts).items():
                enrolled[label] = enrolled[label].plus(failed=lost)
            if not examples:
                continue
            path, content = f"{_path(found)}/examples", labelled.join(examples, release)
            answer = self._ask(messages.EnrolledClasses, "POST", path, content, kind=labelled.MEDIA_TYPE)
            if {part.label: part.new + part.known for part in answer.classes} != counts:
                raise ServiceError(f"{self.url}: the answer is about other images")
            for part in answer.classes:
                was = enrolled[part.label].plus(part.new, part.known)
                known = (*was.examples, *part.examples)
                enrolled[part.label] = replace(was, total=part.total, examples=known)
        return enrolled

    def classify(self, source: Source, *, top: int = 5, classifier: str | None = None) -> list[Guess]:
        """Guess the class of an image, the likeliest first; Guess(None) comes first if no class fits.

        The release is charged. Raises as enrol, and ConfigError without a class.
        """
        return self.classify_many([source], top=top, classifier=classifier)[0]

    def classify_many(
        self,
        sources: Iterable[Source],
        *,
        top: int = 5,
        classifier: str | None = None,
        failed: Failed | None = None,
    ) -> list[list[Guess]]:
        """Like classify, 32 images in a request. `failed`: see enrol; it has an empty list of guesses."""
        if not 1 <= top <= messages.MOST_GUESSES:
            raise ConfigError(f"top={top}: from 1 to {messages.MOST_GUESSES} classes")
        images, guesses = map(Image, as_list(sources)), list[list[Guess]]()
        for found, _, release, numbers in self._release(images, classifier, failed, begin=False):
            answers: list[messages.ImageAnswer] = []
            count = len(numbers) - numbers.count(None)
            if count:
                path = f"{_path(found)}/classify?top={top}"
                answers = self._ask(messages.Answers, "POST", path, release).images
            if len(answers) != count:
                raise ServiceError(f"{self.url}: {len(answers)} answers for {count} images")
            answered = map(_guesses, answers)
            guesses += [[] if number is None else next(answered) for number in numbers]
        return guesses

    def share(self, table: AnswerTable, plan: Plan, *, person: str | None = None) -> Prepared:
        """Send the histogram of gathered answers, or an alarm, once: see Ledger.prepare_shares."""
        with Ledger(self._ledger) as ledger:
            demands.check_signer(ledger, self.url, table.header.signer, first=False)
            prepared = ledger.prepare_shares(plan, person=person)
            number = outgoing.example_id(prepared.number, self.url, table.header.classifier, plan.spec)
            path = f"{_path(table.header.classifier)}/shares/{number}"
            self._connection.ask("POST", path, prepared.content, {"content-type": "application/json"})
            ledger.note_sent(prepared)
        return prepared

    def shares(self, *, classifier: str | None = None) -> list[KeptShares]:
        """List the histograms and alarms that all devices sent: it needs a key of the role admin."""
        return self._ask(list[KeptShares], "GET", f"{_path(self._find_listed(classifier).id)}/shares")

    def answer_table(self, *, classifier: str | None = None) -> AnswerTable:
        """Fetch the signed table for look_up: the answers to all codes.

        The first signing key is pinned. Raises ServiceError also without a table: only short codes have one;
        ConfigError for another key.
        """
        info = self._find_listed(classifier)
        content = self._connection.ask("GET", f"{_path(info.id)}/table", None, {})
        try:
            table = tables.decode(content)
        except DataError as error:
            raise ServiceError(f"{self.url}: {words(str(error))}") from error
        if (table.header.classifier, table.header.name) != (info.id, info.name):
            raise ServiceError(f"{self.url}: the table is of another classifier")
        with Ledger(self._ledger) as ledger:
            demands.check_signer(ledger, self.url, table.header.signer, first=True)
        return table

    def classes(self, *, classifier: str | None = None) -> list[ClassSummary]:
        """List the classes of a classifier, and the number of examples of each."""
        return self._ask(list[ClassSummary], "GET", f"{_path(self._find_listed(classifier).id)}/classes")

    def forget(self, label: str, *, classifier: str | None = None) -> int:
        """Forget a class. Returns the number of examples forgotten."""
        return self._forget(f"/classes/{labels.quote(label)}", classifier)

    def forget_example(self, example: str, *, classifier: str | None = None) -> int:
        """Forget one example, by its id from `enrol`. Returns 1."""
        return self._forget(f"/examples/{quote(example, safe='')}", classifier)

    def forget_classifier(self, classifier: str) -> int:
        """Forget a classifier with all its classes. Returns the number of examples forgotten."""
        return self._forget("", classifier)

    def _forget(self, below: str, classifier: str | None) -> int:
        path = f"{_path(self._find_listed(classifier).id)}{below}"
        # Not repeated: if the first reply was lost, the second would be 404.
        return self._ask(messages.Forgotten, "DELETE", path, again=False).forgotten

    def _find_listed(self, name: str | None) -> ClassifierInfo:
        name = self._default if name is None else name
        if found := [info for info in self.classifiers() if info.name == name]:
            return found[0]
        raise _no_classifier(name)

    def _release(
        self, images: Iterable[Image], name: str | None, failed: Failed | None, *, begin: bool
    ) -> Iterator[tuple[str, list[Image], bytes, list[bytes | None]]]:
        """Yield for each request the id of the classifier, the images, and what to send of them.

        Everything that could refuse the images is checked before any is charged: the key, the classifier, its
        model, the protection, and for a query whether there is a class. `begin` creates it if it is new.
        """
        name = self._default if name is None else name
        subject = self._subjects.get((name, begin))
        if subject is None:
            info = self.find(name)
            model = self._choose(name, begin=begin) if info is None else info.model
            self._check(name, model, info, begin=begin)
        with Ledger(self._ledger) as ledger:  # a ledger is for one thread, a client for any number
            if subject is None:
                protection = self._policy.agree(ledger, name, model)  # before anything is created
                number = self._begin(name, model) if info is None else info.id
                subject = self._subjects[name, begin] = number, model.shape, protection
            number, shape, protection = subject
            left, most = iter(images), max(1, min(_MOST_IMAGES, _MOST_VALUES // math.prod(shape)))
            while batch := list(islice(left, most)):
                yield number, batch, *outgoing.release(ledger, protection, batch, shape, failed)

    def _check(self, name: str, model: ModelInfo, info: ClassifierDetails | None, *, begin: bool) -> None:
        channels, height, width = model.shape
        if channels not in (1, 3) or not (1 <= height <= _MOST_SIDE and 1 <= width <= _MOST_SIDE):
            raise ServiceError(
                f"{self.url}: {name} is for images of {size_words(model.shape)}: this client makes images of "
                f"1 or 3 channels and at most {_MOST_SIDE} pixels a side"
            )
        if begin and info is not None and not info.may_enrol:
            raise ServiceError(
                f"{self.url}: 403: your key may only ask, and enrolling in {name} needs one of the role "
                "write: nothing was sent or charged",
                status=403,
            )
        if not begin and info is not None and not info.classes:
            raise ConfigError(f"{name} has no class: enrol an example first; nothing was sent or charged")
        if self._policy.chosen is not None:
            demands.check_takes(model, self._policy.chosen)
        else:
            demands.demand(model)

    def _choose(self, name: str, *, begin: bool) -> ModelInfo:
        """Return the one model that takes this device's releases, for a new classifier."""
        models, wanted = self.models(), self._policy.chosen
        if not begin:
            raise _no_classifier(name)
        fit = [model for model in models if wanted is None or demands.is_taken(wanted, model)]
        if len(fit) > 1 and isinstance(wanted, Trained):
            fit = [model for model in fit if wanted.digest() == model.made_of]
        if len(fit) == 1:
            return fit[0]
        spec = "any protection" if wanted is None else portable(wanted.spec)
        taken = "; ".join(demands.takes(model) for model in models[:_MOST_LISTED])
        more = f"; and {len(models) - _MOST_LISTED} more" * (len(models) > _MOST_LISTED)
        raise ConfigError(
            f"no classifier is called {name!r}, and {len(fit)} models take releases of {spec} ({taken}{more}"
            "): create it for one of them first"
        )

    def _begin(self, name: str, model: ModelInfo) -> str:
        """Create a classifier, unless another device did so first. Returns its id."""
        try:
            return self.create(name, model.name).id
        except ServiceError as error:
            other = self.find(name) if error.status == 409 else None
            if other is None or other.model != model:
                raise
            return other.id

    def _ask(
        self,
        answer: type[_Answer],
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        kind: str = wire.MEDIA_TYPE,
        again: bool = True,
    ) -> _Answer:
        """Send a request, and read the reply as a message; `again`: it is safe to send it twice."""
        headers = {} if content is None else {"content-type": kind}
        try:
            reply = self._connection.ask(method, path, content, headers, again=again)
            read: _Answer = validate_json(answer, reply)
            return read
        except ServiceError as error:
            if error.status in _CHANGED:
                self._subjects.clear()
            raise
        except ValidationError as error:
            problem = f"the answer is not a {getattr(answer, '__name__', answer)}"
            raise ServiceError(f"{self.url}: {problem}: the service may be of another version") from error


def look_up(
    table: AnswerTable,
    code: "Code",
    sources: Source | Iterable[Source],
    *,
    failed: Failed | None = None,
    gathered: dict[bytes, str | None] | None = None,
) -> list[list[Guess]]:
    """Classify by a table of answers, on the device alone: a query sends nothing, and no ledger is charged.

    So an adversary at the service learns nothing from queries; it still has the enrolled examples. Arguments
    and guesses as in Client.classify_many; only the first class has a guess, without numbers. `gathered` gets
    the class of each image, None for none of these, by its digest: for Ledger.gather. Raises ConfigError if
    the code has another artefact than the table, or noise.
    """
    if code.draws_noise:
        raise ConfigError(
            f"{code.spec}: nothing leaves the device, and noise only makes answers worse: remove it"
        )
    if code.digest() != table.header.made_of:
        raise ConfigError(
            f"{code.artefact}: not the artefact that the table was made for: use the one whose SHA-256 "
            f"begins with {table.header.made_of[:16]}"
        )
    guesses: list[list[Guess]] = []
    for source in as_list(sources):
        try:
            image = fit(source, code.shape)[1]
        except ImageError as error:
            if failed is None:
                raise
            failed(source, error)
            guesses.append([])
            continue
        ((label, none),) = table.look_up(code.release(image[None], fresh_noise()).numbers() > 0)
        guesses.append([NONE] * none + [Guess(label, None, None)])
        if gathered is not None:
            gathered[digest(image)] = None if none else label
    return guesses


def read_table(path: str | os.PathLike[str]) -> AnswerTable:
    """Read an answer table. Raises DataError: no such file, damaged, or changed after it was signed."""
    try:
        return tables.decode(read_regular(path, MOST_REPLY))
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{words(os.fspath(path))}: {reason}") from error


def _no_classifier(name: str) -> ConfigError:
    return ConfigError(f"no classifier is called {name!r}: enrol an example, create it, or name another")


def _path(classifier: str) -> str:
    return f"/v1/classifiers/{quote(classifier, safe='')}"


def _guesses(answer: messages.ImageAnswer) -> list[Guess]:
    guesses = [Guess(guess.label, guess.probability, guess.distance) for guess in answer.guesses]
    return [NONE, *guesses] if answer.none_of_these else guesses
