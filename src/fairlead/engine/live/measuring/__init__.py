"""Measuring the functions of an app with real instances: what `fairlead profile` does, and `serve` briefly."""

from fairlead.engine.live.measuring.app import measure_app
from fairlead.engine.live.measuring.measure import QUICK, Effort, Measurement, measure

__all__ = ["QUICK", "Effort", "Measurement", "measure", "measure_app"]
