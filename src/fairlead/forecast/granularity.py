"""Comparing the splits of a workflow at several loads: which of them to take at which.

A fused run saves hops: the gateway's work on a stage, two wake-ups, and the way of the value in between. Stages apart
can be batched, scaled and placed one by one. Which weighs more depends on the load, so every split is simulated at
every load, with the same arrivals.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import msgspec

from fairlead.app.composed import composed_functions
from fairlead.app.fusion import unfused_manifest
from fairlead.app.manifest import FunctionSpec, Manifest
from fairlead.app.scenario import PRIOR_COLD_START_S, prior_s
from fairlead.app.serving import served_scenario
from fairlead.engine import simulate
from fairlead.forecast.figures import Forecast, forecast
from fairlead.forecast.splits import Split, splits_of
from fairlead.model import SLO
from fairlead.profile import Host
from fairlead.profile.laws import space
from fairlead.profile.measured import ColdStart, Machine, MeasuredFunction, MeasuredProfiles, Point
from fairlead.report import estimate
from fairlead.workload import ClosedLoop, Scenario

LOADS = (0.25, 0.5, 1.0, 1.5, 2.0)
"""Shares of the capacity at which splits are compared, where no rate is given."""

SAME_SHARE = 0.01
"""Splits whose shares in time differ by less count as equally good."""

SAME_COST = 0.05
"""Costs that differ by a smaller share count as equal."""

_USERS = 16
_RUNS_OF_CAPACITY = 30  # a closed loop is watched for this many times as long as one request takes alone

Watch = Callable[[float, str], None]
Adjust = Callable[[Scenario], Scenario]


class Cell(msgspec.Struct, frozen=True):
    """One split at one load."""

    split: Split
    forecast: Forecast


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Every split at every load.

    `capacity_rps` is what the best split completes with 16 users who wait for nothing but their answer; None where
    rates were given. `left_out` counts splits that were not compared, `composed` names fused functions whose times are
    composed from those of their parts. `rows` are by split, in the order of `rates`.
    """

    workflow: str
    rates: tuple[float, ...]
    capacity_rps: float | None
    left_out: int
    composed: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def best(self, load: int) -> Cell:
        """The split to take at one of the loads.

        It is the cheapest of those that are as good as the one with the highest share in time: their share is within a
        point of it, or lower by so little that the 95 % interval of the difference, seed by seed, contains zero. Of
        those whose cost is within 5 % of that, it is the one with the lowest median latency.
        """
        cells = [row[load] for row in self.rows]
        top = max(cells, key=lambda cell: cell.forecast.in_time.mean)
        good = [cell for cell in cells if _is_as_good(cell.forecast, top.forecast)]
        least = min(_cost(cell) for cell in good)
        cheap = [cell for cell in good if _cost(cell) <= least * (1 + SAME_COST)]
        return min(cheap, key=_median_s)

    def advice(self) -> list[tuple[float, float, Split]]:
        """Which split to take from which rate to which, as far as rates were tried."""
        found: list[tuple[float, float, Split]] = []
        for load, rate_rps in enumerate(self.rates):
            split = self.best(load).split
            if found and found[-1][2] == split:
                found[-1] = (found[-1][0], rate_rps, split)
            else:
                found.append((rate_rps, rate_rps, split))
        return found


