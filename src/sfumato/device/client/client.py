"""The device's side of the service: protect here, by the ledger of this device, and send what may leave.

No pixel that was not released is in anything that is sent: what leaves is a release, as sfumato.wire writes
it, and the address, which holds the label. A label is not protected: choose one that says nothing.

The device decides how images are protected; a service can only ask (sfumato.device.client.demands). The
messages are in sfumato.device.client.conversation; here are two clients, over a connection of each kind.
"""

import asyncio
import inspect
import os
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload
from urllib.parse import quote

from sfumato.base.files import printable
from sfumato.device.client.addresses import quoted_label
from sfumato.device.client.conversation import Batch, Conversation, Enrolled, Guess
from sfumato.device.client.demands import Accept, Demanded, Notice, Protecting
from sfumato.device.client.exchange import (
    NOT_PACKED,
    TOO_SLOW,
    Lost,
    Pause,
    Receiving,
    Reply,
    Request,
    ServiceError,
    Steps,
    most_seconds,
)
from sfumato.device.client.outgoing import Failed
from sfumato.device.client.sources import Source
from sfumato.errors import needs_extra
from sfumato.wire.messages import ClassifierInfo, ClassSummary, ModelInfo
from sfumato.wire.tables import AnswerTable

with needs_extra("the client", "serve"):
    import httpx

__all__ = ["AsyncClient", "Client", "Demanded", "Enrolled", "Guess", "ServiceError"]

_MOST_REASON = 500  # characters of why there is no answer

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Transport = TypeVar("_Transport")


@dataclass(frozen=True)
class _Done(Generic[_Answer]):
    answer: _Answer


def _next(steps: Steps[_Answer], reply: Reply | Lost | None) -> Request | Pause | _Done[_Answer]:
    """Take the reply to the last request, and continue to the next request or pause or the end."""
    try:
        return steps.send(reply)
    except StopIteration as end:  # which must not leave a thread or a coroutine
        return _Done(end.value)


