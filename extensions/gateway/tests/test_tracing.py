"""OpenTelemetry: what a request goes through becomes spans below its client's, sent by the real exporter; nothing without its variables."""

import importlib.util
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from extensions.gateway.tests.gateway_server import running
from pipelines.base.errors import ConfigError
from tests.serving.toy_server import needs_extra, numbers

NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "opentelemetry.proto")


def _there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


pytestmark = [needs_extra, pytest.mark.skipif(not all(map(_there, NEEDED)) and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                                              reason="needs the extra `trace`: what it tests is not tested here")]
PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def clean(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def collector():
    """(address, the spans it has got) of a collector of OTLP over HTTP."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = {one.key: one.value.string_value for one in group.resource.attributes}["service.name"]
                got.extend((service, span) for scope in group.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *said):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


def test_a_request_becomes_spans_below_its_clients(clean, collector):
    address, got = collector
    clean.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    with running() as server:
        assert server.ask(numbers([1, 2, 3], [4, 5, 6]), headers=f"traceparent: 00-{'-'.join(PARENT)}-01\r\n")[0] == 200
        assert server.ask(numbers([-1, 2, 3]))[0] == 500
        assert server.ask(numbers([1, 2, 3]), headers="traceparent: 00-zz\r\n")[0] == 200
    assert {service for service, _ in got} == {"quartet-serve"} and len({span.trace_id for _, span in got}) == 3
    ours = {span.name: span for _, span in got if span.trace_id.hex() == PARENT[0]}
    assert set(ours) == {"POST /predict", "queue", "batch", "model"}
    whole, batch = ours["POST /predict"], ours["batch"]
    assert whole.parent_span_id.hex() == PARENT[1] and ours["queue"].parent_span_id == batch.parent_span_id == whole.span_id
    assert ours["model"].parent_span_id == batch.span_id
    said = {one.key: one.value for one in whole.attributes}
    assert said["http.response.status_code"].int_value == 200 and said["quartet.model"].string_value == "toy"
    assert {one.key: one.value.int_value for one in batch.attributes} == {"quartet.inputs": 2, "quartet.own": 2}
    slack = 20_000_000  # ns: what is over is dated back
    for one in ours.values():
        assert whole.start_time_unix_nano - slack <= one.start_time_unix_nano <= one.end_time_unix_nano <= whole.end_time_unix_nano + slack
    (failed,) = [span for _, span in got if span.status.code == 2]
    assert failed.name == "POST /predict" and "broken" in failed.status.message


def test_the_environment_decides(clean):
    from extensions.gateway.tracing import Tracing

    assert Tracing.configured() is None
    clean.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ConfigError, match="OTEL_TRACES_EXPORTER=zipkin: otlp, console and none"):
        Tracing.configured()
    clean.setenv("OTEL_TRACES_EXPORTER", "none")
    clean.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert Tracing.configured() is None
    clean.delenv("OTEL_TRACES_EXPORTER")
    clean.setenv("OTEL_SDK_DISABLED", "true")
    assert Tracing.configured() is None
