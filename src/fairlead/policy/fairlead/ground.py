"""Where a run goes: nodes of the right kind, warm first, away from nodes that are slow now.

Each node has a *pace*: how long runs there take compared with what was expected of them. It follows the last dozen
batches, so pressure from outside is noticed within seconds, whatever its cause. Functions that are sensitive to what
else runs on a node have this sensitivity measured, since the declared one does not say how much the others disturb.
"""

from collections.abc import Iterable

from fairlead.model import Configuration, Invocation, Node
from fairlead.policy.base import NodeChange, View
from fairlead.policy.fairlead.menu import Menu, Pair, Supply
from fairlead.policy.fairlead.nodes import UNEVEN, Ranking
from fairlead.policy.fairlead.roster import Roster

_FOLLOW = 0.12  # weight of the newest batch in the pace of its node
_MOST_SLOWDOWN = 0.7  # a run is not started beside others that would make it take this share longer, or more
_WORTH_MOVING_FOR = 0.1  # shorter transfers, relative to the run, are not avoided: the emptiest node is as good
_PRIOR = 20.0  # observations that the declared sensitivity counts for
_FORGET = 0.99


class Sensitivity:
    """How much longer runs of a function take per share of a node that others use: a regression that forgets."""

    __slots__ = ("_declared", "_load", "_load2", "_product", "_ratio", "_weight", "slope")

    def __init__(self, declared: float) -> None:
        self._declared = self.slope = declared
        self._weight = self._load = self._ratio = self._load2 = self._product = 0.0

    def observe(self, load: float, ratio: float) -> None:
        """See how long a run took, relative to the expected time, beside others that use this share."""
        self._weight = self._weight * _FORGET + 1
        self._load = self._load * _FORGET + load
        self._ratio = self._ratio * _FORGET + ratio
        self._load2 = self._load2 * _FORGET + load * load
        self._product = self._product * _FORGET + load * ratio
        spread = self._load2 - self._load**2 / self._weight
        slope = self._product - self._load * self._ratio / self._weight
        prior = _PRIOR * 0.01  # as if that many were seen with a standard deviation of 0.1 in load
        self.slope = max(0.0, (slope + prior * self._declared) / (spread + prior))


