"""The client of a service: protects images here, charges the ledger of this device, and sends releases.

A request contains no unreleased pixel: it contains a release, as sfumato.wire writes it, and the address with
the label. A label is not protected: choose one that says nothing.

The device decides how images are protected; a service can only ask (sfumato.device.client.demands).
sfumato.device.client.conversation has the messages; this module has two clients, for each kind of connection.
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
from sfumato.device.client.addresses import quote_label
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
from sfumato.wire.tables import Table

with needs_extra("the client", "serve"):
    import httpx

__all__ = ["AsyncClient", "Client", "Demanded", "Enrolled", "Guess", "ServiceError"]

_MOST_REASON = 500  # characters of the reason of a lost answer

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Transport = TypeVar("_Transport")


@dataclass(frozen=True)
class _Done(Generic[_Answer]):
    answer: _Answer


def _next(steps: Steps[_Answer], reply: Reply | Lost | None) -> Request | Pause | _Done[_Answer]:
    """Pass the reply to the last request on; return the next request or pause, or the answer."""
    try:
        return steps.send(reply)
    except StopIteration as end:  # StopIteration must not leave a thread or a coroutine
        return _Done(end.value)


class _Method(Generic[_Given, _Answer]):
    """A method of both clients, made from its steps: Client returns the answer, AsyncClient a coroutine."""

    def __init__(self, steps: Callable[Concatenate[Any, _Given], Steps[_Answer]]) -> None:
        @wraps(steps)
        def ask(self: "Client", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            return self._run(steps(self, *args, **kwargs))

        @wraps(steps)
        async def ask_beside(self: "AsyncClient", /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            return await self._run(steps(self, *args, **kwargs))

        signature = inspect.signature(steps)  # help() shows the answer and not the steps to it
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
    """The methods of both clients. State: its connections."""

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
        """Check the arguments; nothing is sent yet.

        Args:
            url: of the service, such as "https://cloud.example".
            key: the secret that `sfumato keys create` printed.
            protection: a spec, or a protection; None for the one that was chosen or accepted before for this
                service and classifier, by the ledger. Clear images need an explicit "none"; a private feature
                or a code needs its noise, such as "feature:artefact=f.safetensors,noise=0.5" or
                "code:artefact=c.safetensors,flip=0.1".
            accept: asked, without a protection or an earlier acceptance, whether images may leave as the
                model demands. True pins that. None never accepts. AsyncClient calls it, and `failed` of
                enrol, in another thread.
            notice: called with the guarantee of `protection` when it is first used for this service and
                classifier, before anything is sent.
            ledger: the path of this device's ledger, which is created if it is absent.
            classifier: the name of the classifier for calls that name none.
            timeout: seconds for a connection, and for each wait for bytes; four times as long for an answer.
            retries: the most times that a request is sent again.
            insecure: allow http to another machine: key and labels travel in clear.
            transport: replaces the network, for tests.

        Raises:
            ConfigError: an invalid address, key or number.
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
            # A proxy of the environment would get a whole http request, with the key.
            trust_env=self._conversation.url.startswith("https:"),
            transport=transport,
        )

    @abstractmethod
    def _connect(self, **settings: Any) -> None:
        """Open a connection of httpx."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._conversation.url!r})"

    @_Method
    def models(self) -> Steps[list[ModelInfo]]:
        """List the models that the service runs, and the protections that each takes.

        This and all other methods raise ServiceError if the service refuses or cannot be reached.
        """
        return self._conversation.models()

    @_Method
    def classifiers(self) -> Steps[list[ClassifierInfo]]:
        """List the classifiers of this tenant."""
        return self._conversation.classifiers()

    @_Method
    def create(self, name: str, model: str) -> Steps[ClassifierInfo]:
        """Create a classifier for a model. Raises ServiceError (409) if the name exists."""
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
        """Make images examples of a class. A new classifier is created if one model fits.

        Images are protected and sent 32 at a time. If the service would refuse them, for example with a
        read-only key, nothing is charged. After a later error, earlier images are enrolled, and the same call
        resumes: the same image is the same release, charged once and enrolled once in this class. The service
        recognises it by an id that this ledger makes; another class, classifier or service gets another id.
        Different images count each, even if their releases are equal.

        Args:
            label: of the class.
            sources: files, Pillow images, (C, H, W) uint8 tensors, or one of these. A centre square of each
                is resized to the size of the model.
            classifier: a name; None for the client's own.
            failed: called with each image that cannot be read, is nearly its own release, or would pass a
                budget, and with the error; None raises the error.
            people: whether the label is a person's name: images then count for the budget of that person. By
                default a class is not a person.
            average: for codes only: average all images here into one code, the class's prototype, and send
                that. It costs the class as many bits as one image does.

        Raises:
            ConfigError: the model takes another protection, or one that nobody chose or accepted, or demands
                another than before; no model fits, or several do; not a label; or `average` without a code.
            BudgetExceededError: without `failed`, an image would pass a budget; none of its 32 was sent.
            ImageError: an image cannot be read, or is nearly its own release. Not with `failed`.
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
    ) -> Steps[dict[str, Enrolled]]:
        """Like enrol, for many classes: 32 images of any of them in a request.

        A request enrols all of its images, or none: many times as fast for classes of an image or two.

        Args:
            images: of each label.
            classifier, failed, people, average: see enrol.

        Returns:
            the result for each label, in Unicode's NFC.

        Raises: as enrol.
        """
        return self._conversation.enrol_many(images, classifier, failed, people=people, average=average)

    @_Method
    def classify(self, source: Source, *, top: int = 5, classifier: str | None = None) -> Steps[list[Guess]]:
        """Guess the class of an image, the likeliest first; Guess(None) comes first if it is of none.

        The release is charged. The classifier, its classes, its model and the key are checked before: if the
        service would refuse the image, nothing is charged.

        Raises: as enrol; and ConfigError without a class.
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
        """Like classify, for each of many images, 32 in a request.

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
    def answer_table(self, *, classifier: str | None = None, known: Table | None = None) -> Steps[Table]:
        """Fetch the signed table for sfumato.device.client.look_up.

        For codes of at most 16 bits, the answers to all of them; for other codes and private features, the
        prototypes of the classes. The first signing key is pinned in the ledger.

        Args:
            classifier: a name; None for the client's own.
            known: an earlier table: it is returned if the classifier has not changed.

        Raises:
            ServiceError: also if the classifier has no table, as those of models that only the service runs.
            ConfigError: another key signs than before.
        """
        return self._conversation.table(classifier, known)

    @_Method
    def classes(self, *, classifier: str | None = None) -> Steps[list[ClassSummary]]:
        """List the classes of a classifier, and the number of examples of each."""
        return self._conversation.classes(classifier)

    @_Method
    def forget(self, label: str, *, classifier: str | None = None) -> Steps[int]:
        """Forget a class. Returns the number of examples forgotten."""
        return self._conversation.forget(f"/classes/{quote_label(label)}", classifier)

    @_Method
    def forget_example(self, example: str, *, classifier: str | None = None) -> Steps[int]:
        """Forget one example, by its id from `enrol`. Returns 1."""
        return self._conversation.forget(f"/examples/{quote(example, safe='')}", classifier)

    @_Method
    def forget_classifier(self, classifier: str) -> Steps[int]:
        """Forget a classifier with all its classes. Returns the number of examples forgotten."""
        return self._conversation.forget("", classifier)


