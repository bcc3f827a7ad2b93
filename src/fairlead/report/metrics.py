"""The numbers of a run, and of several runs of one policy that differ in the seed only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite, sqrt

import msgspec
import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from fairlead.model import NodeLife, Recording
from fairlead.report.counted import batches, cost_parts_usd, counted_invocations, counted_requests, makespan_s, total
from fairlead.report.fairness import jain, slowdowns, throughputs
from fairlead.report.labels import identity, plain


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles (linear interpolation) of a set of times; all None when the set is empty."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class DecisionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the policy took per call, measured; None without a call."""

    mean: float | None = None
    p99: float | None = None


class WorkflowSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a summary that one workflow's requests make. A client is a workflow.

    `slowdown` is the mean, over its answers, of the latency divided by the time that the request's own runs took.
    """

    requests: int
    completed: int
    slo_attainment: float | None
    latency_s: Quantiles
    wait_s: Quantiles
    slowdown: float | None = None


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """Share of a node's vCPUs and vGPUs that ran batches, in [0, 1]; None where the node has none."""

    vcpu: float | None = None
    vgpu: float | None = None


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """Which seconds are in the cost besides those of running."""

    cold_start: bool
    idle: bool


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What one run comes to.

    Counted are the requests that arrive after the warm-up, and their invocations; of the whole run are
    `makespan_s` (the latest end of any request or invocation), `cold_starts` (batches whose start is what started
    their instance, each once, whatever its size), `cache_hits` (batches that found their instance ready),
    `instances_started`, `utilisation` and the idle part of the cost.

    `slo_attainment` is the share of all counted requests that completed by their deadline and within their budget:
    rejected, dropped, failed, cancelled and unfinished ones are missed. `goodput_rps` is the number of those answers
    per second, from the warm-up to the end of arrivals or the last counted end, whichever is later; a live run is
    counted from its first to its last arrival or answer. `wait_s` is taken over the invocations that are done.
    `cold_waits` counts the other batches that waited for a cold start: their instance was still starting, ahead of
    need or for another batch. Both are in the cold-start part of the cost. `decision_s` and `run_wall_s` depend on the
    machine.

    `jain_slowdown` and `jain_throughput` are Jain's index over the workflows: of their mean slowdowns, and of how many
    answers each got before arrivals stopped. They are None for fewer than two workflows.

    `node_hours` is how long nodes were billed, from when each was asked for until it left, and `node_usd` what that
    cost; both are None for a cluster that cannot change. `cost_usd` does not contain it.
    """

    policy: str
    scaler: str | None
    seed: int
    requests: int
    completed: int
    rejected: int
    slo_attainment: float | None
    goodput_rps: float | None
    cost_usd: float
    latency_s: Quantiles
    wait_s: Quantiles
    makespan_s: float
    cold_starts: int
    invocations: int
    decision_s: DecisionTimes
    engine: str
    run_wall_s: float
    dropped: int
    failed: int
    cancelled: int
    unfinished: int
    cache_hits: int
    cache_hit_ratio: float | None
    instances_started: int
    cost_parts_usd: Mapping[str, float]
    by_workflow: Mapping[str, WorkflowSummary]
    utilisation: Mapping[str, Utilisation]
    billing: Billing
    parameters: Mapping[str, object]
    point: Mapping[str, object]
    jain_slowdown: float | None = None
    jain_throughput: float | None = None
    cold_waits: int = 0
    node_hours: float | None = None
    node_usd: float | None = None

    def as_json(self) -> dict[str, object]:
        """The summary as JSON values: no NaN or infinity; `point` only in a sweep, nodes only where they may change."""
        values = json_values(self)
        assert isinstance(values, dict)
        if not self.point:
            del values["point"]
        if self.node_hours is None:
            del values["node_hours"], values["node_usd"]
        return values


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over seeds with the half-width of its 95 % confidence interval (Student's t).

    The half-width is None for fewer than two values: one run says nothing about the spread.
    """

    mean: float
    half_width: float | None
    count: int


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one policy with one set of parameters, one scaler and one sweep point, over seeds.

    `estimates` has every number of the summaries under a dotted name, such as `latency_s.p95`. A value that is None
    in some runs is averaged over the others.
    """

    policy: str
    scaler: str | None
    parameters: Mapping[str, object]
    point: Mapping[str, object]
    seeds: tuple[int, ...]
    estimates: Mapping[str, Estimate]

    def as_json(self) -> dict[str, object]:
        """The aggregate as JSON values: no NaN or infinity."""
        values = json_values(self)
        assert isinstance(values, dict)
        return values


def summarise(recording: Recording) -> Summary:
    """The numbers of one run; `Summary` says what each means."""
    requests = counted_requests(recording)
    invocations = counted_invocations(recording, requests)
    done = invocations.filter(pl.col("outcome") == "done")
    ran = batches(recording)
    waits = ran.filter(~pl.col("is_cold") & (pl.col("cold_s") > 0)).height
    hits = ran.filter(~pl.col("is_cold") & (pl.col("cold_s") <= 0)).height
    parts = cost_parts_usd(recording, invocations)
    makespan = makespan_s(recording)
    count = dict(requests["outcome"].value_counts().iter_rows())
    by_workflow = _by_workflow(requests, done, slowdowns(requests, invocations))
    return Summary(
        policy=recording.policy,
        scaler=recording.scaler,
        seed=recording.seed,
        requests=requests.height,
        completed=count.get("completed", 0),
        rejected=count.get("rejected", 0),
        slo_attainment=_mean(requests["is_met"]),
        goodput_rps=_goodput_rps(recording, requests),
        cost_usd=sum(parts.values()),
        latency_s=_quantiles(requests["latency_s"].drop_nulls()),
        wait_s=_quantiles(done["wait_s"]),
        makespan_s=makespan,
        cold_starts=int(ran["is_cold"].sum()),
        invocations=done.height,
        decision_s=_decision_times(recording.decision_s),
        engine=recording.engine,
        run_wall_s=recording.run_wall_s,
        dropped=count.get("dropped", 0),
        failed=count.get("failed", 0),
        cancelled=count.get("cancelled", 0),
        unfinished=count.get("unfinished", 0),
        cache_hits=hits,
        cache_hit_ratio=hits / ran.height if ran.height else None,
        instances_started=recording.instances.height,
        cost_parts_usd=parts,
        by_workflow=by_workflow,
        utilisation=_utilisation(recording, ran, makespan),
        billing=Billing(cold_start=recording.cluster.price.bill_cold_start, idle=recording.cluster.price.bill_idle),
        parameters=recording.parameters,
        point=recording.point,
        jain_slowdown=jain(part.slowdown for part in by_workflow.values() if part.slowdown is not None),
        jain_throughput=jain(throughputs(requests, recording.duration_s).values()),
        cold_waits=waits,
        node_hours=_billed(recording, lambda life: 1.0),
        node_usd=_billed(recording, lambda life: life.usd_per_hour),
    )


def aggregate(summaries: Iterable[Summary]) -> tuple[Aggregate, ...]:
    """One entry per policy, scaler, parameters and sweep point, in order of first appearance."""
    groups: dict[tuple[str, str | None, str, str], list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(identity(summary), []).append(summary)
    return tuple(_aggregate(group) for group in groups.values())


def json_values(value: object) -> object:
    """The same value for JSON: numbers that JSON does not have become None, unknown types their text."""
    return _finite(plain(value))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _aggregate(group: list[Summary]) -> Aggregate:
    columns: dict[str, list[float]] = {}
    for summary in group:
        values = summary.as_json()
        for key in ("seed", "parameters", "point", "billing"):
            values.pop(key, None)
        for name, number in _numbers(values, ""):
            columns.setdefault(name, []).append(number)
    return Aggregate(
        policy=group[0].policy,
        scaler=group[0].scaler,
        parameters=group[0].parameters,
        point=group[0].point,
        seeds=tuple(summary.seed for summary in group),
        estimates={name: estimate(column) for name, column in columns.items()},
    )


def _numbers(value: object, path: str) -> Iterable[tuple[str, float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}" if path else key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def estimate(values: Sequence[float]) -> Estimate:
    """The mean with half of its 95 % interval by Student's t; one value has no interval."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return Estimate(mean=mean, half_width=None, count=count)
    spread = sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean=mean, half_width=_t(count - 1) * spread / sqrt(count), count=count)


