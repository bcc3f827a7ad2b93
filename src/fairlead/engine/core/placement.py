"""The placement index: the emptiest node that fits, without looking at every node.

Nodes are kept in levels of free capacity, each level a bit mask over node indices, so that "the emptiest node with
a warm instance" is an AND per level and a lowest set bit. A scan over thousands of nodes would *be* the simulator's
cost; these masks are a few machine words.
"""

from collections.abc import Sequence

from fairlead.engine.core.capacity import NodeState, Shape

_MOST_LEVELS = 128


class Levels:
    """Nodes by how much of one resource is free: `masks[level]`, with nothing above `top`."""

    __slots__ = ("masks", "of", "top", "unit")

    def __init__(self, totals: Sequence[int]) -> None:
        most = max(totals, default=0)
        # Whole vCPUs where that is fine enough: small nodes get eighths, huge ones at most 128 levels.
        self.unit = max(1, most // _MOST_LEVELS, min(1000, most // 8))
        self.top = most // self.unit
        self.masks = [0] * (self.top + 1)
        self.of = [total // self.unit for total in totals]  # each node's level
        for index, level in enumerate(self.of):
            self.masks[level] |= 1 << index

    def move(self, node: NodeState, free: int) -> None:
        """Note that a node now has this much free."""
        level = free // self.unit
        old = self.of[node.index]
        if level != old:
            self.of[node.index] = level
            masks, bit = self.masks, node.bit
            masks[old] ^= bit
            masks[level] ^= bit
            if level > self.top:
                self.top = level


class Placement:
    """Where something fits, emptiest first, by free vCPUs or (for what needs a device) by free vGPUs.

    `version` grows with every release, so that a shape for which nothing fitted is not tried again in vain.
    """

    __slots__ = ("_gpu", "cpu", "nodes", "version")

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self.nodes = list(nodes)
        self.version = 0
        self._build()

    def add(self, node: NodeState) -> None:
        """Take in a new node."""
        self.nodes.append(node)
        self.version += 1
        self._build()

    def _build(self) -> None:
        self.cpu = Levels([node.total for node in self.nodes])
        self._gpu = Levels([max((d.total for d in node.devices), default=0) for node in self.nodes])
        for node in self.nodes:
            self.update(node)

    def update(self, node: NodeState) -> None:
        """Note a change of what is free on a node."""
        self.cpu.move(node, node.free)
        if node.devices:
            self._gpu.move(node, max(device.free for device in node.devices))

    def find(self, shape: Shape, warm_first: bool) -> NodeState | None:
        """The emptiest node that fits, lowest index among equals; None if there is none."""
        if shape.blocked_at == self.version:
            return None
        if shape.vgpus:
            levels, need = self._gpu, shape.vgpus
        else:
            levels, need = self.cpu, shape.vcpus
        masks, nodes, top = levels.masks, self.nodes, levels.top
        while top and not masks[top]:
            top -= 1
        levels.top = top
        below = need // levels.unit - 1
        warm = shape.flavour.warm
        if warm and warm_first:
            for level in range(top, below, -1):
                mask = masks[level] & warm
                while mask:
                    bit = mask & -mask
                    node = nodes[bit.bit_length() - 1]
                    if shape.fits(node) and (not shape.vgpus or _has_room_beside_warm(shape, node)):
                        return node
                    mask ^= bit
        for level in range(top, below, -1):
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
    """Whether the device of one of the node's idle instances is free."""
    return any(
        instance.device is not None and instance.device.fits(shape.vgpus, shape.device_memory)
        for instance in shape.flavour.idle.get(node.index, ())
    )
