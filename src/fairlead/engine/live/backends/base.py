"""The contract of a back end: where instances run. `local` is the reference.

All calls come from, and all reports go to, the thread of the event loop. A back end reports every instance it was told
to start: ready or lost; and every batch: finished, or its instance lost.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fairlead.engine.live.values import Result, Value
from fairlead.model import Cluster, Configuration
from fairlead.monitor import Place


class Reports(Protocol):
    """Whom a back end tells what happened."""

    def ready(self, instance: int) -> None:
        """The instance has started."""
        ...

    def finished(self, batch: int, results: Sequence[Result], work_s: float) -> None:
        """A batch has ended; `work_s` is how long the function itself took."""
        ...

    def lost(self, instance: int, error: str) -> None:
        """The instance ended by itself, or could not start, with whatever ran on it."""
        ...


class Backend(Protocol):
    """Runs instances."""

    def capacity(self) -> Cluster:
        """The nodes there are."""
        ...

    async def open(self, reports: Reports) -> None:
        """Get ready to start instances."""
        ...

    def places(self) -> Sequence[Place]:
        """Where its nodes are on this machine, once it is open; none of those that are elsewhere."""
        ...

    def start(self, instance: int, function: str, configuration: Configuration, node: str) -> None:
        """Start an instance of a function; it reports `ready` or `lost`."""
        ...

    def run(self, batch: int, instance: int, stages: Sequence[str], inputs: Sequence[Value]) -> None:
        """Run a batch on an instance that is ready: one "workflow/stage" and one input per invocation."""
        ...

    def resize(self, instance: int, vcpus: float) -> None:
        """Give a running instance another CPU limit."""
        ...

    def cpu_s(self) -> Mapping[str, float]:
        """CPU time that the instances of each function have used so far, ended ones included, where it is known."""
        ...

    def stop(self, instance: int, now: bool) -> None:
        """End an instance: at once, or after what it runs. Nothing more is reported of it."""
        ...

    def put(self, data: bytes) -> Value:
        """A value that came from outside, as instances take it: a large one is kept where they can read it."""
        ...

    def release(self, value: Value) -> None:
        """A value is not needed any more: what it holds outside of itself may go."""
        ...

    async def close(self) -> None:
        """End every instance and free everything."""
        ...
