"""One instance's way into the folder: lines get their names, and what is too much is dropped and counted."""

import os
import threading
from functools import cache
from pathlib import Path
from time import time
from typing import Literal
from weakref import WeakSet

import msgspec

from fairlead.engine.live.logs.allowance import Allowance
from fairlead.engine.live.logs.folder import LogFolder
from fairlead.engine.live.logs.lines import Line, Names, pack, shortened

Stream = Literal["stdout", "stderr", "log"]

_NOTICE_S = 1.0  # after the first line that was dropped


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """An instance, and where its lines go."""

    folder: str
    most_bytes: int
    app: str
    function: str
    instance: str
    node: str


class LineWriter:
    """Keeps the lines of one instance. May be used from any thread.

    Args:
        owner: Whose lines.
        call_later: Runs a function after this many seconds, on another thread or in the event loop.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._folder = LogFolder(Path(owner.folder), owner.most_bytes)
        self._allowance = Allowance()
        self.is_full = self._allowance.is_used_up  # whether all lines are dropped now, and `drop` can be told at once
        self._lock = threading.RLock()  # a signal handler may print too
        self._timer: threading.Timer | None = None
        _mind_forks()
        _writers.add(self)

    def write(self, stream: Stream, level: str | None, text: str, request: Names = None, run: Names = None) -> None:
        """Keep one line, or one record of several; it is dropped and counted where there are too many."""
        text = shortened(text)
        data = self._packed(stream, level, text, request, run)
        with self._lock:
            if not self._allowance.admit(len(data)):
                self.drop(1, len(text))
                return
            self._keep(data, len(text))

    def drop(self, lines: int, size: int) -> None:
        """Count what is not kept; a line will say how much it was. A flood ends here: it must cost little."""
        self._allowance.drop(lines, size)
        if self._timer is not None:
            return
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(_NOTICE_S, self.tell)
                self._timer.daemon = True
                self._timer.start()

    def tell(self) -> None:
        """Say how much was dropped since this was last said."""
        with self._lock:
            self._timer = None
            notice = self._allowance.notice()
            if notice is not None:
                self._keep(self._packed("log", "WARNING", notice, None, None), 0)

    def close(self) -> None:
        """Keep no more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self.tell()
            self._folder.close()

    def _packed(self, stream: Stream, level: str | None, text: str, request: Names, run: Names) -> bytes:
        owner = self._owner
        line = Line(
            t=time(),
            app=owner.app,
            function=owner.function,
            instance=owner.instance,
            node=owner.node,
            request=request,
            stream=stream,
            level=level,
            text=text,
            run=msgspec.UNSET if run is None else run,
        )
        try:
            return pack(line)
        except UnicodeEncodeError:  # parts of a name of a file that is no text, say
            return pack(msgspec.structs.replace(line, text=text.encode("utf-8", "backslashreplace").decode()))

    def _keep(self, data: bytes, size: int) -> None:
        try:
            self._folder.append(data)
        except OSError:  # a full disk: what was dropped is told once there is room
            self._allowance.drop(1, size)

    def forked(self) -> None:
        """This process is the child of a fork."""
        self._lock = threading.RLock()  # whoever held it is not in this process
        self._timer = None


_writers: WeakSet[LineWriter] = WeakSet()  # a process that starts instances has had very many


@cache
def _mind_forks() -> None:
    """Tell all writers of a fork: what is registered for that stays for ever, so that it is done once."""
    os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for writer in list(_writers):
        writer.forked()
