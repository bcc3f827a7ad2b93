"""The columns of the three tables that a run leaves behind: per request, per invocation attempt, per instance.

Apart from the other values, and loaded when first asked for: a process that serves requests needs no table library.
"""

from collections.abc import Mapping

import polars as pl

REQUEST_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "request": pl.Int64,
    "workflow": pl.String,
    "arrival": pl.Float64,
    "deadline": pl.Float64,
    "budget_usd": pl.Float64,
    "end": pl.Float64,  # when it was answered, rejected, dropped or failed; null while unfinished
    "outcome": pl.String,  # completed, rejected, dropped, failed, cancelled, unfinished
    "reason": pl.String,  # why it was not completed
    "retry_after_s": pl.Float64,
    "promised": pl.Float64,  # the finish that the policy planned, where it did
    "plan": pl.String,  # the steps it planned, joined by " -> "; below, notes of the policy, one per line
    "offer_latency_s": pl.Float64,  # what could have been promised instead, where a refusal says so
    "offer_cost_usd": pl.Float64,
    "cost_usd": pl.Float64,
}

INVOCATION_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "request": pl.Int64,
    "workflow": pl.String,
    "stage": pl.String,
    "function": pl.String,
    "item": pl.Int64,
    "attempt": pl.Int64,
    "batch": pl.Int64,  # id of the batch it ran in; -1 if it was cached, and so of its instance
    "batch_size": pl.Int64,
    "instance": pl.Int64,
    "node": pl.String,
    "device": pl.Int64,  # -1 without an accelerator
    "vcpus": pl.Float64,
    "vgpus": pl.Float64,
    "ready": pl.Float64,
    "start": pl.Float64,
    "cold_s": pl.Float64,  # time after the start until the instance was ready
    "transfer_s": pl.Float64,
    "end": pl.Float64,
    "is_cold": pl.Boolean,  # its start is what started the instance
    "cost_usd": pl.Float64,  # its share of the batch
    "outcome": pl.String,  # done, failed, lost, discarded, preempted, cached (answered without a run)
}

INSTANCE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "instance": pl.Int64,
    "function": pl.String,
    "node": pl.String,
    "device": pl.Int64,
    "vcpus": pl.Float64,
    "vgpus": pl.Float64,
    "memory_gb": pl.Float64,
    "started": pl.Float64,
    "ready": pl.Float64,  # null if it never was
    "stopped": pl.Float64,  # null if it lived to the end of the run
    "busy_s": pl.Float64,
    "cause": pl.String,  # what stopped it: expired, evicted, retired, drained, lost, limit, preempted
    "on_demand": pl.Boolean,  # started by a run that needed it (a cold start), not ahead of time
}
