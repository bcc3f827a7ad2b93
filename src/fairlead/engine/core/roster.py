"""The roster: which nodes were asked for, came and left, and how many there may be."""

from collections import deque
from collections.abc import Iterable

from fairlead.engine.core.capacity import NodeState
from fairlead.model import Node, NodeLife
from fairlead.workload import Scenario


class Roster:
    """Keeps the lives of nodes, and the bounds that a scenario sets to their number."""

    __slots__ = ("_asked", "_ended", "_growth", "_is_changed", "_living", "_usd_per_hour")

    def __init__(self, scenario: Scenario) -> None:
        cluster = scenario.cluster
        self._growth = scenario.growth
        self._is_changed = False
        self._usd_per_hour = {
            kind: self._growth[kind].node_usd_per_hour(node, cluster.price)
            if kind in self._growth
            else 3600 * cluster.price.usd_per_s(node.vcpus, sum(device.vgpus for device in node.devices))
            for kind, node in cluster.kinds.items()
        }
        self._asked: dict[str, deque[float]] = {kind: deque() for kind in cluster.kinds}
        self._living = {node.name: (node.kind, 0.0, 0.0) for node in cluster.nodes}  # kind, asked, joined
        self._ended: list[NodeLife] = []

    def growth_refusal(self, kind: str, nodes: Iterable[NodeState]) -> str | None:
        """Why no more nodes of a kind can be asked for; None if one can."""
        bounds = self._growth.get(kind)
        if bounds is None:
            return None if not self._growth else f"nodes of kind {kind!r} are not among those that may be asked for"
        there = sum(node.is_up and node.kind == kind for node in nodes) + len(self._asked[kind])
        return None if there < bounds.most else f"there are {there} nodes of kind {kind!r} already, up or coming"

    def shrink_refusal(self, kind: str, open_nodes: int) -> str | None:
        """Why none of the nodes of a kind that take work can be given back; None if one can."""
        bounds = self._growth.get(kind)
        if bounds is None:
            return None if not self._growth else f"nodes of kind {kind!r} are not among those that may be given back"
        return None if open_nodes > bounds.least else f"at least {bounds.least} nodes of kind {kind!r} must stay"

    def ask(self, kind: str, now: float) -> None:
        """Note that a node was asked for."""
        self._is_changed = True
        self._asked[kind].append(now)

    def join(self, node: Node, now: float, is_new: bool) -> None:
        """Note that a node came: a new one is the first that was asked for and has not come."""
        asked = self._asked.get(node.kind)
        self._living[node.name] = (node.kind, asked.popleft() if asked and is_new else now, now)

    def leave(self, name: str, now: float, *, is_given_back: bool) -> None:
        """Note that a node was lost or given back."""
        self._is_changed |= is_given_back
        kind, asked, joined = self._living.pop(name)
        self._ended.append(self._life(name, kind, asked, joined, now))

    def lives(self) -> tuple[NodeLife, ...]:
        """All nodes in the order in which they were asked for, then by name.

        None if the cluster had to stay as it was declared, and did.
        """
        if not self._growth and not self._is_changed:
            return ()
        living = [self._life(name, *life, None) for name, life in self._living.items()]
        coming = [self._life("", kind, at, None, None) for kind, asked in self._asked.items() for at in asked]
        return tuple(sorted(self._ended + living + coming, key=lambda life: (life.asked, life.node)))

    def _life(self, name: str, kind: str, asked: float, joined: float | None, left: float | None) -> NodeLife:
        usd_per_hour = self._usd_per_hour.get(kind, 0.0)
        return NodeLife(node=name, kind=kind, asked=asked, joined=joined, left=left, usd_per_hour=usd_per_hour)
