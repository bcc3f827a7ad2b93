"""Ctrl-C as a wish: the work at hand is ended, and what it has brought is kept."""

import signal
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Self

import typer


class Interruption:
    """Turns the first Ctrl-C into a wish to end; the second one is as ever. Used as a context."""

    def __init__(self) -> None:
        self.is_wished = False
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Self:
        if current_thread() is main_thread():  # signals reach no other
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.is_wished = True
        typer.echo("Ending after this update, and keeping what was learnt; Ctrl-C again ends at once.", err=True)
        signal.signal(signal.SIGINT, self._before)
