"""The sizes that a function's replicas can have, and what an action makes of one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from fairlead.model import Configuration
from fairlead.policy.simppo import reward as act

MEMORY_STEP_GB, MOST_MEMORY_GB = 0.125, 3.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many replicas, and how large each is: a rung of the function's vCPUs, and memory."""

    replicas: int
    rung: int
    memory_gb: float


@dataclass(frozen=True, kw_only=True)
class Rungs:
    """What one function can have: its vCPU sizes, rising, its memory, and how many replicas."""

    vcpus: tuple[float, ...]
    least_gb: float
    least: int
    most: int

    def first(self, replicas: int) -> Size:
        """Where it begins: one vCPU, or what is nearest above, and the memory that it needs."""
        rung = next((i for i, vcpus in enumerate(self.vcpus) if vcpus >= 1), len(self.vcpus) - 1)
        return Size(replicas=min(max(replicas, self.least), self.most), rung=rung, memory_gb=self.least_gb)

    def after(self, size: Size, action: int) -> Size | None:
        """What an action makes of a size; None where it is out of bounds."""
        horizontal = (action == act.OUT) - (action == act.IN)
        vertical = (action == act.MORE_VCPUS) - (action == act.LESS_VCPUS)
        memory = (action == act.MORE_MEMORY) - (action == act.LESS_MEMORY)
        found = replace(
            size,
            replicas=size.replicas + horizontal,
            rung=size.rung + vertical,
            memory_gb=size.memory_gb + memory * MEMORY_STEP_GB,
        )
        is_vertical = vertical != 0 or memory != 0
        if not self.least <= found.replicas <= self.most or (is_vertical and size.replicas == 0):
            return None
        if not 0 <= found.rung < len(self.vcpus) or not self.least_gb <= found.memory_gb <= MOST_MEMORY_GB:
            return None
        return found

    def configuration(self, size: Size) -> Configuration:
        """The configuration of one replica."""
        return Configuration(vcpus=self.vcpus[size.rung], memory_gb=size.memory_gb)


def rungs_of(configurations: Iterable[Configuration], needs_gb: float, *, least: int, most: int) -> Rungs:
    """What a function with these configurations can have; those with a device or in batches do not count."""
    vcpus = sorted({c.vcpus for c in configurations if c.batch == 1 and not c.vgpus})
    least_gb = max(2, ceil(needs_gb / MEMORY_STEP_GB)) * MEMORY_STEP_GB
    return Rungs(vcpus=tuple(vcpus), least_gb=least_gb, least=least, most=most)


def within_bounds(rungs: Sequence[Rungs], sizes: Sequence[Size], actions: int) -> NDArray[np.bool_]:
    """Which of the first so many actions `after` would carry out, a row per function; for many functions at once."""
    found = np.ones((len(sizes), act.LESS_MEMORY + 1), np.bool_)
    bounds = [(own.least, own.most, len(own.vcpus), own.least_gb) for own in rungs]
    least, most, many, least_gb = np.array(bounds, float).reshape(-1, 4).T
    replicas, rung, memory_gb = (
        np.array([(size.replicas, size.rung, size.memory_gb) for size in sizes], float).reshape(-1, 3).T
    )
    has_any = replicas > 0
    found[:, act.OUT], found[:, act.IN] = replicas < most, replicas > least
    found[:, act.MORE_VCPUS], found[:, act.LESS_VCPUS] = has_any & (rung + 1 < many), has_any & (rung > 0)
    found[:, act.MORE_MEMORY] = has_any & (memory_gb + MEMORY_STEP_GB <= MOST_MEMORY_GB)
    found[:, act.LESS_MEMORY] = has_any & (memory_gb - MEMORY_STEP_GB >= least_gb)
    return found[:, :actions]
