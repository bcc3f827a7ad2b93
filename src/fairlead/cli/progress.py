"""How far the runs are: a bar on a terminal, a few lines elsewhere, on standard error either way."""

from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 5.0
MAX_TEXT = 40


class Step(Protocol):
    """One run to come."""

    @property
    def label(self) -> str:
        """Who decides, where in the sweep, and the seed."""
        ...

    @property
    def duration_s(self) -> float:
        """Simulated time until arrivals stop."""
        ...


class ShareProgress:
    """Shows the share of the work that is done. Used as a context."""

    def __init__(self, title: str, *, is_quiet: bool = False) -> None:
        self._title = title
        self._is_quiet = is_quiet
        self._said_at = 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        console = Console(stderr=True)
        if not is_quiet and console.is_terminal and not console.is_dumb_terminal:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TaskProgressColumn(),
                TimeRemainingColumn(compact=True),
                console=console,
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0)
        else:
            self._say(f"{self._title}.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def reach(self, share: float, doing: str = "") -> None:
        """So much is done, in [0, 1], and this is being done."""
        if self._bar is not None:
            text = doing or self._title
            text = text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
            self._bar.update(self._task, completed=share, description=text)
        elif monotonic() - self._said_at >= LINE_EVERY_S:
            self._say(f"{share:.0%} done{f': {doing}' if doing else ''}")

    def _say(self, line: str) -> None:
        if not self._is_quiet:
            typer.echo(line, err=True)
            self._said_at = monotonic()


class RunProgress(ShareProgress):
    """Shows the share of all simulated time of several runs that is done."""

    def __init__(self, title: str, steps: Sequence[Step], *, is_quiet: bool = False) -> None:
        count = len(steps)
        super().__init__(f"{title}: {count} run{'s' if count != 1 else ''}", is_quiet=is_quiet)
        self._steps = steps
        self._reached_s = [0.0] * count
        self._finished: set[int] = set()

    def reach_time(self, index: int, now: float) -> None:
        """A run has come to this simulated time."""
        self._reached_s[index] = max(self._reached_s[index], min(now, self._steps[index].duration_s))
        self._show(index)

    def finish(self, index: int) -> None:
        """A run has ended."""
        self._reached_s[index] = self._steps[index].duration_s
        self._finished.add(index)
        self._show(index)

    def _show(self, index: int) -> None:
        step = self._steps[index]
        doing = f"{len(self._finished)}/{len(self._steps)} done, {step.label}"
        if index not in self._finished and self._reached_s[index] >= step.duration_s:
            doing += ", no more arrivals"
        share = sum(self._reached_s) / sum(one.duration_s for one in self._steps)
        # What is still open when arrivals stop can take longer than all the rest: that is not done.
        self.reach(share if len(self._finished) == len(self._steps) else min(share, 0.99), doing)
