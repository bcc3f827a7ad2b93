"""Lines of an agent's node on their way to the gateway, whose folder has those of all nodes.

The agent reads what its instances append, and sends it on at a bounded rate. A gateway that cannot be reached, or
a burst, only delays lines: they stay in the agent's own folder until they are sent, or until newer ones push them out,
which is told. What arrives is written by a thread of the gateway, a bounded number of bytes at a time.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time

import msgspec

from fairlead.engine.live.logs.folder import LogFolder, Tail
from fairlead.engine.live.logs.lines import Line, pack, unpack

FORWARD_BYTES = 64 << 10
"""What an agent sends at once; it sends four times a second at most."""

_PERIOD_S = 0.25
_TOO_FAST = "lines of this node were dropped before the gateway had them: they came faster than they are sent"
_MOST_SENT = 4 * FORWARD_BYTES  # in one message: one line may be longer than what is sent otherwise
_MOST_WAITING = 8 << 20  # bytes that wait for the gateway's disk
_BYTES_PER_S = 2 * FORWARD_BYTES / _PERIOD_S  # that are taken of one node
_BURST_BYTES = 4.0 * _MOST_SENT


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
                data = self._notice(_TOO_FAST) + data
            if len(data) > _MOST_SENT:
                data = self._notice("a line of this node was dropped: it is too long to be sent")
            if data and self._send(data):
                data = b""
            await asyncio.sleep(_PERIOD_S)

    def _notice(self, text: str) -> bytes:
        names = {"app": "", "function": "", "instance": "", "node": self._node}
        return pack(Line(t=time(), request=None, stream="log", level="WARNING", text=text, **names))


class Receiver:
    """Writes what agents send into the gateway's folder, on a thread: a bounded number, of their own nodes."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._waiting: list[tuple[str, bytes]] = []
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._allowed: dict[str, _Allowed] = {}  # by node
        self.dropped_bytes = 0  # for want of room on the disk, because it is slow, or because a node sends too much

    def take(self, lines: bytes, node: str) -> None:
        """Keep whole lines of a node; ValueError for anything else."""
        if len(lines) > _MOST_SENT or not lines.endswith(b"}\n"):
            raise ValueError("it sent lines of a log that are too long, or no lines")
        allowed = self._allowed.get(node)
        if allowed is None:
            allowed = self._allowed[node] = _Allowed()
        if self._size + len(lines) > _MOST_WAITING or not allowed.take(len(lines)):
            self.dropped_bytes += len(lines)
            return
        self._waiting.append((node, lines))
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
            waiting, size = self._waiting, self._size
            self._waiting, self._size = [], 0
            try:
                await asyncio.to_thread(self._append, waiting)
            except OSError:
                self.dropped_bytes += size
        self._task = None

    def _append(self, waiting: list[tuple[str, bytes]]) -> None:
        """Keep what is a line, as one of the node that sent it: a node does not speak for others."""
        kept = b"".join(data for node, lines in waiting for line in lines.split(b"\n") if (data := _own(line, node)))
        if kept:
            self._folder.append(kept)


class _Allowed:
    """The bytes that a node may send: as many as an honest agent does, and as many again."""

    __slots__ = ("_at", "_bytes")

    def __init__(self) -> None:
        self._at = monotonic()
        self._bytes = _BURST_BYTES

    def take(self, size: int) -> bool:
        """Whether this many may come now."""
        now = monotonic()
        self._bytes = min(_BURST_BYTES, self._bytes + (now - self._at) * _BYTES_PER_S)
        self._at = now
        if self._bytes < size:
            return False
        self._bytes -= size
        return True


def _own(data: bytes, node: str) -> bytes:
    """A line of a node as it is kept; empty where it is none."""
    line = unpack(data) if data else None
    if line is None:
        return b""
    return data + b"\n" if line.node == node else pack(msgspec.structs.replace(line, node=node))
