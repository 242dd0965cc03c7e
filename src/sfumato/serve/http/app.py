"""The HTTP API: enrol and classify images that were protected before they arrived.

No image is stored or logged, nor is any key or label. No other host is contacted.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.staticfiles import StaticFiles

import sfumato
from sfumato.serve.config import ServiceConfig
from sfumato.serve.http import bodies, problems, routes
from sfumato.serve.http.watch import Watched
from sfumato.serve.served import Served
from sfumato.serve.service import Service
from sfumato.serve.store import Store

__all__ = ["ServiceConfig", "create", "page_of_package"]


def page_of_package() -> Path | None:
    """Return the folder of the packaged page; None if the package was built without it."""
    folder = Path(__file__).parents[1] / "page"
    return folder if (folder / "index.html").is_file() else None


def create(store: Store, models: Sequence[Served], config: ServiceConfig | None = None) -> FastAPI:
    """Create the application. It does not close the store. Raises ConfigError as Service does."""
    config = config or ServiceConfig()
    service = Service(store, models, config)
    for model in models:
        bodies.warm(model)
    served = [routes.quickly, *routes.router.routes]
    if config.metrics_key is not None:
        served += routes.counts.routes
    app = FastAPI(
        title="sfumato",
        summary="Few-shot classification of images that were protected before they left their device.",
        version=sfumato.__version__,
        routes=served,  # not by include_router: every request would then match its routes twice
        exception_handlers=problems.HANDLERS,
        lifespan=_finishing,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        # FastAPI's own spans have addresses, which contain labels.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    app.add_middleware(Watched, counted=service.metrics)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["x-api-key", "content-type", "if-none-match"],
            expose_headers=["ETag", "Retry-After", "X-Request-Id"],
        )
    if config.web is not None:
        app.mount("/", StaticFiles(directory=config.web, html=True))
    return app


@asynccontextmanager
async def _finishing(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.service.engine.close()
