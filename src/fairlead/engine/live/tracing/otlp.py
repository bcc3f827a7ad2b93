"""Spans as OTLP over HTTP, by the OpenTelemetry SDK. One of the two modules that import it."""

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fairlead.engine.live.gateway.version import VERSION
from fairlead.engine.live.tracing.request import Span

_PATH = "/v1/traces"


class OtlpExporter:
    """Sends spans to an OTLP receiver.

    Args:
        url: Of the receiver, such as http://127.0.0.1:4318; None for what the `OTEL_EXPORTER_OTLP_*` variables say.
    """

    def __init__(self, url: str | None) -> None:
        endpoint = None if url is None else url if url.endswith(_PATH) else url.rstrip("/") + _PATH
        self._exporter = OTLPSpanExporter(endpoint=endpoint)
        self._scope = InstrumentationScope("fairlead", VERSION)
        self._resource = Resource({SERVICE_NAME: "fairlead"}).merge(OTELResourceDetector().detect())

    def export(self, spans: Sequence[Span]) -> bool:
        """Send spans; whether they arrived."""
        return self._exporter.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """No more come."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> ReadableSpan:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = None
        if span.parent:
            parent = SpanContext(span.trace, span.parent, is_remote=span.is_root, trace_flags=sampled)
        return ReadableSpan(
            name=span.name,
            context=SpanContext(span.trace, span.id, is_remote=False, trace_flags=sampled),
            parent=parent,
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.SERVER if span.is_root else SpanKind.INTERNAL,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=int(span.start * 1e9),
            end_time=int(max(span.start, span.end) * 1e9),
            instrumentation_scope=self._scope,
        )
