"""How much of each accelerator what exists on a node takes, as shares that can be leased."""

from fairlead.engine.core.capacity import UNLIMITED, DeviceState, NodeState
from fairlead.engine.core.pool import Pool


def device_uses(pool: Pool, node: NodeState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """By device, in thousandths of vGPUs: what is taken, and what of that only idle instances take.

    Who has a share of a device has as large a share of its memory, so the larger of the two counts. A MIG device is
    taken as a whole.
    """
    if not node.devices:
        return (), ()
    idle = [instance for instance in pool.idle_on(node) if instance.device is not None]
    ending = [] if pool.endings is None else pool.endings.on(node)
    uses, spare = [], []
    for device in node.devices:
        resting = sum(i.flavour.device_memory for i in idle if i.device is device)
        leaving = [i for i in ending if i.device is device]
        evicted = 0 if pool.endings is None else pool.endings.evicted_from(device)
        slices = 0 if pool.endings is None else pool.endings.slices_from(device)
        busy = max(
            device.total - device.free + slices, _share(device, device.memory_total - device.memory_free + evicted)
        )
        if device.slices is None:
            held = device.total - device.free + device.held + slices
            taken = max(busy, held, _share(device, device.memory_total - device.memory_free + evicted + resting))
        else:
            busy = device.whole if busy or leaving else 0
            taken = device.whole if busy or any(i.device is device for i in idle) else 0
        uses.append(taken)
        spare.append(taken - busy)
    return tuple(uses), tuple(spare)


def _share(device: DeviceState, memory: int) -> int:
    """The share of a device that has this much memory, rounded up."""
    if device.memory_whole >= UNLIMITED or not device.memory_whole:
        return 0
    return -(-memory * device.whole // device.memory_whole)
