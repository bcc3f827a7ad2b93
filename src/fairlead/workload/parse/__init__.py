"""Strict scenario files: every fault of a file is reported at once, with its path.

One module per part of a file; `reader` holds what they share, `document` turns YAML into plain data.
"""

from fairlead.workload.parse.scenario import (
    CheckPolicy,
    Document,
    load_scenario,
    parse_scenario,
    scenario_points,
    shipped_names,
    shipped_scenarios,
)

__all__ = [
    "CheckPolicy",
    "Document",
    "load_scenario",
    "parse_scenario",
    "scenario_points",
    "shipped_names",
    "shipped_scenarios",
]
