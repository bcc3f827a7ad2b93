"""Replicas that are to grow and have no room stay as they are: a small one is better than none."""

from toy_policies import Doing, start_oldest

from fairlead.engine import simulate
from fairlead.model import Configuration
from fairlead.policy.base import Policy, Resize, Scale
from fairlead.profile import Row, Table
from fairlead.testing import check_capacity, cluster, declared, scenario
from fairlead.workload import Listed

LAW = Table((Row(vcpus=1, seconds=1.0), Row(vcpus=2, seconds=1.0)))


class Greedy(Policy):
    """One replica of `f`; while it works, `g` takes the room that it is to grow into."""

    def adjust(self, view):
        if view.now == 1:
            yield Scale("f", 1, Configuration(vcpus=1))
            yield Scale("g", 1)
        elif view.now == 2:  # `f` is at work from 1.5 to 2.5: it is to have two vCPUs, of which one is free
            yield Resize("f", 2.0)
            yield Scale("g", 3)


def test_a_replica_without_room_to_grow_keeps_its_size_and_serves_on():
    where = scenario(
        {"f": declared(LAW), "g": declared(1.0)},
        workflows={"main": ("f",), "other": ("g",)},
        arrivals=[1.5, 4.0, Listed("other", (9.0,))],
        on=cluster(vcpus=3),
        control_period_s=1.0,
    )
    recording = simulate(where, Doing(start_oldest), scaler=Greedy())
    found = recording.invocations.filter(recording.invocations["function"] == "f")
    assert found.select("vcpus", "start", "end").rows() == [(1, 1.5, 2.5), (1, 4.0, 5.0)]
    assert recording.instances.filter(recording.instances["function"] == "f").height == 1
    check_capacity(recording)
