"""Draining a node: its instances are started elsewhere, it takes no more work, running work ends, then it leaves.

*Moving* comes first and takes half a minute at most; the node works until then. *Draining* lasts as long as the work
that runs there, which its own run limits bound. Both can be undone; once the node is told to leave, it is gone.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from fairlead.engine.core import events as ev
from fairlead.errors import FairleadError, UnknownNameError
from fairlead.model import Node

if TYPE_CHECKING:
    from fairlead.engine.live.instances import SharedProvider

Stage = Literal["moving", "draining", "leaving"]

_LOOK_S = 0.05
_MOVE_S = 30.0  # that instances elsewhere may take to be ready


class DrainError(FairleadError):
    """A node cannot be drained, or its drain cannot be undone."""


class _Drain:
    """One node that is being drained."""

    __slots__ = ("began", "node", "stage", "timer")

    def __init__(self, node: Node, began: float) -> None:
        self.node = node
        self.began = began
        self.stage: Stage = "moving"
        self.timer: asyncio.TimerHandle | None = None


class NodeDrains:
    """The nodes that are being drained, for all deployments of a gateway.

    Args:
        shared: The deployments, and the provider that has the nodes.
        log: Gets a line for each step.
    """

    def __init__(self, shared: "SharedProvider", log: Callable[[str], None]) -> None:
        self._shared = shared
        self._log = log
        self._drains: dict[str, _Drain] = {}

    def begin(self, name: str) -> None:
        """Drain a node; again does nothing. UnknownNameError, or DrainError for the last node that takes work."""
        if name in self._drains:
            return
        nodes = {node.name: node for node in self._shared.inventory.nodes}
        if name not in nodes:
            raise UnknownNameError("node", name, [*nodes, *self._drains])
        if all(other == name or other in self._drains for other in nodes):
            raise DrainError(f"Node {name!r} is the only one that takes work; add another before it is drained.")
        drain = self._drains[name] = _Drain(nodes[name], asyncio.get_running_loop().time())
        self._log(f"node {name}: its instances are started elsewhere, then it is drained")
        self._tell(name, "move")
        self._look_later(drain)

    def undo(self, name: str) -> None:
        """Let a node be used again. UnknownNameError if there is none, DrainError if it is not drained or leaves."""
        drain = self._drains.get(name)
        if drain is None or drain.stage == "leaving":
            known = [node.name for node in self._shared.inventory.nodes]
            if drain is None and name not in known:
                raise UnknownNameError("node", name, [*known, *self._drains])
            raise DrainError(f"Node {name!r} {'is not being drained' if drain is None else 'has left already'}.")
        self.forget(name)
        if drain.stage == "draining":
            self._shared.reopen(drain.node)
        self._log(f"node {name} is used again")

    def forget(self, name: str) -> None:
        """A node is gone, or used again."""
        drain = self._drains.pop(name, None)
        if drain is not None and drain.timer is not None:
            drain.timer.cancel()

    def stages(self) -> Mapping[str, Stage]:
        """How far each node is."""
        return {name: drain.stage for name, drain in self._drains.items()}

    def nodes(self) -> tuple[Node, ...]:
        """Those that take no more work and have not left."""
        return tuple(drain.node for drain in self._drains.values() if drain.stage != "moving")

    def close(self) -> None:
        """Leave off."""
        for name in list(self._drains):
            self.forget(name)

    def _look_later(self, drain: _Drain) -> None:
        drain.timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look, drain)

    def _look(self, drain: _Drain) -> None:
        """Go a step further where it is time."""
        name, reports = drain.node.name, self._shared.reports()
        if drain.stage == "moving":
            is_late = asyncio.get_running_loop().time() - drain.began > _MOVE_S
            if is_late or not any(one.is_moving(name) for one in reports):
                drain.stage = "draining"
                self._shared.withdraw(name)
                self._tell(name, "close")
        elif all(one.has_left(name) for one in reports):
            drain.stage = "leaving"
            self._log(f"node {name} is empty and leaves")
            self._shared.provider.shrink(name)  # which reports its loss
            return
        self._look_later(drain)

    def _tell(self, name: str, stage: Literal["move", "close"]) -> None:
        for one in self._shared.reports():
            one.node_draining(ev.NodeDraining(name, stage))
