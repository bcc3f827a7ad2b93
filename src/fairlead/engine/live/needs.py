"""How much of a cluster an app needs now, as its controller sees it."""

from collections.abc import Sequence

from fairlead.engine.core.capacity import UNLIMITED, mebi, milli
from fairlead.engine.core.controller import Controller
from fairlead.engine.live.leases import Amount, Demand
from fairlead.workload import Scenario


class Needs:
    """The smallest amounts with which the functions of an app can run, and what its waiting work could use."""

    def __init__(self, scenario: Scenario) -> None:
        self._of: dict[str, Amount] = {}  # by function: of an instance in its smallest configuration
        self._most: dict[str, int] = {}  # by function: its largest batch
        for name, function in scenario.functions.items():
            sizes = [
                (milli(each.vcpus), mebi(each.memory_gb or function.memory_gb))
                for each in scenario.profiles[name].configurations
            ]
            self._of[name] = Amount(*min(sizes))
            self._most[name] = max(each.batch for each in scenario.profiles[name].configurations)

    @property
    def least(self) -> Amount:
        """Enough for any one instance of any function."""
        amounts = self._of.values()
        memory = [each.memory for each in amounts if each.memory < UNLIMITED]
        return Amount(max(each.vcpus for each in amounts), max(memory, default=0))

    def lacks_room(self, controller: Controller, *, is_short: bool) -> bool:
        """Whether work waits, or replicas or warm instances (`is_short`) are missing, and no node has room for more."""
        if not (is_short or controller.waiting.tasks or controller.replicas.is_short):
            return False
        return not controller.placement.has_room(*self.least)

    def demand(self, controller: Controller, missing: Sequence[str]) -> Demand:
        """What is used of each node, and what waiting work, missing replicas and warm instances could use besides."""
        uses = {node.name: Amount(*controller.pool.uses(node)) for node in controller.nodes.values() if node.is_up}
        vcpus = memory = 0
        sets = controller.replicas.sets
        if controller.waiting.tasks:
            for (_, function), line in controller.waiting.lines().items():
                if line.size and function not in sets:  # of a scaled function, only its replicas can do more
                    batches = -(-line.size // self._most[function])
                    idle = sum(flavour.idling for flavour in controller.pool.flavours_of(function))
                    vcpus += batches * self._of[function].vcpus
                    memory += max(0, batches - idle) * self._of[function].memory
        for function in missing:
            vcpus += self._of[function].vcpus
            memory += self._of[function].memory
        if controller.replicas.is_short:
            for name, found in sets.items():
                lacking = max(0, found.target - len(found.living()))
                own = controller.scenario.functions[name].memory_gb
                vcpus += lacking * milli(found.configuration.vcpus)
                memory += lacking * mebi(found.configuration.memory_gb or own)
        return Demand(uses, Amount(vcpus, memory), _spare(controller))


def _spare(controller: Controller) -> dict[str, int]:
    """Memory of idle instances on each node, in MiB, without one of each function."""
    found: dict[str, int] = {}
    for node in controller.nodes.values():
        seen: set[str] = set()
        for instance in controller.pool.idle_on(node):
            function = instance.flavour.function.name
            if function in seen:
                found[node.name] = found.get(node.name, 0) + instance.flavour.memory
            seen.add(function)
    return found
