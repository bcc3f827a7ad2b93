"""Leases: how the apps of one gateway share its nodes, so that nothing is promised twice.

Each *member* (one generation of an app, with its own controller) may use its lease of every node. The ledger moves
capacity between them. It lowers one lease, waits until that much is free at the member that had it, and raises another:
the leases of a node, or what is in use where that is more, never exceed the node.

Who gets what, of each resource alike, is decided in layers. Each layer is shared by weighted max-min (every
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

Layers share in *quanta*: a vCPU and a half does not run two functions of one vCPU each. A member's quantum is enough
for any of its functions in the smallest size, and for waiting work in the size that it waits for. What is left over
after whole quanta goes to the members that have had least for their weight. There is one order for all resources of a
node, so the member that is due first gets a whole quantum of each of them at the same time. It is looked at once per
slice, so members take turns where a node is too small for all of them at once.

Accelerators are leased too, one resource per device. Those that are shared in fractions (MPS, time slices) are leased
in vGPUs, and the device's memory goes along in proportion. A MIG device belongs to one member at a time: its slices lie
at fixed places, and can only be cut anew by whoever has all of them.

There is no clock and no I/O here: the caller passes the time and acts the changes out.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from fairlead.engine.core.capacity import UNLIMITED
from fairlead.engine.live.demand import Amount, Demand, Need
from fairlead.engine.live.leased_node import LeasedNode, Member
from fairlead.model import Node


class Change(msgspec.Struct, frozen=True):
    """A member's lease of a node is this from now on."""

    member: int
    node: str
    vcpus: float
    memory_gb: float
    vgpus: tuple[float, ...] = ()  # of each device


class Ledger:
    """The leases of all members on all nodes.

    A member is taken to have the whole of every node until it is told otherwise. So its first `settle` must come before
    it starts anything.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[str, LeasedNode] = {}
        self._members: dict[int, Member] = {}
        self._reserved: Mapping[str, Amount] = {}
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
        least: Sequence[Need] = (Need(1000),),
        nodes: Iterable[Node] | None = None,
        account: str = "",
    ) -> None:
        """Let a member have a part from the next `settle` on.

        Args:
            member: Its number.
            weight: Of its claim, above 0: with twice the weight it gets twice as much where all want more.
            least: The smallest sizes in which its functions can run.
            nodes: Where it may run; those that are not known yet are added. None for every node that is known.
            account: Members of one account (generations of an app) take over what the others have had; empty for none.
        """
        if not weight > 0:
            raise ValueError(f"a weight must be above 0; got {weight}.")
        if member in self._members:
            raise ValueError(f"member {member} has joined already.")
        self._members[member] = Member(weight, least, account or str(member))
        if nodes is None:
            for found in self._nodes.values():
                self._add(found, member)
            return
        for node in nodes:
            if node.name not in self._nodes:
                self._nodes[node.name] = LeasedNode(node, self._reserved.get(node.name, Amount()))
            self._add(self._nodes[node.name], member)

    def leave(self, member: int) -> None:
        """A member has ended, and nothing of it exists any more."""
        found = self._members.pop(member, None)
        if found is not None:
            for node in self._nodes.values():
                node.remove(member, found.account)

    def reweigh(self, member: int, weight: float) -> None:
        """Give a member another weight."""
        self._members[member].weight = weight

    def reserve(self, held: Mapping[str, Amount]) -> None:
        """Lease this much of each node to no member until told otherwise: unclaimed instances hold it."""
        self._reserved = held
        for name, node in self._nodes.items():
            node.reserve(held.get(name, Amount()))

    def node_joined(self, node: Node) -> None:
        """A node can be used; members are taken to know it in full size."""
        found = self._nodes[node.name] = LeasedNode(node, self._reserved.get(node.name, Amount()))
        for member in self._members:
            self._add(found, member)

    def node_changed(self, node: Node) -> None:
        """A node has other capacities. Members must be settled before they start anything more."""
        found = self._nodes.get(node.name)
        if found is None:
            self.node_joined(node)
        else:
            found.change(node)

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
        """Whether some member's leases are all too small for one of its functions, which a whole node could hold."""
        for id, member in self._members.items():
            nodes = [node for node in self._nodes.values() if id in node.told]
            for need in member.least.sizes:
                able = [node for node in nodes if node.holds(need)]
                if able and not any(node.holds(need, node.told[id]) for node in able):
                    return True
        return False

    def is_over(self, member: int, uses: Mapping[str, Amount]) -> bool:
        """Whether a member uses more than its leases somewhere, so that others may wait for it."""
        for name, use in uses.items():
            node = self._nodes.get(name)
            told = None if node is None else node.told.get(member)
            if told is not None and any(used > lease for used, lease in zip(use.each(), told.each(), strict=False)):
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
            node.charge(now, weights)
            for id in node.told:
                node.measure(id, members[id], name, now)
            for id, told, lease in node.settle(now, weights):
                is_lower = any(new < old for new, old in zip(lease.each(), told.each(), strict=False))
                (lowered if is_lower else raised).append(_change(id, name, lease))
        return lowered + raised

    def _add(self, node: LeasedNode, member: int) -> None:
        account = self._members[member].account
        partners = [id for id, other in self._members.items() if other.account == account and id != member]
        node.add(member, account, partners)


def _change(member: int, node: str, lease: Amount) -> Change:
    memory_gb = float("inf") if lease.memory >= UNLIMITED else lease.memory / 1024
    return Change(member, node, lease.vcpus / 1000, memory_gb, tuple(vgpus / 1000 for vgpus in lease.devices))
