"""Runs the examples of an app once before it is served, so that the first requests do not pay for first times.

A function may compile, connect or import when it is first called. What is measured then is not how long it takes later,
and a policy that learns from it would refuse requests that it could serve. Batches of the warm-up have numbers below
zero: neither the controller nor the records hear of them.
"""

import asyncio
from collections.abc import Callable, Sequence

from fairlead.app.manifest import Manifest
from fairlead.engine.live.instances import Instances
from fairlead.engine.live.measuring.bench import UnmeasurableError
from fairlead.engine.live.measuring.examples import Examples, collect
from fairlead.engine.live.pool import WarmPool
from fairlead.engine.live.values import Result, Value

LIMIT_S = 30.0
"""How long the examples of one app may take together."""


class WarmUp:
    """Takes the examples of an app's workflows through the instances that are ready.

    Args:
        manifest: The app.
        instances: Run the batches.
        pool: Knows which instances are ready.
        log: Told of examples that fail; an app whose example fails is served nevertheless.
        lost: Told of an instance that had to be stopped.
    """

    def __init__(
        self,
        manifest: Manifest,
        instances: Instances,
        pool: WarmPool,
        log: Callable[[str], None],
        lost: Callable[[int, str], None],
    ) -> None:
        self._manifest = manifest
        self._instances = instances
        self._pool = pool
        self._log = log
        self._lost = lost
        self._next_batch = -1
        self._running: dict[int, tuple[int, asyncio.Future[Sequence[Result]]]] = {}  # by batch: its instance

    async def run(self) -> None:
        """Call the first instance of every function that an example reaches; returns after `LIMIT_S` at the latest."""
        limit_s = LIMIT_S
        if not any(workflow.example is not None for workflow in self._manifest.workflows):
            return
        examples = Examples()
        functions = [function.name for function in self._manifest.functions]
        try:
            async with asyncio.timeout(limit_s):
                await collect(self._manifest, functions, self._call, examples)
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
        """One invocation on the first instance of a function that is ready."""
        instances = self._pool.ready_instances(function)
        if not instances:
            raise UnmeasurableError("it has no instance before its first request")
        batch = self._next_batch
        self._next_batch -= 1
        waiting: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._running[batch] = instances[0], waiting
        self._instances.run(batch, instances[0], [stage], [argument])
        results = await waiting
        if len(results) != 1 or not results[0].ok:
            self._release(results)
            raise UnmeasurableError((results[0].error if results else None) or "it failed")
        return results[0]

    def _release(self, results: Sequence[Result]) -> None:
        for result in results:
            self._instances.values.release(result.value)
