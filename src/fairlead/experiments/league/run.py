"""The core league: its standings, its heat map, and one row per scenario, load and policy."""

from collections.abc import Iterator
from math import isfinite, sqrt

from fairlead.experiments.cases import Progress, origin, read_settings
from fairlead.experiments.claims import Claim, Measured, above, around, at_most, decide
from fairlead.experiments.reproduction import Figure, Reproduction
from fairlead.experiments.rows import Rows, measured
from fairlead.league import Cache, catalogue, default_folder, run_league, standings, tabulate
from fairlead.league.document import league_rows
from fairlead.league.page import describe_failures, finding, heat_map_file
from fairlead.league.plan import core_plan
from fairlead.league.standing import LEVEL
from fairlead.league.workers import cores

_OURS = "fairlead"
_MEAN_REGRET = 0.005
_TITLE = "SLO attainment of every policy in the core league"


def run(*, quick: bool, progress: Progress) -> Reproduction:
    """Find in the cache or do every run of the core league."""
    settings = read_settings("fairlead.experiments.league")
    plan = core_plan(catalogue(), **(settings["quick"] if quick else {}))
    done = run_league(plan, Cache(default_folder()), jobs=cores(), limit_s=settings["limit_s"], progress=progress)
    table = tabulate(plan, done.outcomes)
    notes = [
        f"{one.policy}: level with the best in {one.level} of {one.cells} cells; behind it by "
        f"{100 * one.mean_regret:.1f} points on average, {100 * one.worst_regret:.1f} at worst "
        f"({one.worst_at.scenario} at load {one.worst_at.load:g})."
        for one in standings(table)
    ]
    return Reproduction(
        name="league",
        title="The core league",
        rows=tuple(league_rows(table)),
        notes=(origin(plan.seeds), finding(table), *notes, *plan.notes, *describe_failures(table)),
        figures=(Figure(name="league", title=_TITLE, svg=heat_map_file(table)),),
    )


def judge(rows: Rows) -> Iterator[Claim]:
    """Whether each published policy is behind the best somewhere, and how `fairlead` compares with the best."""
    regrets: dict[str, list[Measured]] = {}
    for row in rows:
        if row["regret"] is not None:
            regrets.setdefault(row["policy"], []).append(measured(row, "regret"))
    ours = regrets.pop(_OURS, [])
    single = sorted({row["policy"] for row in rows if row["regret"] is not None and row["regret_half_width"] is None})
    if regrets:
        yield decide(
            "no other dispatcher is level with the best in every cell",
            above(LEVEL, f"each is more than {100 * LEVEL:g} point behind the best in at least one cell"),
            *[max(found, key=lambda one: one.low) for found in regrets.values()],
            paper="none: a claim of ours",
            kind="own",
            note=f"Some cells of {', '.join(single)} have one seed and no interval." if single else None,
        )
    if ours:
        yield decide(
            "`fairlead` is level with the best in every cell",
            at_most(LEVEL, f"at most {100 * LEVEL:g} point behind the best in every cell"),
            *ours,
            paper="none: a claim of ours",
            kind="own",
            note="docs/policies/fairlead.md says where it is behind.",
        )
        mean = sum(one.mean for one in ours) / len(ours)
        half_width = sqrt(sum(((one.high - one.low) / 2) ** 2 for one in ours)) / len(ours)
        yield decide(
            "`fairlead` is behind the best by half a point on average",
            at_most(_MEAN_REGRET),
            around(mean, half_width if isfinite(half_width) else None),
            paper="none: a claim of ours",
            kind="own",
        )
