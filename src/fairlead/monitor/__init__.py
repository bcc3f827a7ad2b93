"""Signals of nodes and instances: who is busy, who waits, and what disturbs whom."""

from fairlead.monitor.instances import Instance, InstanceReader, instances_in
from fairlead.monitor.place import Place, local_place
from fairlead.monitor.provider import PROVIDERS, Provider, choose
from fairlead.monitor.refusal import RefusedError
from fairlead.monitor.sampler import Sampler
from fairlead.monitor.signals import COUNTERS, InstanceSignals, Signals, mean

__all__ = [
    "COUNTERS",
    "PROVIDERS",
    "Instance",
    "InstanceReader",
    "InstanceSignals",
    "Place",
    "Provider",
    "RefusedError",
    "Sampler",
    "Signals",
    "choose",
    "instances_in",
    "local_place",
    "mean",
]
