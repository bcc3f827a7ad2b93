"""Lines of an agent's node on their way to the gateway, whose folder has those of all nodes.

The agent reads what its instances append, and sends it on at a bounded rate. A gateway that cannot be reached, or
a burst, only delays lines: they stay in the agent's own folder until they are sent, or until newer ones push them out,
which is told. What arrives is written by a thread of the gateway, a bounded number of bytes at a time.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import time

from fairlead.engine.live.logs.folder import LogFolder, Tail
from fairlead.engine.live.logs.lines import Line, pack

FORWARD_BYTES = 64 << 10
"""What an agent sends at once; it sends four times a second at most."""

_PERIOD_S = 0.25
_MOST_WAITING = 8 << 20  # bytes that wait for the gateway's disk


class Forwarder:
    """Sends what is new in a folder.

    Args:
        folder: The agent's own.
        node: The agent's node.
        send: Takes whole lines; False where nothing can be sent now, and the same lines will be offered again.
    """

    def __init__(self, folder: LogFolder, node: str, send: Callable[[bytes], bool]) -> None:
        self._tail = Tail(folder)
        self._node = node
        self._send = send
        self._told = 0

    async def run(self) -> None:
        """Send until cancelled."""
        data = b""
        while True:
            with suppress(OSError):  # a disk that cannot be read now
                data = data or await asyncio.to_thread(self._tail.read, FORWARD_BYTES)
            if self._tail.skipped_segments > self._told:
                self._told = self._tail.skipped_segments
                data = self._gap() + data
            if data and self._send(data):
                data = b""
            await asyncio.sleep(_PERIOD_S)

    def _gap(self) -> bytes:
        text = "lines of this node were dropped before the gateway had them: they came faster than they are sent"
        names = {"app": "", "function": "", "instance": "", "node": self._node}
        return pack(Line(t=time(), request=None, stream="log", level="WARNING", text=text, **names))


class Receiver:
    """Writes what agents send into the gateway's folder, on a thread."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._waiting: list[bytes] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.dropped_bytes = 0  # for want of room on the disk, or because it is slow

    def take(self, lines: bytes) -> None:
        """Keep whole lines; ValueError for anything else."""
        if len(lines) > 2 * FORWARD_BYTES or not lines.endswith(b"}\n"):
            raise ValueError("it sent lines of a log that are too long, or no lines")
        if self._size + len(lines) > _MOST_WAITING:
            self.dropped_bytes += len(lines)
            return
        self._waiting.append(lines)
        self._size += len(lines)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Write what waits."""
        if self._task is not None:
            await self._task
        self._folder.close()

    async def _write(self) -> None:
        while self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            try:
                await asyncio.to_thread(self._folder.append, data)
            except OSError:
                self.dropped_bytes += len(data)
        self._task = None