# Student's t at 0.975 for 1 to 10 degrees of freedom; beyond, its expansion in 1/df is right to four digits.
_T = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139)
_Z = 1.959964


def _t(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3


def _goodput_rps(recording: Recording, requests: pl.DataFrame) -> float | None:
    last = requests["end"].max()
    until = max(recording.duration_s, float(last) if isinstance(last, int | float) else 0.0)
    window = until - recording.warmup_s
    return float(requests["is_met"].sum()) / window if window > 0 else None


def _by_workflow(requests: pl.DataFrame, done: pl.DataFrame, slow: pl.DataFrame) -> dict[str, WorkflowSummary]:
    waits = {name: part["wait_s"] for name, part in _parts(done.select("workflow", "wait_s"))}
    slowdown = {name: _quantiles(part["slowdown"]).mean for name, part in _parts(slow)}
    summaries = {}
    for name, part in sorted(_parts(requests), key=lambda pair: pair[0]):
        summaries[name] = WorkflowSummary(
            requests=part.height,
            completed=int((part["outcome"] == "completed").sum()),
            slo_attainment=_mean(part["is_met"]),
            latency_s=_quantiles(part["latency_s"].drop_nulls()),
            wait_s=_quantiles(waits.get(name, ())),
            slowdown=slowdown.get(name),
        )
    return summaries


def _parts(rows: pl.DataFrame) -> Iterable[tuple[str, pl.DataFrame]]:
    for key, part in rows.group_by("workflow", maintain_order=True):
        yield str(key[0]), part


def _utilisation(recording: Recording, ran: pl.DataFrame, makespan: float) -> dict[str, Utilisation]:
    held = ran.with_columns(span=pl.col("end") - pl.col("start"))
    used = {
        str(key[0]): (total(part["vcpus"] * part["span"]), total(part["vgpus"] * part["span"]))
        for key, part in held.select("node", "vcpus", "vgpus", "span").group_by("node", maintain_order=True)
    }

    def share(held_s: float, capacity: float) -> float | None:
        return held_s / (capacity * makespan) if capacity > 0 and makespan > 0 else None

    return {
        node.name: Utilisation(
            vcpu=share(used.get(node.name, (0.0, 0.0))[0], node.capacity_vcpus),
            vgpu=share(used.get(node.name, (0.0, 0.0))[1], sum(device.vgpus for device in node.devices)),
        )
        for node in recording.cluster.nodes
    }


def _billed(recording: Recording, rate: Callable[[NodeLife], float]) -> float | None:
    """What all nodes come to at these rates per hour, until the end of the run; None if nodes were not counted."""
    if not recording.nodes:
        return None
    ends = [(life, recording.end_s if life.left is None else life.left) for life in recording.nodes]
    return sum(rate(life) * (end - life.asked) for life, end in ends) / 3600


def _decision_times(seconds: tuple[float, ...]) -> DecisionTimes:
    times = _quantiles(seconds)
    return DecisionTimes(mean=times.mean, p99=times.p99)


def _quantiles(values: ArrayLike | pl.Series) -> Quantiles:
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return Quantiles()
    p50, p95, p99 = (float(value) for value in np.percentile(array, (50, 95, 99)))
    return Quantiles(mean=float(array.mean()), p50=p50, p95=p95, p99=p99)


def _mean(flags: pl.Series) -> float | None:
    return float(flags.sum()) / len(flags) if len(flags) else None
