"""Say on which node each invocation goes: first in Python, then the same function as machine code, by one word."""

from time import perf_counter

import numpy as np

from fairlead import SLO, Cluster, Configuration, Scenario, Workflow, simulate
from fairlead.engine.sim.compiled import placement, python_placement
from fairlead.model import Function, Node
from fairlead.profile import Exponential, Profile
from fairlead.report import summarise
from fairlead.workload import Poisson

NEEDS = {"fetch": 1.0, "shrink": 2.0}  # vCPUs

workflow = Workflow.chain("thumbnails", *NEEDS, slo=SLO(latency_s=1.0))
scenario = Scenario(
    name="thumbnails",
    cluster=Cluster(nodes=tuple(Node(name=f"n{i}", kind="cpu", vcpus=8, memory_gb=32) for i in range(8))),
    functions={name: Function(name=name, memory_gb=1, keep_alive_s=20, idle_holds="memory") for name in NEEDS},
    profiles={
        name: Profile(law=Exponential(0.2), configurations=(Configuration(vcpus=vcpus),), cold_start_s=0.5)
        for name, vcpus in NEEDS.items()
    },
    workflows={workflow.name: workflow},
    arrivals=(Poisson(workflow.name, rate_rps=60),),
    duration_s=300,
    warmup_s=10,
)

needed = tuple(round(1000 * vcpus) for vcpus in NEEDS.values())  # by the number of the function, in thousandths


def fullest(now: float, function: int, deadline: float, free: np.ndarray, warm: np.ndarray) -> int:
    """The node with the least room that is enough; one where the function is warm before all others.

    `free` has the free thousandths of a vCPU of every node, `warm` the idle instances of this function there.
    """
    best = -1  # that is: wait
    for node in range(len(free)):
        if free[node] >= needed[function] and (
            best < 0 or (warm[node] == 0, free[node]) < (warm[best] == 0, free[best])
        ):
            best = node
    return best


for name, policy in (
    ("fifo", "fifo"),
    ("in Python", python_placement(fullest)),
    ("compiled", placement(fullest)),  # or @placement above the function
):
    began = perf_counter()
    recording = simulate(scenario, policy, engine="compiled")
    run_s = perf_counter() - began
    summary = summarise(recording)
    print(
        f"{name:10} {summary.requests} requests, in time {summary.slo_attainment:6.1%}, "
        f"{summary.cold_starts} cold starts; {run_s:.2f} s"
    )
