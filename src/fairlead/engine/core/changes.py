"""What happened since the dispatcher was last asked: noted as it happens, turned into values when a policy looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.engine.core.showing import shown
from fairlead.model import Invocation, Node, Record, Request
from fairlead.policy.base import Changes, Closed, NodeChange, Stopped

if TYPE_CHECKING:
    from typing import Literal

    from fairlead.engine.core.capacity import InstanceState

Row = tuple[Any, ...]

NOTHING = Changes()


class ChangeLog:
    """Collects changes between two decisions. The lists are appended to by whatever part of the core makes a change.

    `turn` is called when the dispatcher is about to be asked: what was noted until then is what `show` gives during
    the call. Policies that never look pay only for the notes.
    """

    __slots__ = ("_nodes", "_past", "_shown", "closed", "ended", "ready", "started", "stopped")

    def __init__(self) -> None:
        self.ready: list[Invocation] = []
        self.ended: list[tuple[Row, Invocation]] = []  # the row of the books, and the attempt
        self.closed: list[tuple[Request, str, float]] = []
        self.started: list[InstanceState] = []
        self.stopped: list[tuple[InstanceState, str]] = []
        self._nodes: dict[tuple[str, str], NodeChange] = {}
        self._past: tuple[Any, ...] | None = None
        self._shown = NOTHING

    def node(self, node: Node, what: Literal["joined", "lost", "changed"], is_draining: bool = False) -> None:
        """Note what happened to a node; the latest of a kind replaces earlier ones, so that idle runs keep few."""
        self._nodes.pop((node.name, what), None)
        self._nodes[node.name, what] = NodeChange(node, what, is_draining)

    def turn(self) -> None:
        """Let what was noted so far be what `show` gives."""
        ready, ended, closed, started, stopped = self.ready, self.ended, self.closed, self.started, self.stopped
        nodes = self._nodes
        past = (tuple(ready), tuple(ended), tuple(closed), tuple(started), tuple(stopped))
        self._past = (*past, tuple(nodes.values()) if nodes else ())
        ready.clear()  # at most instants nothing happened but one thing, so that loops would take longer than this
        ended.clear()
        closed.clear()
        started.clear()
        stopped.clear()
        nodes.clear()

    def show(self) -> Changes:
        """What was noted before the last `turn`."""
        past = self._past
        if past is not None:
            self._past = None
            ready, ended, closed, started, stopped, nodes = past
            self._shown = Changes(
                ready,
                tuple([record_of(row, invocation) for row, invocation in ended]),
                tuple([Closed(*each) for each in closed]),
                tuple([shown(instance) for instance in started]),
                tuple([Stopped(shown(instance), cause) for instance, cause in stopped]),
                nodes,
            )
        return self._shown


def record_of(row: Row, invocation: Invocation) -> Record:
    """A row of the books as a policy sees it."""
    _, _, _, _, item, attempt, batch, size, instance, node, device, vcpus, vgpus, ready, start, *rest = row
    cold_s, transfer_s, end, _, cost_usd, outcome = rest
    return Record(
        invocation.request,
        invocation.workflow,
        invocation.stage,
        invocation.function,
        node,
        device,
        ready,
        start,
        cold_s,
        transfer_s,
        end,
        size,
        vcpus,
        vgpus,
        cost_usd,
        invocation.deadline,
        outcome,
        invocation.id,
        item,
        attempt,
        batch,
        instance,
    )
