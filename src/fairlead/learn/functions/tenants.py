"""Worlds of the twelve functions: any number of tenants on one cluster, or a few workflows made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from fairlead.learn.functions.kinds import Kind, kinds
from fairlead.model import SLO, Cluster, Configuration, Function, Node, Stage, Workflow
from fairlead.profile import Profile
from fairlead.workload import AzureLike, PolicyChoice, Scenario

NODE_VCPUS = 8.0
NODE_MEMORY_GB = 32.0
LADDER_VCPUS = tuple(round(0.128 * i, 3) for i in range(1, 17))
FIRST_VCPUS = 1.024
"""What a replica has that nobody has resized."""

_LEAST_LOAD, _MOST_LOAD = 0.2, 2.0  # vCPUs of work that one function brings
_DOZEN = 12

_CHAINS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    # Workflows over the twelve by stage and predecessors; compression and json are in two of them.
    "album": {"image-resize": (), "thumbnailer": ("image-resize",), "compression": ("thumbnailer",)},
    "review": {"json": (), "sentiment": ("json",), "markdown2html": ("sentiment",)},
    "rank": {
        "http-endpoint": (),
        "graph-pagerank": ("http-endpoint",),
        "primes": ("http-endpoint",),
        "dynamic-html": ("graph-pagerank", "primes"),
    },
    "genome": {
        "base64": (),
        "dna-visualisation": ("base64",),
        "json": ("dna-visualisation",),
        "compression": ("json",),
    },
}


def tenants_scenario(
    functions: int = 12,
    *,
    load: float = 0.6,
    nodes: int | None = None,
    overcommit: float = 4.0,
    cv: float = 0.5,
    seed: int = 0,
    slo_factor: float = 4.0,
    name: str = "tenants",
) -> Scenario:
    """So many functions that share nodes of 8 vCPUs and 32 GB, each with a workflow of its own.

    Function i is number i mod 12 of the twelve measured ones: `base64`, ..., then `base64-2`, ... Who is added changes
    nothing about those that are there; only the nodes become more.

    Args:
        functions: How many.
        load: Share of the cluster's vCPUs that all arrivals keep busy, on average; less where the last node is not
            needed whole. Says how many nodes there are.
        nodes: How many, instead.
        overcommit: Replicas may hold so many times the vCPUs of a node, which they share.
        cv: How much the rate of a function wanders from minute to minute: standard deviation over mean.
        seed: Who brings how much: from 0.2 to 2 vCPUs of work, 0.8 on average, little more often than much. Every dozen
            has one from each twelfth of that law.
        slo_factor: The SLO of a workflow, in mean times on one vCPU. Ours: the paper's are not public.
        name: What results call it.
    """
    if functions < 1:
        raise ValueError(f"functions must be at least 1; got {functions}.")
    _check_load(load)
    of = _numbered(functions)
    loads = offered_vcpus(functions, seed)
    workflows = {
        one: Workflow.chain(one, one, slo=SLO(latency_s=_slo_s(kind.law.t1_s, slo_factor))) for one, kind in of.items()
    }
    arrivals = tuple(
        AzureLike(one, round(vcpus / kind.law.t1_s, 3), cv=cv)
        for (one, kind), vcpus in zip(of.items(), loads.tolist(), strict=True)
    )
    if nodes is None:
        nodes = ceil(float(loads.sum()) / (load * NODE_VCPUS))
    return _scenario(name, _cluster(nodes, overcommit), of, workflows, arrivals)


def chains_scenario(
    *,
    load: float = 0.6,
    nodes: int = 2,
    overcommit: float = 4.0,
    cv: float = 0.5,
    seed: int = 0,
    slo_factor: float = 3.0,
    name: str = "chains",
) -> Scenario:
    """The twelve functions in four workflows: two chains of three, a diamond, and a chain of four.

    Together they bring `load` times what the nodes have, each workflow by its number of stages times its part of
    `offered_vcpus`. Its SLO is `slo_factor` times the longest way through it, with one vCPU for each stage.
    """
    _check_load(load)
    of = dict(kinds())
    weights = offered_vcpus(len(_CHAINS), seed) * [len(stages) for stages in _CHAINS.values()]
    loads = load * nodes * NODE_VCPUS * weights / weights.sum()
    workflows, arrivals = {}, []
    for (workflow, stages), vcpus in zip(_CHAINS.items(), loads.tolist(), strict=True):
        seconds = {stage: of[stage].law.t1_s for stage in stages}
        workflows[workflow] = Workflow(
            name=workflow,
            stages=tuple(Stage(name=stage, function=stage, after=after) for stage, after in stages.items()),
            slo=SLO(latency_s=_slo_s(_longest_s(stages, seconds), slo_factor)),
        )
        arrivals.append(AzureLike(workflow, round(vcpus / sum(seconds.values()), 3), cv=cv))
    return _scenario(name, _cluster(nodes, overcommit), of, workflows, arrivals)


def alone(scenario: Scenario, function: str) -> Scenario:
    """The same cluster with only this function, and the workflows that need no other."""
    if function not in scenario.functions:
        raise ValueError(f"no function is called {function!r}.")
    workflows = {name: one for name, one in scenario.workflows.items() if set(one.functions) == {function}}
    if not workflows:
        raise ValueError(f"no workflow uses {function} alone.")
    return replace(
        scenario,
        name=f"{scenario.name}-{function}",
        functions={function: scenario.functions[function]},
        profiles={function: scenario.profiles[function]},
        workflows=workflows,
        arrivals=tuple(process for process in scenario.arrivals if process.workflow in workflows),
    )


def offered_vcpus(functions: int, seed: int) -> NDArray[np.float64]:
    """vCPUs of work that each function brings, on average; those of the first n are the same for every number above n.

    Between 0.2 and 2, with a density that falls in a straight line to 0. Every dozen is spread evenly over that law, in
    an order of its own: so clusters of 12 and of 120 functions are loaded alike.
    """
    rng = np.random.default_rng(seed)
    ranks = np.concatenate([rng.permutation(_DOZEN) for _ in range(ceil(functions / _DOZEN))])[:functions]
    shares = (ranks + 0.5) / _DOZEN
    return np.asarray(np.round(_LEAST_LOAD + (_MOST_LOAD - _LEAST_LOAD) * (1 - np.sqrt(1 - shares)), 4))


def _numbered(functions: int) -> dict[str, Kind]:
    names = list(kinds())
    named = (divmod(i, len(names)) for i in range(functions))
    return {names[k] if not turn else f"{names[k]}-{turn + 1}": kinds()[names[k]] for turn, k in named}


def _check_load(load: float) -> None:
    if not 0 < load <= 1:
        raise ValueError(f"load must be in (0, 1]; got {load}.")


def _cluster(nodes: int, overcommit: float) -> Cluster:
    return Cluster(
        nodes=tuple(
            Node(name=f"n-{i + 1}", kind="n", vcpus=NODE_VCPUS, memory_gb=NODE_MEMORY_GB, overcommit=overcommit)
            for i in range(nodes)
        )
    )


def _scenario(
    name: str,
    cluster: Cluster,
    of: Mapping[str, Kind],
    workflows: Mapping[str, Workflow],
    arrivals: Sequence[AzureLike],
) -> Scenario:
    # The first configuration is the size of replicas that no scaler has resized.
    sizes = tuple(Configuration(vcpus=v) for v in (FIRST_VCPUS, *(v for v in LADDER_VCPUS if v != FIRST_VCPUS)))
    return Scenario(
        name=name,
        cluster=cluster,
        functions={
            one: Function(name=one, memory_gb=kind.memory_gb, output_mb=kind.output_mb) for one, kind in of.items()
        },
        profiles={
            one: Profile(law=kind.law, configurations=sizes, cold_start_s=kind.cold_start_s, noise=kind.noise)
            for one, kind in of.items()
        },
        workflows=workflows,
        arrivals=tuple(arrivals),
        duration_s=2000.0,
        policy=PolicyChoice(name="least-loaded"),
        control_period_s=10.0,
    )


def _slo_s(seconds: float, factor: float) -> float:
    return round(factor * seconds, 3)


def _longest_s(stages: Mapping[str, Sequence[str]], seconds: Mapping[str, float]) -> float:
    """Of all ways through a workflow the longest; stages come after their predecessors."""
    ends: dict[str, float] = {}
    for stage, after in stages.items():
        ends[stage] = max((ends[before] for before in after), default=0.0) + seconds[stage]
    return max(ends.values())
