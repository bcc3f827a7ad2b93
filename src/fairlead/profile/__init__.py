"""Latency and cost: laws and tables, cold start, interference."""

from fairlead.profile.estimate import Estimate
from fairlead.profile.host import Host
from fairlead.profile.interference import slowdown
from fairlead.profile.laws import Constant, Exponential, Law, LogNormal, Row, ScalingLaw, Spread, Sum, Table, space
from fairlead.profile.links import Link, LinkedNode
from fairlead.profile.loading import copy_s, load_s
from fairlead.profile.profile import Profile

__all__ = [
    "Constant",
    "Estimate",
    "Exponential",
    "Host",
    "Law",
    "Link",
    "LinkedNode",
    "LogNormal",
    "Profile",
    "Row",
    "ScalingLaw",
    "Spread",
    "Sum",
    "Table",
    "copy_s",
    "load_s",
    "slowdown",
    "space",
]
