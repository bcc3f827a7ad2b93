"""What is kept of a live run and of its prediction."""

from collections.abc import Mapping

import msgspec
import polars as pl

from fairlead.load import LoadResult
from fairlead.model import Recording
from fairlead.report.counted import counted_invocations, counted_requests, total

_ROUNDING = 1e-9  # relative: an answer that is late by rounding only is in time


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, times and cost of the requests that arrived after the warm-up.

    Args:
        requests: All that arrived, sent or not.
        answers: Those with an answer.
        in_time: Those with an answer within the objective.
        goodput_rps: `in_time` per second.
        p50_s: Median latency of the answers, from the scheduled arrival; None without any.
        p99_s: The 99th percentile of the same.
        cost_usd: What their invocations cost, as `fairlead report` counts it; None where it is not known.
        by_workflow: The same for each workflow; empty in the figures of a single workflow.
    """

    requests: int
    answers: int
    in_time: int
    goodput_rps: float
    p50_s: float | None
    p99_s: float | None
    cost_usd: float | None = None
    by_workflow: Mapping[str, "Figures"] = {}

    @property
    def share(self) -> float:
        """Share of the requests that were answered in time; 0 without any."""
        return self.in_time / self.requests if self.requests else 0.0


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of the gateway per decision of the policy, with carrying it out; the warm-up is included."""

    count: int
    mean_s: float | None = None
    p99_s: float | None = None


class LiveCell(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one gateway.

    Args:
        app: Name of the app.
        policy: Who dispatched, with its `parameters` where others than the defaults were given.
        rate_rps: Requests per second of all workflows together.
        seconds: How long the counted part of the load took; `warm_up_s` came before.
        live: The figures, as the client saw them.
        decisions: From the records of the run.
        gateway_cpu_s: CPU seconds of the gateway, during the whole load with its warm-up.
        instances_cpu_s: The same of all instances.
        generator_cpu: Share of one core that the load generator used.
        others: Share of the CPUs that other programs used meanwhile.
        lag_p99_s: 99th percentile of how late the generator itself came to an arrival.
        spin_s: How fast the CPUs were: CPU time of the computation of `SpeedProbe`; None where it was not probed.
        refused: Refusals by status and reason.
        errors: Other requests without an answer, by what they were.
        unsent: Arrivals that found too many requests open.
        marks: Why the figures are doubtful; empty where they are not.
    """

    app: str
    policy: str
    rate_rps: float
    seconds: float
    seed: int
    warm_up_s: float
    live: Figures
    decisions: Decisions
    gateway_cpu_s: float
    instances_cpu_s: float
    generator_cpu: float
    others: float
    lag_p99_s: float
    spin_s: float | None = None
    slo_scale: float = 1.0
    parameters: Mapping[str, object] = {}
    refused: Mapping[str, int] = {}
    errors: Mapping[str, int] = {}
    unsent: int = 0
    marks: tuple[str, ...] = ()


def client_figures(result: LoadResult, cost_usd: Mapping[str, float]) -> Figures:
    """The figures of a load; `cost_usd` is that of each workflow."""
    by_workflow = {
        name: msgspec.structs.replace(_client(part), cost_usd=cost_usd.get(name, 0.0))
        for name, part in result.by_call.items()
    }
    return msgspec.structs.replace(_client(result), cost_usd=sum(cost_usd.values()), by_workflow=by_workflow)


def _client(result: LoadResult) -> Figures:
    return Figures(
        requests=result.offered,
        answers=result.answered,
        in_time=result.in_time,
        goodput_rps=result.goodput_rps,
        p50_s=result.latency.p50_s,
        p99_s=result.latency.p99_s,
    )


def recorded_figures(recording: Recording, seconds: float) -> Figures:
    """The figures of a recording whose counted part took so many seconds.

    A budget is left out, as clients do not see it: in time is what came by its deadline.
    """
    requests = counted_requests(recording)
    cost_usd = costs_usd(recording)
    by_workflow = {
        name: msgspec.structs.replace(
            _recorded(requests.filter(pl.col("workflow") == name), seconds), cost_usd=cost_usd.get(name, 0.0)
        )
        for name in sorted(requests["workflow"].unique())
    }
    whole = _recorded(requests, seconds)
    return msgspec.structs.replace(whole, cost_usd=sum(cost_usd.values()), by_workflow=by_workflow)


def _recorded(requests: pl.DataFrame, seconds: float) -> Figures:
    answered = requests.filter(pl.col("latency_s").is_not_null())
    budget_s = pl.col("deadline").fill_null(float("inf")) - pl.col("arrival")
    in_time = answered.filter(pl.col("latency_s") <= budget_s * (1 + _ROUNDING)).height
    return Figures(
        requests=requests.height,
        answers=answered.height,
        in_time=in_time,
        goodput_rps=in_time / seconds,
        p50_s=_quantile(answered["latency_s"], 0.5),
        p99_s=_quantile(answered["latency_s"], 0.99),
    )


def costs_usd(recording: Recording) -> dict[str, float]:
    """What the invocations of the counted requests cost, by workflow."""
    rows = counted_invocations(recording)
    return {
        str(name): total(rows.filter(pl.col("workflow") == name)["cost_usd"])
        for name in sorted(rows["workflow"].unique())
    }


def _quantile(values: pl.Series, share: float) -> float | None:
    found = values.quantile(share, interpolation="linear")
    return None if found is None else float(found)
