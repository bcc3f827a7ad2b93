"""Measuring a machine as a server: what the gateway, wake-ups and the load generator cost besides the functions.

A small app is served for real and loaded in a few ways; `fit` turns what was seen into a `Host`.
"""

from fairlead.calibrate.measure import POLICIES, calibrate

__all__ = ["POLICIES", "calibrate"]
