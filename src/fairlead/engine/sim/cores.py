"""The cores of one machine: what runs shares them evenly once more is runnable than there are."""

from collections.abc import Callable
from math import inf

Done = Callable[[float], None]
"""Called with the instant at which a task ended."""


class _Task:
    __slots__ = ("done", "left_s", "share")

    def __init__(self, left_s: float, share: float, done: Done) -> None:
        self.left_s = left_s
        self.share = share
        self.done = done


class Cores:
    """Processor sharing. A task has seconds that it would take alone, and the cores that it keeps busy meanwhile.

    These are the share of its time in which it needs a core; above 1, how many it needs all the time, as code with
    several threads does. With n tasks of shares s1, ..., sn and C cores, a task that needs a core has
    min(1, C / (s1 + ... + sn)) of one. What it spends without a core, asleep or throttled, takes no longer for that.
    There are few tasks at a time, one per process that does something, so that all are looked at in every change.
    """

    __slots__ = ("_cores", "_demand", "_last", "_tasks")

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._tasks: dict[int, _Task] = {}
        self._demand = 0.0
        self._last = 0.0

    @property
    def now(self) -> float:
        """The instant of the last change."""
        return self._last

    @property
    def is_full(self) -> bool:
        """Whether no core is free for one more."""
        return self._demand > self._cores - 0.5

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs."""
        return not self._tasks

    def begin(self, now: float, key: int, work_s: float, share: float, done: Done) -> None:
        """Start a task under a key that no other has."""
        self._pass(now)
        self._tasks[key] = _Task(work_s, share, done)
        self._demand += share

    def drop(self, now: float, key: int) -> None:
        """End a task before its time, if there is such a one."""
        self._pass(now)
        self._remove(key)

    def next_end(self) -> float:
        """When the next task ends if nothing changes; infinity if none runs."""
        if not self._tasks:
            return inf
        speed = self._speed()
        return self._last + max(0.0, min(task.left_s / _rate(task.share, speed) for task in self._tasks.values()))

    def advance(self, now: float) -> list[Done]:
        """Let time pass, up to the next end at most; gives what to call for the tasks that end now."""
        self._pass(now)
        ended = [key for key, task in self._tasks.items() if task.left_s <= 1e-12 * max(1.0, now)]
        return [self._remove(key) for key in ended]

    def _remove(self, key: int) -> Done:
        task = self._tasks.pop(key, None)
        if task is None:
            return _nothing
        self._demand = self._demand - task.share if self._tasks else 0.0  # forget rounding
        return task.done

    def _pass(self, now: float) -> None:
        passed_s, self._last = now - self._last, now
        if passed_s > 0 and self._tasks:
            speed = self._speed()
            for task in self._tasks.values():
                task.left_s -= passed_s * _rate(task.share, speed)

    def _speed(self) -> float:
        """What part of a core each gets that needs one."""
        return 1.0 if self._demand <= self._cores else self._cores / self._demand


def _rate(share: float, speed: float) -> float:
    if speed == 1.0 or share >= 1.0:
        return speed
    return 1 / (1 - share + share / speed)


def _nothing(now: float) -> None:
    """A task that was dropped ends without a word."""
