"""Nodes go while copies of a stage compete: every start of dag-admission still fits where it is sent."""

from fairlead.engine import simulate
from fairlead.model import Cluster, Device, Node, Stage, Workflow
from fairlead.policy import make_policy
from fairlead.profile import Row, Table
from fairlead.testing import declared, scenario
from fairlead.workload import NodeFault, Pillar, Poisson

GPU = Device(vgpus=2, memory_gb=4)
NODES = (
    *(Node(name=f"n{i}", kind="cpu", vcpus=4, memory_gb=3, speed=0.5) for i in range(3)),
    *(Node(name=f"n{i}", kind="gpu", vcpus=4, memory_gb=6, devices=(GPU,), speed=0.5) for i in (3, 4)),
)
EITHER = Table(
    (
        Row(seconds=0.5),
        Row(batch=4, seconds=1.25),
        Row(vgpus=1, vcpus=0, seconds=0.25),
        Row(vgpus=1, vcpus=0, batch=4, seconds=0.375),
    )
)
LIGHT = declared(0.25, output_mb=10, keep_alive_s=2)
HEAVY = declared(EITHER, device_memory_gb=3, output_mb=10, keep_alive_s=float("inf"), cold_start_s=1.0)


def flow(name, *stages):
    return Workflow(name=name, stages=stages)


def test_no_start_is_refused_when_nodes_go_while_copies_compete():
    competing = flow(
        "w0",
        Stage(name="s0", function="light"),
        Stage(name="s1", function="heavy", after=("s0",), compete=2),
        Stage(name="s2", function="light", after=("s0", "s1")),
    )
    joined = flow(
        "w1",
        Stage(name="s0", function="light"),
        Stage(name="s1", function="light"),
        Stage(name="s2", function="light", after=("s1", "s0")),
    )
    world = scenario(
        {"light": LIGHT, "heavy": HEAVY},
        workflows={"w0": competing, "w1": joined},
        arrivals=(Pillar("w0", count=20, pillars=3), Poisson("w1", 5)),
        on=Cluster(nodes=NODES),
        duration_s=6.0,
        node_faults=(
            NodeFault(node="n1", at_s=1.0, back_s=2.0),
            NodeFault(node="n1", at_s=5.05, back_s=0.5),
            NodeFault(node="n3", at_s=0.1, back_s=2.0),
            NodeFault(node="n3", at_s=2.15, back_s=0.5),
        ),
        max_attempts=3,
        retry_delay_s=0.3,
    )
    parameters = {"selection": "balanced", "sample": 1, "batching": False, "slack": 0.25}
    recording = simulate(world, make_policy("dag-admission", parameters), seed=1)
    assert recording.refusals == ()
