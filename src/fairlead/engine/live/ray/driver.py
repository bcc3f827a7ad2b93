"""The Ray driver: `python -m fairlead.engine.live.ray.driver`, a process of its own beside the gateway.

Ray's client ends its process in some failures of the cluster, so it never runs in the gateway: that one starts another
driver, and serves on meanwhile. Every half second the driver looks at Ray's nodes and makes what is there what should
be there: one agent on each node. It ends with its standard input and leaves the agents to the next driver.
"""

import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from time import monotonic

import msgspec
import ray
from ray._private.state import available_resources_per_node
from ray.autoscaler.sdk import request_resources
from ray.util import get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from fairlead.engine.live.ray import messages as say
from fairlead.engine.live.ray.keeper import keeper_actor
from fairlead.engine.live.ray.kinds import RayNode, name_of, node_of, reserved, selector_of
from fairlead.engine.live.worker import die_with
from fairlead.model import Device

_LOOK_S = 0.5
_ANSWER_S = 10.0  # for an actor to answer
_PATIENCE_S = 10.0  # after which a reservation that Ray has not made is worth a line, or is denied to an instance
_AGAIN_S = 2.0  # between two agents of one node
_REACH_S = 5.0


class _Kept:
    """A node with its agent."""

    def __init__(
        self, node: RayNode, bundle: dict[str, float], actor: "ray.actor.ActorHandle", devices: tuple[Device, ...]
    ) -> None:
        self.ray = node
        self.node = node_of(node, bundle, devices)
        self.template = (bundle, selector_of(node))  # what an autoscaler is asked for, for this node to stay
        self.actor = actor
        self.over = actor.over.remote()
        self.began = monotonic()


class _Held:
    """What is reserved for one instance."""

    def __init__(self, group: "ray.util.placement_group.PlacementGroup") -> None:
        self.group = group
        self.until = monotonic() + _PATIENCE_S
        self.is_told = False


