"""Which rows of a recording count, and what they add up to.

Requests that arrive during the warm-up are not counted, nor are their invocations. What belongs to no request
(idle instances) and what the whole machine did (batches) is taken over the whole run.
"""

import numpy as np
import polars as pl

from fairlead.model import CACHED, Recording

TOLERANCE = 1e-9
"""Relative: an answer that is late by rounding only is in time."""


def counted_requests(recording: Recording) -> pl.DataFrame:
    """The requests that arrived after the warm-up, with two columns more: `latency_s` and `is_met`.

    `latency_s` is null unless the request completed. `is_met` is never null: what did not complete is missed.
    """
    is_completed = pl.col("outcome") == "completed"
    return recording.requests.filter(pl.col("arrival") >= recording.warmup_s).with_columns(
        latency_s=pl.when(is_completed).then(pl.col("end") - pl.col("arrival")),
        is_met=(is_completed & _within("end", "deadline") & _within("cost_usd", "budget_usd")).fill_null(False),
    )


def counted_invocations(recording: Recording, requests: pl.DataFrame | None = None) -> pl.DataFrame:
    """The invocation attempts of the counted requests, with `wait_s` as a column more."""
    kept = counted_requests(recording) if requests is None else requests
    rows = recording.invocations.with_columns(wait_s=pl.col("start") - pl.col("ready"))
    if kept.height == recording.requests.height:
        return rows
    return rows.join(kept.select("request"), on="request", how="semi", maintain_order="left")


def batches(recording: Recording) -> pl.DataFrame:
    """One row per batch of the whole run: what it held, where, and from when to when.

    `warm_at` is when its cold start was over, `run_at` when its inputs were there as well.
    """
    warm_at = pl.min_horizontal(pl.col("start") + pl.col("cold_s"), "end")
    return (
        recording.invocations.filter(
            pl.col("start").is_not_null() & pl.col("end").is_not_null() & (pl.col("outcome") != CACHED)
        )
        .group_by("batch", maintain_order=True)
        .agg(
            pl.col("request", "workflow", "stage", "function", "batch_size", "instance").first(),
            pl.col("node", "device", "vcpus", "vgpus").first(),
            pl.col("ready").min(),
            pl.col("start").min(),
            pl.col("cold_s").max(),
            pl.col("transfer_s").max(),
            pl.col("end").max(),
            pl.col("is_cold").any(),
            pl.col("outcome").first(),
        )
        .with_columns(warm_at=warm_at, run_at=pl.min_horizontal(warm_at + pl.col("transfer_s"), "end"))
    )


def cost_parts_usd(recording: Recording, invocations: pl.DataFrame | None = None) -> dict[str, float]:
    """What the counted requests cost, as `run`, `cold_start` and `idle`; the three add up to the cost.

    Every attempt is paid for, lost ones too. Idle time is that of all instances over the whole run: from ready
    to stopped, less the time spent running; it is 0 unless the cluster bills it. It is billed as whole slices: the
    records do not say what an idle instance holds, so one that keeps its memory only (`idle_holds: memory`) is
    billed for its vCPUs and vGPUs too.
    """
    price = recording.cluster.price
    rows = counted_invocations(recording) if invocations is None else invocations
    paid = total(rows["cost_usd"])
    cold = 0.0
    if price.bill_cold_start:
        # A run is billed from its start to its end at one rate, so its cold start costs its share of that time.
        span = pl.col("end") - pl.col("start")
        share = pl.when(span > 0).then(pl.col("cold_s") / span).otherwise(0.0).clip(0.0, 1.0)
        cold = total(rows.select(pl.col("cost_usd") * share).to_series())
    idle = 0.0
    if price.bill_idle:
        idle_s = (pl.col("stopped").fill_null(recording.end_s) - pl.col("ready") - pl.col("busy_s")).clip(lower_bound=0)
        held = recording.instances.select(vcpu_s=idle_s * pl.col("vcpus"), vgpu_s=idle_s * pl.col("vgpus"))
        idle = price.usd_per_s(total(held["vcpu_s"]), total(held["vgpu_s"]))
    return {"run": paid - cold, "cold_start": cold, "idle": idle}


def makespan_s(recording: Recording) -> float:
    """When the last request or invocation ended; 0 for an empty run."""
    ends = (recording.requests["end"].max(), recording.invocations["end"].max())
    return max((float(end) for end in ends if isinstance(end, int | float)), default=0.0)


def total(values: pl.Series) -> float:
    """The sum of a column, nulls as 0, added up in the same order whatever the number of threads."""
    return float(np.sum(values.fill_null(0.0).to_numpy()))


def _within(value: str, limit: str) -> pl.Expr:
    bound = pl.col(limit).fill_null(float("inf"))
    return pl.col(value) <= bound + bound.abs() * TOLERANCE
