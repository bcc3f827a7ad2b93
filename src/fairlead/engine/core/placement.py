"""The placement index: the emptiest node that fits, without looking at every node.

Nodes are kept in levels of free capacity, each level a bit mask over node indices, so that "the emptiest node with
a warm instance" is an AND per level and a lowest set bit. A scan over thousands of nodes would *be* the simulator's
cost; these masks are a few machine words.
"""

from collections.abc import Callable, Sequence

from fairlead.engine.core.capacity import NodeState, Shape
from fairlead.policy.base import Order

_MOST_LEVELS = 128


class Levels:
    """Nodes by how much of one resource is free: `masks[level]`, with nothing above `top`."""

    __slots__ = ("masks", "top", "unit")

    def __init__(self, totals: Sequence[int]) -> None:
        most = max(totals, default=0)
        # Whole vCPUs where that is fine enough: small nodes get eighths, huge ones at most 128 levels.
        self.unit = max(1, most // _MOST_LEVELS, min(1000, most // 8))
        self.top = 0
        self.masks = [0]

    def add(self, bit: int, total: int) -> None:
        """Take in a node of which nothing is free yet."""
        self.masks[0] |= bit
        self.make_room(total)

    def make_room(self, total: int) -> None:
        """Have levels up to a capacity that is larger than those seen so far."""
        self.masks += [0] * (total // self.unit + 1 - len(self.masks))

    def shift(self, bit: int, old: int, free: int) -> int:
        """Move a node from its old level to the one for this much free capacity, and return that level.

        A node of which more is in use than it has is at level 0, like one that is full.
        """
        masks = self.masks
        level = free // self.unit if free > 0 else 0
        masks[old] ^= bit
        masks[level] ^= bit
        if level > self.top:
            self.top = level
        return level


class Placement:
    """Where something fits, emptiest first, by free vCPUs or (for what needs a device) by free vGPUs.

    `version` grows with every release, so that a shape for which nothing fitted is not tried again in vain.
    """

    __slots__ = ("cpu", "gpu", "nodes", "version")

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self.nodes: list[NodeState] = []
        self.version = 0
        self.cpu = Levels([node.total for node in nodes])
        self.gpu = Levels([_largest(node) for node in nodes])
        for node in nodes:
            self.add(node)

    def add(self, node: NodeState) -> None:
        """Take in a new node."""
        self.nodes.append(node)
        self.version += 1
        self.cpu.add(node.bit, node.total)
        self.gpu.add(node.bit, _largest(node))
        self.update(node)

    def resize(self, node: NodeState) -> None:
        """Note other capacities of a node."""
        self.version += 1
        self.cpu.make_room(node.total)
        self.gpu.make_room(_largest(node))
        self.update(node)

    def update(self, node: NodeState) -> None:
        """Note a change of what is free on a node."""
        node.level = self.cpu.shift(node.bit, node.level, node.free)
        if node.devices or node.gpu_level:
            free = max([device.free for device in node.devices], default=0)
            node.gpu_level = self.gpu.shift(node.bit, node.gpu_level, free)

    def find(self, shape: Shape, order: Order) -> NodeState | None:
        """The emptiest node that fits, lowest index among equals; None if there is none."""
        if shape.blocked_at == self.version or (order == "warm" and shape.cold_at == self.version):
            return None
        if shape.vgpus:
            levels, below = self.gpu, shape.vgpus // self.gpu.unit - 1
        else:
            levels, below = self.cpu, shape.vcpus // self.cpu.unit - 1
        masks, nodes, level = levels.masks, self.nodes, levels.top
        if not masks[level]:
            while level and not masks[level]:
                level -= 1
            levels.top = level
        warm = shape.flavour.warm
        if warm and (order == "warm-first" or order == "warm"):
            mask = masks[level] & warm
            if mask and shape.is_undemanding:  # the common case, spelled out
                node = nodes[(mask & -mask).bit_length() - 1]
                if shape.fits(node):
                    return node
            while level > below:
                mask = masks[level] & warm
                while mask:
                    bit = mask & -mask
                    node = nodes[bit.bit_length() - 1]
                    if shape.fits(node) and (not shape.vgpus or _has_room_beside_warm(shape, node)):
                        return node
                    mask ^= bit
                level -= 1
        if order == "warm":
            shape.cold_at = self.version
            return None
        for level in range(levels.top, below, -1):
            mask = masks[level]
            while mask:
                bit = mask & -mask
                node = nodes[bit.bit_length() - 1]
                if shape.fits(node):
                    return node
                mask ^= bit
        shape.blocked_at = self.version
        return None

    def find_beside(
        self, shape: Shape, order: Order, fits: Callable[[Shape, NodeState, int | None], bool]
    ) -> NodeState | None:
        """As `find`, of the nodes where `fits` says that nothing has to be evicted."""
        if shape.blocked_at == self.version:
            return None
        warm = shape.flavour.warm
        masks = (self.gpu if shape.vgpus else self.cpu).masks
        for wanted in (warm, ~warm) if order in ("warm-first", "warm") else (-1,):
            for level in range(len(masks) - 1, -1, -1):
                mask = masks[level] & wanted
                while mask:
                    bit = mask & -mask
                    node = self.nodes[bit.bit_length() - 1]
                    if fits(shape, node, None):
                        return node
                    mask ^= bit
            if order == "warm":
                return None
        return None


def _largest(node: NodeState) -> int:
    """The size of a node's largest device, in thousandths of vGPUs; 0 without one."""
    return max((device.total for device in node.devices), default=0)


def _has_room_beside_warm(shape: Shape, node: NodeState) -> bool:
    """Whether the device of one of the node's idle instances is free."""
    return any(
        instance.device is not None and shape.wakes_on(instance.device)
        for instance in shape.flavour.idle.get(node.index, ())
    )
