"""How much of a cluster an app needs now, as its controller sees it.

Its policy chooses the size of each instance, and nothing says which size it waits for. So waiting work is counted in
the smallest size of its function, until nothing of that function has run for a while although a larger size would not
fit into any lease: then the app is taken to wait for that size, and is remembered to do so for some time.
"""

from collections.abc import Sequence

from fairlead.engine.core.capacity import UNLIMITED, NodeState, mebi, milli
from fairlead.engine.core.controller import Controller
from fairlead.engine.core.device_use import device_uses
from fairlead.engine.live.demand import Amount, Demand, Need, Work
from fairlead.model import Configuration, Function
from fairlead.workload import Scenario

PATIENCE_S = 0.25
"""How long work waits for its smallest size before it is taken to need a larger one."""

_REMEMBERED_S = 5.0  # how long it is taken to need the larger size from then on


class Needs:
    """The sizes in which the functions of an app can run, and what its waiting work could use."""

    def __init__(self, scenario: Scenario) -> None:
        self._sizes: dict[str, tuple[Need, ...]] = {}  # by function, the smallest first
        self._most: dict[str, int] = {}  # by function: its largest batch
        for name, function in scenario.functions.items():
            configurations = scenario.profiles[name].configurations
            self._sizes[name] = tuple(sorted({_size(each, function) for each in configurations}))
            self._most[name] = max(each.batch for each in configurations)
        self.least = tuple({sizes[0]: None for sizes in self._sizes.values()})  # of each function, without doubles
        self._waits_since: dict[str, float] = {}  # by function that waits, with nothing running and a size out of reach
        self._large_until: dict[str, float] = {}  # by function that is taken to need its larger sizes

    def lacks_room(self, controller: Controller, now: float, *, is_short: bool) -> bool:
        """Whether work waits, or replicas or warm instances (`is_short`) are missing, and leases may be too small."""
        if not (is_short or controller.waiting.tasks or controller.replicas.is_short):
            self._waits_since.clear()
            return False
        self._look(controller, now)
        if self._waits_since:
            return True
        nodes = [node for node in controller.nodes.values() if node.is_open]
        return not all(any(_has_room(node, need) for node in nodes) for need in self.least)

    def demand(self, controller: Controller, missing: Sequence[str], now: float) -> Demand:
        """What is used of each node, and what waiting work, missing replicas and warm instances could use besides."""
        pool, sets = controller.pool, controller.replicas.sets
        uses, spare = {}, {}
        for node in controller.nodes.values():
            if node.is_up:
                taken, idle = device_uses(pool, node)
                uses[node.name] = Amount(*pool.uses(node), taken)
                spare[node.name] = Amount(node.held, _spare_memory(controller, node), idle)
        self._look(controller, now)
        more = [Work(self._sizes[function][:1]) for function in missing]
        for (_, function), line in controller.waiting.lines().items():
            if line.size and function not in sets:  # of a scaled function, only its replicas can do more
                more += self._work(controller, function, -(-line.size // self._most[function]), now)
        if controller.replicas.is_short:
            for name, found in sets.items():
                lacking = max(0, found.target - len(found.living()))
                more.append(Work((_size(found.configuration, controller.scenario.functions[name]),), lacking))
        return Demand(uses, more, spare)

    def _work(self, controller: Controller, function: str, batches: int, now: float) -> list[Work]:
        """Waiting batches of a function; those for which there are idle instances need no memory."""
        sizes = self._sizes[function]
        if now < self._large_until.get(function, now):
            return [Work(sizes, batches)]
        idle = min(batches, sum(flavour.idling for flavour in controller.pool.flavours_of(function)))
        vcpus, memory, vgpus = sizes[0]
        return [Work((Need(vcpus, 0, vgpus),), idle), Work((Need(vcpus, memory, vgpus),), batches - idle)]

    def _look(self, controller: Controller, now: float) -> None:
        """Note which functions wait although nothing of them runs, and whether they have done so for too long."""
        found: dict[str, float] = {}
        for _, function in controller.waiting.filled():
            if function in controller.replicas.sets or self._is_busy(controller, function):
                continue
            if not all(self._is_in_reach(controller, size) for size in self._sizes[function][1:]):
                since = found[function] = self._waits_since.get(function, now)
                if now - since >= PATIENCE_S:
                    self._large_until[function] = now + _REMEMBERED_S
        self._waits_since = found

    @staticmethod
    def _is_busy(controller: Controller, function: str) -> bool:
        return any(flavour.living > flavour.idling for flavour in controller.pool.flavours_of(function))

    @staticmethod
    def _is_in_reach(controller: Controller, size: Need) -> bool:
        """Whether the lease of some node could hold an instance of this size if nothing else were there."""
        return any(
            node.total >= size.vcpus
            and node.memory_total >= size.memory
            and (not size.vgpus or any(device.total >= size.vgpus for device in node.devices))
            for node in controller.nodes.values()
            if node.is_open
        )


def _size(configuration: Configuration, function: Function) -> Need:
    memory = mebi(configuration.memory_gb or function.memory_gb)
    return Need(milli(configuration.vcpus), memory if memory < UNLIMITED else 0, milli(configuration.vgpus))


def _has_room(node: NodeState, need: Need) -> bool:
    if node.free < need.vcpus or node.memory_free < need.memory:
        return False
    return not need.vgpus or any(device.free >= need.vgpus for device in node.devices)


def _spare_memory(controller: Controller, node: NodeState) -> int:
    """Memory of idle instances on a node, in MiB, without one of each function."""
    found, seen = 0, set()
    for instance in controller.pool.idle_on(node):
        function = instance.flavour.function.name
        if function in seen:
            found += instance.flavour.memory
        seen.add(function)
    return found
