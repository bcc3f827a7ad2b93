"""What arrives: arrival processes, traces, closed loops, and the scenario files that name them."""

from fairlead.workload.arrivals import (
    Arrivals,
    Burst,
    ClosedLoop,
    Deterministic,
    Listed,
    MinuteCounts,
    Pillar,
    Poisson,
    UniformInterval,
)
from fairlead.workload.azure import MinuteTrace, read_trace
from fairlead.workload.parse import CheckPolicy, load_scenario, parse_scenario, scenario_points, shipped_scenarios
from fairlead.workload.scenario import DecisionTime, NodeFault, PolicyChoice, PressureChange, Scenario, Sweep
from fairlead.workload.transform import compete, fuse

__all__ = [
    "Arrivals",
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
    "Sweep",
    "UniformInterval",
    "compete",
    "fuse",
    "load_scenario",
    "parse_scenario",
    "read_trace",
    "scenario_points",
    "shipped_scenarios",
]
