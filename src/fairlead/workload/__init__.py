"""What arrives: arrival processes, traces, closed loops, and the scenario files that name them."""

from importlib import import_module
from typing import TYPE_CHECKING

from fairlead.workload.arrivals import (
    Arrivals,
    AzureLike,
    Burst,
    ClosedLoop,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    UniformInterval,
)
from fairlead.workload.scenario import DecisionTime, NodeFault, PolicyChoice, PressureChange, Scenario, Sweep
from fairlead.workload.streams import Share, Window
from fairlead.workload.transform import compete, fuse

if TYPE_CHECKING:
    from fairlead.workload.azure import MinuteTrace, read_trace
    from fairlead.workload.parse import (
        CheckPolicy,
        load_scenario,
        parse_scenario,
        scenario_points,
        shipped_names,
        shipped_scenarios,
    )

__all__ = [
    "Arrivals",
    "AzureLike",
    "Burst",
    "CheckPolicy",
    "ClosedLoop",
    "DecisionTime",
    "Deterministic",
    "Listed",
    "MinuteCounts",
    "MinuteTrace",
    "NodeFault",
    "Pillar",
    "Poisson",
    "PolicyChoice",
    "PressureChange",
    "Scenario",
    "Share",
    "Sweep",
    "UniformInterval",
    "Window",
    "compete",
    "fuse",
    "load_scenario",
    "parse_scenario",
    "read_trace",
    "scenario_points",
    "shipped_names",
    "shipped_scenarios",
]

_HOMES = {
    "MinuteTrace": "fairlead.workload.azure",
    "read_trace": "fairlead.workload.azure",
    "CheckPolicy": "fairlead.workload.parse",
    "load_scenario": "fairlead.workload.parse",
    "parse_scenario": "fairlead.workload.parse",
    "scenario_points": "fairlead.workload.parse",
    "shipped_names": "fairlead.workload.parse",
    "shipped_scenarios": "fairlead.workload.parse",
}

if not TYPE_CHECKING:  # a checker would take every name for one that exists

    def __getattr__(name: str) -> object:
        """Load a name when it is first used: who serves requests reads no trace and needs no table library."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)
