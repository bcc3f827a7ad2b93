"""The sizes that a scaler may give replicas."""

from fairlead.model import Configuration
from fairlead.policy.kit.ladder import first_rung, vcpu_rungs
from fairlead.profile import Row, Table
from fairlead.testing import cluster, declared, scenario, site_of


def rungs(*configurations: Configuration, on=None, **more):
    law = Table(tuple(Row(seconds=1.0, batch=c.batch, vcpus=c.vcpus, vgpus=c.vgpus) for c in configurations))
    site = site_of(scenario(declared(law, **more), on=on or cluster(vcpus=4, memory_gb=8)))
    return vcpu_rungs(site.profiles["f"], site.functions["f"], site.cluster)


def test_rungs_are_the_vcpus_of_plain_configurations_in_order():
    found = rungs(Configuration(vcpus=2), Configuration(vcpus=0.5), Configuration(vcpus=3, batch=4))
    assert found == (0.5, 2.0)


def test_what_no_node_can_hold_is_no_rung():
    assert rungs(Configuration(vcpus=2), Configuration(vcpus=8)) == (2.0,)
    assert rungs(Configuration(vcpus=2), memory_gb=9.0) == ()


def test_one_that_begins_with_a_gpu_has_none():
    on = cluster(vcpus=4, vgpus=1)
    assert rungs(Configuration(vcpus=1, vgpus=1), Configuration(vcpus=4), on=on) == ()
    assert rungs(Configuration(vcpus=4), Configuration(vcpus=1, vgpus=1), on=on) == (4.0,)


def test_the_first_rung_has_a_whole_vcpu_if_one_has():
    assert first_rung((0.5, 1.0, 2.0)) == 1.0
    assert first_rung((0.25, 0.5)) == 0.5
    assert first_rung((2.0, 4.0)) == 2.0
    assert first_rung(()) is None