class _Method(Generic[_Given, _Answer]):
    """A method of both clients, by its steps: Client gives the answer, of AsyncClient it is awaited."""

    def __init__(self, steps: Callable[Concatenate[Any, _Given], Steps[_Answer]]) -> None:
        @wraps(steps)
        def ask(self: "Client", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            return self._run(steps(self, *args, **kwargs))

        @wraps(steps)
        async def ask_beside(self: "AsyncClient", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            return await self._run(steps(self, *args, **kwargs))

        signature = inspect.signature(steps)  # which help() shows: with the answer, and not the steps to it
        signature = signature.replace(return_annotation=get_args(signature.return_annotation)[-1])
        ask.__dict__["__signature__"] = ask_beside.__dict__["__signature__"] = signature
        self._ask, self._ask_beside = ask, ask_beside

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[_Given, _Answer]: ...
    @overload
    def __get__(
        self, client: "AsyncClient", kind: type
    ) -> Callable[_Given, Coroutine[Any, Any, _Answer]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: object, kind: type) -> Callable[..., Any]:
        method: Callable[..., Any] = self._ask_beside if issubclass(kind, AsyncClient) else self._ask
        return method if client is None else MethodType(method, client)


class _Service(ABC, Generic[_Transport]):
    """What both clients offer. State: its connections."""

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
        transport: _Transport | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: of the service, such as "https://cloud.example".
            key: the secret that `sfumato keys create` printed.
            protection: a spec, or a protection; None for what was chosen or accepted before for this service
                and classifier, as the ledger has it. Clear images are sent only where "none" is asked for;
                a private feature or a code is named with its noise, such as
                "feature:artefact=f.safetensors,noise=0.5" or "code:artefact=c.safetensors,flip=0.1".
            accept: asked where there is no protection and nothing was accepted before: whether images may
                leave as the model demands. True pins that. None never accepts. AsyncClient calls it, and
                `failed` of enrol, in another thread.
            notice: called with what is proved of `protection`, when it is used for this service and
                classifier for the first time: before anything is sent.
            ledger: the path of this device's ledger, which is begun where there is none.
            classifier: the name of the one that is meant where a call names none.
            timeout: seconds for a connection, and for each wait for bytes; four times as many for an answer.
            retries: how often a request is sent again at most.
            insecure: also send to an http address of another machine: key and labels travel in clear.
            transport: what sends, in place of the network: for tests.

        Raises:
            ConfigError: an address, a key or a number that cannot be.
            SpecError: a malformed spec.
            ArtefactError: the artefact of a code cannot be read.
        """
        self._conversation = Conversation(
            url,
            key=key,
            protection=protection,
            accept=accept,
            notice=notice,
            ledger=ledger,
            classifier=classifier,
            retries=retries,
            insecure=insecure,
        )
        self._timeout = timeout
        self._connect(
            base_url=self._conversation.url,
            timeout=timeout,
            headers=NOT_PACKED,
            follow_redirects=False,
            # A proxy of the environment would be sent an http request whole, with the key.
            trust_env=self._conversation.url.startswith("https:"),
            transport=transport,
        )

    @abstractmethod
    def _connect(self, **settings: Any) -> None:
        """Have a connection of httpx."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._conversation.url!r})"

    @_Method
    def models(self) -> Steps[list[ModelInfo]]:
        """The models that the service runs, and the protections that each takes.

        This and all other methods raise ServiceError where the service refuses or cannot be reached.
        """
        return self._conversation.models()

    @_Method
    def classifiers(self) -> Steps[list[ClassifierInfo]]:
        """The classifiers of this tenant."""
        return self._conversation.classifiers()

    @_Method
    def create(self, name: str, model: str) -> Steps[ClassifierInfo]:
        """Begin a classifier for a model. ServiceError of status 409 where there is one of that name."""
        return self._conversation.create(name, model)

    @_Method
    def enrol(
        self,
        label: str,
        sources: Source | Iterable[Source],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
        people: bool = False,
        average: bool = False,
    ) -> Steps[Enrolled]:
        """Make images examples of a class; the classifier is begun where it is new and one model fits.

        Images are protected and sent 32 at a time. Where the service would refuse them, as by a key that may
        only ask, nothing is charged. After a later error, those before it are enrolled, and the same
        call continues: the same image is the same release, charged once and enrolled once in this class. The
        service knows it by an id that this ledger makes, and of which another class, classifier or service
        gets another. Images that differ count each, also where their releases are equal.

        Args:
            label: of the class.
            sources: files, Pillow images, (C, H, W) uint8 tensors, or one of these. A centre square of each
                is resized to what the model takes.
            classifier: its name; None for the client's own.
            failed: called with each image that cannot be read, whose release would be nearly itself, or that
                would pass a budget, and why; None raises that instead.
            people: whether the label says who is on the images: then they count for the budget of that
                person. By default a class is not a person.
            average: of codes alone: make one code of all the images here, the class's prototype, and send
                that. It costs the class as many bits as one image does.

        Raises:
            ConfigError: the model takes another protection, or one that nobody chose or accepted; or demands
                another than it did; no model fits, or several do; no label; or what is not a code is
                averaged.
            BudgetExceededError: an image would pass a budget of the ledger; of its 32, none was sent. Not
                where there is `failed`.
            ImageError: an image that cannot be read, or whose release would be nearly itself. Not where there
                is `failed`.
            LedgerError: the ledger cannot be used.
        """
        return self._conversation.enrol(label, sources, classifier, failed, people=people, average=average)

    @_Method
    def enrol_many(
        self,
        images: Mapping[str, Source | Iterable[Source]],
        *,
        classifier: str | None = None,
        failed: Failed | None = None,
        people: bool = False,
        average: bool = False,
        at_most_named: float | None = None,
    ) -> Steps[dict[str, Enrolled]]:
        """As enrol, for many classes: 32 images of any of them in a request.

        Of the images of one request all are enrolled, or none. Classes of an image or two are enrolled many
        times as fast so.

        Args:
            images: of each label.
            classifier, failed, people, average: see enrol.
            at_most_named: refuse a class that one of its codes names more often than this, from 0 to 1, among
                the classes of this call, to whoever has all these images: those that stand out most, until
                none does. For codes of at most 12 bits. None refuses none.

        Returns:
            Of each label, in Unicode's NFC.

        Raises: as enrol does; and ConfigError if `at_most_named` is for too few classes, or no such code.
        """
        return self._conversation.enrol_many(
            images, classifier, failed, people=people, average=average, at_most_named=at_most_named
        )

    @_Method
    def classify(self, source: Source, *, top: int = 5, classifier: str | None = None) -> Steps[list[Guess]]:
        """The classes that an image may be of, the likeliest first; before them Guess(None), if of none.

        What leaves is charged. Where the service would refuse the image, because there is no such classifier,
        no class or no model, or by the key, that is asked before, and nothing is charged.

        Raises: as enrol does; and ConfigError without a class.
        """
        guesses = yield from self._conversation.classify([source], classifier, top)
        return guesses[0]

    @_Method
    def classify_many(
        self,
        sources: Iterable[Source],
        *,
        top: int = 5,
        classifier: str | None = None,
        batch: Batch | None = None,
        failed: Failed | None = None,
    ) -> Steps[list[list[Guess]]]:
        """As classify, for each of many images, 32 in a request.

        Args:
            sources, top, classifier: see classify.
            batch: "shuffled" sends the releases in random order, so that the service sees how often each
                occurs and nothing else: the bounds of dp.naming for "shuffled" hold if this is the only batch
                of its period. "level" sends every code once, in a fixed order, and looks the answers up on
                the device: the requests are the same for all people and images, and nothing is charged. It
                takes a code of at most 12 bits without noise. None sends the images in their order.
            failed: called with each image that cannot be read or may not leave, and why; its guesses are an
                empty list. None raises that.
        """
        return self._conversation.classify(sources, classifier, top, batch, failed)

    @_Method
    def answer_table(
        self, *, classifier: str | None = None, known: AnswerTable | None = None
    ) -> Steps[AnswerTable]:
        """The signed table of answers to every code, which sfumato.device.client.look_up reads.

        For codes of at most 16 bits, without noise. The key that signs is pinned in the ledger at first.

        Args:
            classifier: its name; None for the client's own.
            known: a table that was asked for before: it is given back if the classifier has not changed.

        Raises:
            ServiceError: also if the classifier has no table.
            ConfigError: another key signs than before.
        """
        return self._conversation.table(classifier, known)

    @_Method
    def classes(self, *, classifier: str | None = None) -> Steps[list[ClassSummary]]:
        """The classes of a classifier, and of how many examples each is."""
        return self._conversation.classes(classifier)

    @_Method
    def forget(self, label: str, *, classifier: str | None = None) -> Steps[int]:
        """Forget a class. Returns how many examples were forgotten."""
        return self._conversation.forget(f"/classes/{quoted_label(label)}", classifier)

    @_Method
    def forget_example(self, example: str, *, classifier: str | None = None) -> Steps[int]:
        """Forget one example, by the id that `enrol` gave: 1."""
        return self._conversation.forget(f"/examples/{quote(example, safe='')}", classifier)

    @_Method
    def forget_classifier(self, classifier: str) -> Steps[int]:
        """Forget a classifier with all its classes. Returns how many examples were forgotten."""
        return self._conversation.forget("", classifier)


class Client(_Service[httpx.BaseTransport]):
    """A service, asked from a device on which every image is protected first. State: its connections.

    An image is charged in the ledger at the size that the model takes. For a model of another size it has
    another release, which the ledger counts with the first: they are near copies.

    Threads may share one. Where a reply is lost or the service is busy, what can be repeated without harm is
    sent again: questions, and enrolments, which the service knows by their ids.
    """

    def _connect(self, **settings: Any) -> None:
        self._http = httpx.Client(**settings)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[_Answer]) -> _Answer:
        step = _next(steps, None)
        while not isinstance(step, _Done):
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            step = _next(steps, self._reply(step) if isinstance(step, Request) else None)
        return step.answer

    def _reply(self, request: Request) -> Reply | Lost:
        """What came of a request in its time. A thread that still waits, as for a header, is left."""
        seconds = most_seconds(request, self._timeout)
        received: Future[Reply | Lost] = Future()

        def receive() -> None:
            try:
                received.set_result(self._received(request, time.monotonic() + seconds))
            except BaseException as error:  # of the one who asks
                received.set_exception(error)

        threading.Thread(target=receive, name="sfumato-reply", daemon=True).start()
        wait([received], timeout=seconds)
        return received.result() if received.done() else TOO_SLOW

    def _received(self, request: Request, until: float) -> Reply | Lost:
        headers = self._conversation.headers(request)
        try:
            with self._http.stream(
                request.method, request.path, content=request.content, headers=headers
            ) as reply:
                receiving = Receiving(reply.status_code, reply.headers, until=until)
                lost = receiving.refused()
                assert isinstance(reply.stream, httpx.SyncByteStream)
                parts = iter(reply.stream)  # as they travel: nothing unpacks them
                while lost is None and (part := next(parts, None)) is not None:
                    lost = receiving.add(part)
                return lost or receiving.reply()
        except httpx.HTTPError as error:
            return _lost(error)


class AsyncClient(_Service[httpx.AsyncBaseTransport]):
    """As Client, for a program with an event loop, which images do not hold up: they are protected beside it.

    State: its connections. Arguments, methods, promises and errors are those of Client.
    """

    def _connect(self, **settings: Any) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[_Answer]) -> _Answer:
        step = await asyncio.to_thread(_next, steps, None)
        while not isinstance(step, _Done):
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            reply = await self._reply(step) if isinstance(step, Request) else None
            step = await asyncio.to_thread(_next, steps, reply)
        return step.answer

    async def _reply(self, request: Request) -> Reply | Lost:
        headers = self._conversation.headers(request)
        seconds = most_seconds(request, self._timeout)
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(
                    request.method, request.path, content=request.content, headers=headers
                ) as reply,
            ):
                receiving = Receiving(reply.status_code, reply.headers, until=time.monotonic() + seconds)
                lost = receiving.refused()
                assert isinstance(reply.stream, httpx.AsyncByteStream)
                parts = aiter(reply.stream)
                while lost is None and (part := await anext(parts, None)) is not None:
                    lost = receiving.add(part)
                return lost or receiving.reply()
        except TimeoutError:
            return TOO_SLOW
        except httpx.HTTPError as error:
            return _lost(error)


def _lost(error: httpx.HTTPError) -> Lost:
    # Not as a cause: it holds the request, and that the key.
    reason = printable(f"{type(error).__name__}: {error}".rstrip(": "))[:_MOST_REASON]
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if not isinstance(error, httpx.ConnectError) or cause is None or isinstance(cause, ssl.SSLEOFError):
        return Lost(reason)
    cure = _NO_TLS
    if isinstance(cause, ssl.SSLCertVerificationError):
        cure = _CERTIFICATES.get(cause.verify_code, _UNTRUSTED)
    return Lost(reason, cure, lasting=True)


_NO_TLS = "it must offer TLS 1.2 or later at this port: check the port, or have the service set up for it"
_UNTRUSTED = (
    "this machine does not trust the authority that signed its certificate: if it is your own service, name "
    "the certificate of this authority in the variable SSL_CERT_FILE"
)
_PERIOD = "see that the clock of this machine is right; if it is, have the service renew its certificate"
_ELSEWHERE = "its certificate is for another host: use the address that it is for"
_CERTIFICATES = {9: _PERIOD, 10: _PERIOD, 62: _ELSEWHERE, 64: _ELSEWHERE}  # X509_V_ERR_* of OpenSSL
