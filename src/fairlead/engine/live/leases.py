"""Leases: how the apps of one gateway share its nodes, so that nothing is promised twice.

Each *member* (one generation of an app, with its own controller) may use its lease of every node. The ledger moves
capacity between them. It lowers one lease, waits until that much is free at the member that had it, and raises another:
the leases of a node, or what is in use where that is more, never exceed the node.

Who gets what, of vCPUs and of memory alike, is decided in layers. Each layer is shared by weighted max-min (every
member gets the same per weight, unless it needs less) and only gets what the layers before it left:

1. what a member uses and what its waiting work could use besides; of its idle instances, one per function;
2. the memory of its other idle instances;
3. what it used or wanted within the last second, so that a lease does not move with every pause between two requests;
4. the smallest amount with which each of its functions can run, so that an idle app starts at once when it is called;
5. what it has already, since moving a lease that nothing needs is work for nothing;
6. the rest, in equal parts.

So only the first layer can take capacity from a member that used it within the last second. Idle apps keep nothing
while others want everything: a reserve would cost the others its capacity all the time, and an app that wakes up waits
for the end of one batch at most, as it would beside others in one controller.

Layers share in *quanta*: a vCPU and a half does not run two functions of one vCPU each. What is left over after whole
quanta goes to the members that have had least for their weight. This order is looked at once per slice, so members take
turns where a node is too small for all of them at once.

There is no clock and no I/O here: the caller passes the time and acts the changes out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead.engine.core.capacity import UNLIMITED, mebi, milli
from fairlead.model import Node

SLICE_S = 0.1
"""How long a member keeps a quantum before another that has had less may take it."""

RECENT_S = 1.0
"""How long a member is taken to need again what it needed last."""


class Amount(NamedTuple):
    """vCPUs in thousandths and memory in MiB, so that sums are exact."""

    vcpus: int = 0
    memory: int = 0


class Demand(msgspec.Struct, frozen=True):
    """What a member needs now.

    `uses` is what exists of its instances by node: idle ones count with their memory, terminating ones with all they
    had. `more` is what its waiting work could use besides, on whatever node. `spare` is the memory, in MiB by node, of
    idle instances that it could do without.
    """

    uses: Mapping[str, Amount] = {}
    more: Amount = Amount()
    spare: Mapping[str, int] = {}


class Change(msgspec.Struct, frozen=True):
    """A member's lease of a node is this from now on."""

    member: int
    node: str
    vcpus: float
    memory_gb: float


class _Share:
    """One member's part of one resource of one node."""

    __slots__ = ("lease", "recent", "recent_until", "served", "use", "want")

    def __init__(self) -> None:
        self.lease = 0
        self.use = self.want = 0
        self.recent, self.recent_until = 0, 0.0  # the most that it wanted within `RECENT_S`, and until when that counts
        self.served = 0.0  # what it has had while others wanted it too, per weight

    def measure(self, use: int, want: int, now: float) -> None:
        """Take in what it uses and what it wants in all."""
        self.use, self.want = use, want
        if want >= self.recent or now >= self.recent_until:
            self.recent, self.recent_until = want, now + RECENT_S


class _Member:
    """An app's generation: its weight, and the smallest amount that is of use to it."""

    __slots__ = ("demand", "least", "weight")

    def __init__(self, weight: float, least: Amount) -> None:
        self.weight = weight
        self.least = least
        self.demand = Demand()


