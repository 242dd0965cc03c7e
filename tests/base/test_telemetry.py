"""Traces: what a span says, what it never says, and that nothing is imported unless it is asked for."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from sfumato.base import telemetry
from sfumato.errors import ConfigError, MissingExtraError

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra telemetry is not installed")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

DIGEST = "ab" * 32


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(memory: InMemorySpanExporter) -> Iterator[telemetry.Traces]:
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    made = telemetry.Traces(provider)
    yield made
    made.close()


def test_the_span_of_a_request_says_what_the_log_says(traces, memory):
    traces.request("GET", "/v1/models", 200, seconds=0.5, id="cd" * 16, facts={"model.digest": DIGEST})
    (span,) = memory.get_finished_spans()
    assert span.name == "GET /v1/models"
    assert span.kind is SpanKind.SERVER
    assert span.end_time - span.start_time == 500_000_000
    assert dict(span.attributes) == {
        "http.request.method": "GET",
        "http.route": "/v1/models",
        "http.response.status_code": 200,
        "sfumato.request.id": "cd" * 16,
        "sfumato.model.digest": DIGEST,
    }


@pytest.mark.parametrize(
    ("status", "code"), [(200, StatusCode.UNSET), (422, StatusCode.UNSET), (503, StatusCode.ERROR)]
)
def test_the_servers_own_failures_alone_are_errors(traces, memory, status, code):
    traces.request("GET", "/v1/models", status, seconds=0.0, id="", facts={})
    (span,) = memory.get_finished_spans()
    assert span.status.status_code is code


def test_work_that_fails_is_a_span_without_the_words_of_its_error(traces, memory, monkeypatch):
    monkeypatch.setattr(telemetry, "of_process", lambda: traces)
    with (
        pytest.raises(ValueError, match="amphora"),
        telemetry.time_work("study cell", {"sfumato.cell.kind": "train"}),
    ):
        raise ValueError("amphora")
    (span,) = memory.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes) == {"sfumato.cell.kind": "train"}
    assert "amphora" not in span.to_json()


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "cloud"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_traces_are_asked_for_by_the_standard_variables(environment, asked):
    assert telemetry.are_wanted(environment) is asked


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin: set it to otlp"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: set it to http/protobuf",
        ),
    ],
)
def test_what_is_not_offered_is_refused(environment, message):
    with pytest.raises(ConfigError, match=message):
        telemetry.are_wanted(environment)


def test_without_the_extra_who_asks_for_traces_is_told_which_it_is(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match=r"-e \'\.\[telemetry\]\'"):
        telemetry.begin()


@pytest.mark.parametrize(
    ("variable", "name"),
    [(None, "sfumato"), ("OTEL_SERVICE_NAME", "cloud"), ("OTEL_RESOURCE_ATTRIBUTES", "cloud")],
)
def test_the_service_is_called_as_the_variables_say(monkeypatch, capsys, variable, name):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    if variable is not None:
        monkeypatch.setenv(variable, name if variable == "OTEL_SERVICE_NAME" else f"service.name={name}")
    traces = telemetry.begin()
    assert traces is not None
    traces.add("study cell", {}, seconds=0.0)
    traces.close()
    assert f'"service.name": "{name}"' in capsys.readouterr().err


def test_nothing_of_the_sdk_is_imported_unless_it_is_asked_for():
    program = (
        "import sys; from sfumato.base import telemetry; assert telemetry.begin() is None\n"
        "with telemetry.time_work('study cell', {}): pass\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
