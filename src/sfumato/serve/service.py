"""The shared parts of a server's routes: its models, its store, and the parts that answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np

from sfumato.errors import ConfigError, needs_extra
from sfumato.serve.answer_tables import AnswerTables
from sfumato.serve.config import ServiceConfig
from sfumato.serve.engine import Engine
from sfumato.serve.gallery import Galleries, Together
from sfumato.serve.metrics import Metrics
from sfumato.serve.room import Room
from sfumato.serve.served import Served
from sfumato.serve.store import ConflictError, Store

with needs_extra("the server", "serve"):
    import anyio.to_thread
    from fastapi import Depends, Request

_MOST_MODELS = 10_000  # classifiers with cached models

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Service:
    """One server. State: that of its parts, and the models of recently used classifiers.

    Attributes:
        config: its limits.
        store: keys, classifiers, embeddings.
        models: the models that it runs, by name.
        engine: embeds.
        galleries: find the nearest classes.
        tables: make all answers of a classifier at once.
        room: for the bodies of all requests.
        metrics: the counts.
    """

    config: ServiceConfig
    store: Store
    models: dict[str, Served]
    engine: Engine
    galleries: Together
    tables: AnswerTables
    room: Room
    metrics: Metrics
    _model_names: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def begin(cls, store: Store, models: Sequence[Served], config: ServiceConfig) -> "Service":
        """Start the engine and create the other parts. Raises ConfigError as `app.create` does."""
        by_name = {model.name: model for model in models}
        if not by_name or len(by_name) < len(models):
            raise ConfigError(
                f"{len(models)} models of {len(by_name)} names: name at least one, and give each its "
                "own name, as NAME=ARTEFACT"
            )
        metrics = Metrics(lambda: engine.waiting)
        engine = Engine(
            window=config.window,
            most_batch=config.most_batch,
            most_waiting=config.most_waiting,
            observe=metrics.count_pass,
        )
        room, galleries = Room(config.most_held), Galleries(store)
        tables = AnswerTables(store, galleries)
        return cls(config, store, by_name, engine, Together(galleries), tables, room, metrics)

    async def model_name(self, tenant: str, classifier: str) -> str:
        """Return the model of a classifier. Raises NotFoundError if the tenant has no such classifier."""
        # It never changes; if the classifier was deleted, the store reports that after the model ran.
        name = self._model_names.get((tenant, classifier))
        if name is None:
            name = (await in_thread(self.store.classifier, tenant, classifier)).model
            if len(self._model_names) >= _MOST_MODELS:
                self._model_names.clear()
            self._model_names[tenant, classifier] = name
        return name

    def model(self, name: str) -> Served:
        """Return the model of a name. Raises ConflictError if this server does not run it."""
        model = self.models.get(name)
        if model is None:
            raise ConflictError(f"the classifier is for the model {name}, which this server does not run")
        return model

    async def embed(self, model: Served, inputs: np.ndarray) -> np.ndarray:
        """Embed inputs of a model, together with other waiting requests: see Engine.submit."""
        return await self.engine.embed(model, inputs)


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run a function that waits for the database, or computes for long, outside of the event loop."""
    return await anyio.to_thread.run_sync(function, *arguments)


async def _serving(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_serving)]
