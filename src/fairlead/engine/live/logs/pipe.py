"""What an instance writes past Python, such as the words of C libraries and of child processes, read from its pipe.

The process that started the instance reads it in its event loop, a bounded slice at a time; cutting it into lines and
writing them is left to a thread. Once an instance has used up its allowance, the kernel throws away what is in its pipe
without a copy, a hundred times a second: that keeps up with 100 MB/s and costs the event loop next to nothing.
"""

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl

from fairlead.engine.live.logs.lines import MOST_TEXT, names_of
from fairlead.engine.live.logs.shared import Present
from fairlead.engine.live.logs.writer import LineWriter, Owner

FLOOD_PAUSE_S = 0.01
"""How long a pipe is left alone after it was emptied."""

_MOST_WAITING = 64  # slices that wait for the disk, of all instances together
_PIPE_BYTES = 1 << 20

Names = tuple[Sequence[str], Sequence[str]]  # ids of requests, and what the records of the run call them
Said = tuple["RawOutput", bytes, Names]


class Pen:
    """The thread that writes for all instances of this process."""

    def __init__(self) -> None:
        self._waiting: deque[Said | None] = deque()
        self._some = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def put(self, said: Said) -> bool:
        """Have something written; False if too much waits already."""
        if len(self._waiting) >= _MOST_WAITING and said[1]:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="fairlead-logs", daemon=True)
            self._thread.start()
        self._waiting.append(said)
        self._some.release()
        return True

    def close(self) -> None:
        """Write what waits, for a second at most."""
        if self._thread is not None:
            self._waiting.append(None)
            self._some.release()
            self._thread.join(1.0)
            self._thread = None

    def _write(self) -> None:
        while True:
            self._some.acquire()
            said = self._waiting.popleft()
            if said is None:
                return
            output, data, (ids, runs) = said
            output.write(data, tuple(ids), tuple(runs))


class RawOutput:
    """What one instance writes to its pipe.

    Args:
        owner: The instance.
        present: Which requests it runs now.
        pen: Writes.
    """

    def __init__(self, owner: Owner, present: Present, pen: Pen) -> None:
        self._writer = LineWriter(owner)
        self._present = present
        self._pen = pen
        self._begun = b""
        self._sink = -1

    def is_full(self) -> bool:
        """Whether nothing of it is kept now."""
        return self._writer.is_full()

    def names(self) -> Names:
        """Whose words are in the pipe now."""
        return self._present.read()

    def heard(self, data: bytes, names: Names) -> None:
        """Some bytes came."""
        if self._writer.is_full() or not self._pen.put((self, data, names)):
            self._writer.drop(data.count(b"\n"), len(data))

    def discard(self, pipe: int) -> None:
        """Throw away what is in the pipe."""
        if self._sink < 0:
            with suppress(OSError):  # this user has many large pipes already
                fcntl(pipe, F_SETPIPE_SZ, _PIPE_BYTES)
            self._sink = os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)
        with suppress(BlockingIOError):
            self._writer.drop(0, os.splice(pipe, self._sink, _PIPE_BYTES, flags=os.SPLICE_F_NONBLOCK))

    def ended(self) -> None:
        """The instance has ended, and all that it said was heard."""
        self._pen.put((self, b"", self._present.read()))
        self._present.close()
        if self._sink >= 0:
            os.close(self._sink)
            self._sink = -1

    def write(self, data: bytes, ids: Sequence[str], runs: Sequence[str]) -> None:
        """Cut into lines and keep them; no bytes are the end. On the pen's thread."""
        request, run = names_of(ids), names_of(runs)
        *lines, self._begun = (self._begun + data).split(b"\n")
        if not data or len(self._begun) > 4 * MOST_TEXT:
            lines, self._begun = [*lines, self._begun] if self._begun else lines, b""
        for place, line in enumerate(lines):
            if self._writer.is_full():
                self._writer.drop(len(lines) - place, sum(map(len, lines[place:])))
                break
            self._writer.write("stdout", None, line.decode("utf-8", "replace"), request, run)
        if not data:
            self._writer.close()
