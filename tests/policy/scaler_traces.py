"""Scalers driven by hand: what they see at each control period, and how many replicas they then ask for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.model import Instance
from fairlead.policy import Policy, Scale
from fairlead.testing import prepared, scenario

Seen = tuple[int, int, int]  # busy, ready, waiting


@dataclass(frozen=True)
class Glance:
    """As much of a view as a scaler looks at, of one function `f` of the workflow `main`."""

    now: float
    busy: int
    ready: int
    queue: int

    def queues(self) -> tuple[tuple[str, str], ...]:
        return (("main", "f"),) if self.queue else ()

    def waiting(self, workflow: str, function: str) -> int:
        assert (workflow, function) == ("main", "f")
        return self.queue

    def instances(self, function: str) -> tuple[Instance, ...]:
        return tuple(_instance(i, is_idle=i >= self.busy) for i in range(self.ready))


def _instance(id: int, *, is_idle: bool) -> Instance:
    return Instance(
        id=id, function="f", node="n0", device=-1, vcpus=1, vgpus=0, memory_gb=0, is_ready=True, is_idle=is_idle
    )


def asked(policy: Policy, seen: Iterable[Seen], *, every_s: float) -> list[int | None]:
    """What a scaler asks for at each control period; None where it asks for nothing."""
    prepared(policy, scenario({"f": 1.0}))
    found: list[int | None] = []
    for i, (busy, ready, waiting) in enumerate(seen):
        actions = list(policy.adjust(Glance((i + 1) * every_s, busy, ready, waiting)))
        assert all(isinstance(action, Scale) and action.function == "f" for action in actions)
        assert len(actions) <= 1
        found.append(actions[0].instances if actions else None)
    return found


def at_once(policy: Policy, demands: Sequence[int], *, every_s: float) -> list[int]:
    """Replicas after each control period, where every replica is ready by the next and `demands` are concurrent."""
    prepared(policy, scenario({"f": 1.0}))
    replicas = 0
    found = []
    for i, demand in enumerate(demands):
        busy = min(demand, replicas)
        for action in policy.adjust(Glance((i + 1) * every_s, busy, replicas, demand - busy)):
            replicas = action.instances
        found.append(replicas)
    return found
