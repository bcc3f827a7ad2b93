"""The league: every dispatcher on every scenario, at several loads and seeds, in the simulator."""

from fairlead.league.cache import Cache, default_folder
from fairlead.league.catalogue import Catalogue, catalogue
from fairlead.league.figures import Figures, Outcome
from fairlead.league.plan import Cell, Entrant, Plan, make_plan
from fairlead.league.run import Done, run_league
from fairlead.league.standing import Break, Result, Standing, Table, breaks, standings, tabulate

__all__ = [
    "Break",
    "Cache",
    "Catalogue",
    "Cell",
    "Done",
    "Entrant",
    "Figures",
    "Outcome",
    "Plan",
    "Result",
    "Standing",
    "Table",
    "breaks",
    "catalogue",
    "default_folder",
    "make_plan",
    "run_league",
    "standings",
    "tabulate",
]
