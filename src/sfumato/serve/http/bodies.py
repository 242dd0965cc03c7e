"""The bodies of requests: limits on size, time and number, and checks of their releases."""

import asyncio
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from sfumato import wire
from sfumato.base.schemas import validate_json
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError, first_problem
from sfumato.serve import tripwire
from sfumato.serve.answer_tables import Take
from sfumato.serve.http.problems import Problem
from sfumato.serve.served import Demand, Served
from sfumato.serve.service import Service, in_thread
from sfumato.wire import labelled

_MOST_JSON = 10_000  # bytes
_SMALL = 25_000  # values of originals, such as one of 84x84x3: reading them is faster than starting a thread
_HELD = 6  # bytes for each value of an image: as read, as checked, and as the network's float32

_Message = TypeVar("_Message", bound=BaseModel)


@dataclass(frozen=True)
class Received:
    """The checked content of a body, with the labels if it has them, and the input for the model."""

    model: Served
    release: wire.AnyRelease
    demand: Demand
    inputs: np.ndarray
    labels: list[labelled.Labelled]


async def receive(
    service: Service, request: Request, take: Take, *, tenant: str, classifier: str, with_labels: bool = False
) -> Received:
    """Receive the body of a request, a release that the model of a classifier takes.

    Args:
        take: counts the bytes that are held until the request is answered.
        with_labels: whether the body has a label and an id for each image, see sfumato.wire.labelled.

    Raises:
        Problem: 400, 408, 413 or 415, with what to do.
        NotFoundError: the tenant has no such classifier.
        ConflictError: its model is not served.
        DataError: not a release; NotProtectedError if the guard refuses it.
        BusyError: there is no room for it.
    """
    service.engine.check()
    headers, wanted = request.headers, labelled.MEDIA_TYPE if with_labels else wire.MEDIA_TYPE
    if headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "a compressed body: send it as it is")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
        raise Problem(415, f"a body of type {wanted} is needed")
    model, config = await service.model_of(tenant, classifier), service.config
    data = await _body(request, take, most=config.most_bytes, seconds=config.body_seconds)
    labels: list[labelled.Labelled] = []
    if with_labels:
        labels, data = labelled.split(data)
    header = wire.header(data)
    values = min(header.count, config.most_images) * math.prod(model.shape)
    take(_HELD * values)

    def read() -> Received:
        demand = tripwire.demand_of(model, header)
        release = wire.decode(data, most_images=config.most_images, most_pixels=config.most_pixels)
        if with_labels and len(labels) != len(release.array):
            raise DataError(f"{len(labels)} labels for {len(release.array)} images: send one for each")
        tripwire.check(release, demand)
        return Received(model, release, demand, model.prepare(release), labels)

    return read() if values <= _SMALL else await in_thread(read)


def json_body(message: type[BaseModel]) -> dict[str, Any]:
    """Describe this message as the JSON body of a route, for the description of the API."""
    content = {"application/json": {"schema": message.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def receive_json(message: type[_Message], request: Request, service: Service) -> _Message:
    """Receive the JSON message of a request. Raises Problem 422 for anything else; and as `_body` does."""
    with service.room.share() as take:
        data = await _body(request, take, most=_MOST_JSON, seconds=service.config.body_seconds)
    try:
        read: _Message = validate_json(message, data)
        return read
    except ValidationError as error:
        raise Problem(422, first_problem(error)) from None


async def _body(request: Request, take: Take, *, most: int, seconds: float) -> bytes:
    """Receive the body of a request within limits of size (bytes), time (for all of it) and room."""
    too_long = Problem(413, f"a body of more than {most} bytes: send fewer images at once")
    announced = request.headers.get("content-length", str(most))
    if not announced.isdecimal() or len(announced) > 15 or int(announced) > most:
        raise too_long
    take(int(announced))
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                if len(data) + len(part) > most:
                    raise too_long
                data.extend(part)
        return bytes(data)
    except ClientDisconnect:
        raise Problem(400, "the connection ended within the body") from None
    except TimeoutError:
        raise Problem(408, f"the body took longer than {seconds:g} s: send it faster, or in parts") from None
    finally:
        data.clear()  # a refusal holds this frame until it is sent


def warm(model: Served) -> None:
    """Compute the tables of the guard, which the first request of a model would wait for."""
    demand = model.demand
    if demand.protection is not None and demand.made_of is None and demand.protection.draws_noise:
        image = np.zeros((1, *model.shape), np.uint8)
        tripwire.check(demand.protection.release(image, seeded_noise(0)), demand)
