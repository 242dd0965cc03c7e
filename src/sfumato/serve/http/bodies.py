"""The bodies of requests: limits on size, time and number, and checks of their releases."""

import asyncio
import math
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from sfumato import wire
from sfumato.base.schemas import validate_json
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError, needs_extra
from sfumato.serve import tripwire
from sfumato.serve.config import ServiceConfig
from sfumato.serve.http.problems import Problem, first
from sfumato.serve.room import Share, no_room
from sfumato.serve.served import Demand, Served
from sfumato.serve.service import Service, in_thread
from sfumato.wire import labelled

with needs_extra("the server", "serve"):
    from fastapi import Request
    from pydantic import BaseModel, ValidationError
    from starlette.types import Message

_MOST_JSON = 10_000  # bytes
_NEEDED = {
    False: f"a body of type {wire.MEDIA_TYPE} is needed",
    True: f"a body of type {labelled.MEDIA_TYPE} is needed",
}
_SMALL = 25_000  # values of originals, such as one of 84x84x3: reading them is faster than starting a thread
_HELD = 6  # bytes for each value of an image: as read, as checked, and as the network's float32

_Message = TypeVar("_Message", bound=BaseModel)


@dataclass(frozen=True)
class Received:
    """The checked content of a body, and the input for the model.

    Attributes:
        model, release, demand: as their names say.
        inputs: the input for the model.
        labels: the label and id of each image, if the body has them.
    """

    model: Served
    release: wire.AnyRelease
    demand: Demand
    inputs: np.ndarray
    labels: list[labelled.Labelled] | None = None


async def receive(
    service: Service,
    request: Request,
    share: Share,
    *,
    tenant: str,
    classifier: str,
    with_labels: bool = False,
) -> Received:
    """Receive the body of a request, a release that the model of a classifier takes.

    Args:
        service: has the models and limits.
        request: has the body.
        share: holds the bytes, until the request is answered.
        tenant, classifier: the classifier.
        with_labels: whether the body has a label and an id for each image, see sfumato.wire.labelled.

    Raises:
        Problem: 400, 408, 409, 413, 415 or 422, with what to do.
        NotFoundError: the tenant has no such classifier.
        DataError: not a release; NotProtectedError if the guard refuses it.
        BusyError: there is no room for it.
    """
    service.engine.check()
    headers = _headers(request)
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise Problem(415, "a compressed body: send it as it is")
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind != (labelled.MEDIA_TYPE if with_labels else wire.MEDIA_TYPE):
        raise Problem(415, _NEEDED[with_labels])
    name = await service.model_name(tenant, classifier)
    model, config = service.model(name), service.config
    data = await body(request, share, most=config.most_bytes, seconds=config.body_seconds)
    labels = None
    if with_labels:
        labels, data = labelled.split(data)
    values = min(wire.header(data).count, config.most_images) * math.prod(model.shape)
    share.take(_HELD * values)
    if values <= _SMALL:
        return _read(data, labels, model, config)
    return await in_thread(_read, data, labels, model, config)


def json_body(message: type[BaseModel]) -> dict[str, Any]:
    """Describe this message as the JSON body of a route, for the description of the API."""
    content = {"application/json": {"schema": message.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def receive_json(message: type[_Message], request: Request, service: Service) -> _Message:
    """Receive the JSON message of a request. Raises Problem 422 for anything else; and as `body` does."""
    with service.room.share() as share:
        data = await body(request, share, most=_MOST_JSON, seconds=service.config.body_seconds)
    try:
        read: _Message = validate_json(message, data)
        return read
    except ValidationError as error:
        raise Problem(422, first(error.errors())) from None


async def body(request: Request, share: Share, *, most: int, seconds: float) -> bytes:
    """Receive the body of a request within limits of size, time and room.

    Args:
        request: the request.
        share: holds the bytes.
        most: bytes.
        seconds: time limit for all of it.
    """
    too_long = Problem(413, f"a body of more than {most} bytes: send fewer images at once")
    announced = _headers(request).get(b"content-length", b"0").decode("latin-1")
    if not announced.isdecimal() or len(announced) > 15 or int(announced) > most:
        raise too_long
    share.take(int(announced))
    data = bytearray()

    def add(message: Message) -> bool:
        """Add a part. Returns whether more follows."""
        if message["type"] == "http.disconnect":
            raise Problem(400, "the connection ended within the body")
        part = message.get("body", b"")
        if len(data) + len(part) > most:
            raise too_long
        if share.bytes < len(data) + len(part):  # without an announced length
            share.take(len(data) + len(part) - share.bytes)
        data.extend(part)
        return bool(message.get("more_body", False))

    try:
        first = _Begun(request.receive())
        more = not first.ended or add(first.result)  # most bodies have arrived already and need no timeout
        if more:
            async with asyncio.timeout(seconds) as share.coming:
                if not first.ended:
                    more = add(await first)
                while more:  # like request.stream, in half the time
                    more = add(await request.receive())
        return bytes(data)
    except TimeoutError:
        if share.lost:
            raise no_room() from None
        raise Problem(408, f"the body took longer than {seconds:g} s: send it faster, or in parts") from None
    finally:
        share.coming = None
        data.clear()  # a refusal holds this frame until it is sent


def _headers(request: Request) -> dict[bytes, bytes]:
    """Read the headers of a request, the first of each name; starlette would scan all for each look-up."""
    return dict(reversed(request.scope["headers"]))


class _Begun:
    """Runs an awaitable at once until it first waits, and to its end when awaited. State: its progress."""

    def __init__(self, awaitable: Awaitable[Message]) -> None:
        self._steps = awaitable.__await__()
        self.ended = False
        self.result: Message = {}
        try:
            self._waits_for = next(self._steps)
        except StopIteration as end:
            self.ended, self.result = True, end.value

    def __await__(self) -> Generator[Any, Any, Message]:
        try:
            yield self._waits_for
        except BaseException:  # the request is over
            self._steps.close()
            raise
        return (yield from self._steps)


def _read(
    data: bytes,
    labels: list[labelled.Labelled] | None,
    model: Served,
    config: ServiceConfig,
) -> Received:
    demand = tripwire.demand_of(model, wire.header(data))
    release = wire.decode(data, most_images=config.most_images, most_pixels=config.most_pixels)
    if labels is not None and len(labels) != len(release.array):
        raise DataError(f"{len(labels)} labels for {len(release.array)} images: send one for each")
    tripwire.check(release, demand)
    return Received(model, release, demand, model.prepare(release, demand), labels)


def warm(model: Served) -> None:
    """Compute the tables of the guard, which the first request of a model would wait for."""
    for demand in model.demands:
        if demand.protection is not None and demand.made_of is None and demand.protection.draws_noise:
            image = np.zeros((1, *model.shape), np.uint8)
            tripwire.check(demand.protection.release(image, seeded_noise(0)), demand)
