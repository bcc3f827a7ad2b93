"""The end that serves ranged reads of values to other nodes and to the gateway. `reading.py` has the other end."""

import asyncio
import os
from collections.abc import Callable

from fairlead.engine.live.links import control
from fairlead.engine.live.links.messages import PIECE_BYTES, Missing, Part, Read, pack
from fairlead.engine.live.links.stream import Stream
from fairlead.engine.live.store import Store
from fairlead.engine.live.values import LostValueError

_MOST_AHEAD = 16  # pieces that a reader may ask for before the first has come


Relay = Callable[[Read], bytes]
"""Reads a part of a value of another node. Blocks. Raises LostValueError."""


class Reads:
    """Serves the reads of one connection, in order. More than a few at a time end it.

    With `relay`, parts of values of other nodes are passed on; without, there are none.
    """

    def __init__(self, store: Store, stream: Stream, relay: Relay | None = None) -> None:
        self._store = store
        self._relay = relay
        self._stream = stream
        self._waiting: asyncio.Queue[Read] = asyncio.Queue(_MOST_AHEAD)
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._name: str | None = None  # of the file that is open
        self._file = -1

    def heard(self, body: bytes) -> None:
        """Take in a read. ValueError if there are too many, or it is too large."""
        read = control.first.decode(body)
        if not isinstance(read, Read) or not 0 < read.length <= PIECE_BYTES or not 0 <= read.offset < 1 << 62:
            raise ValueError("it is no read of at most 1 MiB")
        if self._waiting.full() or self._stream.backlog_bytes() > _MOST_AHEAD * PIECE_BYTES:
            raise ValueError("it asks for too much at a time")
        self._waiting.put_nowait(read)

    def ended(self, reason: str) -> None:
        """The connection is over."""
        self._task.cancel()
        self._let_go()

    async def _serve(self) -> None:
        while True:
            read = await self._waiting.get()
            is_slow = bool(read.home) or self._store.is_on_disk(read.name)
            answer = await asyncio.to_thread(self._answer, read) if is_slow else self._answer(read)
            self._stream.send(pack(answer))

    def _answer(self, read: Read) -> Part | Missing:
        try:
            if read.home:
                if self._relay is None:
                    return Missing("only a gateway passes on values of other nodes")
                return Part(self._relay(read))
            if read.name != self._name:
                self._let_go()
                self._file = self._store.open_file(read.name)
                self._name = read.name
            data = os.pread(self._file, read.length, read.offset)
            if read.offset + read.length >= os.fstat(self._file).st_size:
                self._let_go()  # a file that is open stays in memory after its release
            return Part(data)
        except (OSError, ValueError, LostValueError) as error:
            return Missing("it does not exist any more" if isinstance(error, FileNotFoundError) else str(error))

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._name, self._file = None, -1
