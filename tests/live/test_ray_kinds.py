"""What a node of Ray is to Fairlead, and what is reserved of it."""

from math import inf

import pytest

from fairlead.engine.live.ray.kinds import RayNode, Share, kind_of, name_of, node_of, reserved

PLAIN = {"CPU": 8.0, "memory": 4.0 * 2**30, "object_store_memory": 1e9, "node:10.0.0.7": 1.0}
A100 = {**PLAIN, "GPU": 2.0, "accelerator_type:A100": 1.0}


def node(total, free=None, **labels) -> RayNode:
    named = {name.replace("__", "/").replace("_", "-"): value for name, value in labels.items()}
    given = {f"fairlead.io/{name}" if "/" not in name else name: value for name, value in named.items()}
    return RayNode(id="ab12cd34ef", host="worker7.example.org", labels=given, total=total, free=free or total)


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (node(PLAIN), "cpu"),
        (node({**PLAIN, "ssd": 2.0}), "cpu+ssd"),
        (node(A100), "a100"),
        (node({**PLAIN, "GPU": 1.0}), "gpu"),
        (node(A100, kind="big"), "big"),
    ],
    ids=["plain", "custom-resource", "accelerator-type", "unnamed-gpu", "own-label-wins"],
)
def test_the_kind_follows_labels_accelerator_and_custom_resources(found, kind):
    assert kind_of(found) == kind


def test_a_group_of_the_autoscaler_is_a_kind():
    found = RayNode(id="1", host="h", labels={"ray.io/node-group": "workers"}, total=A100)
    assert kind_of(found) == "workers"


def test_what_is_free_is_reserved_up_to_the_share():
    found = node({**A100, "ssd": 2.0}, {**A100, "ssd": 2.0, "CPU": 6.5, "GPU": 1.5})
    assert reserved(found, Share()) == {"CPU": 6.5, "memory": 4 * 2**30, "GPU": 1, "ssd": 2.0}
    assert reserved(found, Share({"CPU": 2.0, "GPU": 0.0, "ssd": 1.0})) == {"CPU": 2.0, "memory": 4 * 2**30, "ssd": 1.0}


def test_a_node_whose_cpus_others_hold_is_left_alone():
    assert reserved(node(PLAIN, {"CPU": 0.0, "memory": 1e9}), Share()) == {}


def test_a_node_has_what_was_reserved_and_the_speed_of_its_label():
    found = node_of(node(A100, speed="0.5"), {"CPU": 6.0, "GPU": 2, "memory": 3 * 2**30})
    assert (found.name, found.kind, found.vcpus, found.memory_gb, found.speed) == (
        "worker7-12cd34ef",
        "a100",
        6,
        3,
        0.5,
    )
    assert [device.vgpus for device in found.devices] == [1.0, 1.0]
    assert node_of(node(PLAIN), {"CPU": 1.0}).memory_gb == inf


def test_a_speed_that_is_no_number_is_told():
    with pytest.raises(ValueError, match=r"fairlead\.io/speed must be a positive number; got 'fast'"):
        node_of(node(PLAIN, speed="fast"), {"CPU": 1.0})


def test_names_are_those_that_agents_may_have():
    assert name_of(RayNode(id="0123456789", host="10.0.0.7")) == "10.0.0.7-23456789"
