"""Small worlds for Clockwork: models on GPUs, and what became of their requests."""

from fairlead.engine import simulate
from fairlead.model import SLO, Workflow
from fairlead.policy.clockwork.policy import Clockwork
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Listed

MS = 0.001


def model(*batches_ms, load_ms=0.0, memory_gb=1.0, vgpus=1, **settings):
    """A model by how long batches of 1, 2, 4, ... take."""
    rows = tuple(Row(batch=2**i, vcpus=0, vgpus=vgpus, seconds=seconds * MS) for i, seconds in enumerate(batches_ms))
    return declared(
        Table(rows),
        cold_start_s=load_ms * MS,
        device_memory_gb=memory_gb,
        keep_alive_s=float("inf"),
        idle_holds="memory",
        **settings,
    )


def world(models, arrivals_ms, *, slo_ms=100.0, gpus=1, vgpus=2, memory_gb=16.0, **settings):
    """Each model is a workflow of its own; `slo_ms` is one objective for all, or one by model.

    A run takes one vGPU. On a GPU of two there is room to load beside it; a second run is never started there.
    """
    slos = slo_ms if isinstance(slo_ms, dict) else dict.fromkeys(models, slo_ms)
    flows = {name: Workflow.chain(name, name, slo=SLO(latency_s=slos[name] * MS)) for name in models}
    arrivals = [Listed(name, tuple(at * MS for at in instants)) for name, instants in arrivals_ms.items()]
    on = cluster(gpus, vcpus=0, vgpus=vgpus, device_memory_gb=memory_gb)
    return scenario(models, workflows=flows, arrivals=arrivals, on=on, **settings)


def run(where, **parameters):
    """One run; nothing may be refused."""
    recording = simulate(where, Clockwork(**parameters))
    assert not recording.refusals, recording.refusals[0]
    return recording


def batches(recording):
    """(model, start, end, size) of every batch, in ms, in order of start."""
    rows = recording.invocations.unique("batch").sort("start", "batch")
    return [
        (row["function"], round(row["start"] / MS, 6), round(row["end"] / MS, 6), row["batch_size"])
        for row in rows.iter_rows(named=True)
    ]


def outcomes(recording):
    """How every request ended, in order of arrival."""
    return recording.requests.sort("request")["outcome"].to_list()


def lives(recording):
    """(model, started, cause of its end) of every instance, in ms, in order of start."""
    rows = recording.instances.sort("instance")
    return [(row["function"], round(row["started"] / MS, 6), row["cause"]) for row in rows.iter_rows(named=True)]
