"""Connections that come and go beside a steady load: used once, left idle, or broken off."""

import random  # noqa: TID251 - always seeded
import socket
import struct
import threading
from collections import Counter, deque
from contextlib import suppress
from time import monotonic

IDLE = 50  # connections that are open and silent at any time
_RESET = struct.pack("ii", 1, 0)


class Churn(threading.Thread):
    """Opens `rate` connections per second until it is stopped.

    Eight of ten send a request, read the answer and close; one sends a request and resets the connection; one stays
    idle until it is the oldest of `IDLE`.
    """

    def __init__(self, port: int, path: str, body: bytes, rate: float) -> None:
        super().__init__(daemon=True)
        self.counts: Counter[str] = Counter()
        self._port, self._rate = port, rate
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        self._request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self._idle: deque[socket.socket] = deque()
        self._stop_now = threading.Event()
        self._rng = random.Random(0)

    def run(self) -> None:
        due = monotonic()
        while not self._stop_now.wait(max(0.0, due - monotonic())):
            due += self._rng.expovariate(self._rate)
            try:
                self._open(self._rng.random())
            except OSError as error:
                self.counts[f"failed: {type(error).__name__}"] += 1
        for connection in self._idle:
            connection.close()

    def _open(self, draw: float) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        if draw < 0.1:
            self._idle.append(connection)
            if len(self._idle) > IDLE:
                self._idle.popleft().close()
            self.counts["idle"] += 1
            return
        with connection:
            connection.sendall(self._request)
            if draw < 0.2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.counts["aborted"] += 1
                return
            answer = connection.recv(1 << 16)
            self.counts[f"answered {answer.split(b' ', 2)[1].decode()}" if answer else "closed"] += 1

    @property
    def errors(self) -> int:
        """Connections that got no answer at all."""
        return sum(count for name, count in self.counts.items() if name.startswith("failed") or name == "closed")

    def stop(self) -> None:
        self._stop_now.set()
        with suppress(RuntimeError):
            self.join()
