"""What nodes have and what runs and idle instances take of it, as the columns of a `planning.timeline.Timeline`.

The columns of a node are its vCPUs and its memory, then vGPUs and memory of each of its devices. Amounts are whole
numbers: thousandths of a vCPU or vGPU, and MiB, as the controller counts them.
"""

from math import inf

from fairlead.model import Configuration, Function, Instance, Node
from fairlead.planning.timeline import Demand

_UNLIMITED = 1 << 60


def milli(amount: float) -> int:
    """vCPUs or vGPUs in thousandths."""
    return round(amount * 1000)


def mebi(amount_gb: float) -> int:
    """Memory in MiB; infinity is a number too large to use up."""
    return _UNLIMITED if amount_gb == inf else round(amount_gb * 1024)


def capacity_of(node: Node) -> tuple[int, ...]:
    """What a node has, by column."""
    found = [milli(node.vcpus), mebi(node.memory_gb)]
    for device in node.devices:
        found += [milli(device.vgpus), mebi(device.usable_gb)]
    return tuple(found)


def taken_by_run(function: Function, configuration: Configuration, device: int | None) -> Demand:
    """What an instance takes of a node while it starts or runs, on one of its devices or on none."""
    memory_gb = configuration.memory_gb or function.memory_gb
    return _demand(configuration.vcpus, memory_gb, configuration.vgpus, function.footprint_gb, device)


def held_when_idle(function: Function, configuration: Configuration, device: int | None) -> Demand:
    """What an idle instance of this size keeps of a node: its whole slice, or its memory only."""
    share = 1 if function.idle_holds == "slice" else 0
    memory_gb = configuration.memory_gb or function.memory_gb
    vcpus, vgpus = share * configuration.vcpus, share * configuration.vgpus
    return _demand(vcpus, memory_gb, vgpus, function.device_memory_gb, device)


def held_by(instance: Instance, function: Function) -> Demand:
    """What an idle instance keeps."""
    size = Configuration(vcpus=instance.vcpus, vgpus=instance.vgpus, memory_gb=instance.memory_gb)
    return held_when_idle(function, size, instance.device if instance.device >= 0 else None)


def _demand(vcpus: float, memory_gb: float, vgpus: float, device_memory_gb: float, device: int | None) -> Demand:
    needed = [(0, milli(vcpus)), (1, mebi(memory_gb))]
    if device is not None:
        needed += [(2 + 2 * device, milli(vgpus)), (3 + 2 * device, mebi(device_memory_gb))]
    return tuple((column, amount) for column, amount in needed if amount)
