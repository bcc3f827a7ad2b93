"""Engines: one controller, driven by a simulated or a real clock."""

from fairlead.engine.sim import simulate

__all__ = ["simulate"]
