"""Small KaaS scenarios, and runs of them that check what every policy owes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.engine import simulate
from fairlead.model import Record, Recording
from fairlead.policy import Action, Policy, Site, View
from fairlead.workload import Scenario, parse_scenario


def kaas(
    arrivals: Mapping[str, Sequence[float]],
    *,
    models: Mapping[str, tuple[float, float]] = {"short": (2, 4), "long": (12, 6)},
    gpus: int = 2,
    clients: Mapping[str, str] | None = None,
    **others: object,
) -> Scenario:
    """Clients that each call one model, (execution, cold start) in seconds, at these instants; one GPU per node.

    A client is called like its model unless `clients` names another.
    """
    of = clients or {client: client for client in arrivals}
    return parse_scenario(
        {
            "duration_s": 1000,
            "cluster": {"nodes": [{"name": "gpu", "count": gpus, "vgpus": 1}]},
            "functions": {
                name: {
                    "latency": {"constant_s": execution},
                    "cold_start_s": cold,
                    "keep_alive_s": float("inf"),
                    "idle_holds": "memory",
                    "configurations": [{"vcpus": 0, "vgpus": 1}],
                }
                for name, (execution, cold) in models.items()
            },
            "workflows": {client: {"stages": {of[client]: []}} for client in arrivals},
            "arrivals": [
                {"workflow": client, "process": "list", "at": list(at)} for client, at in arrivals.items() if at
            ],
            **others,
        },
        "kaas-test",
    )


@dataclass
class Twice(Policy):
    """Asks a policy again after every decision: on an unchanged view it must have nothing to add."""

    inner: Policy

    @property
    def clairvoyant(self) -> bool:
        return self.inner.clairvoyant

    def prepare(self, site: Site, rng: np.random.Generator) -> None:
        self.inner.prepare(site, rng)

    def observe(self, record: Record) -> None:
        self.inner.observe(record)

    def decide(self, view: View) -> Iterator[Action]:
        yield from self.inner.decide(view)
        again = list(self.inner.decide(view))
        assert not again, again


def run(scenario: Scenario, policy: Policy, seed: int = 0) -> Recording:
    """One run in which nothing is refused and everything completes."""
    recording = simulate(scenario, Twice(policy), seed=seed)
    assert not recording.refusals
    assert set(recording.requests["outcome"]) <= {"completed"}
    return recording


def starts(recording: Recording) -> list[tuple[str, float, float, int]]:
    """(client, arrival, start, number of the GPU) of each run, in order of start."""
    rows = recording.invocations.sort("start", "batch")
    gpus = [node.name for node in recording.cluster.nodes]
    return [
        (client, ready, start, gpus.index(node) + 1)
        for client, ready, start, node in rows.select("workflow", "ready", "start", "node").iter_rows()
    ]
