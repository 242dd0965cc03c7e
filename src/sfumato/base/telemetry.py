"""OpenTelemetry traces of requests and of the cells of a study, if its variables ask for them.

Source: OpenTelemetry specification, "Environment Variable Specification", for the names of the variables, and
semantic conventions, "HTTP spans", for those of the attributes. A span says the same as the log, and nothing
that was sent. Without the variables nothing is imported, and nothing leaves.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import sfumato
from sfumato.errors import ConfigError, needs_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_FLUSHED = 2000  # milliseconds that a cell of a study waits for the collector

Facts = Mapping[str, str | int]


class Traces:
    """The destination of finished spans. State: those that were not sent yet."""

    def __init__(self, provider: "TracerProvider") -> None:
        """`provider`: with its exporters. It is closed with this."""
        self._provider = provider
        self._tracer = provider.get_tracer("sfumato", sfumato.__version__)

    def add(
        self, name: str, facts: Facts, *, seconds: float, failed: bool = False, server: bool = False
    ) -> None:
        """Adds a span that ends now.

        Args:
            name: of a kind of work: a route and never an address.
            facts: its attributes.
            seconds: its duration.
            failed: whether its status is an error.
            server: whether it answered a request.
        """
        from opentelemetry.trace import SpanKind, StatusCode

        end = time.time_ns()
        span = self._tracer.start_span(
            name,
            kind=SpanKind.SERVER if server else SpanKind.INTERNAL,
            attributes=dict(facts),
            start_time=end - round(seconds * 1e9),
        )
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def request(
        self, method: str, route: str, status: int, *, seconds: float, id: str, facts: Mapping[str, str]
    ) -> None:
        """Adds the span of a request.

        Args:
            method, route, status: as in the log; a route is a template, for addresses hold labels.
            seconds: of the answer.
            id: of the request, as in the log.
            facts: more of it, under names such as "model.digest".
        """
        attributes: dict[str, str | int] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "sfumato.request.id": id,
            **{f"sfumato.{name}": value for name, value in facts.items()},
        }
        self.add(f"{method} {route}", attributes, seconds=seconds, failed=status >= 500, server=True)

    def flush(self) -> None:
        """Sends waiting spans, for 2 s at most."""
        self._provider.force_flush(_FLUSHED)

    def close(self) -> None:
        """Sends waiting spans, and stops."""
        self._provider.shutdown()


def are_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the variables ask for traces: by an exporter, or by the address of a collector.

    Raises:
        ConfigError: an unknown exporter or protocol.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter not in ("", "none", "otlp", "console"):
        raise ConfigError(f"OTEL_TRACES_EXPORTER={exporter}: set it to otlp, console or none")
    if exporter == "none" or not (exporter or any(environment.get(name) for name in _ENDPOINTS)):
        return False
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "http/protobuf")
    if exporter != "console" and protocol != "http/protobuf":
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: set it to http/protobuf, or leave it out")
    return True


def begin() -> Traces | None:
    """Traces as the environment variables ask for them, or None.

    `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector; the exporter and the SDK read their other variables, such
    as `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER` and `OTEL_RESOURCE_ATTRIBUTES`. The service is
    called sfumato unless `OTEL_SERVICE_NAME` says otherwise.

    Raises:
        MissingExtraError: they ask for traces, and the extra `telemetry` is not installed.
        ConfigError: an unknown exporter or protocol.
    """
    if not are_wanted(os.environ):
        return None
    with needs_extra("OTEL_* variables ask for traces, which", "telemetry"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "sfumato"}))
    console = os.environ.get("OTEL_TRACES_EXPORTER") == "console"
    provider.add_span_processor(
        BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr) if console else OTLPSpanExporter())
    )
    return Traces(provider)


@cache
def of_process() -> Traces | None:
    """The traces of `begin`, once in a process; its end sends the rest."""
    return begin()


@contextmanager
def time_work(name: str, facts: Facts) -> Iterator[None]:
    """Adds the span of some seconds of work to the traces of this process, if any."""
    traces = of_process()
    if traces is None:
        yield
        return
    start, failed = time.perf_counter(), True
    try:
        yield
        failed = False
    finally:
        traces.add(name, facts, seconds=time.perf_counter() - start, failed=failed)
        traces.flush()  # a worker process may end without a word
