"""DagAdmission: branches, maps, joins and copies are planned in full, and what is not needed is given back."""

import pytest
from admission_runs import column, run, runs
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model import SLO, Stage, Workflow
from fairlead.policy.dag_admission.tasks import tasks_of
from fairlead.profile import Row, Table
from fairlead.testing import check_accounts, check_capacity, check_order, cluster, declared, scenario
from fairlead.workload import Listed

ONE = cluster(vcpus=1)


def flow(*stages, latency_s=99.0, name="main"):
    return Workflow(name=name, stages=stages, slo=SLO(latency_s=latency_s))


def branch(probability, latency_s=99.0):
    """A tenth of a second, then with some probability two seconds more."""
    return flow(
        Stage(name="look", function="short"),
        Stage(name="work", function="long", after=("look",), when=probability),
        latency_s=latency_s,
    )


SHORT_AND_LONG = {"short": declared(0.1), "long": declared(2.0)}


def test_both_arms_of_a_branch_are_planned():
    stages = (
        Stage(name="look", function="short"),
        Stage(name="left", function="long", after=("look",), when=0.5),
        Stage(name="right", function="long", after=("look",), when=0.5),
    )
    world = scenario(SHORT_AND_LONG, workflows={"main": flow(*stages)}, on=ONE)
    recording = run(world, slack=0)
    assert column(recording, "promised") == [4.1]
    assert column(recording, "end") == [2.1]  # it took only one of them


@pytest.mark.parametrize(("probability", "promised"), [(0.0, 1.2), (1.0, 3.1)])
def test_an_arm_that_is_not_taken_is_given_back(probability, promised):
    # The first may need the vCPU until 2.1. A second that comes at 0.2 has it at once if the arm was not taken.
    world = scenario(
        {**SHORT_AND_LONG, "one": declared(1.0)},
        workflows={"main": branch(probability), "other": flow(Stage(name="one", function="one"), name="other")},
        arrivals=(0.0, Listed("other", (0.2,))),
        on=ONE,
    )
    assert column(run(world, slack=0), "promised") == pytest.approx([2.1, promised])


def test_before_that_is_known_the_room_of_the_arm_is_taken():
    world = scenario(
        {**SHORT_AND_LONG, "one": declared(1.0)},
        workflows={"main": branch(0.0), "other": flow(Stage(name="one", function="one"), name="other")},
        arrivals=(0.0, Listed("other", (0.05,))),
        on=ONE,
    )
    recording = run(world, slack=0)
    assert column(recording, "promised")[1] == pytest.approx(3.1)
    assert column(recording, "end")[1] == pytest.approx(1.1)  # it begins sooner once the arm is given back


def test_what_only_an_arm_leads_to_is_given_back_with_it():
    stages = (
        Stage(name="look", function="short"),
        Stage(name="arm", function="long", after=("look",), when=0.0),
        Stage(name="then", function="long", after=("arm",)),
    )
    world = scenario(
        {**SHORT_AND_LONG, "one": declared(1.0)},
        workflows={"main": flow(*stages), "other": flow(Stage(name="one", function="one"), name="other")},
        arrivals=(0.0, Listed("other", (0.2,))),
        on=ONE,
    )
    assert column(run(world, slack=0), "promised") == pytest.approx([4.1, 1.2])


def mapped(most, latency_s=99.0):
    return flow(
        Stage(name="split", function="short"),
        Stage(name="each", function="one", after=("split",), map=(1, most)),
        Stage(name="gather", function="short", after=("each",), join=True),
        latency_s=latency_s,
    )


def test_a_map_is_planned_with_its_greatest_number_of_items():
    world = scenario({"short": 0.1, "one": 1.0}, workflows={"main": mapped(3)}, on=ONE)
    assert column(run(world, slack=0), "promised") == pytest.approx([3.2])