def compare(
    app: Manifest,
    workflow: str,
    measured: MeasuredProfiles | None,
    host: Host | None,
    *,
    rates: Sequence[float] | None = None,
    seeds: Sequence[int] = range(5),
    requests: int = 400,
    adjust: Adjust = lambda scenario: scenario,
    watch: Watch = lambda share, doing: None,
) -> Comparison:
    """Simulate every split of a workflow at these rates; without any, at shares of the estimated capacity.

    A run has about this many requests. `adjust` may change the scenario of each split. Raises `ValueError` if the
    workflow has no stages that could be fused.
    """
    splits, left_out = splits_of(app, workflow)
    if len(splits) < 2:
        raise ValueError(f"workflow {workflow!r} has no two stages that could be fused, so there is one split only.")
    profiles = _complete(unfused_manifest(app), measured)
    scenarios: dict[Split, Scenario] = {}
    composed: dict[str, None] = {}
    for split in splits:
        manifest = split.manifest(app, workflow)
        scenarios[split] = adjust(served_scenario(manifest, profiles, host))
        composed |= dict.fromkeys(composed_functions(profiles.functions, manifest))
    capacity_rps = None
    if rates is None:
        watch(0.0, "capacity")
        capacity_rps = max(_capacity_rps(scenario, workflow) for scenario in scenarios.values())
        rates = [_rounded(load * capacity_rps) for load in LOADS]
    runs = len(splits) * len(rates) * len(seeds)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        watch(done / runs, split.label)

    rows = []
    for split, scenario in scenarios.items():
        cells = [forecast(scenario, workflow, rate, seeds=seeds, requests=requests, done=count) for rate in rates]
        rows.append(tuple(Cell(split, each) for each in cells))
    return Comparison(
        workflow=workflow,
        rates=tuple(rates),
        capacity_rps=capacity_rps,
        left_out=left_out,
        composed=tuple(composed),
        rows=tuple(rows),
    )


def _capacity_rps(scenario: Scenario, workflow: str) -> float:
    """Answers per second with users who call again as soon as they have their answer, none of whom is in a hurry."""
    graph = scenario.workflows[workflow]
    alone_s = sum(_least_s(scenario, stage.function) for stage in graph.stages)
    relaxed = {**scenario.workflows, workflow: msgspec.structs.replace(graph, slo=SLO())}
    duration_s = max(1.0, _RUNS_OF_CAPACITY * alone_s)
    run = replace(
        scenario,
        workflows=relaxed,
        arrivals=(ClosedLoop(workflow, _USERS, 0.0),),
        duration_s=duration_s,
        warmup_s=0.0,
    )
    requests = simulate(run, seed=0).requests
    first_s = duration_s / 4  # until then the loop fills
    answered = (requests["outcome"] == "completed") & requests["end"].is_between(first_s, duration_s)
    return max(1, answered.to_list().count(True)) / (duration_s - first_s)


def _least_s(scenario: Scenario, function: str) -> float:
    profile = scenario.profiles[function]
    kinds = scenario.cluster.kinds.items()
    return min(profile.latency_s(each, kind, node.speed) for each in profile.configurations for kind, node in kinds)


def _complete(manifest: Manifest, measured: MeasuredProfiles | None) -> MeasuredProfiles:
    """What was measured, and what is assumed of functions that were not."""
    if measured is None:
        machine = Machine(cpu="unknown", cores=1, limits="")
        measured = MeasuredProfiles(app=manifest.name, machine=machine, functions={})
    assumed = {spec.name: _assumed(spec) for spec in manifest.functions if spec.name not in measured.functions}
    return msgspec.structs.replace(measured, functions={**assumed, **measured.functions})


def _assumed(spec: FunctionSpec) -> MeasuredFunction:
    points = (
        Point(batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus, mean_s=prior_s(c.batch), is_predicted=True)
        for c in space(spec.batch, spec.vcpus, spec.vgpus)
    )
    cold = ColdStart(mean_s=PRIOR_COLD_START_S, p95_s=PRIOR_COLD_START_S, count=0)
    return MeasuredFunction(points=tuple(points), cold_start=cold)


def _rounded(rate_rps: float) -> float:
    """Two significant digits: a capacity is known no better."""
    return float(f"{rate_rps:.2g}")


def _is_as_good(one: Forecast, top: Forecast) -> bool:
    less = estimate([high - low for low, high in zip(one.shares, top.shares, strict=True)])
    return less.mean <= SAME_SHARE or (less.half_width is not None and less.mean <= less.half_width)


def _cost(cell: Cell) -> float:
    cost = cell.forecast.cost_per_million
    return inf if cost is None else cost.mean


def _median_s(cell: Cell) -> float:
    p50_s = cell.forecast.p50_s
    return inf if p50_s is None else p50_s.mean
