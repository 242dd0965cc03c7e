"""A service for tests of who asks it: real models and a real store, in this process."""

import asyncio
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image

from sfumato import artefacts, wire
from sfumato.base import server
from sfumato.learn import few_shot
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.refusal import Interval, Refusal
from sfumato.networks.code import make_code_network
from sfumato.protect import parse
from sfumato.protect.release import artefact_digest
from sfumato.serve import models
from sfumato.serve.http.app import create
from sfumato.serve.served import Served
from sfumato.serve.store import Store
from sfumato.wire import labelled, tables
from sfumato.wire.tables import AnswerTable

SIDE = 16  # of the models' images


def untrained(folder: Path, name: str, spec: str, *, refusal: dict[str, Any] | None = None) -> Served:
    """A model of random weights for colour images."""
    config = FewShotConfig(denoiser_depth=None, precision="float32")
    card = {
        **{"config": asdict(config), "spec": spec, "channels": 3, "precision": "float32"},
        **{"shape": [3, SIDE, SIDE], "refusal": refusal},
    }
    path = folder / f"{name}.safetensors"
    few_shot.make_untrained(3, config, parse(spec), card=card).save(path)
    return models.load(path)


def described(
    spec: str, *, shape: tuple[int, int, int] = (3, SIDE, SIDE), name: str = "m", made_of: str | None = None
) -> dict[str, Any]:
    """A model, as a service describes it."""
    message = {"name": name, "kind": "few-shot", "spec": spec, "made_of": made_of, "shape": list(shape)}
    return message | {"dimension": 4, "refusal": None}


def refusing(threshold: float) -> Refusal:
    """A refusal that nobody measured."""
    return Refusal(threshold, 10, 4, 5, Interval(0.95, 0.9, 0.98), Interval(0.5, 0.3, 0.7))


@cache
def _network_of_squares(seed: int, dimension: int) -> dict[str, torch.Tensor]:
    """The weights of a code's network whose batch norm has seen squares. It takes half a second."""
    draw = torch.Generator().manual_seed(0)
    network = make_code_network("conv4", (3, SIDE, SIDE), dimension=dimension, seed=seed)
    with torch.no_grad():
        for _ in range(50):
            network(torch.rand(32, 3, 4, 4, generator=draw).repeat_interleave(4, 2).repeat_interleave(4, 3))
    return {f"network.{k}": v for k, v in network.state_dict().items()}


def encoder(path: Path, *, seed: int = 0, **size: int) -> Path:
    """The artefact of an encoder of codes, bits=B or numbers=D, which knows squares but was never trained."""
    path.parent.mkdir(parents=True, exist_ok=True)
    card = {"kind": "code", "config": {"encoder": "conv4", **size}, "shape": [3, SIDE, SIDE]}
    artefacts.save(path, _network_of_squares(seed, sum(size.values())), card)
    return path


def answer_table(artefact: Path, rows: np.ndarray, none: np.ndarray, labels: tuple[str, ...]) -> AnswerTable:
    """The table of a classifier `people` of a code, signed by a key of its own; see sfumato.wire.tables."""
    key = Ed25519PrivateKey.generate()
    header = tables.Header(
        **{"classifier": "c", "name": "people", "version": 3, "model": "code", "refuses": True},
        bits=len(rows).bit_length() - 1,
        made_of=artefact_digest(str(artefact)),
        labels=labels,
        signer=key.public_key().public_bytes_raw().hex(),
    )
    return tables.sign_table(header, rows, none, key.sign)


def photograph(path: Path, number: int, *, side: int = 40) -> Path:
    """A picture of a few large squares, each number another."""
    draw = np.random.default_rng(number)
    pixels = draw.integers(0, 256, (4, 4, 3), dtype=np.uint8).repeat(side // 4, 0).repeat(side // 4, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def running(store: Store, served: list[Served]) -> AbstractContextManager[str]:
    """The address of a service on a free port of this machine."""
    return server.running(create(store, served))


class Wire(httpx.BaseTransport):
    """To an application, without a network. Keeps every request."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.sent.append(request)

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport) as passing:
                return await passing.send(request)

        reply = asyncio.run(ask())
        return httpx.Response(reply.status_code, headers=reply.headers, content=reply.content)

    def bodies(self) -> list[bytes]:
        """The releases that left, without their labels and ids."""
        found = []
        for each in self.sent:
            if each.headers.get("content-type") == labelled.MEDIA_TYPE:
                found.append(labelled.split(each.content)[1])
            elif each.headers.get("content-type") == wire.MEDIA_TYPE:
                found.append(each.content)
        return found
