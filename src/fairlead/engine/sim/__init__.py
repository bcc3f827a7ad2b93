"""The simulator: a virtual clock, an event loop, and the cluster's physics."""

from fairlead.engine.sim.driver import Progress
from fairlead.engine.sim.physics import Physics
from fairlead.engine.sim.simulate import simulate

__all__ = ["Physics", "Progress", "simulate"]
