"""Published claims, one folder each, and the named scenario files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

from fairlead.errors import UnknownNameError
from fairlead.experiments.claims import Claim
from fairlead.experiments.reproduction import Reproduction
from fairlead.experiments.rows import committed_rows, from_csv

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Reproduction",
    "committed_experiment",
    "experiment_names",
    "run_experiment",
]


class Experiment(NamedTuple):
    """One published result. `minutes` is the time of a full run on two cores.

    `module` has `run(quick, progress)`, which measures rows, and `judge(rows)`, which gives the claims from them alone.
    """

    title: str
    module: str
    minutes: float


EXPERIMENTS: Mapping[str, Experiment] = {
    "admission-sweep": Experiment(
        "Admission control: uniform, burst and pillar arrivals, sample sizes, and overload up to tenfold",
        "fairlead.experiments.admission_sweep.run",
        14,
    ),
    "admission-live": Experiment(
        "Admission control live: a DAG of real models on this machine, up to four times its capacity",
        "fairlead.experiments.admission_live.run",
        5,
    ),
    "esg-live": Experiment(
        "ESG live: four workflows of real networks on this machine, ESG, its rivals and `fairlead`",
        "fairlead.experiments.esg_live.run",
        14,
    ),
    "esg-hit-rate": Experiment(
        "ESG and its rivals: hit rate and cost under three objectives and three loads",
        "fairlead.experiments.esg_hit_rate.run",
        12,
    ),
    "esg-forks": Experiment(
        "The same on workflows with forks, joins and branches",
        "fairlead.experiments.esg_forks.run",
        17,
    ),
    "esg-sharing": Experiment(
        "The same on MIG slices, under MPS, by time slicing, and with a load that wanders",
        "fairlead.experiments.esg_sharing.run",
        6,
    ),
    "esg-latency": Experiment(
        "ESG and its rivals: latency of each application, relaxed objectives, heavy load",
        "fairlead.experiments.esg_latency.run",
        2,
    ),
    "esg-miss-rate": Experiment(
        "ESG: how often plans made in advance, Orion's and Aquatope's, cannot be kept",
        "fairlead.experiments.esg_miss_rate.run",
        2,
    ),
    "esg-orion-cutoff": Experiment(
        "ESG against Orion: hit rate against the time that Orion may search",
        "fairlead.experiments.esg_orion_cutoff.run",
        10,
    ),
    "esg-overhead": Experiment(
        "ESG's configuration search: steps and time by SLO, with the published method, ours and brute force",
        "fairlead.experiments.esg_overhead.run",
        1,
    ),
    "kaas-contention": Experiment(
        "KaaS under finite device memory: throughput against clients, and what idle GPUs cost",
        "fairlead.experiments.kaas_contention.run",
        5,
    ),
    "kaas-cost-live": Experiment(
        "What a device costs bursty clients: serverful, FaaS and KaaS, live on two OpenCL devices",
        "fairlead.experiments.kaas_cost_live.run",
        4,
    ),
    "kaas-deadlines": Experiment(
        "Deadlines on workflows of CPU functions and kernels, under a cap on device memory that evicts",
        "fairlead.experiments.kaas_deadlines.run",
        3,
    ),
    "kaas-live": Experiment(
        "KaaS live: up to 16 clients on two OpenCL devices, served, as actors, and as the simulator predicts",
        "fairlead.experiments.kaas_live.run",
        5,
    ),
    "kaas-policies-live": Experiment(
        "The KaaS policies live on two OpenCL devices: waits, cold starts and fairness, beside the simulator",
        "fairlead.experiments.kaas_policies_live.run",
        5,
    ),
    "kaas-poisson": Experiment(
        "KaaS, section 6.2: cold starts and waits of five policies at 80 % load",
        "fairlead.experiments.kaas_poisson.run",
        1,
    ),
    "kaas-sweeps": Experiment(
        "KaaS, section 6.3: waits against load, GPUs, cold start, execution time and clients",
        "fairlead.experiments.kaas_sweeps.run",
        3,
    ),
    "kaas-traces": Experiment(
        "KaaS, section 6.1: the five printed traces of the worked example", "fairlead.experiments.kaas_traces.run", 0.1
    ),
    "keep-alive": Experiment(
        "Keep-alive rules of a fleet: cold starts against wasted memory, on a trace",
        "fairlead.experiments.keep_alive.run",
        4,
    ),
    "darly-granularity": Experiment(
        "Darly (thesis 4.4): what splitting a workflow costs, under two runtimes",
        "fairlead.experiments.darly_granularity.run",
        1,
    ),
    "granularity-live": Experiment(
        "Darly (thesis 4.4) live: the video workflow in four granularities, through an object store and queue-workers",
        "fairlead.experiments.granularity_live.run",
        8,
    ),
    "darly-heterogeneity": Experiment(
        "Darly (thesis 4.6): placements on unlike nodes, and the latencies in the logs of training",
        "fairlead.experiments.darly_heterogeneity.run",
        1,
    ),
    "darly-inference": Experiment(
        "Darly (thesis 6.5): frozen agents, and one for any workflow on any cluster",
        "fairlead.experiments.darly_inference.run",
        5,
    ),
    "darly-interference": Experiment(
        "Darly (thesis 4.5): latency under CPU pressure, by node", "fairlead.experiments.darly_interference.run", 1
    ),
    "darly-live": Experiment(
        "Darly live: a video workflow on four emulated nodes of this machine, under pressure that changes",
        "fairlead.experiments.darly_live.run",
        14,
    ),
    "darly-queue-workers": Experiment(
        "Darly (thesis 4.6.3): what queue-workers gain", "fairlead.experiments.darly_queue_workers.run", 1
    ),
    "darly-training": Experiment(
        "Darly (2022): four schedulers in training, against published logs",
        "fairlead.experiments.darly_training.run",
        8,
    ),
    "simppo-contention": Experiment(
        "Functions beside a CPU hog (WoSC 2021): measured slow-downs and those of a processor-sharing queue",
        "fairlead.experiments.simppo_contention.run",
        5,
    ),
    "simppo-live": Experiment(
        "Scalers live: SIMPPO, thresholds and fixed replicas on real functions of this machine",
        "fairlead.experiments.simppo_live.run",
        20,
    ),
    "simppo-isolation": Experiment(
        "SIMPPO: performance isolation of twelve functions on one cluster, against five rivals",
        "fairlead.experiments.simppo_isolation.run",
        12,
    ),
    "simppo-incremental": Experiment(
        "SIMPPO: reward drop and retraining when one function is added, with 5 to 110 functions",
        "fairlead.experiments.simppo_incremental.run",
        10,
    ),
    "simppo-ablation": Experiment(
        "SIMPPO: what it is worth to see the others, and how",
        "fairlead.experiments.simppo_ablation.run",
        10,
    ),
    "simppo-scale": Experiment(
        "SIMPPO: how the time of training and serving grows with the number of functions",
        "fairlead.experiments.simppo_scale.run",
        5,
    ),
    "simppo-workflows": Experiment(
        "SIMPPO, workflow-aware: end-to-end attainment of four workflows",
        "fairlead.experiments.simppo_workflows.run",
        8,
    ),
    "simppo-reference": Experiment(
        "SIMPPO's learner on the closed-form environment, beside the enumerated optimum and stable-baselines3",
        "fairlead.experiments.simppo_reference.run",
        8,
    ),
    "without-profile": Experiment(
        "Apps that were never measured: attainment over the first 500 requests, beside the same apps with a profile",
        "fairlead.experiments.without_profile.run",
        15,
    ),
    "growth": Experiment(
        "A cluster that grows and shrinks with a wandering load, against fixed ones",
        "fairlead.experiments.growth.run",
        6,
    ),
    "league": Experiment(
        "The core league: every general dispatcher on every scenario of it, three loads, three seeds",
        "fairlead.experiments.league.run",
        75,
    ),
    "league-bounds": Experiment(
        "The core league: what no dispatcher can beat, by linear-programming duality, beside the best of each cell",
        "fairlead.experiments.league_bounds.run",
        1,
    ),
    "fairlead-ablation": Experiment(
        "The policy `fairlead` without one of its mechanisms at a time: points lost on eight scenarios",
        "fairlead.experiments.fairlead_ablation.run",
        15,
    ),
    "fairlead-overload": Experiment(
        "The policy `fairlead` and every rival under overload: goodput against load, up to tenfold",
        "fairlead.experiments.fairlead_overload.run",
        20,
    ),
    "fairlead-sensitivity": Experiment(
        "The policy `fairlead` and five rivals with wrong profiles, more and less noise, other cold starts",
        "fairlead.experiments.fairlead_sensitivity.run",
        5,
    ),
    "table-4.1": Experiment(
        "Serverless accelerators, Table 4.1: FIFO, Clockwork and admission control on one CPU and one GPU",
        "fairlead.experiments.table_4_1.run",
        3,
    ),
    "pipelines-live": Experiment(
        "Serverless accelerators, chapter 3, live: ensemble and cascade of real networks, fused, competing, batched",
        "fairlead.experiments.pipelines_live.run",
        7,
    ),
    "pipelines": Experiment(
        "Serverless accelerators, chapter 3: ensemble and cascade, optimisations, CPU against GPU",
        "fairlead.experiments.pipelines.run",
        3,
    ),
}


def experiment_names() -> dict[str, str]:
    """Every experiment: its name, and what it is in one line."""
    return {name: experiment.title for name, experiment in EXPERIMENTS.items()}


def run_experiment(
    name: str, *, quick: bool = False, progress: Callable[[float, str], None] | None = None
) -> Reproduction:
    """A paper's results beside ours.

    Args:
        name: One of `experiment_names()`.
        quick: Fewer seeds and points: seconds instead of minutes, at wider intervals.
        progress: Called with the share that is done, in [0, 1], and what was done last.

    Raises:
        UnknownNameError: There is no such experiment.
    """
    module = import_module(_experiment(name).module)
    result = module.run(quick=quick, progress=progress or _ignore)
    assert isinstance(result, Reproduction)
    return replace(result, claims=tuple(module.judge(from_csv(result.to_csv()))))


def committed_experiment(name: str) -> Reproduction:
    """The claims as the committed rows of the last full run decide them; nothing is run.

    Raises:
        UnknownNameError: There is no such experiment.
    """
    experiment = _experiment(name)
    rows = committed_rows(experiment.module.rpartition(".")[0])
    claims = tuple(import_module(experiment.module).judge(rows))
    return Reproduction(name=name, title=experiment.title, claims=claims, rows=tuple(rows))


def _experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


def _ignore(done: float, what: str) -> None:
    """Shows no progress."""
