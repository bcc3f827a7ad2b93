"""What agents of Darly can do, and what moves together."""

import pytest
from darly_agents import GROUPS, NODES

from fairlead.policy.darly.actions import Act, action_space
from fairlead.policy.darly.groups import Group, counted, groups_of, parse_groups, replicas_of

VIDEO = ("framer", "detector", "analyzer", "recogniser", "uploader")


def test_fullmap_moves_every_group_to_every_node_then_scales_then_keeps():
    acts = action_space("fullmap", GROUPS, NODES)
    assert len(acts) == 15
    assert acts[0] == Act("move", "framer", "w01")
    assert acts[4] == Act("move", "detector", "w01")
    assert acts[11] == Act("move", "models", "w04")
    assert acts[12:] == (Act("out", "models"), Act("in", "models"), Act("keep"))


def test_custom_leaves_the_models_node_to_a_rule():
    acts = action_space("custom", GROUPS, NODES)
    assert len(acts) == 12
    assert acts[7] == Act("move", "detector", "w04")
    assert acts[8] == Act("move", "models", None)
    assert acts[9:] == (Act("out", "models"), Act("in", "models"), Act("keep"))


@pytest.mark.parametrize("scheduler", ["kubernetes", "oracle"])
def test_the_other_two_leave_every_node_to_a_rule_and_do_not_scale(scheduler):
    assert action_space(scheduler, GROUPS, NODES) == (
        Act("move", "framer"),
        Act("move", "detector"),
        Act("move", "models"),
        Act("keep"),
    )


def test_no_action_is_listed_twice_on_other_clusters():
    acts = action_space("fullmap", ("a", "b"), ("x", "y", "z"))
    assert len(acts) == 2 * 3 + 3
    assert len(set(acts)) == len(acts)


def test_an_action_space_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one group"):
        action_space("oracle", (), NODES)


def test_an_action_reads_as_what_it_does():
    shown = [
        str(act) for act in (Act("move", "framer", "w02"), Act("move", "models"), Act("out", "models"), Act("keep"))
    ]
    assert shown == ["move framer to w02", "move models", "models out", "keep"]


def test_the_video_workflow_has_three_groups_and_the_uploader_follows_the_models():
    assert groups_of(VIDEO, {}) == (
        Group("framer", ("framer",)),
        Group("detector", ("detector",)),
        Group("models", ("analyzer", "recogniser"), ("uploader",)),
    )


def test_of_another_workflow_each_function_is_a_group_and_the_last_one_follows():
    assert groups_of(("fetch", "detect", "label"), {}) == (
        Group("fetch", ("fetch",)),
        Group("detect", ("detect",), ("label",)),
    )
    assert groups_of(("only",), {}) == (Group("only", ("only",)),)


def test_groups_are_read_from_text():
    named = parse_groups(" one = a ; two=b, c ")
    assert named == {"one": ("a",), "two": ("b", "c")}
    assert groups_of(("a", "b", "c", "d"), named)[-1] == Group("two", ("b", "c"), ("d",))
    assert parse_groups("") == {}


@pytest.mark.parametrize("text", ["framer", "=a", "one=", "one=a,,b", "one=a;one=b", "one=a;two=a"])
def test_groups_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match="groups must"):
        parse_groups(text)


def test_groups_of_unknown_functions_are_refused():
    with pytest.raises(ValueError, match="the function 'b'; there are a"):
        groups_of(("a",), {"one": ("b",)})


@pytest.mark.parametrize(("replicas", "expected"), [(1, 3), (2, 5), (4, 9)])
def test_replicas_are_those_of_the_detector_and_twice_those_of_the_models(replicas, expected):
    assert replicas_of(groups_of(VIDEO, {}), replicas) == expected


def test_the_most_replicas_of_the_video_workflow_are_twelve():
    assert 4 * counted(groups_of(VIDEO, {})) == 12
    assert counted(groups_of(("only",), {})) == 1
