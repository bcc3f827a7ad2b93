"""A league from its plan to its outcomes: what is cached is taken from there, the rest is done and cached."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from fairlead.league.cache import Cache
from fairlead.league.figures import Outcome
from fairlead.league.load import expected_requests
from fairlead.league.plan import Cell, Plan, PlannedRun
from fairlead.league.workers import Work, run_in_workers

Progress = Callable[[float, str], None]

_KEEP_WALL_EVERY_S = 10.0
_GUESS_S = 5e-4  # for one stage of one request, where a cell was never run: only its relation to others matters


@dataclass(kw_only=True)
class Done:
    """The outcomes of the runs that were done or found, and how many of either. It grows while a league runs."""

    outcomes: dict[tuple[Cell, int], Outcome] = field(default_factory=dict)
    found: int = 0
    ran: int = 0

    @property
    def cpu_s(self) -> float:
        """Processor time of all runs with figures when they were done, in seconds; starting workers is not in it."""
        return sum(one.figures.cpu_s for one in self.outcomes.values() if one.figures is not None)


def run_league(
    plan: Plan, cache: Cache, *, jobs: int, limit_s: float, progress: Progress | None = None, done: Done | None = None
) -> Done:
    """Find or do every run of a plan, the longest first, on `jobs` processes.

    Each outcome is cached as soon as it is there, so that a league which was interrupted goes on from there. `done`
    is filled as the runs end: who interrupts the league still has it.
    """
    done = done if done is not None else Done()
    missing = []
    for run in plan.runs:
        outcome = cache.find(run.key, limit_s)
        if outcome is None:
            missing.append(run)
        else:
            done.outcomes[run.cell, run.seed] = outcome
            done.found += 1
    known = cache.wall_times()
    costs = {run.cell: known.get(str(run.cell), _guess_s(run)) for run in missing}
    missing.sort(key=lambda run: -costs[run.cell])  # stable: seeds stay in order
    if missing:
        _run_missing(missing, costs, cache, jobs, limit_s, progress, done)
    return done


def _run_missing(
    missing: list[PlannedRun],
    costs: Mapping[Cell, float],
    cache: Cache,
    jobs: int,
    limit_s: float,
    progress: Progress | None,
    done: Done,
) -> None:
    whole_s = sum(costs[run.cell] for run in missing)
    done_s = 0.0
    walls: dict[str, float] = {}
    kept_at = monotonic()
    works = [Work(scenario=run.scenario, seed=run.seed) for run in missing]
    if progress is not None:
        progress(0.0, f"0/{len(missing)} runs")
    workers = run_in_workers(works, jobs, limit_s)
    try:
        for position, outcome in workers:
            run = missing[position]
            cache.keep(run.key, outcome, str(run))
            done.outcomes[run.cell, run.seed] = outcome
            done.ran += 1
            done_s += costs[run.cell]
            walls[str(run.cell)] = outcome.wall_s
            if progress is not None:
                progress(done_s / whole_s if whole_s else 1.0, f"{done.ran}/{len(missing)} runs, {run.cell}")
            if monotonic() - kept_at > _KEEP_WALL_EVERY_S:
                cache.keep_wall_times(walls)
                kept_at = monotonic()
    finally:
        workers.close()
        cache.keep_wall_times(walls)


def _guess_s(run: PlannedRun) -> float:
    """About how long a run takes that was never done: by the requests of its whole duration, and their stages."""
    scenario = run.scenario
    share = scenario.duration_s / (scenario.duration_s - scenario.warmup_s)
    stages = max(len(workflow.stages) for workflow in scenario.workflows.values())
    return (1 + expected_requests(scenario) * share) * stages * _GUESS_S
