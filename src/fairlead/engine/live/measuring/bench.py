"""Instances as something to await: start an instance, run a batch, and how long it took."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from fairlead.engine.core.events import NodeDraining
from fairlead.engine.live.contracts import InstanceSpec
from fairlead.engine.live.instances import Instances
from fairlead.engine.live.values import Result, Value
from fairlead.errors import FairleadError
from fairlead.model import Configuration, Node

T = TypeVar("T")


class UnmeasurableError(FairleadError):
    """A function could not be started or run, so nothing can be said of it."""


class Bench:
    """Hears what is reported of instances, and wakes whoever waits for it. Times are taken when the report comes."""

    def __init__(self, instances: Instances, clock: Callable[[], float]) -> None:
        self.instances = instances
        self._clock = clock
        self._numbers = count(1)
        self._starts: dict[int, asyncio.Future[float]] = {}
        self._runs: dict[int, asyncio.Future[tuple[float, Sequence[Result]]]] = {}
        self._running: dict[int, int] = {}  # the batch that an instance has

    def ready(self, instance: int) -> None:
        """An instance has started."""
        _resolve(self._starts.pop(instance, None), self._clock())

    def finished(self, batch: int, results: Sequence[Result], work_s: float, transfer_s: float = 0.0) -> None:
        """A batch has ended."""
        self._running = {instance: running for instance, running in self._running.items() if running != batch}
        _resolve(self._runs.pop(batch, None), (self._clock(), results))

    def lost(self, instance: int, error: str) -> None:
        """An instance has died: whoever waits for it hears why."""
        _refuse(self._starts.pop(instance, None), error)
        _refuse(self._runs.pop(self._running.pop(instance, -1), None), error)

    def ended(self, instance: int) -> None:
        """An instance that was told to stop exists no more."""

    def adopted(self, spec: InstanceSpec) -> int | None:
        """What a measurement starts is its own."""
        return None

    def resize_refused(self, instance: int, vcpus: float, reason: str) -> None:
        """Sizes that cannot be had cannot be measured."""
        self.lost(instance, f"it cannot have another size: {reason}")

    def evicted(self, instance: int, buffers: Sequence[str]) -> None:
        """A later run loads them again."""

    def node_joined(self, node: Node) -> None:
        """Measuring goes on where it began."""

    def node_changed(self, node: Node) -> None:
        """Measuring goes on where it began."""

    def node_draining(self, event: NodeDraining) -> None:
        """Measuring goes on where it began."""

    def node_reopened(self, node: Node) -> None:
        """Measuring goes on where it began."""

    def is_moving(self, node: str) -> bool:
        """Nothing is started elsewhere."""
        return False

    def has_left(self, node: str) -> bool:
        """What is measured stays where it is."""
        return False

    def node_lost(self, name: str, reason: str) -> None:
        """Nothing that runs there is heard of again."""
        for instance in list({*self._starts, *self._running}):
            self.lost(instance, f"node {name} was lost: {reason}")

    async def start(
        self, function: str, configuration: Configuration, node: str, limit_s: float | None, *, is_kernel: bool = False
    ) -> tuple[int, float]:
        """A new instance that is ready, and how long that took. Raises `UnmeasurableError`."""
        instance = next(self._numbers)
        self._starts[instance] = waiting = asyncio.get_running_loop().create_future()
        began = self._clock()
        device = 0 if is_kernel else -1
        self.instances.start(instance, function, configuration, node, device, is_kernel=is_kernel)
        try:
            ended = await _within(waiting, limit_s, "it did not start")
        except UnmeasurableError:
            self.instances.stop(instance, now=True)
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
        self.instances.run(batch, instance, stages, inputs)
        ended, results = await _within(waiting, limit_s, "a run did not end")
        failed = next((result for result in results if not result.ok), None)
        if failed is not None:
            for result in results:
                self.instances.values.release(result.value)
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
