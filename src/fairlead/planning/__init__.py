"""Planning: pure functions that policies share, such as the placements of a workflow that are worth choosing from."""

from fairlead.planning.front import Front
from fairlead.planning.pareto import pareto_filter
from fairlead.planning.placement import brute_force_front, placement_front

__all__ = ["Front", "brute_force_front", "pareto_filter", "placement_front"]
