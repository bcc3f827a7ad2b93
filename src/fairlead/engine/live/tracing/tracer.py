"""Which requests are traced, and where their spans go: a bounded queue and a thread that exports it."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from time import monotonic, time
from typing import Protocol

from fairlead.engine.live.tracing.request import RequestTrace, Span, new_trace

_PERIOD_S = 0.5
_MOST_WAITING = 5_000  # requests whose spans wait for the exporter
_BATCH = 200  # requests at once
_TELL_S = 60.0
_LOW = (1 << 64) - 1  # the half of a trace's id that decides by chance, as everywhere


class Exporter(Protocol):
    """Sends spans somewhere; may block for as long as it likes."""

    def export(self, spans: Sequence[Span]) -> bool:
        """Send spans; whether they arrived."""
        ...

    def close(self) -> None:
        """No more come."""
        ...


class Tracer:
    """Begins traces, and hands over those that have ended.

    Args:
        exporter: Gets the spans, on a thread of its own.
        ratio: The share of requests to trace of those whose caller did not decide that.
        log: Gets a line where spans are lost.
    """

    def __init__(self, exporter: Exporter, ratio: float, log: Callable[[str], None]) -> None:
        self._exporter = exporter
        self._ratio = ratio
        self._log = log
        self._waiting: deque[list[Span]] = deque()
        self._dropped = 0
        self._told_at = -_TELL_S
        self._over = Event()
        self._thread = Thread(target=self._run, name="fairlead-tracing", daemon=True)
        self._thread.start()

    def begin(self, traceparent: str | None, arrival: float) -> RequestTrace | None:
        """The trace of a request that has come; None where it is not to be traced, as its caller or chance says."""
        if traceparent is not None:
            _, given, span, flags = traceparent.split("-")[:4]
            if not int(flags, 16) & 1:
                return None
            return RequestTrace((int(given, 16), int(span, 16)), arrival, time())
        trace = new_trace()
        if trace & _LOW >= self._ratio * (_LOW + 1):
            return None
        return RequestTrace((trace, 0), arrival, time())

    def put(self, spans: list[Span]) -> None:
        """Have the spans of a request exported; they are dropped where too many wait."""
        if len(self._waiting) >= _MOST_WAITING:
            self._dropped += len(spans)
        else:
            self._waiting.append(spans)

    def close(self) -> None:
        """Export what waits, for a few seconds at most."""
        self._over.set()
        self._thread.join(3.0)

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self._export()
        self._export()
        self._exporter.close()

    def _export(self) -> None:
        while self._waiting:
            spans = [span for _ in range(min(_BATCH, len(self._waiting))) for span in self._waiting.popleft()]
            try:
                is_sent = self._exporter.export(spans)
            except Exception as error:  # a fault of the exporter must not end what serves
                self._log(f"spans cannot be exported: {error}")
                is_sent = False
            if not is_sent:
                self._dropped += len(spans)
        if self._dropped and monotonic() - self._told_at > _TELL_S:
            dropped, self._dropped, self._told_at = self._dropped, 0, monotonic()
            self._log(f"{dropped} spans were dropped: the OpenTelemetry receiver does not take them, or is too slow")


def ratio_of(environment: Mapping[str, str]) -> float:
    """The share of requests to trace, by the variables `OTEL_TRACES_SAMPLER` and `_ARG`. ValueError if one is wrong."""
    sampler = environment.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").removeprefix("parentbased_")
    if sampler == "always_on":
        return 1.0
    if sampler == "always_off":
        return 0.0
    text = environment.get("OTEL_TRACES_SAMPLER_ARG", "1")
    if sampler != "traceidratio":
        raise ValueError(f"OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, got {sampler!r}")
    if not 0 <= (ratio := float(text)) <= 1:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG must be from 0 to 1, got {text!r}")
    return ratio
