"""The sizes that a function's replicas can have without a GPU. Not a policy, but what scalers share."""

from collections.abc import Sequence
from math import inf

from fairlead.model import Cluster, Configuration, Function
from fairlead.model.slots import slots
from fairlead.profile import Estimate

_FIRST_VCPUS = 1.0


def vcpu_rungs(profile: Estimate, function: Function, cluster: Cluster) -> tuple[float, ...]:
    """The vCPUs of its configurations with neither batch nor GPU that an empty node can hold, rising.

    Empty for a function whose first configuration needs a GPU: without, it would be another function.
    """
    if profile.configurations[0].vgpus:
        return ()
    plain = {c.vcpus for c in profile.configurations if c.batch == 1 and not c.vgpus}
    return tuple(sorted(vcpus for vcpus in plain if _runs(profile, function, cluster, Configuration(vcpus=vcpus))))


def first_rung(rungs: Sequence[float]) -> float | None:
    """The least of these sizes that has a whole vCPU, or the largest if none has; None without sizes."""
    return next((vcpus for vcpus in rungs if vcpus >= _FIRST_VCPUS), rungs[-1] if rungs else None)


def _runs(profile: Estimate, function: Function, cluster: Cluster, size: Configuration) -> bool:
    return any(
        slots(node, function, size) > 0 and profile.latency_s(size, kind) < inf for kind, node in cluster.kinds.items()
    )