class Driver:
    """Keeps an agent on every node of a Ray cluster.

    Args:
        order: What to do.
        tell: Passes a message on to the gateway.
    """

    def __init__(self, order: say.Open, tell: Callable[[say.FromDriver], None]) -> None:
        self._order = order
        self._tell = tell
        self._keeper = keeper_actor()
        self._kept: dict[str, _Kept] = {}  # by id of the node
        self._names: dict[str, str] = {}  # ids of nodes by name, also of those without an agent
        self._left = set(order.left)  # names of nodes that were given back
        self._not_before: dict[str, float] = {}
        self._holds: dict[str, _Held] = {}
        self._wanted: list[str] = []  # kinds of nodes that were asked of the autoscaler and have not come yet
        self._has_asked = False
        self._known: set[str] = set()  # ids of nodes that had an agent
        self._templates: dict[str, tuple[dict[str, float], dict[str, str]]] = {}  # by kind: of its largest node
        self._told: tuple[object, ...] | None = None
        self._complaints: set[str] = set()

    def take(self, message: say.ToDriver) -> None:
        """Do what the gateway asks for."""
        if isinstance(message, say.Grow):
            self._grow(message.kind)
        elif isinstance(message, say.Shrink):
            self._left.add(message.node)
            self._request()
        elif isinstance(message, say.Hold):
            self._hold(message)
        elif isinstance(message, say.Free):
            held = self._holds.pop(message.key, None)
            if held is not None:
                remove_placement_group(held.group)

    def look(self) -> None:
        """Make what is there what should be there."""
        alive = {one["NodeID"]: one for one in ray.nodes() if one["Alive"]}
        for id in [id for id in self._kept if id not in alive]:
            kept = self._kept.pop(id)
            self._tell(say.Dead(kept.node.name))
            self._remove(id)
        for id, kept in list(self._kept.items()):
            if ray.wait([kept.over], timeout=0)[0]:
                del self._kept[id]
                self._remove(id)
                self._not_before[id] = monotonic() + _AGAIN_S
                if kept.node.name not in self._left:
                    self._say(f"the agent of Ray node {kept.node.name} has ended; another is started")
        now = monotonic()
        new = [id for id in alive if id not in self._kept and self._not_before.get(id, 0.0) <= now]
        if new:
            free = available_resources_per_node()
            for id in new:
                self._begin(_described(alive[id], free.get(id, {})))
        self._look_at_holds()
        found = tuple(kept.node for kept in self._kept.values() if kept.node.name not in self._left)
        if found != self._told:
            self._told = found
            self._tell(say.Found(found))

    def close(self) -> None:
        """End every agent, and free everything."""
        ends = [kept.actor.end.remote() for kept in self._kept.values()]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_ANSWER_S)
        for held in self._holds.values():
            remove_placement_group(held.group)
        for id in list(self._kept):
            self._remove(id)
        if self._has_asked:
            request_resources(bundles=[])

    # --- agents ----------------------------------------------------------------------------------------------------

    def _begin(self, node: RayNode) -> None:
        """Start the agent of a node, or find the one that a former driver started."""
        self._names[name_of(node)] = node.id
        if name_of(node) in self._left:
            return
        name = self._name(node.id)
        with suppress(ValueError):  # there is none
            actor = ray.get_actor(name)
            bundle = dict(get_placement_group(name).bundle_specs[0])
            if self._is_current(actor, node, bundle):
                self._keep(node, bundle, actor)
                return
            self._remove(node.id)
            self._not_before[node.id] = monotonic() + _AGAIN_S  # until what it reserved is free again
            return
        bundle = reserved(node, self._order.share)
        if not bundle:
            if node.total.get("CPU"):
                self._complain(node, "none of its CPUs is free; it is used when some are")
            return
        try:
            order = self._line(node, bundle)
        except ValueError as error:
            self._complain(node, str(error))
            return
        taken = {"CPU": 0.001} if self._order.share.by_instance else bundle
        group = placement_group(
            [taken],
            strategy="STRICT_PACK",
            name=name,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": node.id}],
        )
        actor = self._keeper.options(
            name=name,
            lifetime="detached",
            num_gpus=taken.get("GPU", 0),
            runtime_env={"pip": list(self._order.pip)} if self._order.pip else None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=group),
        ).remote(order, self._digest(order))
        self._keep(node, bundle, actor)

    def _keep(self, node: RayNode, bundle: dict[str, float], actor: "ray.actor.ActorHandle") -> None:
        kept = self._kept[node.id] = _Kept(node, bundle, actor, self._order.devices)
        known = self._templates.get(kept.node.kind)
        if known is None or known[0]["CPU"] < bundle["CPU"]:
            self._templates[kept.node.kind] = kept.template
        if node.id not in self._known:
            self._known.add(node.id)
            if kept.node.kind in self._wanted:
                self._wanted.remove(kept.node.kind)
        self._request()

    def _is_current(self, actor: "ray.actor.ActorHandle", node: RayNode, bundle: dict[str, float]) -> bool:
        if self._order.share.by_instance:
            bundle = reserved(node, self._order.share)
        try:
            return bool(ray.get(actor.digest.remote(), timeout=_ANSWER_S) == self._digest(self._line(node, bundle)))
        except (ray.exceptions.RayError, ValueError, KeyError):
            return False

    def _line(self, node: RayNode, bundle: dict[str, float]) -> bytes:
        order = self._order
        return say.line_of(
            say.NodeOrder(
                join=order.join,
                token=order.token,
                node=node_of(node, bundle, order.devices),
                folder=f"/tmp/fairlead-{os.getuid()}-{order.owner}/{node.id}",
                certificate=order.certificate,
                key=order.key,
                limits=order.limits,
            )
        )

    def _remove(self, id: str) -> None:
        """Free what is reserved on a node; the actor there ends with it."""
        name = self._name(id)
        with suppress(ValueError):
            ray.kill(ray.get_actor(name))
        with suppress(ValueError):
            remove_placement_group(get_placement_group(name))

    def _digest(self, order: bytes) -> str:
        return sha256(order + msgspec.json.encode(self._order.pip)).hexdigest()

    def _name(self, id: str) -> str:
        return f"fairlead-{self._order.owner}-{id}"

    # --- growing and shrinking -------------------------------------------------------------------------------------

    def _grow(self, kind: str) -> None:
        """Take back a node of the kind that was given back and is still there, or ask the autoscaler for another."""
        alive = {one["NodeID"]: one for one in ray.nodes() if one["Alive"]}
        for name in sorted(self._left):
            found = alive.get(self._names.get(name, ""))
            if found is not None and self._kind(found) == kind:
                self._left.discard(name)
                return
        if kind not in self._templates:
            self._say(f"Ray cannot be asked for a node of kind {kind}: none of this kind has been seen")
            return
        self._wanted.append(kind)
        self._has_asked = True
        self._request()

    def _request(self) -> None:
        """Tell the autoscaler which nodes there should be: those in use and those to come. It holds until the next."""
        if not self._has_asked:
            return
        kept = [one.template for one in self._kept.values() if one.node.name not in self._left]
        asked = [*kept, *(self._templates[kind] for kind in self._wanted)]
        labels = [selector for _, selector in asked]
        bundles = [{name: amount for name, amount in bundle.items() if name != "memory"} for bundle, _ in asked]
        request_resources(bundles=bundles, bundle_label_selectors=labels if any(labels) else None)

    def _kind(self, found: dict[str, object]) -> str:
        return node_of(_described(found, {}), {"CPU": 1.0}).kind

    # --- instances that reserve for themselves ---------------------------------------------------------------------

    def _hold(self, order: say.Hold) -> None:
        node = self._names.get(order.node)
        if node is None:
            self._tell(say.Denied(order.key, f"Ray has no node {order.node}"))
            return
        bundle = {"CPU": order.vcpus} | ({"GPU": order.vgpus} if order.vgpus else {})
        group = placement_group([bundle], strategy="STRICT_PACK", bundle_label_selector=[{"ray.io/node-id": node}])
        self._holds[order.key] = _Held(group)
        if group.wait(0.2):
            self._holds[order.key].is_told = True
            self._tell(say.Held(order.key))

    def _look_at_holds(self) -> None:
        for key, held in list(self._holds.items()):
            if held.is_told:
                continue
            if held.group.wait(0.0):
                held.is_told = True
                self._tell(say.Held(key))
            elif monotonic() > held.until:
                del self._holds[key]
                remove_placement_group(held.group)
                self._tell(say.Denied(key, "Ray has no room for it on its node"))

    # --- words -----------------------------------------------------------------------------------------------------

    def _complain(self, node: RayNode, what: str) -> None:
        """Say once why a node is not used."""
        line = f"Ray node {name_of(node)} is not used: {what}"
        if line not in self._complaints:
            self._complaints.add(line)
            self._say(line)

    def _say(self, line: str) -> None:
        self._tell(say.Said(line))


