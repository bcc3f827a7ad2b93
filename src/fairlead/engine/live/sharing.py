"""One cluster for all apps of a gateway: measures what each needs, lets the ledger decide, and tells each its lease.

A gateway with one app pays nothing: its lease is everything, and the ledger is not asked. With several, leases are
settled at once when an app has work that does not fit into its lease, when one that has to give has given, and every
few hundredths of a second while somebody waits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fairlead.engine.live.contracts import InstanceSpec
from fairlead.engine.live.demand import Amount, Demand, Need, held_by
from fairlead.engine.live.leased_node import RECENT_S
from fairlead.engine.live.leases import Change, Ledger
from fairlead.model import Node

_LEAST_GAP_S = 0.002  # between two settlements
_WHILE_WAITING_S = 0.04  # between settlements while somebody has less than it wants


class Tenant(Protocol):
    """An app's generation, as those see it who share the cluster with it."""

    def demand(self) -> Demand:
        """What it uses, and what its waiting work could use besides."""
        ...

    def lacks_room(self) -> bool:
        """Whether it has work that does not fit into its leases. Quick: asked after every turn."""
        ...

    def lease(self, node: str, vcpus: float, memory_gb: float, vgpus: tuple[float, ...]) -> None:
        """From now on it may use this much of a node, and of each of its devices."""
        ...


class Seat:
    """The place of one generation of an app in a shared cluster."""

    def __init__(
        self, sharing: "Sharing", generation: int, app: str, weight: float, least: Sequence[Need], nodes: Iterable[Node]
    ) -> None:
        self._sharing = sharing
        self._generation = generation
        self._app = app
        self._weight = weight
        self._least = least
        self._nodes = tuple(nodes)

    def take(self, tenant: Tenant) -> None:
        """Join: the tenant is told its leases before it may start anything."""
        self._sharing.join(self._generation, self._app, self._weight, self._least, self._nodes, tenant)

    def turned(self, tenant: Tenant) -> None:
        """Something happened at the tenant."""
        if self._sharing.is_shared:
            self._sharing.turned(self._generation, tenant)

    def leave(self) -> None:
        """Nothing of the tenant exists any more."""
        self._sharing.leave(self._generation)


class Sharing:
    """The ledger of a gateway, and the apps that have leases in it. Used on the thread of the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ledger = Ledger()
        self._tenants: dict[int, Tenant] = {}
        self._apps: dict[int, tuple[str, float]] = {}  # by generation: its app, and the app's weight
        self._hungry: set[int] = set()  # those whose waiting work did not fit when they were last asked
        self._over: set[int] = set()  # those that use more than their lease
        self._settled = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        self.is_shared = False
        self.settlements = 0
        self.moves = 0

    def join(
        self, generation: int, app: str, weight: float, least: Sequence[Need], nodes: Iterable[Node], tenant: Tenant
    ) -> None:
        """Let a generation of an app have its part; all generations of an app share its weight."""
        self._ledger.join(generation, weight, least, nodes, account=app)
        self._tenants[generation] = tenant
        self._apps[generation] = app, weight
        self._reweigh()
        self.settle()

    def leave(self, generation: int) -> None:
        """A generation has ended: the others may have its part."""
        if self._tenants.pop(generation, None) is None:
            return
        self._ledger.leave(generation)
        del self._apps[generation]
        self._hungry.discard(generation)
        self._over.discard(generation)
        self._reweigh()
        if self._tenants:
            self.settle()
        elif self._timer is not None:
            self._timer.cancel()

    def reserve(self, specs: Iterable[InstanceSpec]) -> None:
        """Promise nothing of what these instances hold: they are a former gateway's, and no deployment has them."""
        self._ledger.reserve(held_by(specs))

    def node_joined(self, node: Node) -> None:
        """A node can be used, by every app."""
        self._ledger.node_joined(node)
        self.settle()

    def node_changed(self, node: Node) -> None:
        """A node has other capacities."""
        self._ledger.node_changed(node)
        self.settle()

    def node_lost(self, name: str) -> None:
        """A node is gone."""
        self._ledger.node_lost(name)

    def leases(self, generation: int) -> Mapping[str, Amount]:
        """What a generation may use, by node; empty where it shares nothing."""
        if not self.is_shared or generation not in self._tenants:
            return {}
        return {name: lease for name in self._ledger.nodes() if (lease := self._ledger.find(generation, name))}

    def turned(self, generation: int, tenant: Tenant) -> None:
        """Look at a tenant after its turn, and settle if that may help somebody."""
        is_hungry = tenant.lacks_room()
        was_hungry = generation in self._hungry
        if is_hungry:
            self._hungry.add(generation)
        else:
            self._hungry.discard(generation)
        may_get = is_hungry and not was_hungry
        may_give = generation in self._over or (bool(self._hungry) and not is_hungry)
        if may_get or may_give:
            self._settle_after(_LEAST_GAP_S)
        elif self._hungry:
            self._settle_after(_WHILE_WAITING_S)

    def settle(self) -> None:
        """Measure every tenant, share the cluster, and tell each what changed for it."""
        now = self._settled = self._clock()
        self.settlements += 1
        demands = {generation: tenant.demand() for generation, tenant in self._tenants.items()}
        changes = self._ledger.settle(now, demands)
        self.moves += len(changes)
        for change in changes:
            self._tell(change)
        self._over = {id for id, demand in demands.items() if self._ledger.is_over(id, demand.uses)}
        self._due = float("inf")
        if self.is_shared:
            if self._hungry:
                self._settle_after(_WHILE_WAITING_S)
            elif changes or self._ledger.is_starved():  # what no app needs any more goes to idle apps after a while
                self._settle_after(RECENT_S)

    def _tell(self, change: Change) -> None:
        tenant = self._tenants.get(change.member)
        if tenant is not None:
            tenant.lease(change.node, change.vcpus, change.memory_gb, change.vgpus)

    def _reweigh(self) -> None:
        living = [app for app, _ in self._apps.values()]
        for generation, (app, weight) in self._apps.items():
            self._ledger.reweigh(generation, weight / living.count(app))
        self.is_shared = len(self._tenants) > 1

    def _settle_after(self, gap_s: float) -> None:
        """Settle when this much time has passed since the last settlement, unless it is to be sooner anyway."""
        due = self._settled + gap_s
        if due >= self._due:
            return
        now = self._clock()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due <= now:
            self.settle()
            return
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(due - now, self._on_time)

    def _on_time(self) -> None:
        self._timer, self._due = None, float("inf")
        self.settle()