class Client(_Service[httpx.BaseTransport]):
    """A client that protects every image on the device first. State: its connections.

    An image is charged in the ledger at the size that the model takes. A model of another size gets another
    release, which the ledger counts with the first: they are near copies.

    Threads may share one. If a reply is lost or the service is busy, requests that are safe to repeat are
    sent
    again: questions, and enrolments, which the service knows by their ids.
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
        """Send a request within its time. A thread that still waits, as for a header, is abandoned."""
        seconds = most_seconds(request, self._timeout)
        received: Future[Reply | Lost] = Future()

        def receive() -> None:
            try:
                received.set_result(self._receive(request, time.monotonic() + seconds))
            except BaseException as error:  # raised in the caller's thread
                received.set_exception(error)

        threading.Thread(target=receive, name="sfumato-reply", daemon=True).start()
        wait([received], timeout=seconds)
        return received.result() if received.done() else TOO_SLOW

    def _receive(self, request: Request, until: float) -> Reply | Lost:
        headers = self._conversation.headers(request)
        try:
            with self._http.stream(
                request.method, request.path, content=request.content, headers=headers
            ) as reply:
                receiving = Receiving(reply.status_code, reply.headers, until=until)
                lost = receiving.refuse()
                assert isinstance(reply.stream, httpx.SyncByteStream)
                parts = iter(reply.stream)  # raw bytes: nothing unpacks them
                while lost is None and (part := next(parts, None)) is not None:
                    lost = receiving.add(part)
                return lost or receiving.reply()
        except httpx.HTTPError as error:
            return _answer_lost(error)


class AsyncClient(_Service[httpx.AsyncBaseTransport]):
    """Like Client, for a program with an event loop: images are protected in another thread.

    State: its connections. Arguments, methods, guarantees and errors are those of Client.
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
                lost = receiving.refuse()
                assert isinstance(reply.stream, httpx.AsyncByteStream)
                parts = aiter(reply.stream)
                while lost is None and (part := await anext(parts, None)) is not None:
                    lost = receiving.add(part)
                return lost or receiving.reply()
        except TimeoutError:
            return TOO_SLOW
        except httpx.HTTPError as error:
            return _answer_lost(error)


def _answer_lost(error: httpx.HTTPError) -> Lost:
    # The error is not chained: it holds the request, and the request holds the key.
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


_NO_TLS = "it must offer TLS 1.2 or later at this port: check it, or ask for TLS (on this machine, use http)"
_UNTRUSTED = (
    "this machine does not trust the authority that signed its certificate: if it is your own service, name "
    "the certificate of this authority in the variable SSL_CERT_FILE"
)
_PERIOD = "check the clock of this machine; if it is right, ask for the service to renew its certificate"
_ELSEWHERE = "its certificate is for another host: use the address that it is for"
_CERTIFICATES = {9: _PERIOD, 10: _PERIOD, 62: _ELSEWHERE, 64: _ELSEWHERE}  # X509_V_ERR_* of OpenSSL
