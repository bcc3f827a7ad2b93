"""What the gateway asks of the runtime behind it. `fairlead.engine.live.host.Host` is the one that serves for real.

All calls come from, and all answers go to, the thread of the event loop.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fairlead.app.manifest import Manifest, WorkflowSpec
from fairlead.engine.live.glance import AppGlance
from fairlead.engine.live.status import Status
from fairlead.engine.live.transit import Origin
from fairlead.engine.live.values import Ending, Value
from fairlead.model import Node


class Accepted(Protocol):
    """What a submission gives back: it names the request within its app and generation."""

    @property
    def app(self) -> str:
        """The app that runs it."""
        ...

    @property
    def generation(self) -> int:
        """Which deployment of the app."""
        ...

    @property
    def request(self) -> int:
        """Its number there."""
        ...


class Served(Protocol):
    """Apps by name, and their requests."""

    @property
    def is_ready(self) -> bool:
        """Whether every app can take requests."""
        ...

    def obstacles(self) -> tuple[str, ...]:
        """Why workflows cannot run now, as sentences; empty if all of them can."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused because the end has come."""
        ...

    def submit(
        self,
        workflow: str,
        value: Value,
        *,
        deadline_s: float | None = None,
        budget_usd: float | None = None,
        done: Callable[[Ending], None],
        late_limit_s: float | None = None,
        origin: Origin | None = None,
    ) -> Accepted:
        """Take a request; `done` is called once, later, however it ends. UnknownNameError if there is no such workflow,
        InputError if it cannot take this input.

        The deadline is in seconds from now: None for the workflow's own, infinity for none. With `late_limit_s` a
        caller waits, at most that long past the deadline; HeldAtZeroError if the workflow cannot run. Without, the
        request waits until it can. `origin` is what its caller said of it.
        """
        ...

    def cancel(self, ticket: Accepted, /) -> None:
        """End a request that is still open, with outcome "cancelled"."""
        ...

    def workflow(self, name: str) -> tuple[Manifest, WorkflowSpec]:
        """The workflow of that name, "app.workflow" or "workflow" where that is unique; else UnknownNameError."""
        ...

    def manifests(self) -> tuple[Manifest, ...]:
        """The apps there are."""
        ...

    async def deploy(self, path: Path, *, replace: bool = False) -> Manifest:
        """Start the app of a file, switch over to it, let the former generation finish what it has."""
        ...

    async def remove(self, app: str) -> None:
        """Take no more requests for an app, and end it once its open ones have ended."""
        ...

    def scale(self, app: str, function: str, instances: int | None) -> None:
        """Hold a function at a number of instances; None gives it back to the policy."""
        ...

    def move(self, app: str, function: str, node: str) -> None:
        """Bring the instances of a function to a node, without losing a request."""
        ...

    def drain_node(self, node: str) -> None:
        """Let a node take no more work, and leave; UnknownNameError, or DrainError if it cannot be."""
        ...

    def undrain_node(self, node: str) -> None:
        """Let a node be used again; UnknownNameError, or DrainError if it is not being drained."""
        ...

    def nodes(self) -> tuple[tuple[Node, str], ...]:
        """All nodes, each with its state: up, moving, draining or leaving."""
        ...

    async def look_at_devices(self) -> None:
        """Have the next status show how the devices for kernels stand now."""
        ...

    def status(self) -> Status:
        """How it all stands."""
        ...

    def glance(self) -> tuple[AppGlance, ...]:
        """What the dashboard shows of every app now."""
        ...

    def read(self, value: Value) -> object:
        """What a value stands for, decoded. May be called from any thread."""
        ...

    def encoded(self, value: Value) -> bytes:
        """A value as MessagePack. May be called from any thread."""
        ...

    def size_bytes(self, value: Value) -> int:
        """How many bytes a value has as MessagePack."""
        ...

    def release(self, value: Value) -> None:
        """A value was read and is not needed any more."""
        ...

    async def drain(self, timeout_s: float) -> bool:
        """Refuse what is new and wait for what is open; False if something was still open when time was up."""
        ...
