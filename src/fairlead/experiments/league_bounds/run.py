"""For every scenario and load of the core league the most that could be answered in time, and the best that was."""

from collections.abc import Iterator
from math import inf
from statistics import fmean

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, fact
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import Row, Rows, by_seed, committed_rows, measured, select
from fairlead.league.bound import attainment_bound
from fairlead.league.catalogue import catalogue
from fairlead.league.load import offered_rps
from fairlead.league.plan import core_scenarios, shipped_entrant
from fairlead.workload import Scenario

_OURS = "fairlead"
_LEAGUE = "fairlead.experiments.league"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Work out the bounds; the league's figures are those of its committed rows."""
    settings = read_settings(__package__)
    settings = {**settings, **(settings["quick"] if quick else {})}
    chosen = catalogue()
    names = settings.get("scenarios", core_scenarios(chosen)[0])
    league = committed_rows(_LEAGUE)
    rows = []
    for number, name in enumerate(names):
        for load, scenario in shipped_entrant(name, [_OURS], chosen.loads, chosen).at.items():
            bounds = _bounds(scenario, settings["seeds"])
            if bounds:
                own = select(league, scenario=name, load=load, status="done")
                rows.append(_row(name, load, scenario, bounds, own))
        progress((number + 1) / len(names), name)
    return Reproduction(
        name="league-bounds",
        title="What no dispatcher can beat in the core league",
        rows=tuple(rows),
        notes=(
            origin(range(settings["seeds"])),
            "The bound leaves out memory, cold starts, slices that idle instances keep, and how long batches take to "
            "fill.",
        ),
    )


def _bounds(scenario: Scenario, seeds: int) -> list[float]:
    found = [attainment_bound(scenario, seed) for seed in range(seeds)]
    return [one for one in found if one is not None]


def _row(name: str, load: float, scenario: Scenario, bounds: list[float], league: Rows) -> dict[str, object]:
    bound = fmean(bounds)
    row: dict[str, object] = {
        "scenario": name,
        "load": load,
        "bound": round(bound, 4),
        "bound_by_seed": by_seed(bounds),
        "bound_rps": round(bound * offered_rps(scenario), 3),
    }
    best = max(league, key=lambda one: float(one["attainment"]), default=None)
    ours = next(iter(select(league, policy=_OURS)), None)
    if best is not None and ours is not None:
        row |= {"best": best["attainment"], "best_policy": best["policy"], _OURS: ours["attainment"]}
        row["highest_low"] = round(max(map(_low, league)), 4)  # of all lower ends of intervals
    return row


def _low(row: Row) -> float:
    found = measured(row, "attainment")
    return found.low if found.low > -inf else found.mean


def judge(rows: Rows) -> Iterator[Claim]:
    """A bound that is exceeded is none; and what is known of the settings in which every dispatcher is poor."""
    known = [row for row in rows if row["best"] is not None]
    excess = {(row["scenario"], row["load"]): row["highest_low"] - row["bound"] for row in known}
    if not excess:
        return
    (scenario, load), most = max(excess.items(), key=lambda item: item[1])
    yield fact(
        "No dispatcher of the core league is above the bound",
        "the lower end of the 95 % interval of every attainment is at most the bound",
        most <= 0,
        paper="none: a claim of ours",
        ours=f"{100 * most:+.1f} points at most ({scenario} at load {load:g})",
        kind="own",
    )
