"""Small recordings whose numbers can be checked by hand."""

from collections.abc import Sequence
from math import inf

import polars as pl

from fairlead.model import (
    INSTANCE_SCHEMA,
    INVOCATION_SCHEMA,
    REQUEST_SCHEMA,
    Cluster,
    Device,
    Node,
    Price,
    Recording,
)

# One vCPU-second costs 1 USD, one vGPU-second 2 USD.
PRICE = Price(vcpu_usd_per_hour=3600, vgpu_usd_per_hour=7200)
CLUSTER = Cluster(
    nodes=(
        Node(name="n0", kind="cpu", vcpus=4),
        Node(name="n1", kind="gpu", vcpus=2, devices=(Device(vgpus=2),)),
    ),
    price=PRICE,
)


def request(id, arrival, end, *, outcome="completed", workflow="main", slo_s=5.0, budget=inf, cost=0.0, reason=None):
    return {
        "request": id,
        "workflow": workflow,
        "arrival": arrival,
        "deadline": arrival + slo_s,
        "budget_usd": budget,
        "end": end,
        "outcome": outcome,
        "reason": reason,
        "retry_after_s": None,
        "promised": None,
        "plan": None,
        "cost_usd": cost,
    }


def invocation(
    request,
    ready,
    start,
    end,
    *,
    batch,
    cost=0.0,
    cold_s=0.0,
    is_cold=False,
    transfer_s=0.0,
    outcome="done",
    workflow="main",
    node="n0",
    device=-1,
    vcpus=1.0,
    vgpus=0.0,
    instance=0,
    batch_size=1,
    attempt=1,
    function="detect",
):
    return {
        "request": request,
        "workflow": workflow,
        "stage": function,
        "function": function,
        "item": 0,
        "attempt": attempt,
        "batch": batch,
        "batch_size": batch_size,
        "instance": instance,
        "node": node,
        "device": device,
        "vcpus": vcpus,
        "vgpus": vgpus,
        "ready": ready,
        "start": start,
        "cold_s": cold_s,
        "transfer_s": transfer_s,
        "end": end,
        "is_cold": is_cold,
        "cost_usd": cost,
        "outcome": outcome,
    }


def instance(id, started, ready, stopped, busy_s, *, node="n0", device=-1, vcpus=1.0, vgpus=0.0, function="detect"):
    return {
        "instance": id,
        "function": function,
        "node": node,
        "device": device,
        "vcpus": vcpus,
        "vgpus": vgpus,
        "memory_gb": 1.0,
        "started": started,
        "ready": ready,
        "stopped": stopped,
        "busy_s": busy_s,
        "cause": None if stopped is None else "expired",
        "on_demand": True,
    }


def recording(
    requests: Sequence[dict] = (), invocations: Sequence[dict] = (), instances: Sequence[dict] = (), **settings
) -> Recording:
    values = {
        "scenario": "small",
        "policy": "fifo",
        "scaler": None,
        "seed": 0,
        "parameters": {},
        "cluster": CLUSTER,
        "warmup_s": 0.0,
        "duration_s": 10.0,
        "end_s": 20.0,
    } | settings
    return Recording(
        requests=pl.DataFrame(list(requests), schema=dict(REQUEST_SCHEMA), orient="row"),
        invocations=pl.DataFrame(list(invocations), schema=dict(INVOCATION_SCHEMA), orient="row"),
        instances=pl.DataFrame(list(instances), schema=dict(INSTANCE_SCHEMA), orient="row"),
        **values,
    )


def small(**settings) -> Recording:
    """Six requests, one in the warm-up. Those counted: in time, late, rejected, unfinished, and one lost and retried.

    Two batches start cold (one of them holds two invocations), three do not.
    """
    return recording(
        [
            request(0, 0.5, 3.0, cost=2.0),
            request(1, 1.0, 4.0, cost=1.5),
            request(2, 2.0, 8.0, cost=1.5),
            request(3, 3.0, 3.0, outcome="rejected", reason="too late"),
            request(4, 4.0, None, outcome="unfinished", workflow="side"),
            request(5, 5.0, 9.0, cost=8.0, workflow="side"),
        ],
        [
            invocation(0, 0.5, 1.0, 3.0, batch=0, cost=2.0, cold_s=1.0, is_cold=True),
            invocation(1, 1.0, 2.0, 4.0, batch=1, cost=1.0, cold_s=1.0, is_cold=True, batch_size=2, instance=1),
            invocation(2, 2.0, 2.0, 4.0, batch=1, cost=1.0, cold_s=1.0, is_cold=True, batch_size=2, instance=1),
            invocation(2, 4.0, 7.0, 8.0, batch=2, cost=0.5, instance=1),
            invocation(
                5, 5, 5, 6, batch=3, cost=4, outcome="lost", workflow="side", node="n1", device=0, vgpus=1, instance=2
            ),
            invocation(
                5, 6, 8, 9, batch=4, cost=4, workflow="side", node="n1", device=0, vgpus=1, instance=2, attempt=2
            ),
        ],
        [
            instance(0, 1.0, 2.0, 10.0, 1.0),
            instance(1, 2.0, 3.0, None, 2.0, vcpus=1.0),
            instance(2, 4.0, 5.0, 9.0, 2.0, node="n1", device=0, vgpus=1.0),
            instance(3, 9.0, None, 9.5, 0.0),
        ],
        **({"warmup_s": 1.0} | settings),
    )
