"""How a graph of stages falls apart: what runs one after the other, what side by side, and what is neither.

Only the order of the stages matters for a critical path, so that the graph is read as an order: a stage is *before* all
that it leads to, directly or not. A *part* of it is a set of stages that every stage outside sees alike: all before it,
all after it, or all beside it. From outside, a part is one stage whose latency is its own critical path. The tree of
parts is the modular decomposition of the order (Gallai 1967): each part is one stage, or smaller parts in **series**
(each before the next), or in **parallel** (none before another), or a **kernel**: neither, down to the smallest number
of parts that no further reduction can lower. A graph is series-parallel exactly if it has no kernel; a join in which
every stage of one set precedes every stage of another is a series of two parallel parts, whether or not a stage stands
between them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

Graph = Sequence[Sequence[int]]


class Kind(Enum):
    """How the parts of a part stand to each other."""

    STAGE = auto()
    SERIES = auto()
    PARALLEL = auto()
    KERNEL = auto()


@dataclass(frozen=True)
class Part:
    """Stages that look like one from outside.

    Attributes:
        stages: A bit mask; bit i is stage i.
        parts: Positions of its parts in the list of all; empty for one stage.
        after: For a kernel, for each of its parts a bit mask over them: those that come after it. Otherwise empty.
    """

    kind: Kind
    stages: int
    parts: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def first(self) -> int:
        """The index of its first stage; for one stage, of itself."""
        return _lowest(self.stages)


def decompose(graph: Graph) -> list[Part]:
    """The tree of parts as a list: the whole first, every part before its own parts.

    n^2 operations on bit masks of n stages for a series-parallel graph, n^3 in the worst case. A list and not nested
    values: a tree may be as deep as there are stages.
    """
    order = _Order(graph)
    open_masks = [(1 << len(graph)) - 1]
    parts: list[Part] = []
    for stages in open_masks:  # grows as it is read
        kind, masks = order.split(stages)
        first = len(open_masks)
        open_masks += masks
        after: tuple[int, ...] = ()
        if kind is Kind.KERNEL:
            after = tuple(order.later(mask, masks) for mask in masks)
        parts.append(Part(kind, stages, tuple(range(first, len(open_masks))), after))
    return parts


class _Order:
    """Who is before and after whom, each as a bit mask."""

    def __init__(self, graph: Graph) -> None:
        count = len(graph)
        self.before = [0] * count
        self.after = [0] * count
        for stage, predecessors in enumerate(graph):
            for predecessor in predecessors:
                if not 0 <= predecessor < stage:
                    raise ValueError(
                        f"a predecessor must come earlier in the graph, which is in topological order; "
                        f"stage {stage} names {predecessor}."
                    )
                self.before[stage] |= self.before[predecessor] | 1 << predecessor
        for stage, mask in enumerate(self.before):
            for earlier in _bits(mask):
                self.after[earlier] |= 1 << stage
        everything = (1 << count) - 1
        self.beside = [everything & ~(self.before[i] | self.after[i] | 1 << i) for i in range(count)]
        self.ordered = [self.before[i] | self.after[i] for i in range(count)]

    def split(self, stages: int) -> tuple[Kind, list[int]]:
        """How these stages fall apart, and into what."""
        if stages & (stages - 1) == 0:
            return Kind.STAGE, []
        pieces = _components(stages, self.ordered)
        if len(pieces) > 1:
            return Kind.PARALLEL, pieces
        pieces = _components(stages, self.beside)
        if len(pieces) > 1:
            return Kind.SERIES, pieces
        return Kind.KERNEL, list(self._largest(stages))

    def later(self, part: int, parts: Sequence[int]) -> int:
        """Which of these parts come after this one, as a bit mask over them."""
        after = self.after[_lowest(part)] & ~part  # any stage of it sees the others alike
        return sum(1 << i for i, other in enumerate(parts) if after & other)

    def _largest(self, stages: int) -> Iterator[int]:
        """The largest parts of a kernel: they are disjoint, so each can be grown from any stage of it."""
        left = stages
        while left:
            part = left & -left
            for other in _bits(left & ~part):
                if not part >> other & 1:
                    grown = self._closure(part | 1 << other, stages)
                    part = part if grown == stages else grown
            yield part
            left &= ~part

    def _closure(self, part: int, stages: int) -> int:
        """The smallest part that holds these stages: whoever does not see all of it alike is drawn in."""
        before = after = beside = stages
        fresh = part
        while fresh:
            for stage in _bits(fresh):
                before &= self.before[stage]
                after &= self.after[stage]
                beside &= self.beside[stage]
            fresh = stages & ~(part | before | after | beside)
            part |= fresh
        return part


def _components(stages: int, neighbours: Sequence[int]) -> list[int]:
    """The connected components of these stages."""
    found = []
    while stages:
        component = fresh = stages & -stages
        while fresh:
            reached = 0
            for stage in _bits(fresh):
                reached |= neighbours[stage]
            fresh = reached & stages & ~component
            component |= fresh
        found.append(component)
        stages &= ~component
    return found


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