class _Resource:
    """vCPUs or memory of one node, and the parts that members have of it."""

    __slots__ = ("_order", "_rotated", "_settled", "capacity", "shares")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.shares: dict[int, _Share] = {}
        self._order: dict[int, float] = {}  # `served` as of the last rotation
        self._rotated = self._settled = 0.0

    def settle(self, now: float, weights: Mapping[int, float], least: Mapping[int, int]) -> None:
        """Lower leases to what is due, and raise others from what is really free."""
        self._charge(now, weights)
        if self.capacity >= UNLIMITED:
            for share in self.shares.values():
                share.lease = UNLIMITED
            return
        targets = self._targets(now, weights, least)
        for id, share in self.shares.items():
            share.lease = min(share.lease, targets[id])
        free = self.capacity - sum([max(share.lease, share.use) for share in self.shares.values()])
        # Those who wait for what they want come before those who get a reserve.
        for id in sorted(targets, key=lambda id: self.shares[id].lease >= self.shares[id].want):
            share = self.shares[id]
            taken = max(share.lease, share.use)  # what it still uses beyond its lease is its own to have back
            # Below 0 where a use counts both an instance that ends and its successor: only one of them is had back.
            share.lease = max(share.lease, min(targets[id], taken + free))
            free -= max(share.lease, share.use) - taken

    def _charge(self, now: float, weights: Mapping[int, float]) -> None:
        """Note what members had while not all could have what they wanted."""
        passed_s = now - self._settled
        self._settled = now
        wanting = [id for id, share in self.shares.items() if share.want > 0]
        if sum([self.shares[id].want for id in wanting]) > self.capacity:
            for id in wanting:
                share = self.shares[id]
                share.served += passed_s * max(share.use, min(share.lease, share.want)) / weights[id]
        if now - self._rotated >= SLICE_S or self._order.keys() != self.shares.keys():
            self._rotated = now
            self._order = {id: share.served for id, share in self.shares.items()}

    def welcome(self, id: int, share: _Share) -> None:
        """A member wants something again: it has no claim for the time in which it wanted nothing."""
        others = [other.served for key, other in self.shares.items() if other.want > 0 and key != id]
        share.served = max(share.served, min(others, default=share.served))
        self._order[id] = share.served

    def _targets(self, now: float, weights: Mapping[int, float], least: Mapping[int, int]) -> dict[int, int]:
        """What each member should have, layer by layer."""
        shares = self.shares
        targets = dict.fromkeys(shares, 0)
        recent = {id: s.recent if now < s.recent_until else 0 for id, s in shares.items()}
        layers: Iterable[Mapping[int, int]] = (
            {id: share.want for id, share in shares.items()},
            {id: share.use for id, share in shares.items()},
            recent,
            least,
            {id: share.lease for id, share in shares.items()},
        )
        order = sorted(shares, key=lambda id: (self._order.get(id, 0.0), -shares[id].lease, id))
        left = self.capacity
        for layer in layers:
            if left <= 0:
                return targets
            left -= _fill(targets, layer, left, weights, least, order, self._order)
        _fill(targets, dict.fromkeys(shares, self.capacity), left, weights, {}, order, self._order)
        return targets


def _fill(
    targets: dict[int, int],
    limits: Mapping[int, int],
    left: int,
    weights: Mapping[int, float],
    quanta: Mapping[int, int],
    order: Sequence[int],
    served: Mapping[int, float],
) -> int:
    """Raise targets towards their limits with what is left, by weighted max-min in whole quanta; returns how much.

    A member's target plus all it is given counts, so one that has more already gets less of this. Each gets a quantum
    first, whatever its weight; where that is not possible, they take turns. What remains after whole quanta goes round
    in the given order.
    """
    short = [id for id in order if targets[id] < limits[id]]
    if not short:
        return 0
    missing = sum([limits[id] - targets[id] for id in short])
    if missing <= left:
        for id in short:
            targets[id] = limits[id]
        return missing
    before = left
    first = {id: max(0, min(quanta.get(id) or 1, limits[id]) - targets[id]) for id in short}
    if sum(first.values()) > left:
        return _take_turns(targets, limits, left, weights, quanta, short, served)
    for id in short:
        targets[id] += first[id]
        left -= first[id]
    short = [id for id in short if targets[id] < limits[id]]
    if not short:
        return before - left
    level = _level({id: (targets[id], limits[id], weights[id]) for id in short}, left)
    for id in short:
        due = min(limits[id], int(level * weights[id] + 1e-6))
        quantum = quanta.get(id) or 1
        if due < limits[id]:
            due -= due % quantum
        given = min(left, max(0, due - targets[id]))
        targets[id] += given
        left -= given
    is_stuck = False
    while left > 0 and not is_stuck:
        is_stuck = True
        for id in short:
            step = min(quanta.get(id) or 1, limits[id] - targets[id])
            if 0 < step <= left:
                targets[id] += step
                left -= step
                is_stuck = False
    return before - left


