"""Search the configurations of a workflow, with any of three methods that give the same answer."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np

from fairlead.planning.search.stages import Indices, Mask, Options, Result, Stages, read_stages
from fairlead.planning.search.values import Found, Path

Method = Literal["frontier", "dual-blade", "brute-force"]
METHODS: tuple[Method, ...] = get_args(Method)


def top_paths(stages: Sequence[Options], budget_s: float, k: int = 5, method: Method = "frontier") -> list[Path]:
    """The k cheapest ways to take one option of each stage such that together they are within the budget.

    At most k, cheapest first; none if nothing is within the budget. A path is within it when its latencies, added up
    as floats in the order of the stages, are at most `budget_s`. All methods find the same costs. Of equally cheap
    paths brute force takes those with the smallest indices, the first stage's first, and the others always the same
    ones. To ask again with another budget, keep a `Search`.

    Args:
        stages: For each stage its options as (latency_s, cost_usd) pairs, or an array with two columns. One with an
            infinite number does not exist; a stage without any leaves no path.
        budget_s: May be negative, as what is left of a deadline can be: then there is no path.
        k: At least 1.
        method: `frontier` is best-first, with the fronts of what comes after; `dual-blade` is ESG's; `brute-force`
            looks at all paths, of which there may be 2,000,000,000.

    Raises:
        ValueError: There is no stage, an option is not a pair, a number is negative or not a number, k is less than
            1, there is no such method, or there are too many paths for it.
    """
    return list(Search(stages).run(budget_s, k, method).paths)


class Search:
    """The options of several stages, prepared once and searched many times.

    Preparation happens with the first search, and a small part of it again with the first of another k. The methods
    are compiled when they are first used, once per installation; that takes seconds.
    """

    def __init__(self, stages: Sequence[Options]) -> None:
        self._stages = read_stages(stages)
        self._paths = self._stages.paths
        self._all = np.ones(self._stages.counts[0], dtype=np.bool_)
        self._methods: dict[str, _Finder] = {}

    @cached_property
    def fastest_s(self) -> float:
        """The least latency of a path: a budget can be met if and only if it is at least this. Infinite if none can."""
        return self._stages.total(np.min, self._stages.latency_s)

    @cached_property
    def cheapest_usd(self) -> float:
        """The least cost of a path, however slow. Infinite if there is no path."""
        return self._stages.total(np.min, self._stages.cost_usd)

    def run(
        self,
        budget_s: float,
        k: int = 5,
        method: Method = "frontier",
        allowed: Mask | Indices | Sequence[int] | None = None,
    ) -> Found:
        """The k cheapest paths within the budget, and what it took to find them; see `top_paths`.

        `allowed` says which options of the first stage may be taken, if not all: their indices, or a mark for each
        (an array of bool or uint8). The batch of the next start, for one, is bounded by the queue.
        """
        if budget_s != budget_s:
            raise ValueError("budget_s must be a number; got nan.")
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k}.")
        if method not in METHODS:
            raise ValueError(f"no search method named {method!r}; there are {', '.join(METHODS)}.")
        marks = self._all if allowed is None else self._marks(allowed)
        if not self._paths:
            return Found((), 0, 0, 0)
        finder = self._methods.get(method) or self._prepare(method)
        choices, latencies, costs, steps, by_time, by_cost = finder.find(float(budget_s), min(k, self._paths), marks)
        ordered = sorted(zip(costs.tolist(), map(tuple, choices.tolist()), latencies.tolist(), strict=True))
        return Found(tuple([Path(choice, time, price) for price, choice, time in ordered]), steps, by_time, by_cost)

    def _prepare(self, method: Method) -> "_Finder":
        self._methods[method] = finder = _make(method, self._stages)
        return finder

    def _marks(self, allowed: Mask | Indices | Sequence[int]) -> Mask:
        given, count = np.asarray(allowed), len(self._all)
        if given.dtype in (np.bool_, np.uint8):
            if given.shape != (count,):
                raise ValueError(
                    f"allowed needs a mark for each of the first stage's {count} options; got {len(given)}."
                )
            # Compiled code exists for this kind of array only; it would be compiled again for a read-only one.
            return np.require(given, np.bool_, ["C", "W"])
        if not given.size:
            return np.zeros(count, dtype=np.bool_)
        indices = given.astype(np.int64)
        if (indices != given).any() or ((indices < 0) | (indices >= count)).any():
            raise ValueError(f"allowed has indices of the first stage's {count} options, from 0; got {given.tolist()}.")
        marks = np.zeros(count, dtype=np.bool_)
        marks[indices] = True
        return marks


class _Finder(Protocol):
    """A method, prepared for some stages, each of which has an option that exists."""

    def find(self, budget_s: float, k: int, allowed: Mask) -> Result: ...


def _make(method: Method, stages: Stages) -> _Finder:
    # Loading the compiler takes half a second, and a command that searches nothing must not wait for it.
    match method:
        case "frontier":
            from fairlead.planning.search.frontier import Frontier  # noqa: PLC0415

            return Frontier(stages)
        case "dual-blade":
            from fairlead.planning.search.dual_blade import DualBlade  # noqa: PLC0415

            return DualBlade(stages)
        case "brute-force":
            from fairlead.planning.search.brute_force import BruteForce  # noqa: PLC0415

            return BruteForce(stages)