def test_items_that_do_not_come_are_given_back():
    # Whatever the number of items k, once it is known (at 0.1) the vCPU is free from 0.1 + k + 0.1 on.
    world = scenario(
        {"short": 0.1, "one": 1.0},
        workflows={"main": mapped(3), "other": flow(Stage(name="f", function="short"), name="other")},
        arrivals=(0.0, Listed("other", (0.5,))),
        on=ONE,
    )
    for seed in range(8):
        recording = run(world, slack=0, seed=seed)
        items = sum(stage == "each" for (stage,) in runs(recording, "stage"))
        # At 0.5 the join is still booked for 3.1: the gap before it is what was given back.
        expected = 3.3 if items == 3 else 0.1 + items + 0.1
        assert column(recording, "promised")[1] == pytest.approx(expected)


def test_a_join_waits_for_every_item_and_is_planned_so():
    world = scenario({"short": 0.1, "one": 1.0}, workflows={"main": mapped(3)}, on=cluster(vcpus=4))
    assert column(run(world, slack=0), "promised") == pytest.approx([1.2])


def test_copies_that_lost_are_given_back():
    # Two copies race on one vCPU: the first wins at 1, so what comes at 1.5 need not wait for the second until 2.
    race = flow(Stage(name="race", function="one", compete=2))
    world = scenario({"one": 1.0}, workflows={"main": race}, arrivals=(0.0, 1.5), on=ONE)
    recording = run(world, slack=0)
    assert column(recording, "promised") == [2, 3.5]
    assert column(recording, "end") == [1, 2.5]


def test_a_copy_that_loses_while_its_instance_starts_holds_its_room_until_that_is_ready():
    # Two vCPUs, one of them busy until 1. One copy starts at 0.1 and wins at 2.6; the other started at 1, and its
    # instance cannot be stopped before it is ready at 3. Who comes at 2.7 for both vCPUs is promised 4, not 3.7.
    functions = {
        "one": declared(1.0),
        "race": declared(0.5, cold_start_s=2, keep_alive_s=0),
        "both": declared(Table((Row(vcpus=2, seconds=1),))),
    }
    flows = {
        "main": flow(Stage(name="one", function="one")),
        "race": flow(Stage(name="race", function="race", compete=2), name="race"),
        "both": flow(Stage(name="both", function="both"), name="both"),
    }
    arrivals = (0.0, Listed("race", (0.1,)), Listed("both", (2.7,)))
    recording = run(scenario(functions, workflows=flows, arrivals=arrivals, on=cluster(vcpus=2)), slack=0)
    assert column(recording, "promised") == [1, 3.5, 4]
    assert column(recording, "end") == [1, 2.6, 4]


def test_tasks_are_every_item_and_copy():
    stages = (
        Stage(name="split", function="f"),
        Stage(name="each", function="f", after=("split",), map=(1, 3), compete=2),
        Stage(name="gather", function="f", after=("each",), join=True),
    )
    world = scenario(1.0)
    tasks = tasks_of(flow(*stages), world.functions)
    assert [task.key for task in tasks] == [
        ("split", 0, 0),
        *(("each", item, copy) for item in range(3) for copy in range(2)),
        ("gather", 0, 0),
    ]
    assert tasks[-1].after == (1, 2, 3, 4, 5, 6)
    assert tasks[0].then == (1, 2, 3, 4, 5, 6)


@given(
    probability=st.sampled_from([0.0, 0.3, 1.0]),
    most=st.integers(1, 3),
    copies=st.integers(1, 2),
    vcpus=st.integers(1, 3),
    seed=st.integers(0, 5),
)
@settings(max_examples=25, deadline=None)
def test_all_shapes_together_keep_their_promises(probability, most, copies, vcpus, seed):
    stages = (
        Stage(name="a", function="f"),
        Stage(name="b", function="g", after=("a",), when=probability),
        Stage(name="c", function="g", after=("a",), map=(1, most), compete=copies),
        Stage(name="d", function="f", after=("b", "c"), join=True),
    )
    world = scenario(
        {"f": declared(0.2, cold_start_s=0.1), "g": declared(0.3)},
        workflows={"main": flow(*stages, latency_s=4)},
        arrivals=[i * 0.4 for i in range(12)],
        on=cluster(vcpus=vcpus),
    )
    recording = run(world, seed=seed)
    for row in recording.requests.iter_rows(named=True):
        assert row["outcome"] == "rejected" or row["end"] <= row["promised"] * (1 + 1e-9)
    check_capacity(recording, world)
    check_order(recording, world)
    check_accounts(recording)
