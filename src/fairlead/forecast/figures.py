"""The figures of a workflow at a rate of requests, each with a 95 % interval over seeds of the arrivals."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from fairlead.engine import simulate
from fairlead.report import Summary, estimate, summarise
from fairlead.report.metrics import Estimate
from fairlead.workload import Scenario
from fairlead.workload.arrivals import Poisson

LEAST_S, MOST_S = 2.0, 60.0
"""How long a run is at least and at most, where its length follows from the number of requests."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of a workflow that gets this many requests per second, and nothing besides it.

    `in_time` is the share of all requests that are answered in time; `cost_per_million` counts answers; `utilisation`
    is the share of the cluster's vCPUs that run functions. Latencies are None where no run gave an answer.
    `shares` has the share in time of every run, in the order of the seeds.
    """

    workflow: str
    rate_rps: float
    duration_s: float
    seeds: tuple[int, ...]
    requests: int
    shares: tuple[float, ...]
    in_time: Estimate
    goodput_rps: Estimate
    p50_s: Estimate | None
    p99_s: Estimate | None
    cost_per_hour: Estimate
    cost_per_million: Estimate | None
    utilisation: Estimate


def forecast(
    scenario: Scenario,
    workflow: str,
    rate_rps: float,
    *,
    seeds: Sequence[int] = range(5),
    duration_s: float | None = None,
    requests: int = 2_000,
    done: Callable[[], None] = lambda: None,
) -> Forecast:
    """Simulate Poisson arrivals at this rate once per seed.

    Without a duration, a run is as long as about this many requests take to arrive. `done` is called after each run.
    """
    duration_s = run_length_s(rate_rps, requests) if duration_s is None else duration_s
    run = replace(scenario, arrivals=(Poisson(workflow, rate_rps=rate_rps),), duration_s=duration_s, warmup_s=0.0)
    summaries = []
    for seed in seeds:
        summaries.append(summarise(simulate(run, seed=seed)))
        done()
    shares = tuple(1.0 if one.slo_attainment is None else one.slo_attainment for one in summaries)  # 1: nobody came
    return Forecast(
        workflow=workflow,
        rate_rps=rate_rps,
        duration_s=duration_s,
        seeds=tuple(seeds),
        requests=sum(summary.requests for summary in summaries),
        shares=shares,
        in_time=estimate(shares),
        goodput_rps=_estimate([summary.goodput_rps for summary in summaries]) or estimate([0.0]),
        p50_s=_estimate([summary.latency_s.p50 for summary in summaries]),
        p99_s=_estimate([summary.latency_s.p99 for summary in summaries]),
        cost_per_hour=estimate([s.cost_usd / max(s.makespan_s, duration_s) * 3600 for s in summaries]),
        cost_per_million=_estimate([s.cost_usd / s.completed * 1e6 if s.completed else None for s in summaries]),
        utilisation=estimate([_utilisation(summary, scenario) for summary in summaries]),
    )


def run_length_s(rate_rps: float, requests: int) -> float:
    """How long it takes for about this many requests to arrive, within bounds."""
    return min(MOST_S, max(LEAST_S, requests / rate_rps))


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    """The estimate of the values that there are; None without any."""
    known = [value for value in values if value is not None]
    return estimate(known) if known else None


def _utilisation(summary: Summary, scenario: Scenario) -> float:
    """Of all nodes together, each by its vCPUs."""
    vcpus = {node.name: node.vcpus for node in scenario.cluster.nodes}
    used = sum((summary.utilisation[name].vcpu or 0.0) * count for name, count in vcpus.items())
    return used / sum(vcpus.values())
