"""Families of random scenarios for admission control, and the most that any scheduler could answer in time.

A member is one workflow on one CPU node and one GPU node, each running one function at a time, as in the published
microbenchmark; what differs is the graph and how long each function takes on either.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from math import inf

import numpy as np

from fairlead.model import SLO, Cluster, Device, Function, Node, Price, Stage, Workflow
from fairlead.planning import placement_front
from fairlead.profile import Profile, Row, Table
from fairlead.workload import Arrivals, Burst, Scenario

_CPU, _GPU = "cpu", "gpu"
_PRICE = Price(vcpu_usd_per_hour=5.0 * 3.6e6, vgpu_usd_per_hour=15.0 * 3.6e6, bill_cold_start=False)
_LOAD_S = 0.001  # the time to load a function, before each run


def random_dag(seed: int, *, latency_factor: float = 3.0, noise: float = 0.0) -> Scenario:
    """The n-th member: three to eight functions of 1 to 8 ms on the CPU, a fifth to five times as much on the GPU.

    The objectives are `latency_factor` times the latency and 1.3 times the cost of the fastest placement.
    """
    rng = np.random.default_rng((seed, 41))
    count = int(rng.integers(3, 9))
    functions, profiles, stages = {}, {}, []
    for i in range(count):
        name = f"f{i}"
        cpu_s = float(rng.uniform(0.001, 0.008))
        gpu_s = cpu_s * float(5 ** rng.uniform(-1, 1))
        functions[name] = Function(name=name, keep_alive_s=0.0)
        rows = (Row(kind=_CPU, seconds=cpu_s), Row(kind=_GPU, vcpus=0, vgpus=1, seconds=gpu_s))
        profiles[name] = Profile(law=Table(rows), cold_start_s=_LOAD_S, noise=noise)
        fan_in = min(i, int(rng.choice([1, 1, 2])))
        before = sorted(rng.choice(i, size=fan_in, replace=False).tolist()) if i else []
        stages.append(Stage(name=name, function=name, after=tuple(f"f{j}" for j in before)))
    cluster = Cluster(
        nodes=(Node(name=_CPU, kind=_CPU, vcpus=1), Node(name=_GPU, kind=_GPU, vcpus=0, devices=(Device(vgpus=1),))),
        price=_PRICE,
    )
    front = placement_front(*_graph(stages, profiles))
    slo = SLO(latency_s=latency_factor * float(front.latency_s[0]), cost_usd=1.3 * float(front.cost_usd[0]))
    workflow = Workflow(name="random", stages=tuple(stages), slo=slo)
    return Scenario(
        name=f"random-dag-{seed}",
        cluster=cluster,
        functions=functions,
        profiles=profiles,
        workflows={workflow.name: workflow},
        arrivals=(Burst(workflow.name, count=1200, share=0.5, within=0.1),),
        duration_s=1.2,
    )


def one_model(batch_s: Mapping[int, float], *, load_s: float, latency_s: float) -> Scenario:
    """One model on one GPU that runs one batch at a time: its time per batch size, and the time to load it once."""
    rows = tuple(Row(batch=batch, vgpus=1, seconds=seconds) for batch, seconds in batch_s.items())
    function = Function(name="model", idle_holds="memory", keep_alive_s=inf)
    workflow = Workflow.chain("single", function.name, slo=SLO(latency_s=latency_s))
    node = Node(name=_GPU, kind=_GPU, vcpus=1, devices=(Device(vgpus=1),))
    return Scenario(
        name="one-model",
        cluster=Cluster(nodes=(node,)),
        functions={function.name: function},
        profiles={function.name: Profile(law=Table(rows), cold_start_s=load_s)},
        workflows={workflow.name: workflow},
        arrivals=(),
        duration_s=1.0,
    )


def with_load(scenario: Scenario, arrivals: Arrivals, duration_s: float) -> Scenario:
    """The same scenario under other arrivals."""
    return replace(scenario, arrivals=(arrivals,), duration_s=duration_s)


def bound_rps(scenario: Scenario) -> float:
    """The most requests per second that two nodes could answer within the objectives, if nothing ever waited.

    A linear program: placements within both objectives, mixed so that neither node is used for more than all the
    time. With two nodes the best mix has at most two placements, so all pairs are tried.
    """
    (workflow,) = scenario.workflows.values()
    stages = workflow.stages
    graph, options = _graph(list(stages), scenario.profiles)
    work: list[tuple[float, float]] = []
    for choice in product((0, 1), repeat=len(stages)):
        finish: list[float] = []
        for i, c in enumerate(choice):
            finish.append(max((finish[j] for j in graph[i]), default=0.0) + options[i][c][0])
        cost_usd = sum(options[i][c][1] for i, c in enumerate(choice))
        if max(finish) <= workflow.slo.latency_s * (1 + 1e-9) and cost_usd <= workflow.slo.cost_usd * (1 + 1e-9):
            cpu_s, gpu_s = (sum((options[i][c][0] for i, c in enumerate(choice) if c == k), 0.0) for k in (0, 1))
            work.append((cpu_s, gpu_s))
    best = max((1 / max(row) for row in work), default=0.0)
    for (cpu_1, gpu_1), (cpu_2, gpu_2) in combinations(work, 2):
        determinant = cpu_1 * gpu_2 - gpu_1 * cpu_2
        if abs(determinant) > 1e-15:
            first, second = (gpu_2 - cpu_2) / determinant, (cpu_1 - gpu_1) / determinant
            if first >= 0 and second >= 0:
                best = max(best, first + second)
    return best


def _graph(
    stages: list[Stage], profiles: Mapping[str, Profile]
) -> tuple[list[list[int]], list[list[tuple[float, float]]]]:
    """The predecessors of each stage, and (time, cost) of each on the CPU and on the GPU, loading included in time."""
    position = {stage.name: i for i, stage in enumerate(stages)}
    graph = [[position[name] for name in stage.after] for stage in stages]
    options = []
    for stage in stages:
        profile = profiles[stage.function]
        assert isinstance(profile.law, Table)
        seconds = {row.kind: row.seconds for row in profile.law.rows}
        usd = {_CPU: _PRICE.usd_per_s(1, 0), _GPU: _PRICE.usd_per_s(0, 1)}
        options.append(
            [(profile.cold_start_s + seconds.get(k, inf), usd[k] * seconds.get(k, inf)) for k in (_CPU, _GPU)]
        )
    return graph, options
