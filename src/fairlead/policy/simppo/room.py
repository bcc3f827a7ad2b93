"""Whether larger replicas would find room, so that no function is left without any while they are exchanged.

The controller carries out a Resize also where only those that rest find room: the others follow when their work ends,
and go if they then do not fit. With a single busy replica on a full node that would be the last.
"""

from collections.abc import Iterable

from fairlead.model import Configuration
from fairlead.policy.base import View

_SLACK = 1e-9


class Room:
    """What is free in the cluster, for the actions of one control period.

    Args:
        view: The cluster now.
        functions: All of them, whoever scales them: their instances hold memory.
        is_full: Whether some function found no room at all: then nobody else grows.
    """

    def __init__(self, view: View, functions: Iterable[str], *, is_full: bool = False) -> None:
        self.is_full = is_full
        self._view, self._functions = view, tuple(functions)
        self._nodes = {node.name: node for node in view.nodes}
        self._free_gb: dict[str, float] | None = None  # listed when it is first asked for

    def grows(self, function: str, wanted: Configuration) -> bool:
        """Whether every replica could have this size: more vCPUs where it is, more memory beside it."""
        if self.is_full:
            return False
        living = [instance for instance in self._view.instances(function) if not instance.is_draining]
        if any(instance.memory_gb < wanted.memory_gb - _SLACK for instance in living):
            return self._fits_beside(wanted, len(living))
        more: dict[str, float] = {}
        for instance in living:
            more[instance.node] = more.get(instance.node, 0.0) + wanted.vcpus - instance.vcpus
        return all(vcpus <= self._free_vcpus(node) for node, vcpus in more.items())

    def _free_vcpus(self, node: str) -> float:
        found = self._nodes.get(node)
        return 0.0 if found is None else (1 - self._view.load(node)) * found.capacity_vcpus + _SLACK

    def _fits_beside(self, wanted: Configuration, replicas: int) -> bool:
        """Whether one fits before another goes, on the node with the most memory; the rest then take their turns."""
        if self._free_gb is None:
            self._free_gb = {name: node.memory_gb for name, node in self._nodes.items()}
            for function in self._functions:
                for instance in self._view.instances(function):
                    if instance.node in self._free_gb:
                        self._free_gb[instance.node] -= instance.memory_gb
        node = max(self._free_gb, key=lambda name: self._free_gb[name] if self._free_gb else 0.0, default=None)
        if node is None or self._free_gb[node] < wanted.memory_gb or self._free_vcpus(node) < wanted.vcpus:
            return False
        self._free_gb[node] -= wanted.memory_gb * replicas
        return True
