"""One node in the ledger of leases: its resources, what members have of each, and whose turn it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from fairlead.engine.core.capacity import UNLIMITED, mebi, milli
from fairlead.engine.live.apportion import SLICE_S, Terms, fill
from fairlead.engine.live.demand import Amount, Demand, Need, Work
from fairlead.model import Node

RECENT_S = 1.0
"""How long a member is taken to need again what it needed last."""

_FORGIVEN_S = 60.0  # after which it does not matter any more what an app had before it left


class Member:
    """An app's generation: its weight, and the sizes in which each of its functions can run at least."""

    __slots__ = ("account", "demand", "least", "weight")

    def __init__(self, weight: float, least: Sequence[Need], account: str) -> None:
        self.weight = weight
        self.least = Work(tuple(least), 0)
        self.account = account
        self.demand = Demand()


class _Share:
    """One member's part of one resource of one node."""

    __slots__ = ("lease", "quantum", "recent", "recent_until", "use", "want")

    def __init__(self) -> None:
        self.lease = 0
        self.use = self.want = 0
        self.quantum = 0  # in which it can use the resource
        self.recent, self.recent_until = 0, 0.0  # the most that it wanted within `RECENT_S`, and until when that counts

    def measure(self, use: int, want: int, quantum: int, now: float) -> None:
        """Take in what it uses and what it wants in all."""
        self.use, self.want, self.quantum = use, want, quantum
        if want >= self.recent or now >= self.recent_until:
            self.recent, self.recent_until = want, now + RECENT_S


class _Resource:
    """vCPUs, memory or one device of a node, and the parts that members have of it."""

    __slots__ = ("capacity", "is_whole", "shares")

    def __init__(self, capacity: int, *, is_whole: bool = False) -> None:
        self.capacity = capacity
        self.is_whole = is_whole  # only one member can have it at a time
        self.shares: dict[int, _Share] = {}

    @property
    def is_scarce(self) -> bool:
        """Whether members want more than there is."""
        return sum([share.want for share in self.shares.values() if share.want > 0]) > self.capacity

    def rounded(self, amount: int) -> int:
        """At most all of it, and all of it or nothing where it cannot be divided."""
        return self.capacity if self.is_whole and amount > 0 else min(self.capacity, amount)

    def settle(self, now: float, weights: Mapping[int, float], order: Sequence[int], served: dict[int, float]) -> None:
        """Lower leases to what is due, and raise others from what is really free."""
        if self.capacity >= UNLIMITED:
            for share in self.shares.values():
                share.lease = UNLIMITED
            return
        targets = self._targets(now, weights, order, served)
        for id, share in self.shares.items():
            share.lease = min(share.lease, targets[id])
        free = self.capacity - sum([max(share.lease, share.use) for share in self.shares.values()])
        # Those who wait for what they want come before those who get a reserve.
        for id in sorted(targets, key=lambda id: self.shares[id].lease >= self.shares[id].want):
            share = self.shares[id]
            taken = max(share.lease, share.use)  # what it still uses beyond its lease is its own to have back
            target = targets[id] if not self.is_whole or targets[id] <= taken + free else 0
            # Below 0 where a use counts both an instance that ends and its successor: only one of them is had back.
            share.lease = max(share.lease, min(target, taken + free))
            free -= max(share.lease, share.use) - taken

    def _targets(
        self, now: float, weights: Mapping[int, float], order: Sequence[int], served: dict[int, float]
    ) -> dict[int, int]:
        """What each member should have, layer by layer."""
        shares, rounded = self.shares, self.rounded
        targets = dict.fromkeys(shares, 0)
        layers: Iterator[dict[int, int]] = iter(
            (
                {id: share.want for id, share in shares.items()},
                {id: share.use for id, share in shares.items()},
                {id: rounded(share.recent) if now < share.recent_until else 0 for id, share in shares.items()},
                {id: share.quantum for id, share in shares.items()},
                {id: share.lease for id, share in shares.items()},
            )
        )
        quanta = {id: share.quantum for id, share in shares.items()}
        terms = Terms(self.capacity, weights, quanta, order, served)
        left = self.capacity
        for layer in layers:
            if left <= 0:
                return targets
            left -= fill(targets, layer, left, terms)
        rest = dict.fromkeys(shares, self.capacity if self.is_whole else 1)
        fill(targets, dict.fromkeys(shares, self.capacity), left, terms._replace(quanta=rest))
        return targets