def _take_turns(
    targets: dict[int, int],
    limits: Mapping[int, int],
    left: int,
    weights: Mapping[int, float],
    quanta: Mapping[int, int],
    order: Sequence[int],
    served: Mapping[int, float],
) -> int:
    """Give quantum after quantum to the member that has had least for its weight, this slice included."""
    before, candidates = left, list(order)
    while candidates:
        id = min(candidates, key=lambda id: served.get(id, 0.0) + targets[id] * SLICE_S / weights[id])
        step = min(quanta.get(id) or 1, limits[id] - targets[id])
        if 0 < step <= left:
            targets[id] += step
            left -= step
        else:
            candidates.remove(id)
    return before - left


def _level(members: Mapping[int, tuple[int, int, float]], amount: int) -> float:
    """The amount per weight up to which members can be raised, given each one's amount, limit and weight."""
    steps = sorted({edge for now, limit, weight in members.values() for edge in (now / weight, limit / weight)})
    level, left = steps[0], float(amount)
    for upper in steps[1:]:
        rising = sum([weight for now, limit, weight in members.values() if now / weight <= level < limit / weight])
        if rising and (upper - level) * rising >= left:
            return level + left / rising
        left -= (upper - level) * rising
        level = upper
    return level


class _LeasedNode:
    """The two resources of a node, and what members were told last."""

    __slots__ = ("memory", "told", "vcpus")

    def __init__(self, node: Node) -> None:
        self.vcpus = _Resource(milli(node.capacity_vcpus))
        self.memory = _Resource(mebi(node.memory_gb))
        self.told: dict[int, Amount] = {}

    @property
    def resources(self) -> tuple[_Resource, _Resource]:
        """Both, in the order of `Amount`."""
        return self.vcpus, self.memory

    @property
    def whole(self) -> Amount:
        """All that it has."""
        return Amount(self.vcpus.capacity, self.memory.capacity)


