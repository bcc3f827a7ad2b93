"""A live run again: in the simulator under any policy, or instant by instant, to see that nothing is left to chance."""

from fairlead.replay.again import Deviation, deviation, replay
from fairlead.replay.exact import Difference, check_exactly
from fairlead.replay.logged import LoggedRun, read_logged_run
from fairlead.replay.observed import Observations
from fairlead.replay.physics import EmpiricalPhysics

__all__ = [
    "Deviation",
    "Difference",
    "EmpiricalPhysics",
    "LoggedRun",
    "Observations",
    "check_exactly",
    "deviation",
    "read_logged_run",
    "replay",
]
