"""The shared parts of a server's routes: its models, its store, and the parts that answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from anyio.to_thread import run_sync as in_thread
from fastapi import Depends, Request

from sfumato.errors import BusyError, ConfigError
from sfumato.serve.answer_tables import AnswerTables, Take
from sfumato.serve.config import ServiceConfig
from sfumato.serve.engine import Engine
from sfumato.serve.gallery import Galleries
from sfumato.serve.metrics import Metrics
from sfumato.serve.served import Served
from sfumato.serve.store import ConflictError, Store

__all__ = ["Room", "Service", "Serving", "in_thread"]

_MOST_MODELS = 10_000  # classifiers with cached models
_WAIT = 2.0  # seconds to wait before trying again


class Room:
    """The bytes that all requests may hold at once. State: those that they hold. For one thread."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Yield a function by which one request takes bytes until the block ends; BusyError beyond `most`."""
        mine = 0

        def take(more: int) -> None:
            nonlocal mine
            if self._held + more > self._most:
                cure = "send this again later, or fewer images at once"
                raise BusyError(f"the server has no room for more requests: {cure}", seconds=_WAIT)
            self._held, mine = self._held + more, mine + more

        try:
            yield take
        finally:
            self._held -= mine


class Service:
    """One server: its parts, which routes share. State: theirs, and the models of recent classifiers."""

    def __init__(self, store: Store, models: Sequence[Served], config: ServiceConfig) -> None:
        """Create the parts. Raises ConfigError for no model, or two of one name."""
        self.store, self.config = store, config
        self.models = {model.name: model for model in models}
        if not models or len(self.models) < len(models):
            raise ConfigError(
                f"{len(models)} models of {len(self.models)} names: name at least one, and give each its "
                "own name, as NAME=ARTEFACT"
            )
        self.metrics = Metrics(lambda: self.engine.waiting)
        self.engine = Engine(config, observe=self.metrics.count_pass)
        self.galleries = Galleries(store)
        self.tables = AnswerTables(store, self.galleries)
        self.room = Room(config.most_held)  # for the bodies of all requests, and all that is made of them
        self._model_names: dict[tuple[str, str], str] = {}

    def model(self, name: str) -> Served:
        """Return the model of a name. Raises ConflictError if this server does not run it."""
        model = self.models.get(name)
        if model is None:
            raise ConflictError(f"the classifier is for the model {name}, which this server does not run")
        return model

    async def model_of(self, tenant: str, classifier: str) -> Served:
        """Return the model of a classifier. Raises NotFoundError if the tenant has no such classifier."""
        # It never changes; if the classifier was deleted, the store reports that after the model ran.
        name = self._model_names.get((tenant, classifier))
        if name is None:
            name = (await in_thread(self.store.classifier, tenant, classifier)).model
            if len(self._model_names) >= _MOST_MODELS:
                self._model_names.clear()
            self._model_names[tenant, classifier] = name
        return self.model(name)


async def _serving(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_serving)]