def _described(found: dict[str, object], free: dict[str, float]) -> RayNode:
    plain = {
        "id": found["NodeID"],
        "host": found.get("NodeManagerHostname") or found.get("NodeManagerAddress") or "node",
        "labels": found.get("Labels") or {},
        "total": found.get("Resources") or {},
        "free": free,
    }
    return msgspec.convert(plain, RayNode)


def _reach(address: str) -> None:
    """Raise OSError unless something listens at a Ray address: Ray itself would try for more than a minute."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), _REACH_S).close()


def main(gateway: int) -> int:
    """Serve the gateway of this process id until it is gone."""
    die_with(gateway)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    with open(os.devnull, "wb") as nowhere:  # Ray prints pages of a raylet's own log when one has died
        os.dup2(nowhere.fileno(), 1)

    def tell(message: say.FromDriver) -> None:
        out.write(say.line_of(message))

    order = say.to_driver.decode(sys.stdin.buffer.readline())
    assert isinstance(order, say.Open)
    try:
        _reach(order.address)
        ray.init(
            address=order.address,
            namespace=f"fairlead-{order.owner}",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        tell(say.Said(f"Ray at {order.address} cannot be joined: {error}"))
        return 1
    orders: queue.Queue[say.ToDriver | None] = queue.Queue()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    driver = Driver(order, tell)
    due = monotonic()
    while True:
        if monotonic() >= due:
            driver.look()
            due = monotonic() + _LOOK_S
        try:
            message = orders.get(timeout=max(0.0, due - monotonic()))
        except queue.Empty:
            continue
        if message is None:
            return 0
        if isinstance(message, say.Close):
            driver.close()
            tell(say.Closed())
            return 0
        driver.take(message)


def _read(orders: "queue.Queue[say.ToDriver | None]") -> None:
    for line in sys.stdin.buffer:
        orders.put(say.to_driver.decode(line))
    orders.put(None)


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(code)  # Ray's own exit waits for a cluster that may be gone
