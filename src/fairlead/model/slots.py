"""How many instances an empty node holds."""

from math import floor, inf

from fairlead.model.cluster import Device, Node
from fairlead.model.configuration import Configuration
from fairlead.model.function import Function


def slots(node: Node, function: Function, configuration: Configuration) -> int:
    """How many instances of this size an empty node holds at once."""
    parts = [inf]
    memory_gb = configuration.memory_gb or function.memory_gb
    if configuration.vcpus:
        parts.append(_times(node.capacity_vcpus, configuration.vcpus))
    if memory_gb:
        parts.append(_times(node.memory_gb, memory_gb))
    if configuration.vgpus:
        parts.append(sum(_device_slots(device, function, configuration) for device in node.devices))
    return int(min(parts))


def _device_slots(device: Device, function: Function, configuration: Configuration) -> float:
    if not device.holds(configuration.vgpus):
        return 0
    by_memory = _times(device.usable_gb, function.footprint_gb) if function.footprint_gb else inf
    if device.is_fixed:
        return min(device.partition.count(int(configuration.vgpus)), by_memory)
    return min(_times(device.vgpus, configuration.vgpus), by_memory)


def _times(whole: float, part: float) -> float:
    return whole if whole == inf else floor(whole / part + 1e-9)
