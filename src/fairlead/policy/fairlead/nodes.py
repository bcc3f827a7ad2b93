"""The nodes of one kind in the order in which runs prefer them, kept as what is in use and paces change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sortedcontainers import SortedList

UNEVEN = 1.15  # a pace from which on a node is avoided where there are others

Rank = tuple[float, float, int]  # pace where it is uneven, what is in use, and the place among the nodes of the kind


class Ranking:
    """Nodes by pace, where it is uneven, and then by what is in use; O(log n) per node that has changed.

    A change is noted when it happens and taken in when the order is asked for: where all nodes are alike, it never is.

    Args:
        names: The nodes, in the order of the cluster, which decides between equals.
        pace: Observed over expected time, by node.
        busy: What is in use, by node.
    """

    def __init__(self, names: Sequence[str], pace: Mapping[str, float], busy: Mapping[str, float]) -> None:
        self.names = names
        self._pace, self._busy = pace, busy
        self._places = {name: place for place, name in enumerate(names)}
        self._ranks: dict[str, Rank] = {}
        self._sorted: SortedList = SortedList()
        self._slow: SortedList = SortedList()  # (-pace, place) of those that are avoided
        self.changed: set[str] = set(names)

    def _take_in(self) -> None:
        for name in self.changed:
            place, pace = self._places[name], self._pace[name]
            before, after = self._ranks.get(name), (pace if pace > UNEVEN else 1.0, self._busy[name], place)
            if before == after:
                continue
            if before is not None:
                self._sorted.remove(before)
                if before[0] > 1:
                    self._slow.remove((-before[0], place))
            self._ranks[name] = after
            self._sorted.add(after)
            if after[0] > 1:
                self._slow.add((-after[0], place))
        self.changed.clear()

    def __iter__(self) -> Iterator[Rank]:
        """All nodes, the one that is preferred first."""
        self._take_in()
        return iter(self._sorted)

    def of(self, names: Iterable[str]) -> list[Rank]:
        """Those of these nodes that are of the kind, the one that is preferred first."""
        self._take_in()
        return sorted([self._ranks[name] for name in names if name in self._ranks])

    def slowest(self) -> tuple[str, float] | None:
        """The node with the highest pace and this pace, if it is one that is avoided."""
        self._take_in()
        if not self._slow:
            return None
        pace, place = self._slow[0]
        return self.names[place], -pace
