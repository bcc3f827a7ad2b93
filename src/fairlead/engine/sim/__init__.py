"""The simulator: a virtual clock, an event loop, and the cluster's physics."""

from fairlead.engine.sim.physics import Physics
from fairlead.engine.sim.simulate import Progress, simulate

__all__ = ["Physics", "Progress", "simulate"]
