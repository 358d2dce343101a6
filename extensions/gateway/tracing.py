"""OpenTelemetry traces of requests: spans for the request, its time in the queue, its batch, and the model's computing. Needs the extra
`trace`.

On where OTEL_TRACES_EXPORTER or an OTLP endpoint says so, and off else; a client's `traceparent` is the parent. All else - endpoint,
headers, sampling, resource, batches - is set by OpenTelemetry's own variables.
"""

import os
import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.serving.http.observing import Exchange, Headers, Recorder
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site

EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE = "quartet-serve"  # where OTEL_SERVICE_NAME does not say otherwise
NANO = 1_000_000_000


class Traces(ServerProtocol):
    """Sends spans where the environment asks for them."""

    def prepare(self, options: Options) -> Options:
        self.tracing = Tracing.configured()
        return options

    def wrap(self, app: Any, site: Site) -> Any:
        if self.tracing is not None:
            site.observed.recorders.insert(0, self.tracing)  # before the log, which has the trace's id
        return app

    def close(self) -> None:
        if self.tracing is not None:
            self.tracing.close()


class Tracing(Recorder):
    """Makes spans with a provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any):
        from opentelemetry import propagate, trace

        self._provider, self._propagate, self._trace = provider, propagate, trace
        self._tracer = provider.get_tracer("quartet", version("keras-quartet"))

    @classmethod
    def configured(cls) -> "Tracing | None":
        """By the environment; None where it asks for no traces. Raises ConfigError where it asks for what is not there."""
        exporter = os.environ.get(EXPORTER, "otlp" if any(os.environ.get(name) for name in ENDPOINTS) else "none").strip().lower()
        if exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return None
        if exporter not in ("otlp", "console"):
            raise ConfigError(f"{EXPORTER}={exporter}: otlp, console and none are known")
        if not (find_spec("opentelemetry") and find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")):
            raise ConfigError("OTEL_...: traces need the extra: pip install 'keras-quartet[serve,trace]'")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

        resource = Resource.create({"service.name": SERVICE}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter() if exporter == "console" else OTLPSpanExporter()))
        return cls(provider)

    def close(self) -> None:
        """Sends what has not been sent."""
        self._provider.shutdown()

    def begin(self, exchange: Exchange, headers: Headers) -> None:
        """Opens a request's span, which is the parent of all that happens for it."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        span = self._tracer.start_span("request", self._propagate.extract(carrier), kind=self._trace.SpanKind.SERVER)
        exchange.note, exchange.parts = span, []
        found = span.get_span_context()
        exchange.trace = f"{found.trace_id:032x}" if found.is_valid else ""

    def end(self, exchange: Exchange, status: int | str, seconds: float) -> None:
        """Closes it, and sends what has happened to its inputs as spans within."""
        span, over_http = exchange.note, isinstance(status, int)
        span.update_name(f"{exchange.method} {exchange.route}" if over_http else exchange.route.lstrip("/"))
        span.set_attributes({"client.address": exchange.address, "quartet.request_id": exchange.id, "quartet.inputs": exchange.inputs})
        if over_http:
            span.set_attributes({"http.request.method": exchange.method, "url.path": exchange.path, "http.route": exchange.route,
                                 "http.response.status_code": status})
        else:
            service, _, name = exchange.route.lstrip("/").rpartition("/")
            span.set_attributes({"rpc.system": "grpc", "rpc.service": service, "rpc.method": name, "rpc.response.status_code": status})
        if exchange.model:
            span.set_attributes({"quartet.model": exchange.model, "quartet.version": exchange.version})
        if (isinstance(status, int) and status >= 500) or status in ("INTERNAL", "UNAVAILABLE"):
            span.set_status(self._trace.StatusCode.ERROR, exchange.error)
        self._add_parts(self._trace.set_span_in_context(span), exchange)
        span.end()

    def _add_parts(self, whole: Any, exchange: Exchange) -> None:
        shift, batch = time.time() - time.monotonic(), whole
        for name, began, ended, attributes in exchange.parts or ():
            said = {f"quartet.{key}": value for key, value in attributes.items()}
            part = self._tracer.start_span(name, batch if name == "model" else whole, attributes=said,
                                           start_time=int(NANO * (began + shift)))
            part.end(int(NANO * (ended + shift)))
            if name == "batch":
                batch = self._trace.set_span_in_context(part, whole)
