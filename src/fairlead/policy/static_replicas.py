"""So many replicas of every function, whatever the load.

Over-provisioning, as a rival of scalers that look at the load. Not a paper: the number, 8, is the nominal 6 and 2 to
spare with which a teaching version of SIMPPO (H. Qiu et al., SoCC 2022), by its authors' group, begins an episode.

Where not all fit, functions get theirs in turn: none a second before all have one, and none waits for another beyond
that. What does not fit is tried again at each control period. Until the first of them functions are not scaled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from fairlead.model import Configuration
from fairlead.policy.base import Action, Policy, Scale, Site, View
from fairlead.policy.kit.ladder import first_rung, vcpu_rungs


@dataclass
class StaticReplicas(Policy):
    """Give every function the same number of replicas, in a size that does not change.

    Args:
        replicas: Of each function; at least 1.
        vcpus: Of each replica; a function that cannot have so many, and all with 0, have their least size with at
            least one vCPU.
        memory_gb: Of each replica, in GB; a function that needs more has what it needs.
    """

    replicas: int = 8
    vcpus: float = 0.0
    memory_gb: float = 0.0

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas must be at least 1; got {self.replicas}.")
        for name in ("vcpus", "memory_gb"):
            if not 0 <= getattr(self, name) < inf:
                raise ValueError(f"{name} must be finite and not negative; got {getattr(self, name)}.")

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self._sizes: dict[str, Configuration] = {}
        for name, function in site.functions.items():
            profile = site.profiles[name]
            rungs = vcpu_rungs(profile, function, site.cluster)
            vcpus = self.vcpus if self.vcpus in rungs else first_rung(rungs)
            memory_gb = self.memory_gb if self.memory_gb > function.memory_gb else 0.0
            # One without rungs, such as a GPU function, has the first size that it is declared with.
            size = profile.configurations[0] if vcpus is None else Configuration(vcpus=vcpus, memory_gb=memory_gb)
            self._sizes[name] = size

    def adjust(self, view: View) -> Iterator[Action]:
        for function, size in self._sizes.items():
            if _wanted(view, function) > self.replicas:  # by another scaler, which this one replaces
                yield Scale(function, self.replicas, size)
        short: set[str] = set()  # there is no room for another of these now
        fewest = min(_wanted(view, function) for function in self._sizes)
        for wanted in range(max(1, fewest), self.replicas + 1):
            for function, size in self._sizes.items():
                if function in short or _wanted(view, function) >= wanted:
                    continue
                yield Scale(function, wanted, size)
                if _living(view, function) < wanted:
                    short.add(function)
                    if wanted > 1:  # nobody is to wait in front of others for more than the first
                        yield Scale(function, wanted - 1)
            if any(_living(view, function) < 1 for function in self._sizes):
                return


def _wanted(view: View, function: str) -> int:
    """Replicas that it is to have; 0 while it is not scaled."""
    scaled = view.scaled(function)
    return 0 if scaled is None else scaled.instances or 0


def _living(view: View, function: str) -> int:
    """Replicas that are not on their way out, started or not."""
    return sum(instance.is_replica and not instance.is_draining for instance in view.instances(function))
