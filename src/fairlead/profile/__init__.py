"""How long and how dear: latency laws and tables, cold start, interference."""

from fairlead.profile.interference import slowdown
from fairlead.profile.laws import Constant, Exponential, Law, Row, ScalingLaw, Table, space
from fairlead.profile.profile import Estimate, Profile

__all__ = ["Constant", "Estimate", "Exponential", "Law", "Profile", "Row", "ScalingLaw", "Table", "slowdown", "space"]
