"""Where something fits: the emptiest node, without looking at every node.

Nodes stand in levels of free capacity, each level a set of bits, as in `engine.core.placement`; a second set of bits
says which words of the first are not empty.
"""

from fairlead.engine.sim.compiled.layout import (
    COUNT,
    CPU_FACTOR,
    CPU_MASKS,
    CPU_TOP,
    CPU_WORDS,
    DEVICE_FREE,
    DEVICE_MEMORY_FREE,
    FLAVOUR_DEVICE_MEMORY,
    FLAVOUR_MEMORY,
    FLAVOUR_VGPUS,
    GPU_FACTOR,
    GPU_MASKS,
    GPU_TOP,
    GPU_WORDS,
    I_BEFORE,
    I_DEVICE,
    IDLE_LAST,
    KINDS,
    LEVEL_BITS,
    NODE_DEVICE,
    NODE_FREE,
    NODE_GPU_LEVEL,
    NODE_KIND,
    NODE_LEVEL,
    NODE_MEMORY_FREE,
    NODES,
    SHAPE_BLOCKED,
    SHAPE_DECLARED,
    SHAPE_FLAVOUR,
    SHAPE_VCPUS,
    SUMMARIES,
    VERSION,
    WARM_MASKS,
    WARM_NODES,
    WORDS,
)
from fairlead.engine.sim.compiled.views import Ints, compiled, ints, reals, trailing_zeros

_FEW_NODES = 64  # with a warm instance: then they are looked at one by one


@compiled
def _move(h: int, masks_field: int, words_field: int, node: int, old: int, new: int) -> None:
    """Bring a node from one level to another."""
    c = ints(h, COUNT)
    masks, summary = ints(h, masks_field), ints(h, words_field)
    words, summaries = c[WORDS], c[SUMMARIES]
    word, bit = node >> 6, 1 << (node & 63)
    if words == 1:
        masks[old] ^= bit
        masks[new] ^= bit
        return
    at = old * words + word
    masks[at] ^= bit
    if masks[at] == 0:
        summary[old * summaries + (word >> 6)] ^= 1 << (word & 63)
    at = new * words + word
    if masks[at] == 0:
        summary[new * summaries + (word >> 6)] ^= 1 << (word & 63)
    masks[at] ^= bit


@compiled
def note_free(h: int, node: int) -> None:
    """A node has more or less free than before."""
    c = ints(h, COUNT)
    levels = ints(h, NODE_LEVEL)
    new = (ints(h, NODE_FREE)[node] * c[CPU_FACTOR]) >> LEVEL_BITS
    old = levels[node]
    if new != old:
        _move(h, CPU_MASKS, CPU_WORDS, node, old, new)
        levels[node] = new
        if new > c[CPU_TOP]:
            c[CPU_TOP] = new
    first, last = ints(h, NODE_DEVICE)[node], ints(h, NODE_DEVICE)[node + 1]
    if last > first:
        free = ints(h, DEVICE_FREE)
        most = free[first]
        for device in range(first + 1, last):
            most = max(most, free[device])
        levels = ints(h, NODE_GPU_LEVEL)
        new, old = (most * c[GPU_FACTOR]) >> LEVEL_BITS, levels[node]
        if new != old:
            _move(h, GPU_MASKS, GPU_WORDS, node, old, new)
            levels[node] = new
            if new > c[GPU_TOP]:
                c[GPU_TOP] = new


@compiled
def device_for(h: int, shape: int, node: int) -> int:
    """The emptiest device of a node on which a shape fits; -1 if none."""
    flavour = ints(h, SHAPE_FLAVOUR)[shape]
    vgpus, memory = ints(h, FLAVOUR_VGPUS)[flavour], ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
    free, memory_free = ints(h, DEVICE_FREE), ints(h, DEVICE_MEMORY_FREE)
    best = -1
    for device in range(ints(h, NODE_DEVICE)[node], ints(h, NODE_DEVICE)[node + 1]):
        if free[device] >= vgpus and memory_free[device] >= memory and (best < 0 or free[device] > free[best]):
            best = device
    return best


@compiled
def fits(h: int, shape: int, node: int) -> bool:
    """Whether an instance could run on a node now, idle ones out of the way."""
    flavour = ints(h, SHAPE_FLAVOUR)[shape]
    if ints(h, NODE_FREE)[node] < ints(h, SHAPE_VCPUS)[shape]:
        return False
    if ints(h, NODE_MEMORY_FREE)[node] < ints(h, FLAVOUR_MEMORY)[flavour]:
        return False
    kinds = ints(h, COUNT)[KINDS]
    if reals(h, SHAPE_DECLARED)[shape * kinds + ints(h, NODE_KIND)[node]] == float("inf"):
        return False
    return ints(h, FLAVOUR_VGPUS)[flavour] == 0 or device_for(h, shape, node) >= 0