class Ground:
    """The nodes that are up, by kind, with their paces and what of them is in use by own runs."""

    def __init__(
        self, nodes: Iterable[Node], supply: Supply, roster: Roster, without: frozenset[str] = frozenset()
    ) -> None:
        self._supply = supply
        self._roster = roster
        self._without = without
        self._nodes = {node.name: node for node in nodes}
        self.pace = dict.fromkeys(self._nodes, 1.0)
        self.busy = dict.fromkeys(self._nodes, 0.0)  # share of vCPUs, or of vGPUs where a node has no vCPUs
        self._look = 0  # what found no node in this look at the cluster is not tried again
        self._sensitivity: dict[str, Sensitivity] = {}
        self._arrange()

    def _arrange(self) -> None:
        names: dict[str, list[str]] = {kind: [] for kind in self._supply.kinds}
        for node in self._nodes.values():
            names[node.kind].append(node.name)
        self._by_kind = {kind: Ranking(own, self.pace, self.busy) for kind, own in names.items()}
        self._slow = {kind: sum([self.pace[name] > UNEVEN for name in own]) for kind, own in names.items()}
        self._full = sum([self.busy[name] >= node.overcommit - 1e-9 for name, node in self._nodes.items()])
        self._slots: dict[Pair, int] = {}  # see `slots`
        self._is_plain = len(self._supply.kinds) == 1
        # Where idle instances may be evicted, a start leaves no more room than before; MIG devices may be cut anew.
        self._only_fills = not any(device.sharing == "mig" for node in self._nodes.values() for device in node.devices)

    def follow(self, changes: Iterable[NodeChange]) -> None:
        """Take in nodes that joined, were lost or changed."""
        is_changed = False
        for change in changes:
            is_changed = True
            name = change.node.name
            if change.what == "lost" or change.is_draining:
                self._nodes.pop(name, None)
                continue
            self._nodes[name] = change.node
            self.pace[name], self.busy[name] = 1.0, self.busy.get(name, 0.0)
        if is_changed:
            self._arrange()
            self._supply.count(self._nodes.values())

    def look_again(self) -> None:
        """Forget what found no node: room was given back since. What is started only takes more."""
        self._look += 1

    @property
    def is_full(self) -> bool:
        """Whether own runs take all vCPUs of all nodes, so that nothing more can be started."""
        return self._full == len(self._nodes)

    def is_closed_to(self, view: View, menu: Menu) -> bool:
        """Whether nothing of a function can be started anywhere now, even if idle instances make way."""
        return all(
            menu.blocked[menu.footprint[option]] == self._look or self._fits_nowhere(view, menu, option)
            for option in menu.footprints
        )

    def slots(self, menu: Menu, option: int) -> int:
        """How many runs of an option the nodes have room for at the same time without others, at least 1."""
        key = (menu.vcpus_each[option], menu.vgpus_each[option])
        found = self._slots.get(key)
        if found is None:
            found = self._slots[key] = max(1, sum(self._slots_of(node, *key) for node in self._nodes.values()))
        return found

    def _slots_of(self, node: Node, vcpus: float, vgpus: float) -> int:
        counts = []
        if vcpus > 0:
            counts.append(int(node.vcpus * node.overcommit / vcpus + 1e-9))
        if vgpus > 0:
            part = self._supply.part(node.kind, vgpus)
            counts.append(sum(int(device.vgpus / part + 1e-9) for device in node.devices))
        return min(counts, default=1)

    def use(self, name: str, busy: float) -> None:
        """Note which share of a node own runs use from now on."""
        node = self._nodes.get(name)
        if node is None:  # it was lost; if it comes back, what it still runs counts
            self.busy[name] = busy
            return
        before, full = self.busy[name], node.overcommit - 1e-9
        self.busy[name] = busy
        self._full += (busy >= full) - (before >= full)
        self._by_kind[node.kind].changed.add(name)

    def kind(self, node: str) -> str | None:
        """The kind of a node that is up; None of any other."""
        found = self._nodes.get(node)
        return None if found is None else found.kind

    def capacity(self, node: str) -> Pair:
        """The vCPUs and vGPUs that runs on a node can use at a time, at its speed."""
        found = self._nodes[node]
        vgpus = sum([device.vgpus for device in found.devices])
        return found.speed * found.vcpus * found.overcommit, found.speed * vgpus

    def part(self, node: str, menu: Menu, option: int) -> float:
        """The share of a node that a run uses."""
        found = self._nodes.get(node)
        if found is None:
            return 0.0
        if found.vcpus:
            return menu.vcpus_each[option] / found.vcpus
        return menu.vgpus_each[option] / sum(device.vgpus for device in found.devices)

    def _slope(self, menu: Menu) -> float:
        known = self._sensitivity.get(menu.name)
        return known.slope if known else menu.sensitivity

    def allows(self, menu: Menu, node: str) -> bool:
        """Whether what runs on a node leaves a run of this function undisturbed enough."""
        return self._slope(menu) * self.busy.get(node, 0.0) < _MOST_SLOWDOWN

    def observe(self, node: str, menu: Menu, others: float, ratio: float) -> None:
        """See how long a batch took, relative to what was expected, beside others that used this share of the node."""
        if menu.sensitivity and "sensitivity" not in self._without:
            self._sensitivity.setdefault(menu.name, Sensitivity(menu.sensitivity)).observe(others, ratio)
        if node in self.pace and "pace" not in self._without:
            before = self.pace[node]
            self.pace[node] = after = before + _FOLLOW * (min(ratio, 4.0) - before)
            if node in self._nodes:
                kind = self._nodes[node].kind
                self._slow[kind] += (after > UNEVEN) - (before > UNEVEN)
                self._by_kind[kind].changed.add(node)

    def slowest(self, kind: str, node: str) -> tuple[str, float] | None:
        """The node of a kind with the highest pace, and the pace; None if no other than this is avoided for it."""
        if not self._slow[kind] or len(self._by_kind[kind].names) == 1:
            return None
        found = self._by_kind[kind].slowest()
        return None if found is None or found[0] == node else found

    def find(
        self,
        view: View,
        menu: Menu,
        option: int,
        *,
        is_warm: bool,
        evicts: bool,
        left_s: float,
        head: Invocation | None = None,
    ) -> str | None:
        """A node where an option would be done within `left_s` seconds; None if there is none.

        The node that holds most of the input of `head` comes first where a run there ends no later, its transfer
        counted.

        Args:
            view: What is now.
            menu: The function.
            option: How it is to be run.
            is_warm: Whether an instance must be idle there.
            evicts: Whether idle instances of others may have to go.
            left_s: Time that the run may take.
            head: The first invocation of the batch to be; None where nothing is to be started.
        """
        configuration = menu.options[option][0]
        if self._is_plain and not menu.sensitivity and not self._is_uneven(menu.options[option][1]):
            nowhere, footprint, blocked = menu.nowhere[2 * is_warm + evicts], menu.footprint[option], menu.blocked
            if nowhere[footprint] == self._look or blocked[footprint] == self._look:
                return None
            if blocked[footprint] == self._look - 1 and self._fits_nowhere(view, menu, option):  # likely so again
                return None
            near = None if head is None or self._holder(view, menu, option, head) is None else head
            node = view.place(menu.name, configuration, "warm" if is_warm else "warm-first", evicts=evicts, near=near)
            if node is None:
                nowhere[footprint] = self._look
                if evicts and not is_warm:
                    blocked[footprint] = self._look
            return node
        node = self._search(view, menu, option, is_warm=is_warm, evicts=evicts, left_s=left_s)
        if node is None or head is None or (holder := self._holder(view, menu, option, head)) is None:
            return node
        return holder[0] if self._is_better(view, menu, option, holder, node, evicts=evicts, left_s=left_s) else node

    def _holder(self, view: View, menu: Menu, option: int, head: Invocation) -> tuple[str, float] | None:
        """The node that holds most of an input, and the seconds saved there, where these are worth a detour."""
        found = view.holder(head)
        return None if found is None or found[1] < _WORTH_MOVING_FOR * menu.means_s[option] else found

    def _is_better(
        self,
        view: View,
        menu: Menu,
        option: int,
        holder: tuple[str, float],
        other: str,
        *,
        evicts: bool,
        left_s: float,
    ) -> bool:
        """Whether a run is done sooner where its input lies than on another node, which needs the transfer."""
        (node, saved_s), (configuration, kind) = holder, menu.options[option]
        if node == other or self.kind(node) != kind or not self.allows(menu, node):
            return False
        if view.is_warm(menu.name, configuration, other) and not view.is_warm(menu.name, configuration, node):
            return False
        slope, mean_s = self._slope(menu), menu.means_s[option]
        here_s, there_s = (mean_s * self.pace[n] * (1 + slope * self.busy[n]) for n in (node, other))
        in_time = self.pace[node] <= 1 or mean_s * self.pace[node] <= left_s
        return here_s < there_s + saved_s and in_time and _has_room(view, menu, configuration, node, evicts=evicts)

    def _is_uneven(self, kind: str) -> bool:
        """Whether some nodes of a kind are slow and others are not. Where all are, times are believed to be longer."""
        return 0 < self._slow[kind] < len(self._by_kind[kind].names)

    def _has_choice(self, menu: Menu, kind: str) -> bool:
        """Whether a function has an instance on a node of a kind that is not slow, so that a slow one can be avoided.

        Runs without this choice are tried: without any, it would go unseen that the node is not slow any more.
        """
        if not self._slow[kind]:
            return False
        hosts = [name for name in self._roster.hosts(menu.name) if self.kind(name) == kind]
        return any(self.pace[name] <= UNEVEN for name in hosts)

    def _fits_nowhere(self, view: View, menu: Menu, option: int) -> bool:
        if view.place(menu.name, menu.options[option][0]) is not None:
            return False
        menu.blocked[menu.footprint[option]] = self._look
        return True

    def is_blocked(self, menu: Menu, option: int) -> bool:
        """Whether it is known in this look that an option does not fit anywhere, idle instances out of the way."""
        return menu.blocked[menu.footprint[option]] == self._look

    def is_closed(self, menu: Menu, *, is_warm: bool, evicts: bool) -> bool:
        """Whether it is known in this look that no option of a function finds a node: so, or started cold."""
        look, blocked, looked = self._look, menu.blocked, menu.nowhere[2 * is_warm + evicts]
        if blocked[0] != look and looked[0] != look:
            return False
        if blocked.count(look) == len(blocked):
            return True
        return all(nowhere.count(look) == len(nowhere) for nowhere in (looked, menu.nowhere[0], menu.nowhere[1]))

    def _search(self, view: View, menu: Menu, option: int, *, is_warm: bool, evicts: bool, left_s: float) -> str | None:
        """Looks at nodes in the order of preference: where they differ by speed, pace or what disturbs a run."""
        configuration, kind = menu.options[option]
        nowhere, footprint = menu.nowhere[2 * is_warm + evicts], menu.footprint[option]
        if nowhere[footprint] == self._look:
            return None
        is_late = False
        slope = self._slope(menu)
        ranking = self._by_kind[kind]
        names = ranking.names
        has_choice = self._has_choice(menu, kind)
        for wants_warm in (True,) if is_warm else (True, False):
            if wants_warm:  # they come first; of a kernel, buffers may be there without an instance
                ranks = iter(ranking) if menu.function.buffers else ranking.of(self._roster.hosts(menu.name))
            elif view.place(menu.name, configuration, "fresh") is None:
                break
            else:
                ranks = iter(ranking)
            for pace, others, place in ranks:
                if slope * others >= _MOST_SLOWDOWN:
                    continue
                node = names[place]
                if view.is_warm(menu.name, configuration, node) is not wants_warm:
                    continue
                if _has_room(view, menu, configuration, node, evicts=evicts):
                    if has_choice and pace > 1 and menu.means_s[option] * pace > left_s:
                        is_late = True
                        continue
                    return node
        if evicts and not is_late and self._only_fills and not menu.function.buffers:
            nowhere[footprint] = self._look
        return None


def _has_room(view: View, menu: Menu, configuration: Configuration, node: str, *, evicts: bool) -> bool:
    """Whether a run fits on a node now: room that an instance takes which is still starting does not count."""
    if not view.fits(menu.name, configuration, node, is_fresh=True):
        return False
    return evicts or view.fits(menu.name, configuration, node, evicts=False)
