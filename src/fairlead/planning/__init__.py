"""Planning: pure functions that policies share, such as the placements of a workflow that are worth choosing from."""

from fairlead.planning.front import Front
from fairlead.planning.pareto import pareto_filter
from fairlead.planning.placement import brute_force_front, placement_front
from fairlead.planning.search import Found, Path, Search, top_paths
from fairlead.planning.split import Split, average_weights, proportional, slo_split

__all__ = [
    "Found",
    "Front",
    "Path",
    "Search",
    "Split",
    "average_weights",
    "brute_force_front",
    "pareto_filter",
    "placement_front",
    "proportional",
    "slo_split",
    "top_paths",
]