class Ledger:
    """The leases of all members on all nodes.

    A member is taken to have the whole of every node until it is told otherwise. So its first `settle` must come before
    it starts anything.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, _LeasedNode] = {}
        self._members: dict[int, _Member] = {}
        for node in nodes:
            self.node_joined(node)

    @property
    def is_shared(self) -> bool:
        """Whether there is more than one member; a single one has everything."""
        return len(self._members) > 1

    def join(
        self,
        member: int,
        weight: float = 1.0,
        least: Amount = Amount(1000),
        nodes: Iterable[Node] | None = None,
    ) -> None:
        """Let a member have a part from the next `settle` on.

        Args:
            member: Its number.
            weight: Of its claim, above 0: with twice the weight it gets twice as much where all want more.
            least: The smallest amounts with which each of its functions can run.
            nodes: Where it may run; those that are not known yet are added. None for every node that is known.
        """
        if not weight > 0:
            raise ValueError(f"a weight must be above 0; got {weight}.")
        if member in self._members:
            raise ValueError(f"member {member} has joined already.")
        self._members[member] = _Member(weight, least)
        if nodes is None:
            for found in self._nodes.values():
                self._add(found, member)
            return
        for node in nodes:
            if node.name not in self._nodes:
                self._nodes[node.name] = _LeasedNode(node)
            self._add(self._nodes[node.name], member)

    def leave(self, member: int) -> None:
        """A member has ended, and nothing of it exists any more."""
        self._members.pop(member, None)
        for node in self._nodes.values():
            for resource in node.resources:
                resource.shares.pop(member, None)
            node.told.pop(member, None)

    def reweigh(self, member: int, weight: float) -> None:
        """Give a member another weight."""
        self._members[member].weight = weight

    def node_joined(self, node: Node) -> None:
        """A node can be used; members are taken to know it in full size."""
        found = self._nodes[node.name] = _LeasedNode(node)
        for member in self._members:
            self._add(found, member)

    def node_changed(self, node: Node) -> None:
        """A node has other capacities. Members must be settled before they start anything more."""
        found = self._nodes.get(node.name)
        if found is None:
            self.node_joined(node)
            return
        found.vcpus.capacity, found.memory.capacity = milli(node.capacity_vcpus), mebi(node.memory_gb)
        found.told = dict.fromkeys(found.told, Amount(-1, -1))  # they have heard of the whole of it since

    def node_lost(self, name: str) -> None:
        """A node is gone."""
        self._nodes.pop(name, None)

    def lease(self, member: int, node: str) -> Amount:
        """What a member may use of a node now."""
        return self._nodes[node].told[member]

    def find(self, member: int, node: str) -> Amount | None:
        """The same; None where it has no lease."""
        return self._nodes[node].told.get(member)

    def nodes(self) -> tuple[str, ...]:
        """The nodes that are known."""
        return tuple(self._nodes)

    def is_starved(self) -> bool:
        """Whether some member's lease of every node is too small for its functions."""
        for id, member in self._members.items():
            leases = [node.told[id] for node in self._nodes.values() if id in node.told]
            least = member.least
            if leases and not any(each.vcpus >= least.vcpus and each.memory >= least.memory for each in leases):
                return True
        return False

    def is_over(self, member: int, uses: Mapping[str, Amount]) -> bool:
        """Whether a member uses more than its leases somewhere, so that others may wait for it."""
        for name, use in uses.items():
            node = self._nodes.get(name)
            told = None if node is None else node.told.get(member)
            if told is not None and (use.vcpus > told.vcpus or use.memory > told.memory):
                return True
        return False

    def settle(self, now: float, demands: Mapping[int, Demand]) -> list[Change]:
        """Share every node by what members need now. Returns what changed: lowered leases first, then raised ones.

        A member that is not among the demands is taken to need what it needed last.
        """
        members = self._members
        for id, demand in demands.items():
            if id in members:
                members[id].demand = demand
        weights = {id: member.weight for id, member in members.items()}
        lowered: list[Change] = []
        raised: list[Change] = []
        for name, node in self._nodes.items():
            self._measure(now, name, node)
            node.vcpus.settle(now, weights, {id: member.least.vcpus for id, member in members.items()})
            node.memory.settle(now, weights, {id: member.least.memory for id, member in members.items()})
            for id, told in list(node.told.items()):
                lease = Amount(node.vcpus.shares[id].lease, node.memory.shares[id].lease)
                if lease != told:
                    node.told[id] = lease
                    is_lower = lease.vcpus < told.vcpus or lease.memory < told.memory
                    (lowered if is_lower else raised).append(
                        Change(id, name, lease.vcpus / 1000, _gigabytes(lease.memory))
                    )
        return lowered + raised

    def _add(self, node: _LeasedNode, member: int) -> None:
        for resource in node.resources:
            resource.shares[member] = _Share()
        node.told[member] = node.whole

    def _measure(self, now: float, name: str, node: _LeasedNode) -> None:
        """Note what members use and want of a node. Waiting work may go to any node, and so is wanted on each."""
        for id, member in self._members.items():
            if id not in node.told:
                continue
            demand = member.demand
            use, spare = demand.uses.get(name, Amount()), (0, demand.spare.get(name, 0))
            for resource, used, wanted, idle in zip(node.resources, use, demand.more, spare, strict=True):
                share = resource.shares[id]
                want = min(resource.capacity, used - idle + wanted)
                if want > 0 and share.want <= 0:
                    resource.welcome(id, share)
                share.measure(used, want, now)


def _gigabytes(memory: int) -> float:
    return float("inf") if memory >= UNLIMITED else memory / 1024
