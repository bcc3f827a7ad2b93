"""Runs the examples of an app before it is served, so that the first requests do not pay for first times.

A function may compile, connect or import when it is first called. What is measured then is not how long it takes later,
and a policy that learns from it would refuse requests that it could serve. So every example runs once. Functions that
were never measured are then tried out on the examples (`trial`). Batches of the warm-up have numbers below zero:
neither the controller nor the records hear of them, except of the times that a trial found.
"""

import asyncio
from collections.abc import Callable, Sequence

from fairlead.app.manifest import Manifest
from fairlead.engine.core.controller import Controller
from fairlead.engine.live.clock import Clock
from fairlead.engine.live.instances import Instances
from fairlead.engine.live.measuring.bench import UnmeasurableError
from fairlead.engine.live.measuring.examples import Examples, collect
from fairlead.engine.live.pool import WarmPool
from fairlead.engine.live.trial import EACH_S, TOTAL_S, try_out
from fairlead.engine.live.values import Result, Value
from fairlead.model import Configuration
from fairlead.policy.base import Warm
from fairlead.profile import Row

LIMIT_S = 30.0
"""How long the examples of one app may take together, trials included."""

_LOOK_S = 0.005  # between two looks at a kernel that is loaded

Resize = Callable[[int, float], None]
"""Gives an instance this many vCPUs."""


class WarmUp:
    """Takes the examples of an app's workflows through the instances that are ready.

    Args:
        manifest: The app.
        controller: Knows where instances are, and what is assumed of functions.
        instances: Run the batches.
        pool: Knows which instances are ready.
        log: Told of examples that fail; an app whose example fails is served nevertheless.
        lost: Told of an instance that had to be stopped.
        resize: Resizes an instance.
        order: Has an instance started.
        clock: Where instants come from.
    """

    def __init__(
        self,
        manifest: Manifest,
        controller: Controller,
        instances: Instances,
        pool: WarmPool,
        log: Callable[[str], None],
        lost: Callable[[int, str], None],
        resize: Resize,
        order: Callable[[Warm], None],
        clock: Clock,
    ) -> None:
        self._manifest = manifest
        self._instances = instances
        self._pool = pool
        self._log = log
        self._lost = lost
        self._controller = controller
        self._resize = resize
        self._order = order
        self._now = clock.now
        self.runs: dict[str, int] = {}  # by function that was tried out: how often it ran for that
        self._next_batch = -1
        self._running: dict[int, tuple[int, asyncio.Future[Sequence[Result]]]] = {}  # by batch: its instance

    async def run(self) -> dict[str, tuple[Row, ...]]:
        """Call the first instance of every function that an example reaches; returns after `LIMIT_S` at the latest.

        Gives the times of functions that were tried out, by name.
        """
        limit_s = LIMIT_S
        times: dict[str, tuple[Row, ...]] = {}
        if not any(workflow.example is not None for workflow in self._manifest.workflows):
            return times
        examples = Examples()
        functions = [function.name for function in self._manifest.functions]
        try:
            async with asyncio.timeout(limit_s):
                await collect(self._manifest, functions, self._call, examples)
                await self._try_all(examples, times)
        except TimeoutError:
            self._log(f"the examples took more than {limit_s:g} s; requests are served without the rest of them")
            for instance, _ in list(self._running.values()):
                self._instances.stop(instance, now=True)
                self._lost(instance, f"an example took more than {limit_s:g} s")
        finally:
            for values in examples.outputs.values():
                for value in values:
                    self._instances.values.release(value)
        for function, error in examples.faults.items():
            self._log(f"function {function} failed on an example: {error}")
        return times

    async def _try_all(self, examples: Examples, times: dict[str, tuple[Row, ...]]) -> None:
        """Try out what was never measured, one function after the other so that they do not disturb each other."""
        profiles = self._controller.scenario.profiles
        unknown = [name for name in examples.inputs if profiles[name].assumed_most_s is not None]
        began = self._now()
        until = began + TOTAL_S
        for place, name in enumerate(unknown):
            limit_s = min(EACH_S, (until - self._now()) / (len(unknown) - place))
            try:
                found = await self._try(name, examples, limit_s)
            except UnmeasurableError as error:
                examples.faults.setdefault(name, str(error))
            else:
                if found:
                    times[name] = found
        if times:
            runs = sum(self.runs.values())
            self._log(f"{', '.join(times)}: tried out, {runs} runs on examples in {self._now() - began:.1f} s")

    async def _try(self, function: str, examples: Examples, limit_s: float) -> tuple[Row, ...]:
        """The times of one function; none where its instance cannot be resized to all that it may have."""
        profile = self._controller.scenario.profiles[function]
        instance = self._first(function)
        state = self._controller.pool.instances[instance]
        node = state.node.node
        if any(c.vgpus != state.configuration.vgpus for c in profile.configurations):
            return ()  # another share of a GPU is another instance
        can_run = [c for c in profile.configurations if c.vcpus <= node.vcpus] or list(profile.configurations[:1])

        async def run(configuration: Configuration) -> float:
            self._resize(instance, configuration.vcpus)
            began = self._now()
            results = await self._run(instance, *examples.batch(function, configuration.batch))
            seconds = (self._now() - began) * node.speed
            self._release(results)
            return seconds

        rows, self.runs[function] = await try_out(profile, can_run, run, self._now, limit_s)
        return rows

    def finished(self, batch: int, results: Sequence[Result]) -> None:
        """A batch of the warm-up has ended."""
        found = self._running.pop(batch, None)
        if found is not None and not found[1].done():
            found[1].set_result(results)
        else:
            self._release(results)

    def lost(self, instance: int, error: str) -> None:
        """An instance is gone, perhaps one that runs an example."""
        for batch, (its, waiting) in list(self._running.items()):
            if its == instance:
                del self._running[batch]
                if not waiting.done():
                    waiting.set_exception(UnmeasurableError(error))

    async def _call(self, function: str, stage: str, argument: Value) -> Result:
        """One invocation on the first instance of a function that is ready; one of a kernel is started for it."""
        if not self._pool.ready_instances(function) and self._controller.scenario.functions[function].buffers:
            await self._load(function)
        return (await self._run(self._first(function), [stage], [argument]))[0]

    async def _load(self, function: str) -> None:
        """Have a kernel compiled and loaded on one device, so that its first request finds it compiled."""
        view = self._controller.view
        configuration = view.profile(function).cheapest()
        node = view.place(function, configuration, "fresh", evicts=True)
        if node is not None:
            self._order(Warm(function, configuration, node))
        while node is not None and not self._pool.ready_instances(function):
            error = self._pool.failing().get(function)
            if error is not None:
                raise UnmeasurableError(error)
            await asyncio.sleep(_LOOK_S)

    def _first(self, function: str) -> int:
        instances = self._pool.ready_instances(function)
        if not instances:
            raise UnmeasurableError("it has no instance before its first request")
        return instances[0]

    async def _run(self, instance: int, stages: Sequence[str], inputs: Sequence[Value]) -> Sequence[Result]:
        """One batch on an instance."""
        batch = self._next_batch
        self._next_batch -= 1
        waiting: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._running[batch] = instance, waiting
        self._instances.run(batch, instance, stages, inputs)
        results = await waiting
        failed = next((result for result in results if not result.ok), None)
        if len(results) != len(inputs) or failed is not None:
            self._release(results)
            raise UnmeasurableError((failed.error if failed else None) or "it failed")
        return results

    def _release(self, results: Sequence[Result]) -> None:
        for result in results:
            self._instances.values.release(result.value)
