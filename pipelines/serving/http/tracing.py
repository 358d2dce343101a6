"""OpenTelemetry traces of requests: spans for the request, its time in the queue, its batch, and the model's computing. Needs the extra
`trace`.

On where OTEL_TRACES_EXPORTER or an OTLP endpoint says so, and off else; a client's `traceparent` is the parent. All else - endpoint,
headers, sampling, resource, batches - is set by OpenTelemetry's own variables.
"""

import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.serving.http.observing import Exchange

EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE = "quartet-serve"  # where OTEL_SERVICE_NAME does not say otherwise
NANO = 1_000_000_000


class Tracing:
    """Makes spans with a provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any):
        from opentelemetry import context, propagate, trace

        self._provider, self._context, self._propagate, self._trace = provider, context, propagate, trace
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

    def begin(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        """Opens a request's span, which is the parent of all that its task does from now on."""
        span = self._tracer.start_span("request", self._propagate.extract(headers), kind=self._trace.SpanKind.SERVER)
        exchange.span = span, self._context.attach(self._trace.set_span_in_context(span))
        found = span.get_span_context()
        exchange.trace = f"{found.trace_id:032x}" if found.is_valid else ""

    def end(self, exchange: Exchange, status: int | str, *, client: str, method: str, path: str) -> None:
        """Closes it. `status`: of HTTP, or gRPC's name."""
        span, token = exchange.span
        span.update_name(f"{method} {exchange.route}" if isinstance(status, int) else exchange.route.lstrip("/"))
        span.set_attributes({"client.address": client, "quartet.request_id": exchange.id, "quartet.inputs": exchange.inputs})
        if isinstance(status, int):
            span.set_attributes({"http.request.method": method, "url.path": path, "http.route": exchange.route,
                                 "http.response.status_code": status})
        else:
            service, _, name = exchange.route.lstrip("/").rpartition("/")
            span.set_attributes({"rpc.system": "grpc", "rpc.service": service, "rpc.method": name, "rpc.response.status_code": status})
        if exchange.model:
            span.set_attributes({"quartet.model": exchange.model, "quartet.version": exchange.version})
        if (isinstance(status, int) and status >= 500) or status in ("INTERNAL", "UNAVAILABLE"):
            span.set_status(self._trace.StatusCode.ERROR, exchange.error)
        span.end()
        self._context.detach(token)

    def here(self) -> Any:
        """The running task's context, under which `span` puts what happens for it elsewhere."""
        return self._context.get_current()

    def span(self, name: str, parent: Any, began: float, seconds: float, **attributes: Any) -> Any:
        """Something that is over.

        Args:
            parent: a context, as `here` and this give it.
            began: seconds ago.
            seconds: that it took.

        Returns:
            the context of it, for what is within.
        """
        start = time.time_ns() - int(NANO * began)
        said = {f"quartet.{key}": value for key, value in attributes.items()}
        span = self._tracer.start_span(name, parent, start_time=start, attributes=said)
        span.end(start + int(NANO * seconds))
        return self._trace.set_span_in_context(span, parent)
