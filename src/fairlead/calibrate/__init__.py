"""Measuring a machine as a server: what the gateway, wake-ups and the load generator cost besides the functions.

A small app is served for real and loaded in a few ways; `fit` turns what was seen into a `Host`. An app of one's own is
served likewise (`rehearse`), and a simulation of it is set right by what was seen (`fit_rehearsal`).
"""

from fairlead.calibrate.agree import fit_rehearsal
from fairlead.calibrate.measure import POLICIES, calibrate
from fairlead.calibrate.rehearse import rehearse
from fairlead.calibrate.serving import ServingError
from fairlead.calibrate.speed import SpeedProbe

__all__ = ["POLICIES", "ServingError", "SpeedProbe", "calibrate", "fit_rehearsal", "rehearse"]
