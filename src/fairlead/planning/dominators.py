"""What every path of a graph of stages passes, and what lies between.

A stage that *dominates* the end of a graph is on every path to it. These stages are a path of the dominator tree, the
*spine*; between two that follow each other lies nothing, or a *region* with a fork and a join. Only who waits for whom
matters here: a precedence that others imply is left out. Where every stage of one set precedes every stage of another,
a *knot*, a point that is no stage, is put between them, so that the dominator tree shows this join as well.
"""

from collections.abc import Mapping, Sequence

import networkx as nx

from fairlead.planning.decomposition import Graph

_SOURCE, _SINK = -1, -2


class Net:
    """The points of a graph: its stages by their numbers, then knots. Each stage names earlier ones only.

    `before` and `after` hold direct precedences; `order` all points, each after those that it waits for.
    """

    def __init__(self, graph: Graph) -> None:
        self.count = len(graph)
        self.before: dict[int, list[int]] = dict(enumerate(_reduced(graph)))
        self.after: dict[int, list[int]] = {point: [] for point in self.before}
        for point, predecessors in self.before.items():
            for predecessor in predecessors:
                self.after[predecessor].append(point)
        order: list[tuple[float, int]] = [(stage, stage) for stage in self.before]
        alike: dict[tuple[int, ...], list[int]] = {}
        for point, predecessors in self.before.items():
            alike.setdefault(tuple(predecessors), []).append(point)
        for firsts, points in alike.items():
            if len(firsts) > 1 and len(points) > 1 and all(self.after[each] == points for each in firsts):
                knot = len(self.before)
                self.before[knot], self.after[knot] = list(firsts), points
                self.before.update((point, [knot]) for point in points)
                self.after.update((each, [knot]) for each in firsts)
                order.append((max(firsts) + 0.5, knot))
        self.order = [point for _, point in sorted(order)]

    def is_stage(self, point: int) -> bool:
        """Whether it is a stage and not a knot."""
        return point < self.count

    def series(self, points: Sequence[int]) -> list[list[int]]:
        """These points, in order, cut wherever all paths meet: a list of one is on the spine, a longer one a region."""
        inside = set(points)
        graph = nx.DiGraph()
        for point in points:
            before = [each for each in self.before[point] if each in inside]
            graph.add_edges_from((each, point) for each in before or [_SOURCE])
            if inside.isdisjoint(self.after[point]):
                graph.add_edge(point, _SINK)
        parents: Mapping[int, int] = nx.immediate_dominators(graph, _SOURCE)
        spine = set()
        point = parents[_SINK]
        while point != _SOURCE:  # some versions name the source its own dominator, others leave it out
            spine.add(point)
            point = parents[point]
        cut: list[list[int]] = []
        nearest = {_SOURCE: _SOURCE}  # the last of the spine that each point comes after
        regions: dict[int, list[int]] = {}
        for point in points:
            if point in spine:
                nearest[point] = point
                cut.append([point])
                continue
            above = nearest[point] = nearest[parents[point]]
            if above not in regions:
                regions[above] = []
                cut.append(regions[above])
            regions[above].append(point)
        return cut

    def arms(self, points: Sequence[int]) -> list[list[int]]:
        """These points, in order, by what hangs together: side by side if there are several."""
        arm_of: dict[int, int] = {}
        inside = set(points)
        for first in points:
            if first in arm_of:
                continue
            arm_of[first] = first
            reached = [first]
            for point in reached:  # grows as it is read
                for near in (*self.before[point], *self.after[point]):
                    if near in inside and near not in arm_of:
                        arm_of[near] = first
                        reached.append(near)
        arms: dict[int, list[int]] = {}
        for point in points:
            arms.setdefault(arm_of[point], []).append(point)
        return list(arms.values())


def _reduced(graph: Graph) -> list[list[int]]:
    """The direct predecessors of every stage, ascending, without those that precede another of them."""
    before: list[int] = []  # bit masks
    reduced = []
    for predecessors in graph:
        mask, kept = 0, []
        for each in sorted(set(predecessors), reverse=True):
            if not mask >> each & 1:
                kept.append(each)
                mask |= before[each] | 1 << each
        before.append(mask)
        reduced.append(kept[::-1])
    return reduced
