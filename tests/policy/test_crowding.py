"""Crowding: where functions share vCPUs, containers are started for what is needed and not for chance."""

from dataclasses import replace

from fairlead.engine.core.site import make_site
from fairlead.model import Cluster, Device, Node
from fairlead.policy.kit.crowding import is_crowded
from fairlead.policy.kit.options import all_options
from fairlead.workload import load_scenario


def site_of(*nodes):
    """The functions of `quickstart`, each on one vCPU at least, on these nodes."""
    scenario = load_scenario("quickstart")
    return make_site(replace(scenario, cluster=Cluster(nodes=nodes, price=scenario.cluster.price)))


def crowded(*nodes):
    site = site_of(*nodes)
    return is_crowded(site, all_options(site))


def test_functions_that_need_seven_vcpus_together_are_crowded_on_six():
    # The smallest sizes of decode, detect, read and answer are 1, 4 (without a GPU), 1 and 1 vCPUs.
    assert crowded(Node(name="small", kind="small", vcpus=6))
    assert not crowded(Node(name="large", kind="large", vcpus=7))


def test_overcommitted_vcpus_count_as_often_as_they_are_promised():
    assert not crowded(Node(name="small", kind="small", vcpus=4, overcommit=2.0))


def test_a_cluster_with_devices_is_never_crowded():
    assert not crowded(Node(name="gpu", kind="gpu", vcpus=1, devices=(Device(vgpus=4, memory_gb=16),)))
