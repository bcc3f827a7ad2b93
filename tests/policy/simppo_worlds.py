"""Small worlds for simppo: four functions on one node, and agents whose weights are given by hand or drawn."""

from pathlib import Path

import msgspec
import numpy as np

from fairlead.model import Configuration
from fairlead.policy.simppo.checkpoint import Checkpoint, Description, Trained, write_checkpoint
from fairlead.policy.simppo.observation import Encoding
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario
from fairlead.workload import Poisson

NAMES = ("a", "b", "c", "d")
VCPUS = (0.5, 1.0, 2.0)
ACTIONS = 7


def world(names=NAMES, *, rate_rps=1.0, duration_s=300.0, vcpus=16.0, memory_gb=64.0, slo_s=1.0, every_s=10.0):
    """Functions of 0.4 vCPU-seconds, each alone in a workflow."""
    rows = tuple(Row(seconds=0.4 / vcpus, vcpus=vcpus) for vcpus in VCPUS)
    sizes = tuple(Configuration(vcpus=vcpus) for vcpus in VCPUS)
    own = {name: declared(Table(rows), configurations=sizes, memory_gb=0.25, cold_start_s=1.0) for name in names}
    return scenario(
        own,
        workflows={name: [name] for name in names},
        arrivals=[Poisson(workflow=name, rate_rps=rate_rps) for name in names],
        on=cluster(vcpus=vcpus, memory_gb=memory_gb),
        slo_s=slo_s,
        duration_s=duration_s,
        control_period_s=every_s,
    )


def agents(names=NAMES, *, seed=0, hidden=8, is_shared=False, always=None, **changes):
    """Agents with drawn weights; with `always`, the action that every one takes whatever it sees."""
    rng = np.random.default_rng(seed)
    inputs, many = Encoding(own="seven", others="global4").size, 1 if is_shared else len(names)
    arrays = {}
    for network, outputs in (("actor", ACTIONS), ("critic", 1)):
        widths = (inputs, hidden, hidden, outputs)
        for i in range(3):
            arrays[f"{network}.{i}.weight"] = rng.normal(0, 0.5, (many, *widths[i : i + 2])).astype(np.float32)
            arrays[f"{network}.{i}.bias"] = np.zeros((many, widths[i + 1]), np.float32)
    if always is not None:
        arrays["actor.2.weight"][:] = 0
        arrays["actor.2.bias"][:, always] = 5
    description = Description(
        own="seven",
        others="global4",
        slots=0,
        is_workflow_aware=False,
        actions=ACTIONS,
        activation="relu",
        is_shared=is_shared,
        slo_weight=0.7,
        period_s=10.0,
        most_replicas=20,
        preset="modern",
        scenario="tests",
        seed=seed,
        episodes=1,
        agents=tuple(Trained(function=n, time_s=0.4, slo_s=1.0, reward=0.8, reward_deviation=0.01) for n in names),
    )
    return Checkpoint(description=msgspec.structs.replace(description, **changes), arrays=arrays)


def saved(folder: Path, checkpoint: Checkpoint | None = None) -> str:
    """The path of a file with these agents."""
    path = folder / "agents.safetensors"
    write_checkpoint(checkpoint or agents(), path)
    return str(path)
