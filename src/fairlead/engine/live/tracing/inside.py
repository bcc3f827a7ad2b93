"""Inside an instance whose app uses OpenTelemetry: its own spans become children of the span of the run."""

from collections.abc import Callable

from opentelemetry.context import attach, detach
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def entered(traceparent: str) -> Callable[[], None]:
    """Make the span of this `traceparent` the current one; gives what undoes that."""
    token = attach(_propagator.extract({"traceparent": traceparent}))
    return lambda: detach(token)
