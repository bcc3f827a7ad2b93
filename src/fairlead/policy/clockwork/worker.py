"""Workers as the controller of Clockwork sees them: what is loaded, what runs, what is planned, and until when.

A worker is one accelerator, or one of the vCPU slots of a node. It runs one batch at a time.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.model import Node
from fairlead.policy.clockwork.ladder import Ladder, Rung
from fairlead.policy.clockwork.queue import Entry
from fairlead.policy.kit.agenda import Agenda

_LEAST = 1e-9  # less than this is rounding


class Size(NamedTuple):
    """What a loaded model holds of a device while it is idle."""

    memory_gb: float = 0.0
    vgpus: float = 0.0


@dataclass(slots=True, eq=False)
class Infer:
    """A batch that is planned or runs; `start` and `finish` are predicted."""

    function: str
    rung: Rung
    entries: list[Entry]
    start: float
    finish: float
    left: int = 0  # members that run
    is_measured: bool = False  # whether its run time is known


@dataclass(slots=True, eq=False)
class Load:
    """A model that is to be loaded, or is being loaded."""

    function: str
    start: float
    finish: float
    instance: int | None = None  # the id of the instance that starts, once the load has begun


@dataclass(slots=True, eq=False)
class Worker:
    """One executor, and the controller's memory of it."""

    index: int
    host: Node
    device: int | None
    ladders: Mapping[str, Ladder]
    is_up: bool = True
    resident: dict[str, Size] = field(default_factory=dict)  # by function, least recently used first
    last_use: dict[str, float] = field(default_factory=dict)  # by function
    running: Infer | Load | None = None
    loading: Load | None = None  # planned or under way, perhaps beside what runs
    plan: deque[Infer | Load] = field(default_factory=deque)
    agenda: Agenda = field(default_factory=Agenda)  # functions by the latest start of their most urgent strategy
    demands: dict[str, float] = field(default_factory=dict)  # by function, the share of its demand meant for this
    load: float = 0.0  # their sum

    def __repr__(self) -> str:
        return self.node if self.device is None else f"{self.node}/{self.device}"

    @property
    def node(self) -> str:
        """The name of its node."""
        return self.host.name

    def available(self, now: float) -> float:
        """When it is predicted to have done all that it was given."""
        until = now if self.running is None or self.running.finish < now else self.running.finish
        return until + sum([action.finish - action.start for action in self.plan])

    def loads_beside(self, function: str) -> bool:
        """Whether there is room to load this function while any other runs, here and on the node's other devices."""
        if self.device is None:
            return False
        size = self.ladders[function].least.configuration
        sizes = [ladder.least.configuration for ladder in self.ladders.values()]
        vcpus = size.vcpus + max(c.vcpus for c in sizes) * len(self.host.devices)
        vgpus = size.vgpus + max(c.vgpus for c in sizes)
        return vcpus <= self.host.vcpus and vgpus <= self.host.devices[self.device].vgpus

    def used(self, function: str, now: float) -> None:
        """Note a use, for the order in which models are unloaded."""
        if function in self.resident:
            self.resident[function] = self.resident.pop(function)
            self.last_use[function] = now

    def in_use(self) -> set[str]:
        """The functions that run, are being loaded or are planned here."""
        return {action.function for action in (self.running, self.loading, *self.plan) if action is not None}

    def recent(self, now: float) -> set[str]:
        """The functions that were used within the time that it takes to load them again."""
        return {name for name, used in self.last_use.items() if now < used + self.ladders[name].load.seconds}

    def in_the_way(self, size: Size, kept: set[str]) -> list[str] | None:
        """What must be unloaded to load a model of this size, least recently used first; None if it cannot be loaded.

        Functions in `kept` stay.
        """
        if self.device is None:
            return []
        device = self.host.devices[self.device]
        missing_gb = sum(held.memory_gb for held in self.resident.values()) + size.memory_gb - device.memory_gb
        missing_vgpus = sum(held.vgpus for held in self.resident.values()) + size.vgpus - device.vgpus
        found: list[str] = []
        for other, held in self.resident.items():
            if missing_gb <= _LEAST and missing_vgpus <= _LEAST:
                break
            if other not in kept and (
                (missing_gb > _LEAST and held.memory_gb) or (missing_vgpus > _LEAST and held.vgpus)
            ):
                found.append(other)
                missing_gb -= held.memory_gb
                missing_vgpus -= held.vgpus
        return found if missing_gb <= _LEAST and missing_vgpus <= _LEAST else None
