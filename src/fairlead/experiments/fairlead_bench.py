"""Settings beyond the league in which `fairlead` is compared: run by the league's workers, kept in its cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairlead.experiments.cases import Progress
from fairlead.experiments.rows import columns
from fairlead.league import Cache, Entrant, Figures, Outcome, Plan, catalogue, default_folder, make_plan, run_league
from fairlead.league.load import at_load, offered_rps
from fairlead.league.times import shortened
from fairlead.league.workers import cores
from fairlead.workload import PolicyChoice, Scenario, load_scenario

OURS = "fairlead"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One scenario as it is run, and the number of seeds of each policy that decides in it.

    No two settings may have both name and load in common. The scenario is given at that load.
    """

    name: str
    load: float
    scenario: Scenario
    seeds: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.name} at load {self.load:g}"


Found = Mapping[str, Sequence[Outcome]]
"""The outcomes of one setting: by policy, one per seed."""


def shipped(name: str, load: float, times_s: Mapping[str, float] | None = None) -> Scenario:
    """A shipped scenario at a load, as long as in the league, or with the given `warmup_s` and `counted_s` after it."""
    scenario = load_scenario(name)
    if times_s:
        warmup_s, counted_s = times_s["warmup_s"], times_s["counted_s"]
        scenario = replace(scenario, warmup_s=warmup_s, duration_s=warmup_s + counted_s)
    else:
        scenario = shortened(scenario, load, catalogue().times)
    return at_load(scenario, load)


def deciding(scenario: Scenario, policy: str, **parameters: object) -> Scenario:
    """The scenario with a policy of its own, which then decides with these parameters."""
    return replace(scenario, policy=PolicyChoice(name=policy, parameters=parameters))


def measure(settings: Sequence[Setting], limit_s: float, progress: Progress) -> list[Found]:
    """What came of every setting; whatever was run before comes from the cache."""
    plans = [
        [make_plan([_entrant(setting, count)], count) for count in sorted(set(setting.seeds.values()))]
        for setting in settings
    ]
    whole = [plan for own in plans for plan in own]
    unlike = {run.key: run for plan in whole for run in plan.runs}  # equal settings are run once
    league = Plan(
        entrants=tuple(entrant for plan in whole for entrant in plan.entrants),
        runs=tuple(unlike.values()),
        seeds=max((plan.seeds for plan in whole), key=len),
    )
    done = run_league(league, Cache(default_folder()), jobs=cores(), limit_s=limit_s, progress=progress)
    by_key = {key: done.outcomes[run.cell, run.seed] for key, run in unlike.items()}
    return [
        {cell.policy: [by_key[run.key] for run in plan.runs if run.cell == cell] for plan in own for cell in plan.cells}
        for own in plans
    ]


def _entrant(setting: Setting, seeds: int) -> Entrant:
    """The policies of a setting that have this number of seeds."""
    policies = tuple(name for name, own in setting.seeds.items() if own == seeds)
    rate_rps = offered_rps(setting.scenario)
    return Entrant(name=setting.name, at={setting.load: setting.scenario}, policies=policies, rate_rps=rate_rps)


def status(outcomes: Sequence[Outcome]) -> str:
    """`done` if every run is, otherwise what became of the first that is not."""
    return next((one.status for one in outcomes if one.status != "done"), "done")


def figures(outcomes: Sequence[Outcome]) -> list[Figures]:
    """The figures of all runs; empty unless every run is done."""
    found = [one.figures for one in outcomes if one.figures is not None]
    return found if len(found) == len(outcomes) else []


def measured_columns(setting: Setting, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The columns of a row: status, attainment and goodput with every seed.

    Goodput is per second in which requests are counted, so that it can be compared between loads.
    """
    found = figures(outcomes)
    if not found:
        return {"status": status(outcomes)}
    counted_s = setting.scenario.duration_s - setting.scenario.warmup_s
    return {
        "status": "done",
        **columns("attainment", [one.attainment for one in found], 4),
        **columns("goodput_rps", [one.attainment * one.requests / counted_s for one in found], 3),
    }


def failures(settings: Sequence[Setting], found: Sequence[Found]) -> list[str]:
    """One note per setting and policy without figures."""
    return [
        f"{policy} on {setting}: {status(outcomes)}{_reason(outcomes)}."
        for setting, own in zip(settings, found, strict=True)
        for policy, outcomes in own.items()
        if status(outcomes) != "done"
    ]


def _reason(outcomes: Sequence[Outcome]) -> str:
    failed = next(one for one in outcomes if one.status != "done")
    if failed.status == "too slow":
        return f", a run took longer than {failed.limit_s:g} s"
    return f", {failed.reason}" if failed.reason else ""
