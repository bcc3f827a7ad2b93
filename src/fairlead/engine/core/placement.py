"""The placement index: the emptiest node that fits, without looking at every node.

Nodes are kept in levels of free capacity, each level a bit mask over node indices, so that "the emptiest node with
a warm instance" is an AND per level and a lowest set bit. A scan over thousands of nodes would *be* the simulator's
cost; these masks are a few machine words.
"""

from collections.abc import Sequence

from fairlead.engine.core.capacity import NodeState, Shape

_MOST_LEVELS = 128


class Levels:
    """Nodes by how much of one resource is free, fullest level last."""

    __slots__ = ("masks", "of", "unit")

    def __init__(self, capacities: Sequence[int]) -> None:
        most = max(capacities, default=0)
        # Whole vCPUs where that is fine enough: small nodes get eighths, huge ones at most 128 levels.
        self.unit = max(1, most // _MOST_LEVELS, min(1000, most // 8))
        self.masks = [0] * (most // self.unit + 1)
        self.of: list[int] = []
        for index, free in enumerate(capacities):
            level = free // self.unit
            self.of.append(level)
            self.masks[level] |= 1 << index

    def move(self, index: int, free: int) -> None:
        """Note that a node now has this much free."""
        level = free // self.unit
        old = self.of[index]
        if level != old:
            bit = 1 << index
            self.masks[old] ^= bit
            self.masks[level] ^= bit
            self.of[index] = level


class Placement:
    """Where something fits, emptiest first, by free vCPUs or (for what needs a device) by free vGPUs.

    `version` grows with every release, so that a shape for which nothing fitted is not tried again in vain.
    """

    __slots__ = ("_cpu", "_gpu", "nodes", "version")

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self.nodes = list(nodes)
        self.version = 0
        self._rebuild()

    def _rebuild(self) -> None:
        self._cpu = Levels([node.free for node in self.nodes])
        self._gpu = Levels([max((d.free for d in node.devices), default=0) for node in self.nodes])

    def add(self, node: NodeState) -> None:
        """Take in a new node."""
        self.nodes.append(node)
        self.version += 1
        # Levels are sized for the largest free amount, so all nodes are counted anew from their totals.
        self._cpu = Levels([n.total for n in self.nodes])
        self._gpu = Levels([max((d.total for d in n.devices), default=0) for n in self.nodes])
        for n in self.nodes:
            self.update(n)

    def update(self, node: NodeState) -> None:
        """Note a change of what is free on a node."""
        self._cpu.move(node.index, node.free)
        if node.devices:
            self._gpu.move(node.index, max(device.free for device in node.devices))

    def find(self, shape: Shape, warm_first: bool) -> NodeState | None:
        """The emptiest node that fits, lowest index among equals; None if there is none."""
        if shape.blocked_at == self.version:
            return None
        if shape.vgpus:
            levels, need = self._gpu, shape.vgpus
        else:
            levels, need = self._cpu, shape.vcpus
        masks = levels.masks
        lowest = need // levels.unit - 1
        nodes = self.nodes
        warm = shape.flavour.warm
        if warm and warm_first:
            for level in range(len(masks) - 1, lowest, -1):
                mask = masks[level] & warm
                while mask:
                    bit = mask & -mask
                    node = nodes[bit.bit_length() - 1]
                    if shape.fits(node) and _has_room_beside_warm(shape, node):
                        return node
                    mask ^= bit
        for level in range(len(masks) - 1, lowest, -1):
            mask = masks[level]
            while mask:
                bit = mask & -mask
                node = nodes[bit.bit_length() - 1]
                if shape.fits(node):
                    return node
                mask ^= bit
        shape.blocked_at = self.version
        return None


def _has_room_beside_warm(shape: Shape, node: NodeState) -> bool:
    """Whether one of the node's idle instances could run: on a node with devices, its own device must be free."""
    if shape.vgpus == 0:
        return True
    return any(
        instance.device is not None and instance.device.fits(shape.vgpus, shape.device_memory)
        for instance in shape.flavour.idle.get(node.index, ())
    )
