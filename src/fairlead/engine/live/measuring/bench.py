"""A back end as something to await: start an instance, run a batch, and how long it took."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol, TypeVar

from fairlead.engine.live.backends.base import Backend
from fairlead.engine.live.limits import Usage
from fairlead.engine.live.values import Result, Value
from fairlead.errors import FairleadError
from fairlead.model import Configuration

T = TypeVar("T")


class Measurable(Backend, Protocol):
    """A back end that also tells what instances took and used."""

    def started(self, instance: int) -> tuple[float, float]:
        """How long an instance that is ready took to load its code, and for its `setup`."""
        ...

    def usage(self, instance: int) -> Usage:
        """What an instance has used so far."""
        ...

    def size_bytes(self, value: Value) -> int:
        """How large a value is, wherever it is kept."""
        ...


class UnmeasurableError(FairleadError):
    """A function could not be started or run, so nothing can be said of it."""


class Bench:
    """Hears what a back end reports, and wakes whoever waits for it. Times are taken when the report comes."""

    def __init__(self, backend: Measurable, clock: Callable[[], float]) -> None:
        self.backend = backend
        self._clock = clock
        self._numbers = count(1)
        self._starts: dict[int, asyncio.Future[float]] = {}
        self._runs: dict[int, asyncio.Future[tuple[float, Sequence[Result]]]] = {}
        self._running: dict[int, int] = {}  # the batch that an instance has

    def ready(self, instance: int) -> None:
        """An instance has started."""
        _resolve(self._starts.pop(instance, None), self._clock())

    def finished(self, batch: int, results: Sequence[Result], work_s: float) -> None:
        """A batch has ended."""
        self._running = {instance: running for instance, running in self._running.items() if running != batch}
        _resolve(self._runs.pop(batch, None), (self._clock(), results))

    def lost(self, instance: int, error: str) -> None:
        """An instance has died: whoever waits for it hears why."""
        _refuse(self._starts.pop(instance, None), error)
        _refuse(self._runs.pop(self._running.pop(instance, -1), None), error)

    async def start(
        self, function: str, configuration: Configuration, node: str, limit_s: float | None
    ) -> tuple[int, float]:
        """A new instance that is ready, and how long that took. Raises `UnmeasurableError`."""
        instance = next(self._numbers)
        self._starts[instance] = waiting = asyncio.get_running_loop().create_future()
        began = self._clock()
        self.backend.start(instance, function, configuration, node)
        try:
            ended = await _within(waiting, limit_s, "it did not start")
        except UnmeasurableError:
            self.backend.stop(instance, now=True)
            raise
        return instance, ended - began

    async def run(
        self, instance: int, stages: Sequence[str], inputs: Sequence[Value], limit_s: float | None
    ) -> tuple[Sequence[Result], float]:
        """The results of a batch, and how long it took as seen from here.

        Raises `UnmeasurableError`, also where the function fails.
        """
        batch = next(self._numbers)
        self._runs[batch] = waiting = asyncio.get_running_loop().create_future()
        self._running[instance] = batch
        began = self._clock()
        self.backend.run(batch, instance, stages, inputs)
        ended, results = await _within(waiting, limit_s, "a run did not end")
        failed = next((result for result in results if not result.ok), None)
        if failed is not None:
            for result in results:
                self.backend.release(result.value)
            raise UnmeasurableError(failed.error or "it failed")
        return results, ended - began


def _resolve(waiting: "asyncio.Future[T] | None", value: T) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)


def _refuse(waiting: "asyncio.Future[T] | None", error: str) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_exception(UnmeasurableError(error))


async def _within(waiting: "asyncio.Future[T]", limit_s: float | None, what: str) -> T:
    try:
        return await asyncio.wait_for(waiting, limit_s)
    except TimeoutError:
        raise UnmeasurableError(f"{what} within {limit_s:g} s") from None
