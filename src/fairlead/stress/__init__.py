"""Pressure on nodes from third parties: how much, when, and the processes that make it."""

from fairlead.stress.burners import BURNERS, MissingBurnerError
from fairlead.stress.holding import StressError
from fairlead.stress.pressure import KINDS, Pressure, parse_share
from fairlead.stress.run import run_schedule
from fairlead.stress.schedule import (
    LEVELS,
    Phase,
    Schedule,
    draw_schedule,
    parse_schedule,
    read_schedule,
    write_schedule,
)
from fairlead.stress.stressor import Stressor

__all__ = [
    "BURNERS",
    "KINDS",
    "LEVELS",
    "MissingBurnerError",
    "Phase",
    "Pressure",
    "Schedule",
    "StressError",
    "Stressor",
    "draw_schedule",
    "parse_schedule",
    "parse_share",
    "read_schedule",
    "run_schedule",
    "write_schedule",
]