class LeasedNode:
    """The resources of a node, whose turn it is there, and what members were told last."""

    __slots__ = ("_left", "_order", "_reserved", "_rotated", "_settled", "resources", "served", "told", "whole")

    def __init__(self, node: Node, reserved: Amount = Amount()) -> None:
        self.resources: list[_Resource] = []
        self._reserved = reserved
        self.told: dict[int, Amount] = {}
        self.served: dict[int, float] = {}  # what members have had while others wanted it too, per weight
        self._order: dict[int, float] = {}  # `served` as of the last rotation
        self._rotated = self._settled = 0.0
        self._left: dict[str, tuple[float, float]] = {}  # by account: what its last member had had, and when it left
        self.change(node)

    def change(self, node: Node) -> None:
        """Have the capacities of this node from now on."""
        resources = [_Resource(milli(node.capacity_vcpus)), _Resource(mebi(node.memory_gb))]
        resources += [_Resource(milli(each.vgpus), is_whole=each.sharing == "mig") for each in node.devices]
        for number, resource in enumerate(resources):
            former = self.resources[number].shares if number < len(self.resources) else {}
            resource.shares = {id: former.get(id) or _Share() for id in self.told}
        self.resources = resources
        vcpus, memory, *devices = [resource.capacity for resource in resources]
        self.whole = Amount(vcpus, memory, tuple(devices))
        self.reserve(self._reserved)
        self.told = dict.fromkeys(self.told, Amount(-1, -1))  # they have heard of the whole of it since

    def reserve(self, amount: Amount) -> None:
        """Keep this much from all members: it is held by something that is none of theirs."""
        self._reserved = amount
        for resource, whole, held in zip_longest(self.resources, self.whole.each(), amount.each(), fillvalue=0):
            if isinstance(resource, _Resource) and whole < UNLIMITED:
                resource.capacity = 0 if held and resource.is_whole else max(0, whole - held)

    def add(self, id: int, account: str, partners: Iterable[int]) -> None:
        """Let a member have a part; it goes on where members of the same account are, or were when they left."""
        for resource in self.resources:
            resource.shares[id] = _Share()
        self.told[id] = self.whole
        had = [self.served[other] for other in partners if other in self.served]
        self.served[id] = self._order[id] = max([*had, self._left.get(account, (0.0, 0.0))[0]])

    def remove(self, id: int, account: str) -> None:
        """Forget a member, but not what it has had: leaving and coming back gives no new claim."""
        if id not in self.told:
            return
        for resource in self.resources:
            del resource.shares[id]
        del self.told[id], self._order[id]
        self._left[account] = self.served.pop(id), self._settled
        self._left = {key: each for key, each in self._left.items() if each[1] > self._settled - _FORGIVEN_S}

    def charge(self, now: float, weights: Mapping[int, float]) -> None:
        """Note what members had while not all could have what they wanted: of all resources, the largest share."""
        passed_s = now - self._settled
        self._settled = now
        scarce = [resource for resource in self.resources if 0 < resource.capacity < UNLIMITED and resource.is_scarce]
        for id in self.told if scarce else ():
            had = 0.0
            for resource in scarce:
                share = resource.shares[id]
                if share.want > 0:
                    had = max(had, max(share.use, min(share.lease, share.want)) / resource.capacity)
            self.served[id] += passed_s * had / weights[id]
        if now - self._rotated >= SLICE_S:
            self._rotated = now
            self._order = dict(self.served)

    def measure(self, id: int, member: Member, name: str, now: float) -> None:
        """Note what a member uses and wants. Waiting work may go to any node, and so is wanted on each that fits."""
        demand = member.demand
        uses = demand.uses.get(name, Amount()).each()
        spare = demand.spare.get(name, Amount()).each()
        quanta = list(self._largest(member.least))
        more = [0] * len(self.resources)
        for work in demand.more:
            for number, amount in enumerate(self._largest(work)):
                more[number] += work.instances * amount
                quanta[number] = max(quanta[number], amount)
        for number, resource in enumerate(self.resources):
            share = resource.shares[id]
            use = uses[number] if number < len(uses) else 0
            idle = spare[number] if number < len(spare) else 0
            want = resource.rounded(use - idle + more[number])
            if want > 0 and share.want <= 0:
                self._welcome(id, resource)
            share.measure(resource.rounded(use) if resource.is_whole else use, want, quanta[number], now)

    def settle(self, now: float, weights: Mapping[int, float]) -> Iterator[tuple[int, Amount, Amount]]:
        """Share every resource; gives the members whose lease has changed, what they had, and what they have now."""
        order = sorted(self.told, key=lambda id: (self._order[id], -self._held(id), id))
        for resource in self.resources:
            resource.settle(now, weights, order, self._order)
        for id, told in list(self.told.items()):
            vcpus, memory, *devices = [resource.shares[id].lease for resource in self.resources]
            lease = Amount(vcpus, memory, tuple(devices))
            if lease != told:
                self.told[id] = lease
                yield id, told, lease

    def holds(self, need: Need, lease: Amount | None = None) -> bool:
        """Whether an instance of this size fits into a lease, or into the whole node."""
        vcpus, memory, *devices = (self.whole if lease is None else lease).each()
        return (
            need.vcpus <= vcpus and need.memory <= memory and (not need.vgpus or need.vgpus <= max(devices, default=0))
        )

    def _largest(self, work: Work) -> tuple[int, ...]:
        """Enough of each resource for an instance in any of the sizes that fit here."""
        sizes = [size for size in work.sizes if self.holds(size)]
        if not sizes:
            return (0,) * len(self.resources)
        found = [max(size.vcpus for size in sizes), max(size.memory for size in sizes)]
        for device in self.resources[2:]:
            vgpus = max([size.vgpus for size in sizes if size.vgpus <= device.capacity], default=0)
            found.append(device.rounded(vgpus))
        return tuple(found)

    def _held(self, id: int) -> float:
        """How much of the node a member's lease is: of equals, the one that has it already keeps it."""
        return sum([each.shares[id].lease / each.capacity for each in self.resources if each.capacity])

    def _welcome(self, id: int, resource: _Resource) -> None:
        """A member wants something again: it has no claim for the time in which it wanted nothing."""
        others = [self.served[key] for key, other in resource.shares.items() if other.want > 0 and key != id]
        self.served[id] = max(self.served[id], min(others, default=0.0))
        self._order[id] = self.served[id]
