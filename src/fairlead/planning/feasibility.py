"""Whether a machine could ever run something: its size against what a run takes, with nothing else there."""

from fairlead.model import Configuration, Function, Node


def could_hold(node: Node, device: int | None, function: Function, configuration: Configuration) -> bool:
    """Whether a run could be on a device of a node; None stands for its vCPUs, for what needs no accelerator."""
    if configuration.vcpus > node.capacity_vcpus or (configuration.memory_gb or function.memory_gb) > node.memory_gb:
        return False
    if device is None:
        return configuration.vgpus == 0
    accelerator = node.devices[device]
    if configuration.vgpus == 0 or function.footprint_gb > accelerator.usable_gb:
        return False
    return accelerator.holds(configuration.vgpus)


def could_run(node: Node, function: Function, configuration: Configuration) -> bool:
    """Whether a run could be anywhere on a node."""
    if configuration.vgpus == 0:
        return could_hold(node, None, function, configuration)
    return any(could_hold(node, device, function, configuration) for device in range(len(node.devices)))
