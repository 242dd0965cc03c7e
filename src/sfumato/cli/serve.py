"""`sfumato serve`: the cloud, which classifies images that devices protected."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import Reference, StoreAddress
from sfumato.cli.show import VOLUME, note


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


def serve(
    artefacts: Annotated[
        list[str],
        typer.Argument(
            metavar="ARTEFACT...",
            help="Few-shot, meta or private-feature models, codes, or .onnx files that `sfumato export` "
            "made of few-shot or meta models. NAME=ARTEFACT gives a model its name for clients.",
        ),
    ],
    store: StoreAddress = "sqlite:///sfumato.db",
    port: Annotated[int, typer.Option(help="The port to listen on, or 0 for any free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on. 0.0.0.0 also takes requests from other machines.")
    ] = "127.0.0.1",
    web: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the web page (default: the one in the package, if `make web` built it)."
        ),
    ] = None,
    reference: Reference = None,
    certificate: Annotated[
        Path | None, typer.Option(help="A certificate (PEM), to serve over TLS. Needs --private-key.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="The private key of the certificate (PEM).")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="A web site whose pages may call this service (default: none). Repeat the option for more."
        ),
    ] = None,
    metrics_key: Annotated[
        str | None,
        typer.Option(
            envvar="SFUMATO_METRICS_KEY",
            help="Open /metrics to clients that send this key as a bearer token.",
        ),
    ] = None,
    confidence: Annotated[
        str,
        typer.Option(help="The content of answers: exact numbers, rounded probabilities or the label alone."),
    ] = "exact",
    confidence_step: Annotated[
        float, typer.Option(help="The step to which probabilities are rounded.")
    ] = 0.1,
    log: Annotated[bool, typer.Option(help="Log one line per request, without image, key or label.")] = True,
    log_format: Annotated[
        LogFormat,
        typer.Option(
            envvar="SFUMATO_LOG_FORMAT", help="text, or json to write every line of the log as JSON."
        ),
    ] = LogFormat.TEXT,
) -> None:
    """Serve models until stopped. Keys are made by `sfumato keys create`.


    Example: sfumato serve code.safetensors --port 8000
    """
    import gc

    from sfumato.base import server
    from sfumato.serve import models
    from sfumato.serve.http import app as service
    from sfumato.serve.store import Store

    _begin_log(log_format)
    told = log and not VOLUME.quiet
    logging.getLogger("sfumato.serve").setLevel(logging.INFO if told else logging.WARNING)
    config = service.ServiceConfig(
        allow_origins=tuple(allow_origin or ()),
        metrics_key=metrics_key,
        web=web or service.page_of_package(),
        confidence=confidence,
        confidence_step=confidence_step,
    )
    loaded = []
    for each in artefacts:
        name, _, path = each.rpartition("=") if not Path(each).exists() else (None, "", each)
        model = models.load(path, name=name or None, reference=reference)
        loaded.append(model)
        shape = "x".join(map(str, model.shape))
        print(f"model: {model.name} ({model.kind}, {shape}, by {model.by}; takes {model.demand.spec})")
        if model.codes is not None and model.device_side is None:
            note(f"{path}: for codes on the web page, run `sfumato export {path}` and serve again")
    with Store(store) as kept, server.listen(host, port) as listener, until_stopped():
        application = service.create(kept, loaded, config)
        scheme = "http" if certificate is None else "https"
        print(f"serving: {server.address_of(listener, scheme)}", flush=True)
        if not ip_address(listener.getsockname()[0]).is_loopback:
            note("slow clients can hold this server up: put a proxy before it, such as deploy/nginx.conf")
        # Nearly all objects of a server exist from the start. Searching them for cycles takes
        # 0.15 s, in which nobody is answered (docs/speed.md).
        gc.collect()
        gc.freeze()
        try:
            server.serve(application, listener, certificate=certificate, private_key=private_key)
        finally:
            gc.unfreeze()


def _begin_log(form: LogFormat) -> None:
    """Writes the log of this process to standard error. One that was begun before keeps its level."""
    from sfumato.serve.logs import JsonLines

    root = logging.getLogger()
    if not root.handlers:
        logging.basicConfig(format="%(message)s", stream=sys.stderr)
    if form is LogFormat.JSON:
        for handler in root.handlers:
            handler.setFormatter(JsonLines())


@contextmanager
def until_stopped() -> Iterator[None]:
    """Runs a block until SIGTERM or Ctrl-C, says so, and continues: a stopped service has not failed."""
    stops = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(each, signal.default_int_handler) for each in stops]
    try:
        yield
    except KeyboardInterrupt:
        print("stopped", flush=True)
    finally:
        for each, handler in zip(stops, before, strict=True):
            signal.signal(each, handler)
