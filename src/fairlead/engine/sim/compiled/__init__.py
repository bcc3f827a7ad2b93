"""The compiled engine: the same semantics as the Python engine for what it covers, as machine code."""

from fairlead.engine.sim.compiled import blas  # noqa: F401 - first of all: see there
from fairlead.engine.sim.compiled.fleet import FleetResult, Sample, Windows, run_stream
from fairlead.engine.sim.compiled.keep_alive import (
    KEEP_ALIVE_RULES,
    Fixed,
    GreedyDual,
    HybridHistogram,
    KeepAlive,
    LeastRecentlyUsed,
    make_keep_alive,
)
from fairlead.engine.sim.compiled.placements import Placement, placement, python_placement
from fairlead.engine.sim.compiled.run import CompiledRun, Totals, coverage

__all__ = [
    "KEEP_ALIVE_RULES",
    "CompiledRun",
    "Fixed",
    "FleetResult",
    "GreedyDual",
    "HybridHistogram",
    "KeepAlive",
    "LeastRecentlyUsed",
    "Placement",
    "Sample",
    "Totals",
    "Windows",
    "coverage",
    "make_keep_alive",
    "placement",
    "python_placement",
    "run_stream",
]