@compiled
def wakes_on(h: int, flavour: int, device: int) -> bool:
    """Whether an idle instance of a flavour could run on its device now."""
    return (
        ints(h, DEVICE_FREE)[device] >= ints(h, FLAVOUR_VGPUS)[flavour]
        and ints(h, DEVICE_MEMORY_FREE)[device] >= ints(h, FLAVOUR_DEVICE_MEMORY)[flavour]
    )


@compiled
def _has_room_beside_warm(h: int, flavour: int, node: int) -> bool:
    """Whether the device of one of the node's idle instances is free; without a device, always."""
    if ints(h, FLAVOUR_VGPUS)[flavour] == 0:
        return True
    instance = ints(h, IDLE_LAST)[flavour * ints(h, COUNT)[NODES] + node] - 1
    while instance >= 0:
        if wakes_on(h, flavour, ints(h, I_DEVICE)[instance]):
            return True
        instance = ints(h, I_BEFORE)[instance]
    return False


@compiled
def _find_warm(h: int, shape: int, flavour: int, top: int, below: int, masks_field: int, level_field: int) -> int:
    """The emptiest node with an idle instance, of those above a level; -1 if none."""
    c = ints(h, COUNT)
    words = c[WORDS]
    warm, masks = ints(h, WARM_MASKS), ints(h, masks_field)
    if words <= 2 or ints(h, WARM_NODES)[flavour] > _FEW_NODES:
        for level in range(top, below, -1):
            for word in range(words):
                mask = masks[level * words + word] & warm[flavour * words + word]
                while mask != 0:
                    node = (word << 6) + trailing_zeros(mask)
                    if fits(h, shape, node) and _has_room_beside_warm(h, flavour, node):
                        return node
                    mask &= mask - 1
        return -1
    levels = ints(h, level_field)
    best, best_level = -1, below
    for word in range(words):
        mask = warm[flavour * words + word]
        while mask != 0:
            node = (word << 6) + trailing_zeros(mask)
            if levels[node] > best_level and fits(h, shape, node) and _has_room_beside_warm(h, flavour, node):
                best, best_level = node, levels[node]
            mask &= mask - 1
    return best


@compiled
def _is_empty(summary: Ints, level: int, summaries: int) -> bool:
    """Whether no node is at a level."""
    for i in range(level * summaries, (level + 1) * summaries):
        if summary[i] != 0:
            return False
    return True


@compiled
def find(h: int, shape: int, prefers_warm: bool) -> int:
    """The emptiest node on which a shape fits, those with an idle instance first if so wanted; -1 if none."""
    c = ints(h, COUNT)
    blocked = ints(h, SHAPE_BLOCKED)
    if blocked[shape] == c[VERSION]:
        return -1
    flavour = ints(h, SHAPE_FLAVOUR)[shape]
    vgpus = ints(h, FLAVOUR_VGPUS)[flavour]
    words, summaries = c[WORDS], c[SUMMARIES]
    if vgpus > 0:
        masks_field, words_field, level_field, top_at = GPU_MASKS, GPU_WORDS, NODE_GPU_LEVEL, GPU_TOP
        below = ((vgpus * c[GPU_FACTOR]) >> LEVEL_BITS) - 1
    else:
        masks_field, words_field, level_field, top_at = CPU_MASKS, CPU_WORDS, NODE_LEVEL, CPU_TOP
        below = ((ints(h, SHAPE_VCPUS)[shape] * c[CPU_FACTOR]) >> LEVEL_BITS) - 1
    masks, summary = ints(h, masks_field), ints(h, words_field)
    top = c[top_at]
    while top > 0 and (masks[top] == 0 if words == 1 else _is_empty(summary, top, summaries)):
        top -= 1
    c[top_at] = top
    if prefers_warm and ints(h, WARM_NODES)[flavour] > 0:
        node = _find_warm(h, shape, flavour, top, below, masks_field, level_field)
        if node >= 0:
            return node
    if words == 1:
        for level in range(top, below, -1):
            mask = masks[level]
            while mask != 0:
                node = trailing_zeros(mask)
                if fits(h, shape, node):
                    return node
                mask &= mask - 1
        summaries = 0
    for level in range(top, below, -1):
        for i in range(summaries):
            several = summary[level * summaries + i]
            while several != 0:
                word = (i << 6) + trailing_zeros(several)
                mask = masks[level * words + word]
                while mask != 0:
                    node = (word << 6) + trailing_zeros(mask)
                    if fits(h, shape, node):
                        return node
                    mask &= mask - 1
                several &= several - 1
    blocked[shape] = c[VERSION]
    return -1
