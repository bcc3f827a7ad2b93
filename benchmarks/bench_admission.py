"""How long `dag-admission` takes to decide one request, by nodes and by what is already booked.

An eight-function DAG on nodes of two kinds. Each row is one simulated run; times are CPU time inside the policy: for
the answer alone, and for the whole call, which also brings the calendar up to date and starts what is due.
Usage: python benchmarks/bench_admission.py [--selection balanced] [--sample 4]
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import thread_time

import numpy as np

from fairlead.engine import simulate
from fairlead.model import SLO, Cluster, Configuration, Device, Function, Node, Request, Stage, Workflow
from fairlead.policy import Action, View
from fairlead.policy.dag_admission.policy import DagAdmission
from fairlead.profile import Profile, Row, Table
from fairlead.workload import Poisson, Scenario

FUNCTIONS = 8
EDGES = {1: (0,), 2: (0,), 3: (1,), 4: (1, 2), 5: (2,), 6: (3, 4), 7: (5, 6)}


@dataclass
class Timed(DagAdmission):
    """Notes how long each answer takes, and how long each call that gives one."""

    answers_s: list[float] = field(default_factory=list)
    calls_s: list[float] = field(default_factory=list)
    booked: list[int] = field(default_factory=list)

    def _answer(self, view: View, request: Request) -> Iterator[Action]:
        yield from _timed(super()._answer(view, request), self.answers_s)

    def decide(self, view: View) -> Iterator[Action]:
        if len(view.fresh) != 1:
            yield from super().decide(view)
            return
        yield from _timed(super().decide(view), self.calls_s)
        self.booked.append(sum(len(place.planned) for place in self._calendar.places.values()))


def _timed(actions: Iterator[Action], into: list[float]) -> Iterator[Action]:
    """The same actions; the CPU time that it takes to find them is noted."""
    spent, began = 0.0, thread_time()
    for action in actions:
        spent += thread_time() - began
        yield action
        began = thread_time()
    into.append(spent + thread_time() - began)


def bench(nodes: int, load: float, latency_factor: float) -> Scenario:
    """So many nodes, half of them with a GPU; `load` is the share of the vCPU-seconds that the CPU placement needs."""
    rng = np.random.default_rng(0)
    functions, profiles, stages = {}, {}, []
    for i in range(FUNCTIONS):
        name = f"f{i}"
        cpu_s = float(rng.uniform(0.01, 0.03))
        rows = (Row(kind="cpu", seconds=cpu_s), Row(kind="gpu", vgpus=1, seconds=cpu_s / float(rng.uniform(1.2, 4))))
        functions[name] = Function(name=name, memory_gb=1, keep_alive_s=600)
        profiles[name] = Profile(
            law=Table(rows), cold_start_s=0.02, configurations=(Configuration(), rows[1].configuration())
        )
        stages.append(Stage(name=name, function=name, after=tuple(f"f{j}" for j in EDGES.get(i, ()))))
    machines = tuple(
        Node(name=f"n{i}", kind="gpu", vcpus=4, memory_gb=32, devices=(Device(vgpus=2),))
        if i % 2
        else Node(name=f"n{i}", kind="cpu", vcpus=4, memory_gb=32)
        for i in range(nodes)
    )
    work_s = sum(profile.law.rows[0].seconds for profile in profiles.values())  # type: ignore[union-attr]
    rate_rps = load * 4 * nodes / work_s
    workflow = Workflow(name="dag", stages=tuple(stages), slo=SLO(latency_s=latency_factor * 0.1))
    return Scenario(
        name=f"{nodes} nodes",
        cluster=Cluster(nodes=machines),
        functions=functions,
        profiles=profiles,
        workflows={workflow.name: workflow},
        arrivals=(Poisson(workflow.name, rate_rps),),
        duration_s=600 / rate_rps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--selection", default="balanced")
    parser.add_argument("--sample", type=int, default=4)
    selected = parser.parse_args()
    heads = ("nodes", "load", "SLO x", "booked", "answer ms", "p90", "call ms", "p90", "admitted")
    print(" ".join(f"{head:>9}" for head in heads))
    cases = [(nodes, load, 4.0) for nodes in (4, 16, 64, 256) for load in (0.5, 1.5)]
    cases += [(64, 1.5, factor) for factor in (8.0, 16.0, 32.0)]
    for nodes, load, factor in cases:
        policy = Timed(selection=selected.selection, sample=selected.sample)
        recording = simulate(bench(nodes, load, factor), policy)
        half = len(policy.answers_s) // 2  # the first half warms up
        answers, calls = (1000 * np.array(times[half:]) for times in (policy.answers_s, policy.calls_s))
        admitted = (recording.requests["outcome"] != "rejected").mean()
        numbers = [np.median(answers), np.percentile(answers, 90), np.median(calls), np.percentile(calls, 90)]
        cells = [f"{nodes}", f"{load}", f"{factor:g}", f"{np.median(policy.booked[half:]):.0f}"]
        cells += [*(f"{number:.3f}" for number in numbers), f"{admitted:.1%}"]
        print(" ".join(f"{cell:>9}" for cell in cells))


if __name__ == "__main__":
    main()
