"""What the environments simulate unless told otherwise, and what they need to know of any scenario."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fairlead.engine.sim.compiled.luck import EXPONENTIAL, LOG_NORMAL, NOISE
from fairlead.engine.sim.compiled.packing import Drawing
from fairlead.errors import UncoveredError
from fairlead.learn.functions.tenants import alone, chains_scenario, tenants_scenario
from fairlead.model import SLO, Cluster, Function, Node, Workflow
from fairlead.profile import Exponential, LogNormal, Profile
from fairlead.workload import Poisson, Scenario

__all__ = ["alone", "chain_scenario", "chains_scenario", "drawing_of", "rates_rps", "tenants_scenario"]


def chain_scenario(nodes: int = 16, load: float = 0.7) -> Scenario:
    """A chain of four functions of 0.25 s each on nodes of 16 vCPUs; a cold start takes 0.5 s."""
    functions = [f"stage-{i}" for i in range(4)]
    vcpus, mean_s = 16, 0.25
    rate_rps = round(load * nodes * vcpus / (len(functions) * mean_s), 6)
    return Scenario(
        name="chain",
        cluster=Cluster(nodes=tuple(Node(name=f"n-{i}", kind="n", vcpus=vcpus) for i in range(nodes))),
        functions={name: Function(name=name, keep_alive_s=30.0, idle_holds="memory") for name in functions},
        profiles={name: Profile(law=Exponential(mean_s), cold_start_s=0.5) for name in functions},
        workflows={"chain": Workflow.chain("chain", *functions, slo=SLO(latency_s=3.0))},
        arrivals=(Poisson("chain", rate_rps),),
    )


def rates_rps(scenario: Scenario) -> NDArray[np.float64]:
    """Mean arrivals per second of each workflow. Every process must be Poisson: an episode has no end of its own."""
    numbers = {name: i for i, name in enumerate(scenario.workflows)}
    rates = np.zeros(len(numbers))
    for process in scenario.arrivals:
        if not isinstance(process, Poisson):
            raise UncoveredError(
                scenario.name,
                f"an environment draws Poisson arrivals, and workflow {process.workflow} has {type(process).__name__}",
            )
        rates[numbers[process.workflow]] += process.rate_rps
    return rates


def drawing_of(scenario: Scenario, draws: Mapping[str, Sequence[tuple[str, str]]]) -> Drawing:
    """How the arrivals of a scenario and the random factors of each workflow (`draws`) are drawn."""
    rates = rates_rps(scenario)
    total = float(rates.sum())
    kinds, sigmas = _draw_kinds(scenario, draws)
    return Drawing(
        gap_s=1 / total, chances=np.cumsum(rates) / total, kinds=kinds.reshape(-1), sigmas=sigmas.reshape(-1)
    )


def _draw_kinds(
    scenario: Scenario, draws: Mapping[str, Sequence[tuple[str, str]]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    width = max(map(len, draws.values()), default=0)
    kinds, sigmas = np.zeros((len(draws), width), np.int64), np.zeros((len(draws), width))
    for w, (workflow, own) in enumerate(draws.items()):
        functions = {stage.name: stage.function for stage in scenario.workflows[workflow].stages}
        for i, (stage, what) in enumerate(own):
            profile = scenario.profiles[functions[stage]]
            if what == "noise":
                kinds[w, i], sigmas[w, i] = NOISE, profile.noise
            elif isinstance(profile.law, LogNormal):
                kinds[w, i], sigmas[w, i] = LOG_NORMAL, profile.law.sigma
            elif isinstance(profile.law, Exponential):
                kinds[w, i] = EXPONENTIAL
            else:
                law = type(profile.law).__name__
                raise UncoveredError(scenario.name, f"an environment cannot draw the spread of the law {law}")
    return kinds, sigmas
