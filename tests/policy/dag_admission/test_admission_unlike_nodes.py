"""Nodes of one kind need not have the same number of devices."""

from fairlead.engine import simulate
from fairlead.model import Cluster, Device, Node
from fairlead.profile import Row, Table
from fairlead.testing import declared, scenario


def test_a_kind_may_have_nodes_with_more_devices_than_its_first():
    few, many = (Node(name=f"n{count}", kind="gpu", vcpus=4, devices=(Device(vgpus=1),) * count) for count in (1, 3))
    on_gpu = declared(Table((Row(vgpus=1, seconds=1.0),)))
    where = scenario(on_gpu, arrivals=[0.0] * 4, on=Cluster(nodes=(few, many)), slo_s=1.5)
    found = simulate(where, "dag-admission")
    assert found.refusals == ()
    assert sorted(found.invocations.select("node", "device").rows()) == [("n1", 0), ("n3", 0), ("n3", 1), ("n3", 2)]
