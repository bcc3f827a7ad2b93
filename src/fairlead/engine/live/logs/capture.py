"""Inside an instance: what the function prints and logs becomes lines with the request that they belong to.

`sys.stdout` and `sys.stderr` are replaced. Handlers of `logging` that write to either of them keep their level and
their format; their records become lines of their own kind, with a level. What is written past Python, by C libraries
and by child processes, takes the pipe to the process that started the instance: see `pipe.py`.
"""

import atexit
import fcntl
import io
import logging
import os
import sys
import termios
import threading
from time import monotonic, sleep
from typing import Any, ClassVar, Literal

import msgspec

from fairlead.app.current import Run, running
from fairlead.engine.live.logs.lines import MOST_TEXT, Names, names_of
from fairlead.engine.live.logs.shared import Present
from fairlead.engine.live.logs.writer import LineWriter, Owner

VARIABLE = "FAIRLEAD_INSTANCE_LOG"
"""The environment variable by which an instance learns where its lines go."""

_LATEST_S = 0.02  # that an instance waits before a batch until what was written past Python for the last one is read
_LOOK_S = 0.0005
_NOTHING = bytes(4)  # as the kernel says that a pipe is empty
_MOST_BEGUN = 64  # threads with a line that has no end yet


class Where(Owner, frozen=True, kw_only=True):
    """What an instance is told: who it is, where lines go, and a descriptor of memory to show what it runs."""

    present: int


class Capture:
    """What this process writes, by the request that it is written for."""

    current: ClassVar["Capture | None"] = None

    def __init__(self, where: Where) -> None:
        self._writer = LineWriter(where)
        self.is_full, self.drop = self._writer.is_full, self._writer.drop
        self._present = Present(where.present)
        os.close(where.present)
        self._run: Run | None = None  # of a thread that does not know what it runs for
        self._pipe_bytes = bytearray(4)
        self._is_awaited = False  # whether the pipe held something when the last batch ended
        self._streams = (_Stream(self, "stdout", 1), _Stream(self, "stderr", 2))

    def install(self) -> None:
        """Take over the streams of this process."""
        stdout, stderr = (
            io.TextIOWrapper(stream, "utf-8", "backslashreplace", write_through=True) for stream in self._streams
        )
        sys.stdout, sys.stderr = stdout, stderr
        _take_records(self)
        atexit.register(self.close)
        Capture.current = self

    def begin(self, run: Run) -> None:
        """A batch begins, once what was written past Python for the one before is read."""
        if self._is_awaited:
            self._await_reader()
        self._run = run
        if run.about:
            self._present.show(run.about)

    def end(self) -> None:
        """The batch is about to be answered: keep the last line of this thread, also without its line feed.

        Nothing is left to do after the answer: it wakes the gateway, which may take the CPU that this process is on.
        """
        for stream in self._streams:
            if stream.begun:
                stream.finish()
        self._run = None
        self._is_awaited = self._is_unread()
        if not self._is_awaited:
            self._present.clear()

    def write(self, stream: Literal["stdout", "stderr", "log"], level: str | None, text: str) -> None:
        """Keep a line for whatever this thread runs."""
        self._writer.write(stream, level, text, *self._names())

    def owns(self, stream: object) -> bool:
        """Whether what is written to this stream is captured."""
        return getattr(stream, "buffer", None) in self._streams

    def close(self) -> None:
        """The process ends."""
        for stream in self._streams:
            stream.finish_all()
        self._writer.close()

    def _names(self) -> tuple[Names, Names]:
        """Of the request or the requests that this thread runs for: ids, and names in the records of the run."""
        found = running()
        run, place = found if found is not None else (self._run, -1)
        if run is None or not run.about:
            return None, None
        about = run.about if place < 0 else run.about[place : place + 1]
        return names_of([one.id for one in about]), names_of([one.run for one in about if one.run is not None])

    def _await_reader(self) -> None:
        """Wait until what was written past Python is read, but not for long."""
        until = monotonic() + _LATEST_S
        while self._is_unread() and monotonic() < until:
            sleep(_LOOK_S)

    def _is_unread(self) -> bool:
        """Whether the pipe of this process holds anything."""
        try:
            fcntl.ioctl(1, termios.FIONREAD, self._pipe_bytes)
        except OSError:  # the function has closed it, or put something else there
            return False
        return self._pipe_bytes != _NOTHING


def begin_capture() -> None:
    """Capture what this process writes, where it was told to."""
    text = os.environ.pop(VARIABLE, None)
    if text is not None:
        Capture(msgspec.json.decode(text, type=Where)).install()


class _Stream(io.RawIOBase):
    """The bytes that Python writes to a stream, cut into lines; each thread has a line of its own."""

    def __init__(self, capture: Capture, name: Literal["stdout", "stderr"], descriptor: int) -> None:
        super().__init__()
        self._capture = capture
        self.name = name
        self._descriptor = descriptor
        self.begun: dict[int, bytearray] = {}  # by thread: a line without its end

    def writable(self) -> bool:
        """It takes bytes."""
        return True

    def fileno(self) -> int:
        """The pipe: what a child process writes to when it is given this stream."""
        return self._descriptor

    def write(self, data: Any) -> int:
        """Take bytes."""
        data = bytes(data)
        begin = 0
        if self.begun or not self._capture.is_full():
            while (end := data.find(b"\n", begin)) >= 0 and not self._capture.is_full():
                self._extend(data[begin:end])
                self.finish(is_line=True)
                begin = end + 1
        if begin < len(data):
            if self._capture.is_full():
                begun = self.begun.pop(threading.get_ident(), b"") if self.begun else b""
                self._capture.drop(data.count(b"\n", begin), len(data) - begin + len(begun))
            else:
                self._extend(data[begin:] if begin else data)
        return len(data)

    def finish(self, *, is_line: bool = False) -> None:
        """Keep what this thread has begun; with `is_line` also if that is an empty line."""
        self._finish(threading.get_ident(), is_line=is_line)

    def finish_all(self) -> None:
        """Keep what all threads have begun."""
        for thread in list(self.begun):
            self._finish(thread)

    def _finish(self, thread: int, *, is_line: bool = False) -> None:
        begun = self.begun.pop(thread, b"")
        if begun or is_line:
            self._capture.write(self.name, None, begun.decode("utf-8", "replace"))

    def _extend(self, data: bytes) -> None:
        thread = threading.get_ident()
        begun = self.begun.get(thread)
        if begun is None:
            if len(self.begun) >= _MOST_BEGUN:
                self.finish_all()
            begun = self.begun[thread] = bytearray()
        if len(begun) < 4 * MOST_TEXT:
            begun += data[: 8 * MOST_TEXT]


def _take_records(capture: Capture) -> None:
    """Have handlers of `logging` that write to a captured stream hand on their records."""
    write_text = logging.StreamHandler.emit

    def emit(handler: Any, record: logging.LogRecord) -> None:  # Any: its type is generic in stubs, not when run
        if not capture.owns(handler.stream):
            write_text(handler, record)
        elif capture.is_full():
            capture.drop(1, 0)
        else:
            try:
                capture.write("log", record.levelname, handler.format(record))
            except RecursionError:
                raise
            except Exception:  # as logging does it: a record that cannot be formatted is told of, and ends nothing
                handler.handleError(record)

    logging.StreamHandler.emit = emit  # type: ignore[assignment,method-assign]
