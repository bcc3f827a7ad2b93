"""Searches of the same stages again and again: most budgets have the answer of another budget."""

from fairlead.planning.search.run import Method, Search
from fairlead.planning.search.values import Found

_RANGES_MOST = 64


class Recall:
    """Gives what a search finds, without searching where the answer is known.

    The k cheapest paths within a budget are also the k cheapest within every smaller budget that all of them keep. So
    what was found holds from the latency of its slowest path up to the greatest budget with which it was found. Where
    no path is within a budget, none is within a smaller one. `steps` and the cuts of an answer are those of the budget
    that was searched with.
    """

    def __init__(self, search: Search, k: int, method: Method) -> None:
        self._search = search
        self._k = k
        self._method = method
        self._known: list[tuple[float, float, Found]] = []  # from which budget to which; the last used first

    def run(self, budget_s: float) -> Found:
        """The k cheapest paths within a budget."""
        known = self._known
        for place, (least_s, most_s, found) in enumerate(known):
            if least_s <= budget_s <= most_s:
                if place:
                    known.insert(0, known.pop(place))
                return found
        found = self._search.run(budget_s, self._k, self._method)
        least_s = max([path.latency_s for path in found.paths], default=float("-inf"))
        self._known = [each for each in known if each[2].paths != found.paths][: _RANGES_MOST - 1]
        self._known.insert(0, (least_s, budget_s, found))
        return found
