"""The access log: one line per HTTP request, written by a thread of its own.

The event loop only leaves a few values in a bounded list. Where they come faster than they can be written, requests
are left out, and a line says how many.
"""

import sys
from collections import deque
from datetime import datetime
from threading import Event, Thread
from time import time
from typing import Literal, NamedTuple, TextIO

import msgspec

from fairlead.engine.live.gateway.exchange import Exchange
from fairlead.errors import plain

Form = Literal["text", "json"]

_PERIOD_S = 0.1
_MOST_WAITING = 20_000


class Access(NamedTuple):
    """One request that was answered."""

    t: float  # when the answer was given, in seconds since 1970
    peer: str
    method: str
    path: str  # without the query
    status: int
    bytes: int  # of the answer's body
    ms: float  # from the request's last byte to the answer
    request_id: str
    id: str | None  # of the workflow's request
    traceparent: str | None


class AccessLog:
    """Writes lines while it is open.

    Args:
        form: One JSON object per line, or text.
        stream: Where to; standard output by default.
    """

    def __init__(self, form: Form, stream: TextIO | None = None) -> None:
        self._form = form
        self._stream = stream or sys.stdout
        self._waiting: deque[Access] = deque()
        self._left_out = 0
        self._over = Event()
        self._thread = Thread(target=self._run, name="fairlead-access", daemon=True)

    def open(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits."""
        self._over.set()
        self._thread.join(1.0)

    def note(self, exchange: Exchange, peer: str, status: int, size: int, ms: float) -> None:
        """Have a line written."""
        if len(self._waiting) >= _MOST_WAITING:
            self._left_out += 1
            return
        trace = exchange.traceparent
        self._waiting.append(
            Access(
                time(),
                peer,
                exchange.method,
                exchange.path,
                status,
                size,
                ms,
                exchange.request_id.decode(),
                exchange.ran_as,
                None if trace is None else trace.decode(),
            )
        )

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            self._write()
        self._write()

    def _write(self) -> None:
        lines = []
        for _ in range(len(self._waiting)):
            lines.append(self._line(self._waiting.popleft()))
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            told = f"{left_out} requests were left out of the access log: they came faster than it is written"
            lines.append(msgspec.json.encode({"t": time(), "text": told}).decode() if self._form == "json" else told)
        if lines:
            try:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # a full disk, or a reader that is gone, is no reason to serve no more
                self._left_out += len(lines)

    def _line(self, access: Access) -> str:
        if self._form == "json":
            return msgspec.json.encode(access._asdict()).decode()
        when = datetime.fromtimestamp(access.t).astimezone().isoformat(timespec="milliseconds")
        id = "" if access.id is None else f" id={access.id}"
        what = f'{access.peer} {when} "{access.method} {access.path}" {access.status} {access.bytes} {access.ms:.1f}ms'
        return plain(f"{what}{id} request_id={access.request_id}")
