"""What `fairlead serve` shows of the lines of functions: read from the folder by the supervisor, beside the gateway."""

import threading
from collections.abc import Callable
from contextlib import suppress

from fairlead.engine.live.logs.folder import LogFolder, Tail
from fairlead.engine.live.logs.lines import Line, unpack
from fairlead.errors import plain

_PERIOD_S = 0.1
_READ_BYTES = 32 << 10  # per period: more is of no use to a reader, and a slow terminal must not be drowned
_MOST_BEHIND = 1 << 20


class Printing:
    """Prints new lines, each after its function's name, while it is open.

    Args:
        folder: Where lines are.
        write: Prints one line.
    """

    def __init__(self, folder: LogFolder, write: Callable[[str], None]) -> None:
        self._tail = Tail(folder)
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlead-printing", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._over.wait(_PERIOD_S):
            with suppress(OSError):  # the disk, or a log whose reader is gone
                self._print()
        with suppress(OSError):
            self._print()  # the last words

    def _print(self) -> None:
        if self._tail.behind_bytes > _MOST_BEHIND:
            self._tail.skip()
            self._write("(functions write more than is shown here; `fairlead logs` has it)")
            return
        for data in self._tail.read(_READ_BYTES).splitlines():
            line = unpack(data)
            if line is not None:
                self._write(shown(line))


def shown(line: Line) -> str:
    """A line of a function, for the terminal of its server."""
    name = f"{line.function or line.node} | "
    return plain(name + line.text.replace("\n", f"\n{name}"))
